"""What is taken away of the explorer's views: the menu is worked as a reader does, and files are opened again."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas
import pypdfium2
from PIL import Image

from house import guards

SHOTS = guards.ROOT / "build" / "screenshots"
PICTURES = ("PNG", "SVG", "PDF")


def open_menu(page):
    """The open menu of the view."""
    menu = page.get_by_role("group", name="Export what is seen")
    if not menu.is_visible():
        page.get_by_role("button", name="Export", exact=True).click()
        menu.wait_for()
    return menu


def taken(page, folder: Path, name: str) -> Path:
    """The file of one button of the menu."""
    menu = open_menu(page)
    with page.expect_download(timeout=60_000) as download:
        menu.get_by_role("button", name=name, exact=True).click()
    file = folder / download.value.suggested_filename
    download.value.save_as(file)
    menu.get_by_role("status").filter(has_text=file.name).wait_for()
    return file


def titles(page) -> list[str]:
    """The tables that the menu has."""
    labels = [
        one.get_attribute("aria-label")
        for one in open_menu(page).get_by_role("button", name=re.compile(", CSV$")).all()
    ]
    return [label.removesuffix(", CSV") for label in labels]


def tables(page, folder: Path, title: str):
    """A table of the menu, read from its CSV and from its Parquet."""
    comma = pandas.read_csv(taken(page, folder, f"{title}, CSV"), keep_default_na=False, na_values={})
    return comma, pandas.read_parquet(taken(page, folder, f"{title}, Parquet"))


def plain(values) -> list:
    """Texts of a CSV as they were before a spreadsheet had to be kept from computing them."""
    return [value[1:] if isinstance(value, str) and value.startswith("'") else value for value in values]


def rendered(pdf: Path, scale: float) -> tuple[np.ndarray, str]:
    """The only page of a PDF: its pixels `(height, width, 3)`, and its text."""
    document = pypdfium2.PdfDocument(pdf)
    try:
        assert len(document) == 1
        page = document[0]
        text_page = page.get_textpage()
        text = text_page.get_text_range()
        picture = np.asarray(page.render(scale=scale).to_pil().convert("RGB"))
        text_page.close()
        page.close()
        return picture, text
    finally:
        document.close()


def shot_of(page, svg: Path) -> np.ndarray:
    """The pixels of an SVG, opened by itself in a browser that draws two pixels for each."""
    page.goto(svg.as_uri())
    width, height = page.evaluate(
        "['width', 'height'].map(side => document.documentElement[side].baseVal.value)"
    )
    page.set_viewport_size({"width": round(width), "height": round(height)})
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The mean difference of two pictures of nearly one size, of 255."""
    assert np.abs(np.subtract(one.shape, other.shape)).max() <= 2
    height, width = (min(a, b) for a, b in zip(one.shape[:2], other.shape[:2], strict=True))
    return float(np.abs(one[:height, :width].astype(float) - other[:height, :width]).mean())


def agree(page, chromium, folder: Path, name: str, wanted: Sequence[str]) -> None:
    """Take the PNG, SVG and PDF of a view: they show the same, have the wanted words, and ask for no styles."""
    png, svg, pdf = (taken(page, folder, kind) for kind in PICTURES)
    pixels = np.asarray(Image.open(png).convert("RGB"))
    # A picture of paper: white around, and colors within.
    colors = np.unique(pixels.astype(np.int64) @ [1 << 16, 1 << 8, 1])
    assert (pixels[:20] == 255).all() and len(colors) > 20
    paper = chromium.new_context(device_scale_factor=2)
    opened_svg = paper.new_page()
    drawn = shot_of(opened_svg, svg)
    text = " ".join(opened_svg.locator("text").all_text_contents())
    paper.close()
    printed, words = rendered(pdf, 2 / 0.75)
    SHOTS.mkdir(parents=True, exist_ok=True)
    for kind, picture in (("png", pixels), ("svg", drawn), ("pdf", printed)):
        Image.fromarray(picture).save(SHOTS / f"export-{name}-{kind}.png")
    # Letters are smoothed in other ways, and nothing else differs; an empty page would differ by a lot more.
    blank = difference(pixels, np.full_like(pixels, 255))
    assert difference(pixels, drawn) < min(3.0, blank / 4)
    assert difference(pixels, printed) < min(6.0, blank / 2)
    for word in wanted:
        assert word in text and word in " ".join(words.split())
    written = svg.read_text()
    assert "var(--" not in written and "<style" not in written and "Arial" in written
