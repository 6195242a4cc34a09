"""The page of a history: whole without a script, true to the history, small, and readable at every width."""

import re
from dataclasses import replace
from html import unescape
from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draw.test_history import a_history
from helpers.histories import random_history
from page import samples
from page.reading import parse
from page.test_figures import as_gray, pictures
from regard import draw
from regard.errors import RecordError
from regard.page import Part, embed, histories, history
from regard.page.changes import SHARPNESS, changes, largest
from regard.page.history import drawings
from regard.record.history import History, Layer

LOSS = {1: 5.0, 7: 3.25, 13: 0.125}
NAMES = ("entropy", "distance", "previous", "received", "entropy_fraction", "max_weight")


@pytest.fixture(scope="module")
def small():
    """A history of two layers of three heads, and its page."""
    own = a_history(statistics=NAMES)
    return own, history(own, title="reversing words", loss=LOSS)


def strips(html):
    """For each head in order: what its map is said to be, and its caption."""
    return re.findall(r'alt="(Maps of [^"]*)"><figcaption>(.*?)</figcaption>', html)


def test_it_is_whole_and_needs_no_script(small):
    page = parse(small[1])
    assert page.faults == []
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags and "link" in tags and {"img", "details", "figure"} <= set(tags)
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert (
        "default-src 'none'; img-src data:;" in policy
        and "script-src" not in policy
        and "unsafe" not in policy
    )
    assert page.texts["<title>"] == page.texts["<h1>"] == "reversing words"
    assert all(attributes["alt"] for tag, attributes in page.tags if tag == "img")


def test_it_says_what_was_trained(small):
    own, html = small
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html))
    assert facts == {
        "Heads": "2 layers × 3 heads",
        "Training": f"steps {own.steps[0]} to {own.steps[-1]}",
        "Looked at": "13 times",
        "Maps": "at 5 of these steps",
    }
    assert f"6 heads came to be, from step 1 to step {own.steps[-1]} of training" in html
    begun = replace(own, steps=(0, *own.steps[1:]), pictured=(0, *own.pictured[1:]))
    assert "from before the first update to" in history(begun, title="")


def test_the_loss_is_there_if_it_is_known(small):
    own, html = small
    assert "From 5 at step 1 to 0.125 at step 13." in html
    without = history(own, title="")
    assert "What the model learned" in html and "What the model learned" not in without
    assert (
        len(pictures(html))
        == len(pictures(without)) + 1
        == len(pictures(history(own, title="", loss={}))) + 1
    )
    assert "From 0 at step 0 to -2 at step 3." in history(own, title="", loss={3: -2.0, 0: 0.0})


def test_each_statistic_has_its_fold(small):
    own, html = small
    folds = re.findall(
        r"<details><summary><b>(.*?)</b> (.*?)</summary>.*?<figcaption>(.*?)</figcaption>", html
    )
    assert [title for title, *_ in folds[:5]] == ["entropy", "distance", "previous", "received", "max weight"]
    assert folds[2][1] == "Share that goes to the token just before."
    for (_, _, caption), name in zip(folds, ("entropy", "distance", "previous"), strict=False):
        values = own.of_statistic(name).numpy()
        most = int(np.abs(values[-1] - values[0]).argmax())
        first, last = values[0, most], values[-1, most]
        assert caption == (
            f"Changed most: layer {most // 3}, head {most % 3}, from {first:.2f} to {last:.2f}."
        )


def test_each_head_has_its_maps(small):
    own, html = small
    found = strips(html)
    entropy, steps = own.of_statistic("entropy_fraction").numpy(), ", ".join(map(str, own.pictured))
    previous = own.of_statistic("previous").numpy()
    assert found == [
        (
            f"Maps of layer {i // 3}, head {i % 3}, at the steps {steps}",
            f"Head {i % 3}: entropy {entropy[0, i]:.2f} → {entropy[-1, i]:.2f}, "
            f"previous {previous[0, i]:.2f} → {previous[-1, i]:.2f}",
        )
        for i in range(6)
    ]
    opened = re.findall(r"<details( open|)><summary><b>(layer \d)</b> 3 heads", html)
    assert opened == [(" open", "layer 0"), ("", "layer 1")]


def test_its_pictures_are_those_of_draw(small):
    own, html = small
    for place, (_, content) in enumerate(pictures(html)[-6:]):
        truth = BytesIO()
        draw.strip(own, place // 3, place % 3, title="").savefig(truth, dpi=embed.SMALL)
        size = (701, 303)
        shown, wanted = as_gray(content, size), as_gray(truth.getvalue(), size)
        assert wanted.std() > 10 and np.abs(shown - wanted).mean() < 1


def test_the_roles_are_there_if_they_can_be_told():
    own = random_history(looks=7, layers=2, heads=3)
    html = history(own, title="")
    assert "What each head does" in html and "roles" in [name for name, _ in drawings(own)]
    (alt,) = re.findall(r"What each head does.*?alt=\"([^\"]*)", html)
    drawn = draw.roles(own, title="")
    assert unescape(alt) == embed.said(drawn) and "uniform: attends to all tokens alike" in alt
    assert pictures(html)[0] == pictures(embed.figure(drawn, ""))[0]
    for unkept in (
        replace(own, statistics=tuple(f"group.{name}" for name in own.statistics)),
        a_history(statistics=NAMES),
    ):
        without = history(unkept, title="")
        assert (
            "The history kept no roles, so it cannot be told what the heads did along the steps." in without
        )
        assert pictures(without) == pictures(
            re.sub("What each head does.*?</section>", "", without, flags=re.S)
        )
        assert "roles" not in [name for name, _ in drawings(unkept)]


def test_without_roles_along_the_steps_those_of_the_trained_model_are_shown():
    record = samples.watched()
    html = histories([Part("a task", a_history(statistics=NAMES), record=record)], title="")
    assert "The history kept no roles" in html and "this is the trained model alone" in html
    assert pictures(html)[0] == pictures(embed.figure(draw.roles(record, title=""), ""))[0]
    # Those along the steps say more.
    own = random_history(looks=7, layers=2, heads=3)
    assert histories([Part("", own, record=record)], title="") == history(own, title="")


def test_hostile_names_stay_text():
    own = a_history(layers=1, heads=2, pictures=1)
    evil = '</summary><script>alert(1)</script><img src=x onerror="alert(1)">'
    own = replace(own, layers=(replace(own.layers[0], name=evil),), statistics=("entropy", f"group.{evil}"))
    page = parse(history(own, title=f"@@lede@@{evil}"))
    assert page.faults == [] and page.texts["<h1>"] == f"@@lede@@{evil}"
    assert "script" not in {tag for tag, _ in page.tags}
    assert all(attributes["src"].startswith("data:") for tag, attributes in page.tags if tag == "img")


def test_several_histories_follow_each_other(small):
    own, alone = small
    html = histories(
        [Part("first", own, LOSS), Part("other", a_history(layers=1, heads=1, pictures=2))], title="both"
    )
    page = parse(html)
    assert page.faults == [] and page.texts["<h1>"] == "both"
    places = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert places == [f"#{a['id']}" for tag, a in page.tags if tag == "article"] and len(places) == 2
    assert re.findall(r'<article id="history-\d"><h2>(.*?)</h2>', html) == ["first", "other"]
    assert "7 heads came to be" in html and len(strips(html)) == 7
    assert pictures(html)[: len(pictures(alone))] == pictures(alone)


def test_what_was_not_kept_is_left_out():
    html = history(a_history(statistics=("previous",), pictures=0), title="")
    assert "How focused" not in html and strips(html) == [] and len(pictures(html)) == 1
    assert "The history has none: a monitor keeps them with cells=32." in html
    html = history(a_history(statistics=("entropy",)), title="")
    assert "More numbers" not in html and "How focused" in html
    assert re.match(r"Head 0: entropy \d\.\d\d → \d\.\d\d$", strips(html)[0][1])
    once = history(a_history(looks=1, pictures=1), title="")
    assert "Changed most" not in once and parse(once).faults == []


def test_an_empty_history_is_an_error():
    for wrong in ([], [Part("", History())], [Part("", a_history(pictures=0)), Part("", History())]):
        with pytest.raises(
            RecordError, match="must have one at least, each of at least one step and one layer, got"
        ):
            histories(wrong, title="")


@pytest.mark.timeout(600)
def test_the_page_of_48_heads_stays_below_6_megabytes():
    """The worst case: noise, which no PNG packs well."""
    statistics = (*NAMES, "first", "self_mass", "local", "received_share")
    own = a_history(looks=53, layers=6, heads=8, statistics=statistics, pictures=16)
    noise = tuple(torch.rand(16, 8, 32, 32).half() for _ in own.layers)
    layers = tuple(replace(layer, cell=4, queries=128, keys=128) for layer in own.layers)
    html = history(
        replace(own, maps=noise, layers=layers), title="noise", loss={i: 1 / i for i in range(1, 997)}
    )
    assert len(strips(html)) == 48 and len(html.encode()) < 6e6


def test_drawings_are_named_for_files():
    own = a_history(layers=1, heads=2, statistics=("entropy", "max_weight"), pictures=1)
    own = replace(own, layers=(replace(own.layers[0], name="../a b"),))
    assert [name for name, _ in drawings(own, LOSS)] == [
        "loss",
        "entropy",
        "max-weight",
        "0-.._a_b-head-0",
        "0-.._a_b-head-1",
    ]
    assert "loss" not in [name for name, _ in drawings(own)]


TOLD = {"self": ["previous"], "cross": []}


@given(st.data())
def test_the_largest_change_is_found(data):
    layers, heads, steps = (data.draw(st.integers(1, most)) for most in (3, 5, 4))
    kind = data.draw(st.sampled_from(("self", "cross")))
    names = data.draw(st.lists(st.sampled_from((*NAMES, "first", "group.verbs")), unique=True, min_size=1))
    number = st.one_of(st.floats(0, 1, width=32), st.just(float("nan")))
    size = steps * len(names) * layers * heads
    flat = data.draw(st.lists(number, min_size=size, max_size=size))
    own = History(
        tuple(Layer(f"h.{i}", kind, heads, 0, 0, 5, 5) for i in range(layers)),
        tuple(names),
        {},
        tuple(range(steps)),
        torch.tensor(flat).reshape(steps, len(names), -1),
    )
    table = own.table
    found = changes(own)
    assert [(each.layer, each.head) for each in found] == [
        (f"layer {layer}", head) for layer in range(layers) for head in range(heads)
    ]
    for each in found:
        rows = table[(table["layer"] == f"h.{each.layer.split()[1]}") & (table["head"] == each.head)]
        shares = [name for name in ("first", "group.verbs", *TOLD[kind]) if name in names]
        moved = {name: abs(rows[name].iloc[-1] - rows[name].iloc[0]) for name in shares}
        known = {name: value for name, value in moved.items() if not np.isnan(value)}
        assert not set(known) & set(SHARPNESS) and bool(each.name) == bool(known)
        if known:
            assert known[each.name] == max(known.values())
            assert each.share == (rows[each.name].iloc[0], rows[each.name].iloc[-1])
    for name in names:
        firsts, lasts = (table[table["step"] == step][name].to_numpy() for step in (0, steps - 1))
        moved = np.abs(lasts - firsts)
        most = largest(own, name)
        if kind == "cross" and name in ("distance", "previous"):
            assert most is None  # a query of cross attention has no place among the keys
            continue
        assert (most is None) == bool(np.isnan(moved).all())
        if most is not None:
            assert abs(most[2][1] - most[2][0]) == np.nanmax(moved)


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1300, "light")])
def test_a_browser_shows_all_of_it_within_its_width(opened, small, width, scheme):
    with opened(small[1], viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        assert page.locator("details[open]").count() == 1
        page.locator("summary").nth(2).click()
        assert page.locator("details[open]").count() == 2
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.wait_for_function("[...document.images].every((image) => image.complete)")
        shown = page.evaluate(
            "[...document.images].map((i) => [i.naturalWidth, i.getBoundingClientRect().right])"
        )
        assert all(natural > 0 and right <= width for natural, right in shown)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_in_the_dark_figures_are_dark(opened, small):
    light = {}
    for scheme in ("light", "dark"):
        with opened(small[1], color_scheme=scheme) as page:
            page.wait_for_function("[...document.images].every((image) => image.complete)")
            seen = page.locator(".drawn img").nth(1).screenshot()
            panel = page.locator(".panel").nth(1).evaluate("(one) => getComputedStyle(one).backgroundColor")
        light[scheme] = as_gray(seen, (211, 101))
        ground = np.mean([int(part) for part in re.findall(r"\d+", panel)[:3]])
        assert abs(np.median(light[scheme]) - ground) < 3  # the figure stands on the panel's own color
    assert np.corrcoef(light["light"].ravel(), light["dark"].ravel())[0, 1] < -0.8
