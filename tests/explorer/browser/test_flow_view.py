"""The view of flows in a real browser: its numbers and pixels are those of `rollout`, its link keeps its state."""

from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from explorer.browser.conftest import choose, decoded
from helpers import looked
from helpers.explored import served
from regard.analysis.flow import rollout
from regard.explorer.opened import Opened
from regard.record import Record
from regard.web.tiles import RecordTiles


def ready(page) -> None:
    """Wait until all grids and the table are drawn."""
    for grid in page.locator(".grid[data-state]").all():
        expect(grid).to_have_attribute("data-state", "ready", timeout=60_000)
    page.locator("aside td[data-share]").first.wait_for()
    page.wait_for_timeout(300)


def numbers(page, attribute: str) -> list[float]:
    cells = page.locator(f"aside td[{attribute}]")
    return [float(cell.get_attribute(attribute)) for cell in cells.all()]


@pytest.mark.parametrize("look", looked.LOOKS)
def test_it_has_no_fault_and_fits_the_screen(visit, shot, look):
    with visit("#/flow?record=r1&query=30&measure=times", **looked.LOOKS[look]) as page:
        ready(page)
        shot(page, f"flow-{look}")
        looked.check(page)


def test_the_table_the_pointer_and_the_text_say_the_shares(visit, record):
    result = rollout(record, 30)
    with visit("#/flow?record=r1&query=30") as page:
        ready(page)
        row = result.shares[0, 0]
        assert numbers(page, "data-share") == pytest.approx(row.topk(14).values.tolist(), rel=1e-6)
        box = page.get_by_role("application").first.bounding_box()
        # Row 1, after the first layer, token 12 of 37.
        page.mouse.move(box["x"] + box["width"] * 12.5 / 37, box["y"] + box["height"] * 1.5 / 3)
        shown = page.locator(".readout b[data-share]").first
        assert float(shown.get_attribute("data-share")) == pytest.approx(
            float(result.shares[0, 1, 12]), rel=1e-5, abs=1e-9
        )
        assert "12" in page.locator(".readout").first.inner_text()
        page.mouse.move(5, 5)
        tokens = page.get_by_role("group", name="Tokens; choose one").get_by_role("button")
        assert tokens.count() == 37 and "share" in tokens.nth(4).get_attribute("title")
        # By keyboard: to the last row, and another token is followed from there.
        page.get_by_role("application").first.focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowLeft", "Enter"):
            page.keyboard.press(key)
        ready(page)
        page.wait_for_url("**query=29**")
        want = rollout(record, 29).shares[0, 0]
        assert numbers(page, "data-share") == pytest.approx(want.topk(14).values.tolist(), rel=1e-6)


def test_pixels_are_shares_and_multiples_are_of_equal_weights(visit, record):
    result = rollout(record, 30, corrected=True)
    with visit("#/flow?record=r1&query=30") as page:
        ready(page)
        canvas = page.get_by_role("application").first.locator("canvas")
        drawn = decoded(canvas.evaluate("canvas => canvas.toDataURL()"))
        assert drawn.shape[:2] == (3, 37)
        # The larger a share the darker: along one row the order of both is the same.
        shares, light = result.shares[0, 0].numpy(), drawn[0].astype(int).sum(1)
        assert (np.diff(light[np.argsort(shares)]) <= 0).all() and len(set(light)) > 10
        choose(page, "Show", "times")
        page.locator("aside td[data-times]").first.wait_for()
        ready(page)
        want = result.corrected[0, 0].topk(14).values.tolist()
        assert numbers(page, "data-times") == pytest.approx(want, rel=1e-6)
        assert "measure=times" in page.url


def test_every_choice_is_in_the_link_and_gives_its_numbers(visit, record):
    result = rollout(record, 4, direction="forward", by="norms", residual=0.25)
    with visit("#/flow?record=r1&query=4") as page:
        ready(page)
        choose(page, "Follow", "forward")
        choose(page, "Method", "norms")
        page.get_by_label("Residual").fill("0.25")
        page.keyboard.press("Tab")
        page.locator("aside select").select_option("target 1")
        page.wait_for_url("**row=1**")
        page.wait_for_timeout(400)
        for again in (False, True):
            if again:
                page.reload()
            ready(page)
            want = [share for share in result.shares[0, 1].sort(descending=True).values.tolist() if share > 0]
            assert numbers(page, "data-share") == pytest.approx(want[:14], rel=1e-6)


def test_the_other_text_is_followed_too(visit, record):
    result = rollout(record, 7, text="source", direction="forward")
    with visit("#/flow?record=r1&of=source&key=7&way=forward") as page:
        ready(page)
        page.locator("aside select").select_option("target 2")
        ready(page)
        want = result.shares[0, 2].topk(14).values.tolist()
        expect(page.locator("aside td[data-share]").first).to_have_attribute("data-share", str(want[0]))
        assert numbers(page, "data-share") == pytest.approx(want, rel=1e-6)


def test_a_long_text_is_summed_over_cells_down_to_single_tokens(visit, long_record):
    shares = rollout(long_record, 3137).shares[0, 0]
    with visit("#/flow?record=r2&query=3137") as page:
        ready(page)
        grid = page.get_by_role("application").first
        cells = grid.locator("canvas").evaluate("canvas => canvas.width")
        box = grid.bounding_box()
        assert 4099 / 8 < cells <= box["width"]
        cell = -(-4099 // cells)
        page.mouse.move(box["x"] + box["width"] * 1013.5 / 4099, box["y"] + 4)
        first = 1013 // cell * cell
        shown = page.locator(".readout b[data-share]").first
        expect(shown).to_be_visible()
        want = float(shares[first : first + cell].sum())
        assert float(shown.get_attribute("data-share")) == pytest.approx(want, rel=1e-5)
        # The planted weight of one half, moved by half of the layer, stands out.
        assert want > 0.2
        page.mouse.move(5, 5)
        page.goto(f"{page.url}&tokens=1000-1030")
        ready(page)
        box = grid.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 13.5 / 30, box["y"] + 4)
        assert float(shown.get_attribute("data-share")) == pytest.approx(float(shares[1013]), rel=1e-5)


def test_a_record_without_vectors_says_why(record, chromium):
    opened = Opened()
    bare = Record([replace(call, query=None, key=None) for call in record], record.tokens)
    opened.add(RecordTiles(bare), "bare")
    with served(opened) as address:
        page = chromium.new_page()
        page.goto(address)
        page.get_by_role("link", name="Flow").click()
        page.get_by_text("which were not kept").wait_for()
        page.close()
