"""A sheet of shapes: what stands where, what a PDF of it holds, and what is refused."""

import base64
import io
import math
import warnings

import numpy as np
import pypdfium2
import pytest
from PIL import Image as Pictures

from regard.draw.sheet import MOST_SHAPES, PNG, Circle, Image, Line, Rect, Sheet, Text, sheet
from regard.errors import ArgumentError


def png(pixels: np.ndarray) -> str:
    """A data address of `(rows, columns, 3)` pixels."""
    content = io.BytesIO()
    Pictures.fromarray(pixels).save(content, "PNG")
    return PNG + base64.b64encode(content.getvalue()).decode()


def page(shapes, scale: float = 1 / 0.75) -> tuple[np.ndarray, str]:
    """The pixels and the text of the PDF of a white sheet of 200 × 100 pixels."""
    content = io.BytesIO()
    sheet(Sheet(200, 100, "#ffffff", shapes)).savefig(content, format="pdf")
    document = pypdfium2.PdfDocument(content.getvalue())
    one = document[0]
    text_page = one.get_textpage()
    text = text_page.get_text_range()
    pixels = np.asarray(one.render(scale=scale).to_pil().convert("RGB"))
    text_page.close()
    one.close()
    document.close()
    return pixels, text


def test_shapes_stand_where_they_are_put():
    shapes = [
        Rect(10, 20, 30, 40, fill="#ff0000"),
        Circle(100, 50, 10, fill="#0000ff"),
        Line([(150, 10), (150, 90)], "#00ff00", width=4),
    ]
    pixels, _ = page(shapes)
    assert pixels.shape == (100, 200, 3)
    red = np.argwhere((pixels == [255, 0, 0]).all(-1))
    assert red.min(0).tolist() == [20, 10] and red.max(0).tolist() == [59, 39]
    blue = np.argwhere((pixels[..., 0] < 128) & (pixels[..., 2] == 255))
    assert np.abs(blue.mean(0) - [49.5, 99.5]).max() < 0.6
    assert 0.97 < len(blue) / (math.pi * 100) < 1.03
    green = np.argwhere((pixels == [0, 255, 0]).all(-1))
    assert green.min(0).tolist() == [10, 148] and green.max(0).tolist() == [89, 151]


def test_what_comes_later_lies_above():
    pixels, _ = page([Rect(0, 0, 200, 100, fill="#ff0000"), Rect(0, 0, 200, 100, fill="#0000ff")])
    assert (pixels[50, 100] == [0, 0, 255]).all()


def test_an_image_has_its_pixels_and_is_cut_where_it_should_be():
    generator = np.random.default_rng(7)
    cells = generator.integers(0, 256, (5, 8, 3), dtype=np.uint8)
    pixels, _ = page([Image(20, 10, 80, 50, png(np.repeat(np.repeat(cells, 10, 0), 10, 1)))])
    assert np.abs(pixels[15:60:10, 25:100:10].astype(int) - cells).max() <= 1
    # The left half of it, in a box of the same size: cells are twice as wide.
    pixels, _ = page([Image(20, 10, 80, 50, png(np.repeat(np.repeat(cells, 10, 0), 10, 1)), (0.5, 1.0))])
    assert np.abs(pixels[15:60:10, 30:100:20].astype(int) - cells[:, :4]).max() <= 1
    assert (pixels[:, 102:] == 255).all() and (pixels[:, :18] == 255).all()


def test_text_is_text_and_keeps_to_its_room():
    words = "entropy → ∅ (−3) $x$ _{y}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels, text = page([Text(10, 50, words, "#000000"), Text(10, 80, "\u0378 \ud800", "#000000")])
    assert words in text and "\\u0378" in text and "\\ud800" in text
    wide = np.argwhere(pixels[:60].min(-1) < 128)[:, 1].max()
    pixels, text = page([Text(10, 50, words, "#000000", most=60.0)])
    assert words in text and np.argwhere(pixels.min(-1) < 128)[:, 1].max() <= 71 < wide


def test_every_kind_of_blank_is_a_blank():
    text = page([Text(10, 50, "12\u2009000 a\u00a0b\u2003c", "#000000")])[1]
    assert "12 000 a b c" in text and "\\u" not in text


@pytest.mark.parametrize("anchor, low, high", [("start", 100, 130), ("middle", 80, 120), ("end", 70, 100)])
def test_text_is_anchored(anchor, low, high):
    pixels, _ = page([Text(100, 50, "iiiii", "#000000", anchor=anchor)])
    columns = np.argwhere(pixels.min(-1) < 128)[:, 1]
    assert low <= columns.min() and columns.max() <= high


def test_angles_are_clockwise():
    pixels, _ = page([Text(100, 50, "iiiiiii", "#000000", angle=90)])
    rows, columns = np.argwhere(pixels.min(-1) < 128).T
    # The baseline runs down, and letters stand to the right of it.
    assert rows.min() >= 49 and np.ptp(rows) > 15 and columns.min() >= 99


DOT = np.zeros((1, 1, 3), np.uint8)


@pytest.mark.parametrize(
    "drawn, words",
    [
        (Sheet(0, 10, "#ffffff"), "width"),
        (Sheet(10, 1e6, "#ffffff"), "height"),
        (Sheet(math.nan, 10, "#ffffff"), "width"),
        (Sheet(10, 10, "red"), "background"),
        (Sheet(10, 10, "#ffffff", [Rect(0, 0, 1, 1)] * (MOST_SHAPES + 1)), "at most"),
        (Sheet(10, 10, "#ffffff", [Rect(0, 0, math.inf, 1)]), "shape 0, width"),
        (Sheet(10, 10, "#ffffff", [Rect(0, 0, 1, 1, fill="url(#x)")]), "shape 0, fill"),
        (Sheet(10, 10, "#ffffff", [Line([(0, 0)], "#000000")]), "2 points"),
        (Sheet(10, 10, "#ffffff", [Line([(0, math.nan), (1, 1)], "#000000")]), "shape 0, points"),
        (Sheet(10, 10, "#ffffff", [Image(0, 0, 1, 1, "https://example.com/a.png")]), "PNG"),
        (Sheet(10, 10, "#ffffff", [Image(0, 0, 1, 1, PNG + "!")]), "PNG"),
        (Sheet(10, 10, "#ffffff", [Image(0, 0, 1, 1, PNG + "aGVsbG8=")]), "PNG"),
        (Sheet(10, 10, "#ffffff", [Image(0, 0, 1, 1, png(DOT), (2.0, 1.0))]), "at most 1"),
        (Sheet(10, 10, "#ffffff", [Image(0, 0, 0, 1, png(DOT))]), "width"),
        (Sheet(10, 10, "#ffffff", [Image(0, 0, 1, 1, png(np.zeros((4097, 4097, 3), np.uint8)))]), "pixels"),
    ],
)
def test_what_cannot_be_drawn_is_refused(drawn, words):
    with pytest.raises(ArgumentError, match=words):
        sheet(drawn)
