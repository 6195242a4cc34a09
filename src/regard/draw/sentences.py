"""How much attention each sentence of a text got: a bar beside each, and which are known to be right."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, inputs, labels, style
from regard.draw.inputs import Array, Numbers
from regard.draw.outlines import NO, RIGHT, YES
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 30  # sentences in one figure
LINES = 3  # of a sentence
DENSEST = 400  # letters that a line may have
# Characters that are looked at to fill them.
LONGEST = 1000
# Inches: what stands in a row beside the text.
SIGN, BAR, SHARE = 0.24, 2.1, 0.5
NARROWEST, WIDEST = 2.4, 5.2  # inches, the text
# Points; renderers round each letter to whole pixels.
ROOM = 0.95 * WIDEST * style.POINTS
# Inches: from line to line, between sentences, a bar.
LEADING, GAP, THICK = 0.165, 0.11, 0.13
# Share by which a right sentence is above all others: two digits show no less.
CLEARLY = 0.01
STRONG, PALE = 0.75, 0.35  # places on the color scale


@checked
def passage(
    sentences: Sequence[str],
    masses: Array,
    *,
    support: Iterable[int] | None = None,
    title: str | None = None,
    note: str = "",
) -> Figure:
    """Draw a text, a sentence below the other, with a bar for the attention that each of them got.

    The sentence with the largest mass is bold. Of more than 30 sentences those 30 are drawn that got most, in their
    order, and the figure says how many are left out. A sentence of more than three lines is cut.

    Args:
        sentences: of the text, in order.
        masses: `(sentences,)`, the attention mass of each, 0 or more: sums of weights, of one query or of many. What is
            written is the share in all of them.
        support: numbers of the sentences, from 0, that are known to be right: they are outlined, and marked ✓ where
            their share is larger than that of every sentence that is not right, by `CLEARLY` at least, else ✗. Where
            all sentences are right nothing is marked.
        title: written above.
        note: written below, small.

    Raises:
        ShapeError: there is not one mass for each sentence.
        ArgumentError: a mass that is negative or not finite; a number that is no sentence's.
    """
    values = inputs.numbers("masses", masses, "sentences").astype(np.float64)
    texts = inputs.token_list("sentences", sentences, len(values), "masses")
    if values.min() < 0:
        raise ArgumentError(f"masses must not be negative, got {values.min():.3g}")
    right = _right(support, len(values))
    shares = values / (values.sum() or 1.0)
    hits = shares >= shares[~right].max(initial=0.0) + CLEARLY
    # Those with most mass, stable where they are equal, then back in the order of the text.
    shown = sorted(np.argsort(-values, kind="stable")[:MOST].tolist())
    if values.any():
        first = int(values.argmax())
    else:
        first = -1

    lines = [_lines(texts[i], i == first) for i in shown]
    ends = np.cumsum([len(sentence) * LEADING + GAP for sentence in lines])
    below = [_shares(float(values.sum())), _legend(right, hits, shares), _omitted(shown, right, shares), note]
    number = style.measure(str(shown[-1]), style.SMALL)[0] / style.POINTS
    lead = (SIGN if right.any() else 0.0) + number + 0.1
    bars = lead + _width(lines) + 0.2
    across, down = bars + BAR + SHARE, float(ends[-1])
    figure, top = style.sheet(
        across + 2 * style.MARGIN, down, title=title or "", note=" ".join(filter(None, below))
    )
    axes = style.place(figure, style.MARGIN, top, across, down)
    axes.set_gid("passage")
    axes.set_axis_off()
    # The y axis points down and both count inches.
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    scale = BAR / (float(shares.max()) or 1.0)
    look: dict[str, Any] = {"va": "center_baseline"}
    for i, written, end in zip(shown, lines, ends.tolist(), strict=True):
        half, strong = len(written) * LEADING / 2, i == first
        middle = end - GAP / 2 - half
        style.write(axes, lead - 0.1, middle, str(i), style.SMALL, color=style.MUTED, ha="right", **look)
        for line, text in enumerate(written):
            style.write(axes, lead, middle + (line + 0.5) * LEADING - half, text, bold=strong, **look)
        _bar(axes, bars, middle, float(shares[i]), scale, strong=strong)
        if right[i] and not right.all():
            sign, color = NO, style.INK
            if hits[i]:
                sign, color = YES, style.PALETTE[2]
            style.write(axes, 0.0, middle, sign, color=color, bold=True, **look)
        if right[i]:
            _frame(axes, lead - 0.06, across, middle, half + 0.035)
    return figure


def _right(support: Iterable[int] | None, count: int) -> np.ndarray:
    """Which sentences are known to be right, bool."""
    indices = []
    if support is not None:
        indices = list(getattr(support, "tolist", lambda: support)())
    wrong = [
        n for n in indices if isinstance(n, bool) or not isinstance(n, Integral) or n not in range(count)
    ]
    if wrong:
        raise ArgumentError(f"support must be numbers of sentences from 0 to {count - 1}, got {wrong[0]!r}")
    return np.isin(np.arange(count), indices)


def _lines(text: str, bold: bool) -> list[str]:
    """A sentence in lines that fit, the last one ending in … where there is more."""
    text = labels.visible(" ".join(text.split())[:LONGEST])
    lines: list[str] = []
    for line in style.wrap(text, ROOM, style.BODY, bold).split("\n"):
        rest = line
        while len(lines) <= LINES and (fits := _fitting(rest, bold)) < len(
            rest
        ):  # a word of very many letters
            lines.append(rest[:fits])
            rest = rest[fits:]
        lines.append(rest)
    if len(lines) > LINES:
        last = lines[LINES - 1]
        while style.measure(last + " …", style.BODY, bold)[0] > ROOM:
            last = last.rpartition(" ")[0] or last[:-1]
        lines = [*lines[: LINES - 1], last + " …"]
    return lines


def _fitting(text: str, bold: bool) -> int:
    """How many of its letters fit into a line."""
    if style.measure(text, style.BODY, bold)[0] <= ROOM:
        return len(text)
    lengths = range(1, min(len(text), DENSEST))
    return max(
        bisect_left(lengths, True, key=lambda n: style.measure(text[:n], style.BODY, bold)[0] > ROOM), 1
    )


def _width(lines: Sequence[Sequence[str]]) -> float:
    """Inches that the text takes, as if all of it were bold."""
    widest = (
        max(style.measure(line, style.BODY, True)[0] for sentence in lines for line in sentence)
        / style.POINTS
    )
    return min(max(widest / 0.95, NARROWEST), WIDEST)


def _bar(axes: Axes, left: float, middle: float, share: float, scale: float, *, strong: bool) -> None:
    """A bar from `left` on, its share at its end."""
    color = colors.sequential()(STRONG if strong else PALE)
    axes.barh(middle, share * scale, THICK, left=left, color=color, linewidth=0)
    text = percent(share)
    look = {"bold": strong, "va": "center_baseline"}
    style.write(axes, left + share * scale + 0.05, middle, text, style.SMALL, **look)


def _frame(axes: Axes, left: float, right: float, middle: float, half: float) -> None:
    x, y = [left, right, right, left, left], [middle - half] * 2 + [middle + half] * 2 + [middle - half]
    axes.plot(x, y, color=RIGHT, linewidth=1.2, clip_on=False, gid="right")


def percent(share: float) -> str:
    """A share as per cent; what is more than nothing is never written as 0."""
    if 0 < share < 0.005:
        return "< 1 %"
    return f"{100 * share:.0f} %"


def _shares(total: float) -> str:
    return f"Shares of the attention that all sentences got together ({colors.number(total, 3)})."


def _legend(right: np.ndarray, hits: np.ndarray, shares: Numbers) -> str:
    """What outlines and signs mean, and how many are found."""
    if not right.any():
        return ""
    if right.all():
        return "All sentences are known to be right, so that none can be marked as a wrong one."
    got = percent(float(shares[right].sum()))
    return (
        f"Outlined: known to be right; they got {got}. {YES} got clearly more than every sentence that is not "
        f"({(right & hits).sum()} of {right.sum()}), {NO} did not."
    )


def _omitted(shown: list[int], right: np.ndarray, shares: Numbers) -> str:
    """How many sentences are left out, and what they got."""
    if len(shown) == len(shares):
        return ""
    left = np.isin(np.arange(len(shares)), shown, invert=True)
    known = ""
    if right[left].any():
        known = f", {right[left].sum()} of them known to be right"
    got = percent(float(shares[left].sum()))
    return f"{left.sum():,} sentences with less are left out{known}; they got {got} together."
