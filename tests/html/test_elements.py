"""The parts of a card: escaped, decodable, bounded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cards import Card
from regard import html
from regard.html.colors import BLANK
from regard.html.elements import LONGEST, shortened


class Shown:
    def __init__(self, *parts):
        self.parts = parts

    def _repr_html_(self):
        return html.card(*self.parts)


@given(st.text(st.characters()))
def test_any_text_is_escaped(words):
    card = Card(
        Shown(html.heading(words, words, [words]), html.note(words), html.table([], [(words, words, "")]))
    )
    assert card.count("div") == 5 and card.count("script") == 0
    html.text(words).encode()


def test_a_lone_surrogate_becomes_a_question_mark():
    assert html.text("a\ud800 & <b>") == "a? &amp; &lt;b&gt;"


def test_long_text_is_shortened_before_it_is_escaped():
    assert shortened("<" * 999).count("&lt;") <= LONGEST and " … " in shortened("<" * 999)
    assert shortened("x" * LONGEST) == "x" * LONGEST


def test_a_picture_is_a_png_of_one_pixel_a_cell():
    shades = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (pixels,) = Card(Shown(html.picture(shades, 96, 'a "name"'))).images()
    assert np.array_equal(pixels, shades)


def test_gaps_are_transparent_and_cells_are_enlarged():
    (pixels,) = Card(Shown(html.picture(np.full((2, 2), 5, np.uint8), 20, "", gap=1))).images()
    assert pixels.shape == (10, 10)
    assert (pixels[:4, :4] == 5).all() and (pixels[4] == BLANK).all() and (pixels[:, 9] == BLANK).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 32), (32, 1), (32, 32), (1, 1000)])
def test_a_picture_is_about_as_large_as_was_asked(rows, columns):
    card = Card(Shown(html.picture(np.zeros((rows, columns), np.uint8), 96, "")))
    ((_, attrs),) = [tag for tag in card.tags if tag[0] == "img"]
    assert f"width:{columns * max(1, min(96 // columns, 24))}px" in attrs["style"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-1.5, "−1.5"),
        (0.12345, "0.123"),
        (999.4, "999"),
        (131072.0, "131\u202f072"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_are_short(value, written):
    assert html.number(value) == written


def test_cells_have_tooltips_and_broken_values_a_dot():
    values = np.array([1.0, np.nan, -np.inf])
    card = Card(Shown(html.table([], [("a", "a", html.cells(values, 1.0, ["x", "y", "<z>"], str))])))
    cells = [attrs for tag, attrs in card.tags if tag == "td"]
    assert [cell["title"] for cell in cells] == ["x: 1", "y: no number", "<z>: no number"]
    assert "1.0" in card.text and card.text.count("·") == 2
