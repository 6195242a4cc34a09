"""Labels of tokens and positions along an axis, at any number. Knows nothing of what the axes hold.

A label says what the token is, blanks included. Where labels would touch they shrink; then they stand in two
tiers, the outer one joined to its place by a hairline; then only every second, third … is written. They never
overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from regard.draw import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLANKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
RUNS = re.compile("(" + "|".join(f"{blank}{{4,}}" for blank in BLANKS) + ")")
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LARGEST, SMALLEST = 9.0, 6.0  # type sizes in points
# Line to line, as a multiple of the tallest label.
LEADING = 1.06
# Points between neighbors that stand side by side.
GAP = 4.0
# Points from an axis to its labels.
HAIR = 3.0


def visible(token: str) -> str:
    """The token as it can be printed: blanks as signs (`␣ ⏎ ⇥`), what no font can draw as escapes.

    A run of more than three equal blanks is counted: eight spaces are `␣⁸`. A single space between two
    letters stays as it is.
    """
    if token == "":
        return "‹empty›"
    # A single blank between letters is read as a blank, and needs no sign.
    words = re.split(r"(?<=\S) (?=\S)", token)
    return " ".join("".join(map(_signs, re.split(RUNS, word))) for word in words)


def _signs(text: str) -> str:
    """The sign of each character, or of a run of one blank with its length."""
    if len(text) > 3 and text[0] in BLANKS and set(text) == {text[0]}:
        return _sign(text[0]) + str(len(text)).translate(SUPERSCRIPT)
    return "".join(_sign(character) for character in text)


def _sign(character: str) -> str:
    sign = BLANKS.get(character, character)
    # matplotlib draws an empty box, and warns, where no font has the character.
    if sign.isprintable() and ord(sign) in style.covered():
        return sign
    return character.encode("unicode_escape").decode("ascii")


def elide(text: str, limit: int) -> str:
    """At most `limit` characters, the middle left out: the ends of a word tell more than its middle."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


@dataclass(frozen=True)
class Labels:
    """Labels of one axis, laid out. Lengths in points; `places` in the axis's own units."""

    places: tuple[float, ...]
    texts: tuple[str, ...]
    size: float
    rotated: bool  # on a horizontal axis: reads upwards
    tiers: int
    lead: float  # length of the hairline from the axis to the outer tier
    depth: float  # room that all tiers take beside the axis


def of_tokens(tokens: Sequence[str], pitch: float, *, across: bool, first: float = 0) -> Labels:
    """Lay out one label per token, or as many as fit.

    Args:
        tokens: what stands at the places `first`, `first` + 1 …
        pitch: points from one place to the next.
        across: the axis is horizontal.
    """
    texts = [elide(visible(token), 18 if len(tokens) <= 32 else 14) for token in tokens]
    places = [first + index for index in range(len(texts))]
    if across:
        for size in (LARGEST, LARGEST - 1):
            widths = [style.measure(text, size)[0] for text in texts]
            if (
                all((one + two) / 2 + GAP <= pitch for one, two in pairwise(widths))
                and max(widths) <= 2 * pitch
            ):
                return _laid(places, texts, size, 1, rotated=False)
    for tiers in (1, 2):
        size = min(LARGEST, LARGEST * pitch * tiers / _line(texts, LARGEST))
        if size >= SMALLEST:
            return _laid(places, texts, size, tiers, rotated=across)
    # Ceiling division: a negative number's floor, negated.
    step = -int(-_line(texts, SMALLEST + 0.5) // pitch)
    return _laid(places[::step], texts[::step], SMALLEST + 0.5, 1, rotated=across)


def of_positions(first: int, last: int, pitch: float, *, across: bool = True) -> Labels:
    """Lay out round numbers from `first` to `last`, `pitch` points apart from one to the next.

    `across`: apart enough for a horizontal axis, else for a vertical one.
    """
    size = style.SMALL
    if across:
        room = style.measure(f"{last:,}", size)[0] + 4 * GAP
    else:
        room = 2.2 * size
    step = next(
        step for power in range(19) for factor in (1, 2, 5) if (step := factor * 10**power) * pitch >= room
    )
    # The first round number at or after `first`.
    start = -int(-first // step) * step
    places = list(range(start, last + 1, step)) or [first]
    return _laid(
        [float(position) for position in places],
        [f"{position:,}" for position in places],
        size,
        1,
        rotated=False,
    )


def of_numbers(numbers: Sequence[float], pitch: float) -> Labels:
    """Lay out what stands at the places 0, 1 … along a horizontal axis, or every second, third … of it.

    None reaches far beyond the ends of the axis, where another one may begin.
    `pitch`: points from one place to the next.
    """
    texts = [f"{number:,}" for number in numbers]
    widths = [style.measure(text, style.SMALL)[0] for text in texts]
    step = -int(-(max(widths) + 2 * GAP) // pitch)
    edges = [(min(index, len(texts) - 1 - index) + 0.5) * pitch + GAP for index in range(len(texts))]
    places = [index for index in range(0, len(texts), step) if widths[index] / 2 <= edges[index]] or [0]
    chosen = [texts[index] for index in places]
    return _laid([float(index) for index in places], chosen, style.SMALL, 1, rotated=False)


def _line(texts: Sequence[str], size: float) -> float:
    return LEADING * max(style.measure(text, size)[1] for text in texts)


def _laid(places: Sequence[float], texts: Sequence[str], size: float, tiers: int, *, rotated: bool) -> Labels:
    # Depth of each tier: label widths beside a vertical axis or turned by 90 degrees, else one line.
    depths = [
        max((style.measure(text, size)[0] for text in texts[tier::tiers]), default=0.0)
        for tier in range(tiers)
    ]
    lead = 0.0
    if tiers == 2:
        lead = depths[0] + 2 * HAIR
    return Labels(tuple(places), tuple(texts), size, rotated, tiers, lead, lead + depths[-1] + HAIR)


def room(labels: Labels, *, across: bool) -> float:
    """Inches that the labels take beside a horizontal (`across`) or vertical axis."""
    deep = labels.depth
    if across and not labels.rotated:
        deep = labels.size * 1.3 + HAIR
    return deep / style.POINTS


def put(axes: Axes, labels: Labels, *, across: bool, top: bool = False) -> None:
    """Write the labels below the horizontal axis (above it, with `top`), or left of the vertical one."""
    axis = axes.yaxis
    if across:
        axis = axes.xaxis
    if across:
        axis.set_ticks_position("top" if top else "bottom")
    look = {
        "fontproperties": style.font(labels.size),
        "parse_math": False,
        "usetex": False,
        "color": style.INK,
    }
    # The anchor keeps every baseline in the middle of its place, whatever hangs below it.
    if labels.rotated:
        rotation = {"rotation": 90, "rotation_mode": "anchor", "va": "center_baseline"}
        look |= rotation | {"ha": "left" if top else "right"}
    else:
        look |= {"va": _upright(across, top)}
    for tier in range(2):
        if labels.tiers == 2:
            chosen = slice(tier, None, 2)
        else:
            chosen = slice(0 if tier == 0 else len(labels.texts), None)
        # Two tiers are the axis's major and minor ticks, the only two pads that an axis has.
        axis.set_ticks(labels.places[chosen], labels.texts[chosen], minor=tier == 1, **look)
    axis.set_tick_params(which="major", length=0, pad=HAIR)
    axis.set_tick_params(which="minor", length=labels.lead, pad=0, width=0.35, color=style.RULE)


def _upright(across: bool, top: bool) -> str:
    """How labels that are not turned are aligned with their place, vertically."""
    if not across:
        return "center_baseline"
    if top:
        return "baseline"
    return "top"
