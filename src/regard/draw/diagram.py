"""The structure of multi-head attention as boxes and arrows, from the inputs down to the output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, style
from regard.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from regard.draw.inputs import Numbers

BOX = (1.5, 0.44)  # inches
HALF = BOX[1] / 2
# Inches: room for the outline of the first and the last box.
EDGE = 0.02
# Inches from the left: the three lanes.
QUERY, KEY, VALUE = 1.35, 3.05, 5.05
SCORES, OUTPUT = (QUERY + KEY) / 2, (QUERY + VALUE) / 2
# Left and right edge of the card of one head.
CARD = (0.42, 6.0)
TEXT = 6.75  # left edge of the explanations
WIDTH, STEP = 10.9, 0.72  # of the figure; from row to row
TINTS = {"query": "#d9ebf7", "key": "#fde3d2", "value": "#d3efe6", "plain": "#ffffff", "done": "#eceff3"}
EDGES = {"query": "#0072B2", "key": "#D55E00", "value": "#009E73", "plain": style.FAINT, "done": style.FAINT}


@checked
def structure(
    heads: int = 4, dim: int = 64, *, kv_heads: int | None = None, mask: bool = True, title: str | None = None
) -> Figure:
    """Draw what multi-head attention computes (Vaswani et al. 2017, section 3.2), each step with its shapes.

    Args:
        heads: number of query heads.
        dim: width of the model; each head works on `dim / heads` numbers.
        kv_heads: key and value heads, fewer with grouped queries; None: as many as heads.
        mask: with the step that hides keys.
        title: written above; None: the numbers of heads and their width.

    Raises:
        ArgumentError: a number below 1, or that does not divide as it must.
    """
    kv = heads
    if kv_heads is not None:
        kv = kv_heads
    for name, number in (("heads", heads), ("dim", dim), ("kv_heads", kv)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ArgumentError(f"{name} must be a whole number of at least 1, got {number!r}")
    if dim % heads:
        raise ArgumentError(f"dim must be a multiple of heads, got dim {dim} and {heads} heads")
    if heads % kv:
        raise ArgumentError(f"heads must be a multiple of kv_heads, got {heads} heads and {kv} kv_heads")
    if title is None:
        title = (
            f"Multi-head attention: {heads:,} {'head' if heads == 1 else 'heads'} of width {dim // heads:,}"
        )
    height = (7 + mask) * STEP + 0.42 + 2 * (HALF + EDGE)
    figure, top = style.sheet(WIDTH, height, title=title)
    axes = style.place(figure, 0, top, WIDTH, height)
    axes.set_gid("structure")
    axes.set_axis_off()
    _Drawing(axes, heads, kv, dim).draw(mask)
    # Last, for pictures bring limits of their own: the axes count inches, from the top left corner.
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(height, 0)
    return figure


class _Drawing:
    """Boxes on axes that count inches from the top left corner."""

    def __init__(self, axes: Axes, heads: int, kv_heads: int, dim: int) -> None:
        self.axes, self.heads, self.kv_heads, self.dim, self.width = axes, heads, kv_heads, dim, dim // heads

    def draw(self, mask: bool) -> None:
        """All rows from top to bottom."""
        y = HALF + EDGE
        self.inputs(y)
        first = y + 2 * STEP + 0.3
        steps = [
            ("scores", "query · key", "How well each query fits each key: one number for each pair."),
            (
                "scale",
                f"÷ √{self.width:,}",
                "Keeps the spread of the scores the same, however wide a head is.",
            ),
            ("mask", "−∞ where hidden", "Hides keys that a query may not attend: the future, padding."),
            ("softmax", "over the keys", "Turns each row into weights: none negative, their sum 1."),
        ]
        steps = [step for step in steps if mask or step[0] != "mask"]
        last = first + len(steps) * STEP
        self.cards(first - 0.5, last + HALF + 0.14)
        self.arrow(QUERY, y + STEP, first)
        self.arrow(KEY, y + STEP, first)
        self.arrow(VALUE, y + STEP, last)
        pictures = _example(mask)
        for index, (name, how, why) in enumerate(steps):
            row = first + index * STEP
            self.arrow(SCORES, row, row + STEP)
            self.box(SCORES, row, name, how, wide=2.4 if index == 0 else 1.7)
            self.explain(row, why)
            if name in pictures:
                self.picture(3.7, row, pictures[name])
        numbers = f"{self.width:,} numbers per query"
        self.box(OUTPUT, last, "weights × value", numbers, wide=VALUE - SCORES + 1.9)
        self.explain(last, "Each query takes the mean of the values by its weights.")
        self.ends(last)

    def inputs(self, y: float) -> None:
        """The three inputs and their projections."""
        separate, shared = f"{self.heads:,} × {self.width:,}", f"{self.kv_heads:,} × {self.width:,}"
        for lane, name in ((QUERY, "query"), (KEY, "key"), (VALUE, "value")):
            self.arrow(lane, y, y + STEP)
            self.box(lane, y, name, f"{self.dim:,}", kind=name)
            out = shared
            if name == "query":
                out = separate
            self.box(lane, y + STEP, f"project {name}", f"{self.dim:,} → {out}", kind=name)
        text = f"Each token is {self.dim:,} numbers. In self-attention all three are the same tokens."
        self.explain(y, text)
        count = self.dim * (self.dim + 2 * self.kv_heads * self.width)
        text = f"Learned: {count:,} weights, and each head gets its own {self.width:,} numbers."
        if self.kv_heads < self.heads:
            text += f" Here {self.heads // self.kv_heads:,} heads share a key and a value."
        self.explain(y + STEP, text)

    def ends(self, last: float) -> None:
        """What joins the heads, below them."""
        joined, out = f"{self.heads:,} × {self.width:,} → {self.dim:,}", f"{self.dim:,} → {self.dim:,}"
        below = last + STEP + 0.12
        self.arrow(OUTPUT, last, below)
        self.box(OUTPUT, below, "concatenate", joined, wide=1.9, kind="done")
        self.explain(below, "The outputs of all heads, side by side.")
        self.arrow(OUTPUT, below, below + STEP)
        self.box(OUTPUT, below + STEP, "project output", out, wide=1.9, kind="done")
        self.explain(below + STEP, f"Learned: {self.dim**2:,} weights mix what the heads found.")

    def box(
        self, x: float, y: float, name: str, detail: str, *, wide: float = BOX[0], kind: str = "plain"
    ) -> None:
        """A box around (x, y) with its name, and below it, smaller, what it holds or does."""
        look = {"facecolor": TINTS[kind], "edgecolor": EDGES[kind], "linewidth": 1.0, "zorder": 3}
        self.rounded(x - wide / 2, y - HALF, wide, BOX[1], 0.07, **look)
        for text, size, bold, color, rise in (
            (name, style.BODY, True, style.INK, -0.09),
            (detail, style.SMALL, False, style.MUTED, 0.1),
        ):
            room = (wide - 0.12) * style.POINTS
            # Large models have long numbers: text shrinks to its box rather than leaving it.
            fitting = min(size, size * room / style.measure(text, size, bold)[0])
            look = {"bold": bold, "color": color, "ha": "center", "va": "center", "zorder": 4}
            style.write(self.axes, x, y + rise, text, fitting, **look)

    def arrow(self, x: float, start: float, end: float) -> None:
        """Straight down from the box at `start` to the box at `end`."""
        patches = require("matplotlib.patches", extra="draw")
        look = {"color": style.MUTED, "linewidth": 1.0, "zorder": 2, "shrinkA": 0, "shrinkB": 0}
        head = {"arrowstyle": "-|>,head_length=4,head_width=2.2", "mutation_scale": 1}
        self.axes.add_patch(patches.FancyArrowPatch((x, start + HALF), (x, end - HALF), **head, **look))

    def rounded(self, left: float, top: float, wide: float, high: float, corner: float, **look: Any) -> None:
        """A rectangle with round corners."""
        patches = require("matplotlib.patches", extra="draw")
        shape = f"round,pad=0,rounding_size={corner}"
        self.axes.add_patch(patches.FancyBboxPatch((left, top), wide, high, boxstyle=shape, **look))

    def cards(self, top: float, bottom: float) -> None:
        """One card per head, up to four, the front one open."""
        look = {"facecolor": "#f7f9fb", "edgecolor": style.FAINT, "linewidth": 0.8}
        # From the back to the front, as later patches cover earlier ones.
        for index in reversed(range(min(self.heads, 4))):
            shift, order = 0.07 * index, 1 - index / 10
            self.rounded(
                CARD[0] + shift, top - shift, CARD[1] - CARD[0], bottom - top, 0.1, zorder=order, **look
            )
        text = "the one head"
        if self.heads != 1:
            text = f"{self.heads:,} heads, each by itself"
        style.write(self.axes, VALUE - 0.12, top + 0.13, text, style.SMALL, va="center", ha="right", zorder=4)

    def picture(self, x: float, y: float, values: Numbers) -> None:
        """A small matrix right of its box."""
        patches = require("matplotlib.patches", extra="draw")
        side = 0.5
        # What is hidden has no color; the lightest color is left to the smallest score.
        masked = np.ma.masked_invalid(values)
        norm = require("matplotlib.colors", extra="draw").Normalize(masked.min() - 0.05, masked.max())
        colors.image(self.axes, masked, (x, x + side, y + side / 2, y - side / 2), norm).set_zorder(3)
        look = {"fill": False, "edgecolor": style.FAINT, "linewidth": 0.5, "zorder": 4}
        self.axes.add_patch(patches.Rectangle((x, y - side / 2), side, side, **look))

    def explain(self, y: float, text: str) -> None:
        """What the row does, beside it."""
        lines = style.wrap(text, (WIDTH - style.MARGIN - TEXT) * style.POINTS, style.BODY)
        style.write(self.axes, TEXT, y, lines, color=style.MUTED, va="center", linespacing=1.3)


def _example(mask: bool) -> dict[str, Numbers]:
    """Scores, hidden scores and weights of six tokens: what the steps of the drawing do, computed."""
    # A little more on the diagonal, as tokens often look at themselves, so that a pattern shows.
    scores = np.random.default_rng(7).normal(size=(6, 6)) + 1.5 * np.eye(6)
    hidden = scores
    if mask:
        hidden = np.where(np.tri(6, dtype=bool), scores, np.nan)
    weights = np.exp(np.where(np.isnan(hidden), -np.inf, hidden))
    weights = np.where(np.isnan(hidden), np.nan, weights / weights.sum(1, keepdims=True))
    return {"scores": scores, "mask": hidden, "softmax": weights}
