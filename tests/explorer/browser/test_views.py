"""The other views: the overview, heads side by side, the playground, runs, and what all of them owe to everybody."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.browser.conftest import choose, decoded, legend, shades
from helpers import looked
from regard.web.playground import PlaygroundState, answer

VIEWS = {
    "model": "#/model?record=r1&color=entropy",
    "head": "#/head?record=r1&call=0&head=3&query=20&key=4",
    "lines": "#/head?record=r1&call=1&head=0&panel=lines",
    "compare": "#/compare?record=r1&heads=0.1 0.2 1.0",
    "playground": "#/playground",
}


def ready(page, name: str) -> None:
    """Wait until a view is drawn."""
    page.wait_for_selector(
        {"model": "a.tile canvas", "lines": ".drawing line", "playground": ".sentences"}.get(
            name, ".pane[data-state=ready]"
        )
    )
    page.wait_for_timeout(400)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("look", looked.LOOKS)
def test_views_have_no_fault_and_fit_the_screen(visit, shot, name, look):
    with visit(VIEWS[name], **looked.LOOKS[look]) as page:
        ready(page, name)
        shot(page, f"{name}-{look}")
        looked.check(page)


def test_the_overview_shows_every_head_and_leads_to_it(visit, record):
    with visit("#/model?record=r1") as page:
        ready(page, "model")
        tiles = page.locator("a.tile")
        assert tiles.count() == sum(call.sizes.heads for call in record)
        assert [title.inner_text() for title in page.locator("section h3").all()] == [
            "Encoder",
            "Cross-attention",
        ] or (page.locator("section h3").count() == 2)
        tiles.first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector(".pane[data-state=ready]")
        assert "head=2" in page.url
        page.go_back()
        assert "#/model" in page.url and page.locator("a.tile").count() == tiles.count()


def test_the_overview_is_sorted_and_colored_by_what_one_chooses(visit, record):
    entropy = np.concatenate([call.entropy.mean((0, 2)).numpy() for call in record])
    with visit("#/model?record=r1") as page:
        ready(page, "model")
        choose(page, "Color", "entropy")
        choose(page, "Sort", "entropy")
        page.wait_for_timeout(200)
        said = [float(text) for text in page.locator(".chip > span").all_inner_texts()]
        sections = [said[:6], said[6:]] if len(record[0].entropy[0]) == 6 else [said]
        for part in sections:
            assert part == sorted(part, reverse=True)
        assert sorted(said) == pytest.approx(sorted(entropy.tolist()), rel=0.05)


def test_pixels_of_the_overview_are_weights(visit, record):
    weights = record[1].weights(1).numpy()
    with visit("#/model?record=r1&scale=linear&range=one") as page:
        ready(page, "model")
        canvas = page.locator("a.tile").last.locator("canvas")
        colors = decoded(canvas.evaluate("canvas => canvas.toDataURL()"))
        drawn, height = shades(colors, legend(page)) / 255, len(colors)
        # Cells are as many tokens as the kept map has; the largest weight of each is drawn.
        cell = -(-weights.shape[0] // height)
        rows = [weights[row : row + cell] for row in range(0, weights.shape[0], cell)]
        pooled = np.array(
            [[part[:, key : key + cell].max() for key in range(0, weights.shape[1], cell)] for part in rows]
        )
        assert pooled.shape == drawn.shape
        assert np.abs(drawn - pooled).max() <= 2.5 / 255


def test_heads_side_by_side_move_together(visit, map_of, record):
    with visit("#/compare?record=r2&heads=0.0 0.1") as page:
        left, right = map_of(page, 0), map_of(page, 1)
        box = left.box
        left.hover(box["width"] / 3, box["height"] / 3)
        for _ in range(8):
            page.mouse.wheel(0, -120)
            page.wait_for_timeout(40)
        left.wait()
        right.wait()
        assert "view=" in page.url
        left.hover(150, 150)
        page.wait_for_timeout(300)
        said = page.get_by_label("The pair under the pointer").all_inner_texts()
        places = [[line for line in text.splitlines() if line.startswith(("query", "key"))] for text in said]
        assert places[0] == places[1] and len(places[0]) == 2
        # And the other way, from the right one.
        before = page.url
        right.hover(150, 150)
        page.mouse.wheel(0, 120)
        left.wait()
        page.wait_for_timeout(300)
        assert page.url != before


def test_a_run_makes_a_record_and_is_canceled(visit, record, tmp_path):
    record.save(tmp_path / "again")
    with visit("#/model") as page:
        page.get_by_label("Text").fill("slow")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Run").wait_for()
        page.get_by_label("Text").fill(f"copy {tmp_path / 'again'}")
        page.get_by_role("button", name="Run").click()
        page.wait_for_url("**record=**")
        page.wait_for_selector("a.tile canvas")
        page.get_by_label("Text").fill("crash now")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("alert").filter(has_text="crashed").wait_for()


def test_the_playground_shows_the_answer_and_its_link_reproduces_it(visit):
    with visit("#/playground") as page:
        ready(page, "playground")
        page.get_by_label("Attention").select_option("window")
        page.get_by_label("Temperature").fill("0.5")
        page.get_by_label("Seed").fill("7")
        page.wait_for_timeout(600)
        assert all(part in page.url for part in ("play.kind=window", "play.seed=7", "play.temperature=3.16"))
        shown = answer(PlaygroundState(kind="window", temperature=3.16, seed=7))
        assert " ".join(shown.info["sentences"][:1]) in page.locator(".sentences").inner_text()
        for name in (page.url, None):
            if name is None:
                page.reload()
                ready(page, "playground")
            box = page.locator(".map .pane").bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.7)
            page.wait_for_timeout(200)
            said = page.locator("[data-weight]")
            query, key = (int(text) for text in _places(page.locator(".bar .hint").first.inner_text()))
            weight = float(shown.arrays["weights"][0, query, key])
            assert float(said.get_attribute("data-weight")) == pytest.approx(weight, rel=1e-6, abs=1e-12)


def _places(text: str) -> list[str]:
    return [part.split(")")[0] for part in text.split("(")[1:3]]


def test_what_the_server_refuses_is_said_and_asked_again(visit):
    # A refusal is a line in the browser's console, too.
    with visit("#/model?record=r1", quiet=False) as page:
        ready(page, "model")
        page.evaluate("location.hash = '#/model?record=r9'")
        page.get_by_role("alert").filter(has_text="r9").wait_for()
        page.route("**/api/**", lambda route: route.abort())
        page.evaluate("location.hash = '#/model?record=r2'")
        page.get_by_role("alert").filter(has_text="does not answer").wait_for()
        page.unroute("**/api/**")
        page.get_by_role("button", name="Try again").click()
        page.locator("a.tile").first.wait_for()
