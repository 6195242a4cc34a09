"""The page of a profile: whole without a script, true to the profile, and it says what failed."""

import pytest
import torch

import regard as rg
from draw.test_profiles import a_profile
from page.reading import parse
from regard.errors import ArgumentError, RecordError
from regard.page import profile
from regard.record import Profile
from regard.record.profile import Failure


@pytest.fixture(scope="module")
def small():
    failures = (Failure(3, "ValueError", "<b>bad</b> & worse"),)
    seen = a_profile().merge(Profile(failures=failures, truncated=2))
    return seen, profile(seen, title="Two <texts>")


def test_it_is_whole_and_needs_no_script(small):
    page = parse(small[1])
    assert page.faults == []
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags and tags.count("img") >= 3
    for tag, attributes in page.tags:
        assert (attributes.get("src") or attributes.get("href") or "data:").startswith("data:"), (
            tag,
            attributes,
        )
        assert "style" not in attributes
    assert page.texts["<title>"] == page.texts["<h1>"] == "Two <texts>"
    assert len(small[1]) < 1_000_000


def test_it_has_each_head_with_its_interval_and_each_failure(small):
    seen, html = small
    body = html.split("<tbody>")[1].split("</tbody>")[0]
    assert body.count("<tr>") == 12
    intervals = seen.intervals()
    row = intervals[(intervals["statistic"] == "entropy_fraction") & (intervals["head"] == 5)].iloc[0]
    said = "{:.3g}<br><small>{:.3g} – {:.3g}</small>".format(row["mean"], row["low"], row["high"])
    assert said in body
    assert "&lt;b&gt;bad&lt;/b&gt; &amp; worse" in html and "2 texts of too many tokens" in html.replace(
        "\u202f", " "
    )


def test_it_has_the_role_of_each_head_with_score_and_interval_in_table_and_maps():
    layer = rg.nn.MultiHeadAttention(24, 3)
    batches = [{"x": torch.randn(1, length, 24), "mask": rg.near(1, 0)} for length in (17, 23, 29)]
    seen = rg.survey(layer, batches)
    html = profile(seen, title="roles")
    body = html.split("<tbody>")[1].split("</tbody>")[0]
    for row in rg.analysis.roles(seen).itertuples():
        assert f"<td>{row.role} {row.score:.2f} ({row.low:.2f}–{row.high:.2f})</td>" in body
        # The figure's words stand in its alternative text.
        assert row.role in html.split("The maps of every head")[1]
    left_out = ", ".join(rg.analysis.roles(seen).attrs["not_judged"])
    assert "induction" in left_out and f"Not judged, for want of their statistics: {left_out}." in html
    assert parse(html).faults == []


def test_without_statistics_that_tell_roles_it_says_so(small):
    assert "Roles are not told" in small[1] and "<th>role</th>" not in small[1]


def test_what_cannot_be_shown_is_said():
    with pytest.raises(RecordError, match="must have at least one layer to show"):
        profile(Profile(), title="none")
    with pytest.raises(ArgumentError, match="confidence must be below 1, got 2"):
        profile(a_profile(), title="a", confidence=2)
