"""One head as a heatmap: queries down, keys across, dark where the weight is large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.checks.arguments import checked
from regard.draw import colors, inputs, labels, style, weight_pictures
from regard.draw.inputs import Array
from regard.draw.outlines import found, outline
from regard.draw.weight_pictures import Picture
from regard.errors import ArgumentError, ShapeError
from regard.statistics.observation import Map, Observation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: of a cell with its value written, without.
LARGEST_CELL, BARE_CELL = 0.52, 0.4
# Inches, when tokens are written beside it.
LONGEST_SIDE = 11.0
PLAIN_SIDE = 6.4  # inches, when positions are
SHORTEST_SIDE = 0.9  # inches
# Tokens up to which each cell shows its value.
READABLE = 16


@checked
def heatmap(
    weights: Array | Observation | Map,
    head: int | None = None,
    *,
    batch: int = 0,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    allowed: Array | None = None,
    truth: Array | None = None,
    values: bool | None = None,
    scale: str = "linear",
    limit: float | None = None,
    cell: int = 1,
    title: str | None = None,
) -> Figure:
    """Draw the attention weights of one head.

    Args:
        weights: `(queries, keys)`, or what was observed (then `head` and `batch` say which weights).
        head: which head of an observation or map.
        batch: which row of its batch.
        tokens: one label per query; also per key unless `key_tokens` are given. With fewer queries than keys,
            one label per key will do: queries sit at the end. Left aside where a cell holds several tokens.
        key_tokens: one label per key.
        allowed: `(queries, keys)`, bool: True where the query may attend. The other cells are gray.
        truth: the weights' shape, bool: the cells that are known to be right are outlined, and the figure says of how
            many queries the largest weight is on one of them.
        values: write the weight into each cell; None: when there are at most 16 queries and keys. `0` is
            exactly 0.
        scale: `"linear"`, or `"sqrt"`, which shows small weights beside a large one.
        limit: the weight drawn darkest; None: the largest one there is.
        cell: tokens per side of a cell of `weights`; positions are written when it is more than 1.
        title: written above; None: the layer and head where they are known.

    Raises:
        ShapeError: tokens, `allowed` or `truth` do not fit the weights.
        ArgumentError: weights that are negative or not finite; an observation without a map, or without
            `head`.
    """
    drawn, known = _picture(weights, head, batch, cell)
    queries, keys = _names(drawn, tokens, key_tokens)
    keep = _allowed(drawn, allowed)
    right = None
    if truth is not None:
        right = inputs.truths("truth", truth, drawn.weights.shape, "weights")
    if limit is None:
        limit = drawn.largest or 1.0
    norm = colors.norm(scale, limit)
    readable = drawn.cell == 1 and max(drawn.weights.shape) <= READABLE
    write_values = readable
    if values is not None:
        write_values = values

    plan = _plan(drawn, queries, keys, write_values, scale)
    note = ""
    if right is not None:
        note = _verdict(drawn, right)
    figure, over = style.sheet(*plan.room, title=known if title is None else title, note=note)
    shown = drawn.shrunk(plan.height * style.DPI, plan.width * style.DPI, keep)
    axes = style.place(figure, plan.left, plan.top + over, plan.width, plan.height)
    axes.set_gid("weights")
    image = colors.image(axes, shown, drawn.extent, norm)
    axes.set_xlim(-0.5, drawn.keys - 0.5)
    # Only queries and keys that exist are shown: a cell at the end may reach beyond them.
    axes.set_ylim(drawn.first + drawn.queries - 0.5, drawn.first - 0.5)
    _rules(axes, shown.shape, drawn)
    if right is not None:
        # The outline goes through the same shrinking as the weights, so that it surrounds the cells that are seen.
        cells = replace(drawn, weights=right.astype(np.float32)).shrunk(*shown.shape) > 0
        outline(axes, cells, drawn.extent, 2.0 if max(shown.shape) <= READABLE else 1.2)
    labels.put(axes, plan.keys, across=True, top=True)
    labels.put(axes, plan.queries, across=False)
    _axis_names(figure, plan, over)
    if write_values:
        _write_values(axes, shown, drawn, norm, plan)
    bar_left = plan.left + plan.width + 0.22
    # Beside low maps it ends where they do.
    bar_top = plan.top + over + min(0.0, plan.height - plan.bar)
    colors.bar(figure, image, bar_left, bar_top, plan.bar, plan.name, colors.ticks(scale, float(norm.vmax)))
    return figure


def _picture(weights: Any, head: int | None, batch: int, cell: int) -> tuple[Picture, str]:
    """The picture and, where it is known, its name."""
    if not isinstance(weights, Observation | Map):
        if head is not None or batch != 0:
            raise ArgumentError(
                "head and batch choose from an observation; weights[batch, head] does from an array"
            )
        return weight_pictures.picture(weights, cell), ""
    if head is None:
        raise ArgumentError("head must be given with an observation: which of its heads is to be drawn?")
    if cell != 1:
        raise ArgumentError(
            f"cell belongs to an array of pooled weights; an observation knows its own, got {cell}"
        )
    picture = weight_pictures.seen(weights, head, batch)
    return picture, f"{weight_pictures.title_of(weights) or 'attention'} · head {head}"


def _names(drawn: Picture, tokens: Any, key_tokens: Any) -> tuple[list[str] | None, list[str] | None]:
    """Labels of queries and of keys, checked; None where positions are to be written."""
    if drawn.cell > 1:
        return None, None
    # In decoding with a cache the queries are the last of the keys, so one list of tokens names both.
    at_end = tokens is not None and key_tokens is None and len(tokens) == drawn.keys > drawn.queries
    keys, queries = key_tokens, tokens
    if at_end:
        queries = tokens[drawn.keys - drawn.queries :]
    if key_tokens is None and (at_end or drawn.queries == drawn.keys):
        keys = tokens
    if queries is not None:
        queries = inputs.token_list("tokens", queries, drawn.queries, "queries")
    if keys is not None:
        keys = inputs.token_list("key_tokens", keys, drawn.keys, "keys")
    return queries, keys


def _allowed(drawn: Picture, allowed: Any) -> Any:
    """Which cells may be attended, bool; None: nothing is known of it."""
    if allowed is None:
        return None
    keep = inputs.numbers("allowed", allowed, "queries", "keys")
    if keep.shape != drawn.weights.shape:
        raise ShapeError(f"allowed must be {drawn.weights.shape} like the weights, got {keep.shape}")
    return keep != 0


def _verdict(drawn: Picture, right: NDArray[np.bool_]) -> str:
    """What the outline means, and how often the largest weight is inside of it."""
    hits = [hit for hit in found(drawn.weights, right) if hit is not None]
    of = "rows of cells"
    if drawn.cell == 1:
        of = "queries"
    return f"Outlined: known to be right. Largest weight inside: {sum(hits):,} of the {len(hits):,} {of} that have one."


def _bar_name(drawn: Picture, scale: str, *, shrunk: bool) -> str:
    """What the colors are."""
    name = "attention weight"
    if drawn.cell != 1:
        name = f"{drawn.pooling} weight in cells of {drawn.cell} × {drawn.cell}".strip()
    if shrunk:
        name += ", largest in each pixel"
    return name + colors.SUFFIX[scale]


@dataclass(frozen=True)
class _Plan:
    """Where everything goes, in inches from the top left, before the title moves it down."""

    queries: labels.Labels
    keys: labels.Labels
    left: float
    top: float
    width: float
    height: float
    bar: float
    name: str  # of the color bar

    @property
    def room(self) -> tuple[float, float]:
        return self.left + self.width + 0.22 + colors.room(self.name, self.bar), self.top + self.height


def _plan(
    drawn: Picture, queries: list[str] | None, keys: list[str] | None, values: bool, scale: str
) -> _Plan:
    rows, columns = drawn.weights.shape
    longest = LONGEST_SIDE
    if queries is None and keys is None:
        longest = PLAIN_SIDE
    largest, smallest = BARE_CELL, 0.0
    if values:
        largest, smallest = LARGEST_CELL, 0.36
    side = max(min(largest, longest / max(rows, columns)), smallest)
    # Few queries over many keys: cells need not be square, but must be seen.
    width = max(columns * side, min(SHORTEST_SIDE, columns * LARGEST_CELL * 2))
    height = max(rows * side, min(SHORTEST_SIDE, rows * LARGEST_CELL))
    across, down = width / drawn.keys * style.POINTS, height / drawn.queries * style.POINTS
    last = drawn.first + drawn.queries - 1
    if queries is None:
        beside = labels.of_positions(drawn.first, last, down, across=height > 2.5)
    else:
        beside = labels.of_tokens(queries, down, across=False, first=drawn.first)
    if keys is None:
        above = labels.of_positions(0, drawn.keys - 1, across)
    else:
        above = labels.of_tokens(keys, across, across=True)
    bar = min(max(height, colors.SHORTEST), 3.2)
    left = style.MARGIN + 0.2 + labels.room(beside, across=False)
    top = max(0.2 + labels.room(above, across=True), bar - height)
    shrunk = rows > height * style.DPI or columns > width * style.DPI
    name = _bar_name(drawn, scale, shrunk=shrunk)
    return _Plan(beside, above, left, top, width, height, bar, name)


def _rules(axes: Axes, shape: tuple[int, int], drawn: Picture) -> None:
    """White lines between cells while cells are large enough to need none."""
    # Finer cells would be more rule than color.
    if max(shape) > 48:
        return
    width = 0.5
    if max(shape) <= READABLE:
        width = 1.2
    left, right, bottom, top = drawn.extent
    axes.vlines(np.arange(left, right + 0.1, drawn.cell)[1:-1], top, bottom, color="white", linewidth=width)
    axes.hlines(np.arange(top, bottom + 0.1, drawn.cell)[1:-1], left, right, color="white", linewidth=width)


def _axis_names(figure: Figure, plan: _Plan, over: float) -> None:
    """“keys” above their labels, “queries” beside theirs."""
    y = plan.top + over - labels.room(plan.keys, across=True) - 0.05
    style.level(figure, plan.left + plan.width / 2, y, "keys", va="bottom")
    style.upright(figure, style.MARGIN, plan.top + over + plan.height / 2, "queries")


def _write_values(axes: Axes, shown: Any, drawn: Picture, norm: Any, plan: _Plan) -> None:
    """The weight in each cell, dark on light and light on dark."""
    rows, columns = shown.shape
    # The text is wider than it is high: the width bounds its size, unless cells are flat.
    room = min(plan.width / columns, plan.height / rows * 1.6) * style.POINTS
    size = min(9.0, 9.0 * (room - 4) / style.measure("0.000", 9.0)[0])
    left, _, _, top = drawn.extent
    # The first and last cells may be cut: the middle of what is seen of them.
    edges_x = np.clip(left + np.arange(columns + 1) * drawn.cell, *axes.get_xlim())
    edges_y = np.clip(top + np.arange(rows + 1) * drawn.cell, *sorted(axes.get_ylim()))
    for row in range(rows):
        for column in range(columns):
            weight = shown[row, column]
            if weight is np.ma.masked:
                continue
            center = (edges_x[column : column + 2].mean(), edges_y[row : row + 2].mean())
            color = style.INK
            if norm(weight) > 0.55:
                color = "white"
            text = "0"
            if weight != 0:
                text = f"{weight:.3f}"
            style.write(axes, *center, text, size, color=color, ha="center", va="center")
