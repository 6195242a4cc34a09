"""One head in the browser: what is drawn and what is said are the weights of the Python API."""

from __future__ import annotations

import re

import numpy as np
import pytest

from explorer.browser.conftest import LONG, SPIKE, choose

RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
LINEAR = "scale=linear&range=one"


def number(text: str) -> float:
    """A number as the page writes it: 3.1·10⁻⁵."""
    return float(text.replace("−", "-").replace("·10", "e").translate(RAISED))


def shown_weight(page, query: int, key: int) -> float:
    """The exact weight that the page tells of a pair under the pointer."""
    panel = page.get_by_label("The pair under the pointer")
    panel.get_by_text(f"query {query}", exact=True).wait_for()
    panel.get_by_text(f"key {key}", exact=True).wait_for()
    page.wait_for_selector("[data-weight]")
    return float(panel.locator("[data-weight]").get_attribute("data-weight"))


@pytest.mark.parametrize("call, head, size", [(0, 4, (37, 37)), (1, 1, (37, 23))])
def test_every_pixel_is_the_weight_that_the_legend_says(visit, map_of, record, call, head, size):
    weights = record[call].weights(head).numpy()
    with visit(f"#/head?record=r1&call={call}&head={head}&{LINEAR}") as page:
        drawn = map_of(page)
        pixels = drawn.pixels()
        places = [[drawn.point(query, key, size) for key in range(size[1])] for query in range(size[0])]
        colors = np.array([[pixels[y, x] for x, y in row] for row in places])
        shades = drawn.shades(colors) / 255
        masked = np.triu(np.ones(size, dtype=bool), 1) if call == 0 else np.zeros(size, dtype=bool)
        assert (np.isnan(shades) == masked).all()
        # Half a step of the legend, and what float16 logarithms lose.
        wanted = weights[~masked]
        assert (np.abs(shades[~masked] - wanted) <= 1.6 / 255 + 0.004 * wanted).all()
        assert shades[~masked].max() > 0.3


def test_the_value_under_the_pointer_is_the_weight(visit, map_of, record):
    weights = record[0].weights(2).numpy()
    with visit("#/head?record=r1&call=0&head=2") as page:
        drawn = map_of(page)
        for query, key in [(0, 0), (36, 0), (36, 36), (17, 5), (23, 11)]:
            drawn.hover(*drawn.point(query, key, (37, 37)))
            assert shown_weight(page, query, key) == pytest.approx(weights[query, key], rel=1e-6)
        drawn.hover(*drawn.point(3, 30, (37, 37)))
        page.get_by_text("masked", exact=True).first.wait_for()


def test_a_lone_weight_is_seen_at_every_level_and_is_exact_at_the_last(visit, map_of, long_record, shot):
    row, column = SPIKE
    truth = float(long_record[0].weights(1, slice(row, row + 1), slice(column, column + 1)))
    assert truth == pytest.approx(0.5, abs=0.02)
    with visit(f"#/head?record=r2&call=0&head=1&{LINEAR}") as page:
        drawn = map_of(page)
        x, y = drawn.point(row, column, (LONG, LONG))
        box = drawn.box
        for level in range(40):
            pixels = drawn.pixels()
            shades = drawn.shades(pixels)
            # The spike alone is this dark: nothing else of the map passes a tenth.
            dark = np.argwhere(np.nan_to_num(shades) > 100)
            assert len(dark), f"lost at step {level}"
            assert np.nanmax(shades) / 255 == pytest.approx(truth, abs=0.01)
            middle = dark.mean(0)
            drawn.hover(middle[1], middle[0])
            side = np.ptp(dark[:, 0]) + 1
            if level == 3:
                shot(page, "head-between")
            if side > 40:
                break
            for _ in range(2):
                page.mouse.wheel(0, -120)
                page.wait_for_timeout(30)
            drawn.wait()
        assert side > 40 and 0 <= x <= box["width"] and 0 <= y <= box["height"]
        assert shown_weight(page, row, column) == pytest.approx(truth, rel=1e-6)
        shot(page, "head-one-weight")


def test_colors_change_without_asking_for_tiles_again(visit, map_of):
    with visit("#/head?record=r2&call=0&head=0") as page:
        drawn = map_of(page)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/tiles/" in request.url else None)
        pictures = [drawn.pixels()]
        for scale in ("linear", "log", "rank"):
            choose(page, "Scale", scale)
            drawn.wait()
            pictures.append(drawn.pixels())
        assert asked == []
        for place, picture in enumerate(pictures):
            assert not any((picture == other).all() for other in pictures[:place])
        # By rank, as many cells lie above the middle of the legend as below it.
        shades = drawn.shades(pictures[-1])
        assert np.nanmean(shades[~np.isnan(shades)] > 127.5) == pytest.approx(0.5, abs=0.06)


def test_the_address_keeps_the_state(visit, map_of):
    with visit("#/head?record=r2&call=0&head=1") as page:
        drawn = map_of(page)
        box = drawn.box
        drawn.hover(box["width"] / 2, box["height"] / 2)
        for _ in range(6):
            page.mouse.wheel(0, -120)
            page.wait_for_timeout(40)
        drawn.wait()
        choose(page, "Cells", "mean")
        page.mouse.click(box["x"] + 200, box["y"] + 200)
        drawn.wait()
        page.wait_for_timeout(300)
        before, pixels = page.url, drawn.pixels()
        for part in ("view=", "pool=mean", "query=", "key="):
            assert part in before
        page.reload()
        again = map_of(page)
        assert page.url == before
        # The address rounds the view: an edge between two cells may fall on the next pixel.
        moved = [np.roll(again.pixels(), (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)]
        assert np.any([(picture == pixels).all(-1) for picture in moved], axis=0).mean() > 0.995
        held = int(re.search(r"query=(\d+)", before).group(1))
        page.get_by_text(
            f"query {held:,}".replace(",", "\u2009") if held > 9999 else f"query {held}"
        ).first.wait_for()


def test_everything_by_keyboard(visit, map_of, record):
    weights = record[0].weights(1).numpy()
    with visit("#/head?record=r1&call=0&head=1") as page:
        drawn = map_of(page)
        page.locator(".openseadragon-canvas").focus()
        for _ in range(4):
            page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowDown")
        assert shown_weight(page, 19, 14) == pytest.approx(weights[19, 14], rel=1e-6)
        page.keyboard.press("Enter")
        page.keyboard.press("+")
        drawn.wait()
        page.wait_for_timeout(300)
        assert "query=19" in page.url and "key=14" in page.url and "view=" in page.url
        page.keyboard.press("0")
        page.keyboard.press("Escape")
        page.keyboard.press("]")
        page.wait_for_timeout(400)
        assert page.url.endswith("#/head?record=r1&head=2")


# Two heads of another size than the one before, the second chosen before the first has come.
TWO_STEPS = """async hashes => {
  for (const hash of hashes) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
    await null;
    await null;
  }
}"""


def test_a_map_that_was_left_before_it_came_says_nothing_of_the_view(visit, map_of, record):
    weights = record[1].weights(1).numpy()
    with visit("#/head?record=r1&call=0&head=1") as page:
        map_of(page)
        page.evaluate(TWO_STEPS, [f"#/head?record=r1&call=1&head={head}" for head in (0, 1)])
        drawn = map_of(page)
        for query, key in [(0, 0), (36, 22), (18, 11)]:
            drawn.hover(*drawn.point(query, key, (37, 23)))
            assert shown_weight(page, query, key) == pytest.approx(weights[query, key], rel=1e-5)


def test_the_largest_weights_off_the_diagonal_lead_to_their_place(visit, map_of):
    with visit("#/head?record=r2&call=0&head=0") as page:
        drawn = map_of(page)
        page.get_by_text("Largest weights off the diagonal").click()
        first = page.get_by_label("Largest weights, the largest first").locator("button").first
        first.wait_for()
        assert float(first.locator("b").inner_text()) == pytest.approx(0.5, abs=0.02)
        first.click()
        drawn.wait()
        page.wait_for_timeout(300)
        assert f"query={SPIKE[0]}" in page.url and f"key={SPIKE[1]}" in page.url
        assert shown_weight(page, *SPIKE) == pytest.approx(0.5, abs=0.02)


def test_the_text_is_colored_by_what_a_token_attends_to(visit, map_of, record):
    weights = record[0].weights(3).numpy()
    with visit("#/head?record=r1&call=0&head=3&query=20") as page:
        map_of(page)
        tokens = page.get_by_label("Text, colored by what it attends to").locator("button")
        assert tokens.count() == 37
        page.wait_for_function("() => document.querySelector('.block button[title*=weight]')")
        for place in (0, 7, 20):
            said = tokens.nth(place).get_attribute("title")
            assert number(said.split("weight ")[1]) == pytest.approx(weights[20, place], rel=0.01)
        choose(page, "colored by", "to")
        page.get_by_label("Text, colored by who attends to it").locator("button").nth(5).click()
        page.wait_for_timeout(500)
        said = page.get_by_label("Text, colored by who attends to it").locator("button").nth(30)
        assert number(said.get_attribute("title").split("weight ")[1]) == pytest.approx(
            weights[30, 5], rel=0.01
        )


def test_lines_join_tokens(visit, record):
    weights = record[1].weights(0).numpy()
    with visit("#/head?record=r1&call=1&head=0&panel=lines") as page:
        page.get_by_label("Queries", exact=True).wait_for()
        lines = page.locator(".drawing line")
        # At most sixteen of each query are drawn, and none below a hundredth.
        wanted = sum(min(16, int((row >= 0.01).sum())) for row in weights)
        assert lines.count() == wanted
        page.get_by_label("Keys", exact=True).locator("button").nth(4).hover()
        opacities = [
            float(value) for value in lines.evaluate_all("all => all.map(one => one.getAttribute('opacity'))")
        ]
        assert sum(value > 0.05 for value in opacities) < wanted / 4


def test_panning_moves_the_view_and_its_address(visit, map_of):
    with visit("#/head?record=r2&call=0&head=0") as page:
        drawn = map_of(page)
        box = drawn.box
        drawn.hover(box["width"] / 2, box["height"] / 2)
        for _ in range(5):
            page.mouse.wheel(0, -120)
        drawn.wait()
        start = page.evaluate("location.hash")
        page.mouse.down()
        for step in range(40):
            drawn.hover(box["width"] / 2 + 4 * step, box["height"] / 2 + 3 * step)
        page.mouse.up()
        page.wait_for_function("old => location.hash !== old", arg=start)
