"""The rollout of a token as rows of color: a row per layer, a column per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.analysis.flow import Rollout
from regard.checks.arguments import checked, whole
from regard.draw import colors, inputs, labels, style
from regard.draw.inputs import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: of a token, of all of them, of a layer, of all of them, the name above a panel, from panel to panel.
TOKEN, WIDTH, LAYER, HEIGHT, HEADER, BETWEEN = 0.42, 9.0, 0.26, 4.2, 0.3, 0.35
NARROWEST = 2.4
# Cells side by side: of more tokens each shows the largest of several.
MOST_CELLS = 900


@checked
def rollout(
    result: Rollout,
    *,
    batch: int = 0,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    corrected: bool = False,
    scale: str = "sqrt",
    title: str | None = None,
) -> Figure:
    """Draw the rollout of a token: how much of it is in each token, before the first layer and after each.

    Args:
        result: as `regard.analysis.flow.rollout` returns it.
        batch: which row of the batch.
        tokens: one label per token. source_tokens: one per token of the text that cross-attention looks at.
        corrected: draw the shares as multiples of what equal weights give; the rollout must know them.
        scale: "sqrt", which shows small shares beside a large one, or "linear".
        title: written above.

    Raises:
        RecordError: `corrected` of a rollout that was computed without it.
        ShapeError: labels that do not fit the tokens.
        ArgumentError: no such row of the batch or scale.
    """
    batch = whole("batch", batch, 0, len(result.shares) - 1)
    shares, source = result.shares, result.source
    if corrected:
        shares = result.corrected
    tables = [("", shares, tokens, "tokens")]
    if source is not None:
        if corrected:
            source = result.corrected_source
        tables = [
            ("text", shares, tokens, "tokens"),
            ("the text that it looks at", source, source_tokens, "source_tokens"),
        ]
    panels = [
        (
            name,
            inputs.numbers("shares", table[batch], "layers", "tokens"),
            _named(argument, names, table.shape[2]),
        )
        for name, table, names, argument in tables
    ]
    bar = "share"
    if corrected:
        bar = "share, as a multiple of that of equal weights"
    bar += colors.SUFFIX.get(scale, "")
    # One color scale for both texts, as their shares add up to 1 together.
    largest = max(float(table.max()) for _, table, _ in panels) or 1.0
    norm = colors.norm(scale, largest)
    sizes = [_size(table) for _, table, _ in panels]
    below = [
        _labels(table, names, width) for (_, table, names), (width, _) in zip(panels, sizes, strict=True)
    ]
    depths = [labels.room(one, across=True) + 0.3 for one in below]
    left, across = style.MARGIN + 0.75, max(width for width, _ in sizes)
    height = sum(HEADER + tall + depth for (_, tall), depth in zip(sizes, depths, strict=True))
    height += BETWEEN * (len(panels) - 1)
    shown = max(1.2, min(2.2, sizes[0][1]))
    figure, top = style.sheet(
        left + across + 0.2 + colors.room(bar, shown),
        max(height, HEADER + shown + 0.2),
        title=_title(result, title),
    )
    image, first = None, top + HEADER
    for (name, table, _), (width, tall), one, depth in zip(panels, sizes, below, depths, strict=True):
        if name:
            style.write_at(figure, left, top + HEADER - 0.09, name, va="baseline")
        axes = style.place(figure, left, top + HEADER, width, tall)
        image = _panel(axes, table, norm, tall)
        labels.put(axes, one, across=True)
        style.upright(figure, style.MARGIN, top + HEADER + tall / 2, "after layer")
        style.level(figure, left + width / 2, top + HEADER + tall + depth - 0.22, "token")
        top += HEADER + tall + depth + BETWEEN
    colors.bar(figure, image, left + across + 0.2, first, shown, bar, colors.ticks(scale, float(norm.vmax)))
    return figure


def _title(result: Rollout, title: str | None) -> str:
    if title is not None:
        return title
    if result.direction == "back":
        return f"Where token {result.token} comes from"
    return f"Where token {result.token} goes"


def _named(argument: str, names: Sequence[str] | None, count: int) -> list[str] | None:
    if names is None:
        return None
    return inputs.token_list(argument, names, count, "tokens")


def _size(table: Numbers) -> tuple[float, float]:
    """Width and height of a panel, in inches."""
    layers, tokens = table.shape
    return max(NARROWEST, min(WIDTH, TOKEN * tokens)), min(HEIGHT, LAYER * layers)


def _labels(table: Numbers, names: list[str] | None, width: float) -> labels.Labels:
    pitch = width / table.shape[1] * style.POINTS
    if names is None:
        return labels.of_positions(0, table.shape[1] - 1, pitch)
    return labels.of_tokens(names, pitch, across=True)


def _panel(axes: Axes, table: Numbers, norm: object, tall: float) -> object:
    """One text: the last layer on top, as the token's state there is what the flow begins or ends with."""
    layers, tokens = table.shape
    axes.set_gid("rollout")
    cells = table
    if tokens > MOST_CELLS:
        starts = np.linspace(0, tokens, MOST_CELLS, endpoint=False).astype(int)
        # The largest and not the mean, so that one strong token stays visible among many weak ones.
        cells = np.maximum.reduceat(table, starts, axis=1)
    extent = (-0.5, tokens - 0.5, -0.5, layers - 0.5)
    image = colors.image(axes, cells[::-1], extent, norm)
    places = labels.of_positions(0, layers - 1, tall / layers * style.POINTS, across=False)
    labels.put(axes, places, across=False)
    axes.hlines(np.arange(1, layers) - 0.5, -0.5, tokens - 0.5, color="white", linewidth=0.6)
    return image
