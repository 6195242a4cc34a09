"""The page of a diagnosis: whole without a script, true to its findings, and it says what was looked for."""

import pytest
import torch

import regard as rg
from helpers.ill_heads import Layer, Model, batches, noise, on_key
from page.reading import parse
from regard.analysis import diagnose, diagnose_model
from regard.analysis.diagnosis import RULES, Diagnosis
from regard.errors import RecordError
from regard.page import findings

N = 61


@pytest.fixture(scope="module")
def ill():
    torch.manual_seed(0)
    scores = torch.cat((on_key(N, 13), on_key(N, 0), torch.zeros(1, N, N), noise(1, N)))
    layers = [Layer(scores, rg.causal()), Layer(noise(4, N), rg.causal()), Layer(noise(4, N))]
    return diagnose_model(Model(*layers), batches())


def test_it_is_whole_and_needs_no_script(ill):
    html = findings(ill, title="Some <model>")
    page = parse(html)
    assert page.faults == []
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags and page.texts["<h1>"] == "Some <model>"
    # The grid, and a map for each finding.
    assert tags.count("img") == 1 + len(ill.findings)


def test_it_tells_each_rule_and_what_came_of_it(ill):
    html = findings(ill)
    for rule in RULES:
        mark = "–" if rule.name in ill.skipped else "✓"
        if any(finding.name == rule.name for finding in ill.findings):
            mark = "✗"
        assert f"<td>{mark} {rule.name}</td>" in html
    for name in ("Broken causality", "Collapse", "Vanishing", "Sink"):
        assert name in html


def test_a_healthy_model_has_a_page_that_says_what_was_looked_at():
    well = diagnose_model(Model(Layer(noise(2, N), rg.causal())), batches())
    html = findings(well)
    assert "Nothing was found" in html and html.count("<td>✓ ") == len(well.applied)


def test_a_profile_has_maps_too():
    profile = rg.survey(Model(Layer(torch.cat((on_key(N, 0), noise(1, N))), rg.causal())), batches())
    tags = [tag for tag, _ in parse(findings(diagnose(profile))).tags]
    assert tags.count("img") == 2


def test_a_diagnosis_of_nothing_has_no_page():
    with pytest.raises(RecordError, match="at least one head"):
        findings(Diagnosis())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_in_a_browser(opened, ill, scheme, tmp_path):
    with opened(findings(ill, title="Ill"), color_scheme=scheme) as page:
        assert page.locator("section.panel").count() == 2 + 4
        # Nothing is wider than the page.
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.screenshot(path=str(tmp_path / "findings.png"), full_page=True)
