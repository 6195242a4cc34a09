"""Labels say what each token is and never touch, at any number."""

from itertools import pairwise

import pytest

from draw.looking import box, tokens, weights
from regard import draw
from regard.draw import labels, style


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("the", "the"),
        (" the", "␣the"),
        ("New York", "New York"),
        ("a  b", "a␣␣b"),
        (" ", "␣"),
        ("\n", "⏎"),
        ("\t", "⇥"),
        ("\n\n    x", "⏎⏎␣⁴x"),
        (" " * 128, "␣¹²⁸"),
        ("", "‹empty›"),
        ("\r\n", "\\r⏎"),
        ("\x00", "\\x00"),
        ("\u200b", "\\u200b"),
        ("\xa0", "\\xa0"),
        ("\ud800", "\\ud800"),
        ("$x^2$", "$x^2$"),
        ("Привет", "Привет"),
    ],
)
def test_tokens_are_made_visible(token, shown):
    assert labels.visible(token) == shown


def test_what_no_font_has_is_escaped():
    missing = next(chr(point) for point in range(0x20000, 0x2A6DF) if point not in style.covered())
    assert labels.visible(f"x{missing}") == "x" + missing.encode("unicode_escape").decode()


def test_long_tokens_keep_both_ends():
    assert labels.elide("internationalisation", 14) == "internati…tion"
    assert labels.elide("fourteen chars", 14) == "fourteen chars"
    assert all(len(labels.elide("x" * length, 14)) <= 14 for length in range(40))


@pytest.mark.parametrize("count", [1, 2, 10, 37, 61, 113, 200, 499])
@pytest.mark.parametrize("across", [True, False])
def test_token_labels_never_touch(count, across):
    figure, axes = drawn(count, across)
    axis = axes.xaxis if across else axes.yaxis
    for ticks in (axis.get_major_ticks(), axis.get_minor_ticks()):
        boxes = [box(text) for tick in ticks for text in (tick.label1, tick.label2) if shown(text)]
        ends = sorted((b.x0, b.x1) if across else (b.y0, b.y1) for b in boxes)
        assert all(one[1] <= two[0] + 0.75 for one, two in pairwise(ends))
    assert len(figure.axes) == 1


def drawn(count, across):
    """Labels of so many tokens on an axis of eleven inches at most."""
    side = min(count * 0.5, 11.0)
    figure, _ = style.sheet(16, 16)
    axes = style.place(figure, 3, 3, side, side)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    laid = labels.of_tokens(tokens(count), side / count * style.POINTS, across=across)
    labels.put(axes, laid, across=across, top=True)
    figure.draw_without_rendering()
    return figure, axes


def shown(text):
    return text.get_visible() and text.get_text()


@pytest.mark.parametrize(
    ("count", "tiers", "written"), [(10, 1, 10), (113, 1, 113), (200, 2, 200), (499, 1, 100)]
)
def test_all_tokens_are_written_up_to_two_hundred(count, tiers, written):
    laid = labels.of_tokens(["token"] * count, 11.0 / count * style.POINTS, across=False)
    assert (laid.tiers, len(laid.texts)) == (tiers, written)
    assert laid.size >= labels.SMALLEST


def test_the_outer_tier_is_joined_to_its_place():
    laid = labels.of_tokens(["token"] * 200, 11.0 / 200 * style.POINTS, across=False)
    assert laid.lead > style.measure("token", laid.size)[0]
    assert laid.depth > 2 * style.measure("token", laid.size)[0]


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (0, 9), (293, 299), (0, 131_071), (1_000_003, 1_000_008)]
)
def test_positions_are_round_numbers_in_range(first, last):
    laid = labels.of_positions(first, last, 400 / (last - first + 1))
    assert laid.places
    assert all(first <= place <= last for place in laid.places)
    steps = {two - one for one, two in pairwise(laid.places)}
    assert len(steps) <= 1
    assert all(f"{step:e}"[0] in "125" for step in steps)
    assert laid.texts == tuple(f"{int(place):,}" for place in laid.places)


def test_measured_widths_are_those_of_the_renderer():
    figure, _ = style.sheet(8, 8)
    for size in (6.0, 9.0, 12.0):
        for word in map(labels.visible, tokens(25)):
            seen = box(style.write(figure, 0.1, 0.5, word, size)).width / style.DPI * style.POINTS
            assert seen <= style.measure(word, size)[0] + 1.0


def test_a_dollar_sign_is_no_formula():
    figure = draw.heatmap(weights(2, 2), tokens=["$x^2$", "$"])
    assert [text.get_parse_math() for text in figure.axes[0].get_xticklabels()] == [False, False]


def test_wrapping_keeps_every_word():
    text = "a title of several words\nand a second line of it"
    lines = style.wrap(text, 80, 12).split("\n")
    assert " ".join(lines) == text.replace("\n", " ")
    assert all(style.measure(line, 12)[0] <= 80 for line in lines)
