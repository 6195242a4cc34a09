"""What is taken away of the explorer's views: the menu is worked as a reader does, and files are opened again."""

import io
import re
from pathlib import Path

import numpy as np
import pandas
import pypdfium2
from PIL import Image

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
