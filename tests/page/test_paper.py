"""The report on a phone, on paper, and for who cannot see it or uses the keyboard alone."""

import re

import numpy as np
import pytest
import torch

from explorer.browser.conftest import Map
from helpers import looked
from house import guards
from page import samples
from page.test_report import exact_weights, fake
from regard.page import findings, report
from regard.web.next_tokens import next_tokens

SHOTS = guards.ROOT / "build" / "screenshots"
VIEWS = {
    "all": "#/model?color=entropy",
    "head": "#/head?call=1&head=2&query=20&key=4",
    "lines": "#/head?call=1&head=0&panel=lines&query=20",
    "compare": "#/compare?heads=0.1 0.2 1.0",
}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LOOKS = {"light": {}, "dark": {"color_scheme": "dark"}, "phone": PHONE}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("look", LOOKS)
def test_no_view_has_a_fault_or_is_wider_than_the_screen(show, decoder, view, look):
    told = {"next_tokens": next_tokens(torch.randn(29, 31), str)}
    wanted = ".drawing line" if view == "lines" else "a.tile:visible canvas, .pane[data-state=ready]"
    options = {"viewport": {"width": 1280, "height": 800}} | LOOKS[look]
    with show(decoder, VIEWS[view], told=told, wanted=wanted, quiet=False, **options) as page:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(SHOTS / f"page-{view}-{look}.png"))
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.locator(".guide summary").click()
        assert looked.findings(page) == []


def test_a_guard_finds_gray_that_is_too_pale(show, decoder):
    with show(decoder, quiet=False) as page:
        page.evaluate("document.querySelector('.lede').style.color = '#aaaaaa'")
        assert "color-contrast" in [rule for rule, *_ in looked.findings(page)]


@pytest.mark.parametrize("width", [320, 390, 900, 1400])
def test_nothing_is_wider_than_the_window(show, decoder, width):
    with show(decoder, viewport={"width": width, "height": 900}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_fingers_reach_everything(show, decoder):
    with show(decoder, **PHONE) as page:
        boxes = [tile.bounding_box() for tile in page.locator("a.tile").all()]
        assert min(box["width"] for box in boxes) >= 70
        assert not re.search(r"ctrl|click|hover|pointer|keyboard", page.locator("body").inner_text(), re.I)
        page.locator("a.tile").nth(7).tap()
        page.wait_for_selector(".pane[data-state=ready]")
        # Words for a mouse are not told to fingers.
        assert not re.search(r"ctrl|click|hover", page.locator("main").inner_text(), re.I)
        page.evaluate("document.querySelector('.pane').scrollIntoView()")
        shown = Map(page)
        x, y = shown.point(21, 20, (29, 29))
        page.touchscreen.tap(shown.box["x"] + x, shown.box["y"] + y)
        page.wait_for_selector(".weight[data-weight]")
        held = float(page.locator(".weight").get_attribute("data-weight"))
        near = exact_weights(decoder.calls[1], 2)[20:23, 19:22]
        assert np.abs(near / held - 1).min() < 1e-3
        page.wait_for_timeout(300)
        assert "query=2" in page.url and "key=" in page.url


def test_all_of_it_is_reached_by_keyboard(show, decoder):
    with show(decoder, "#/head?call=1&head=2") as page:
        page.locator("nav a").first.focus()
        seen = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            seen.add(
                page.evaluate(
                    "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
                )
            )
        assert any((name or "").startswith("Map of layer 1, head 2") for name in seen)
        assert {"Export", "Lines", "Whole"} <= seen
        page.locator(".openseadragon-canvas").focus()
        for key in ("Escape", "ArrowDown", "ArrowLeft", "Enter"):
            page.keyboard.press(key)
        page.wait_for_timeout(300)
        assert "query=15" in page.url and "key=13" in page.url
        page.keyboard.press("?")
        assert page.locator("dialog").is_visible()


SHEET = """canvas => [...new Uint32Array(
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer
)].reduce((counts, color) => counts.set(color, (counts.get(color) ?? 0) + 1), new Map()).size"""
TILES = """tiles => tiles.map((tile) => {
    const { width, height } = tile.getBoundingClientRect();
    const canvas = tile.querySelector('canvas');
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return [width, height, new Set(pixels).size];
})"""


@pytest.mark.parametrize("view", ["all", "head"])
def test_paper_has_every_head_whatever_was_on_the_screen(show, decoder, view):
    with show(decoder, VIEWS[view], color_scheme="dark", quiet=False) as page:
        dark = page.locator("a.tile canvas").first.evaluate("canvas => canvas.toDataURL()")
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        drawn = page.locator("a.tile").evaluate_all(TILES)
        assert len(drawn) == 15 and all(min(width, height) > 30 for width, height, _ in drawn)
        # Each with more colors than that of empty paper, and light ones.
        assert all(colors > 5 for *_, colors in drawn)
        assert page.locator("a.tile canvas").first.evaluate("canvas => canvas.toDataURL()") != dark
        assert page.locator(".regard").get_attribute("data-theme") == "light"
        assert page.locator("tbody tr").count() == 15 and page.locator("tbody").is_visible()
        assert not page.locator("nav").is_visible()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(".regard").get_attribute("data-theme") == "dark"


@pytest.mark.parametrize("view", ["all", "head", "compare"])
def test_a_print_has_every_head_and_what_was_on_the_screen(show, decoder, view):
    with show(decoder, VIEWS[view], color_scheme="dark") as page:
        paper = page.pdf(prefer_css_page_size=True)
    # Skia writes each canvas as an image of its own.
    shown = {"all": 15, "head": 16, "compare": 18}[view]
    assert paper.startswith(b"%PDF") and paper.count(b"/Subtype /Image") >= shown
    SHOTS.mkdir(parents=True, exist_ok=True)
    (SHOTS / f"page-{view}.pdf").write_bytes(paper)


def test_the_map_on_the_screen_is_on_paper_in_the_colors_of_paper(show, decoder):
    with show(decoder, VIEWS["head"], color_scheme="dark", quiet=False) as page:
        assert page.locator(".sheet").count() == 0
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        sheet = page.locator(".sheet")
        assert sheet.evaluate(SHEET) > 60
        corner = "canvas => [...canvas.getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3)"
        assert sheet.evaluate(corner) == [255, 255, 255]
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(".sheet").count() == 0


def test_a_large_model_at_2048_tokens_opens_with_all_its_heads(show):
    record = fake(2048, 12, 12)
    with show(record, quiet=False) as page:
        drawn = page.locator("a.tile").evaluate_all(TILES)
        assert len(drawn) == 144 and all(colors > 20 for *_, colors in drawn)
        assert page.locator("tbody tr").count() == 144
        page.locator("a.tile").nth(77).click()
        page.wait_for_selector(".pane[data-state=ready]")
        shown = Map(page)
        shown.hover(*shown.point(1100, 700, (2048, 2048)))
        page.wait_for_selector(".weight[data-weight]")
        cell = record.calls[6].map.coarsen(32).peak[0, 5]
        value = float(page.locator(".weight").get_attribute("data-weight"))
        # The pointer is on a pixel of about three tokens.
        assert np.abs(cell[33:36, 20:23].numpy() / value - 1).min() < 0.03


def test_pages_without_a_script_have_no_fault(opened):
    from regard.analysis import diagnose

    html = findings(diagnose(samples.watched(41)))
    for scheme in ("light", "dark"):
        with opened(html, quiet=False, color_scheme=scheme, bypass_csp=True) as page:
            assert looked.findings(page) == []


def test_without_a_script_the_words_are_there(opened, decoder):
    with opened(report(decoder), java_script_enabled=False) as page:
        body = page.locator("body").inner_text()
        assert "Allow scripts" in body and "How exact this page is" in body
