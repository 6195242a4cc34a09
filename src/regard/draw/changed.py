"""What changed between two models, as a grid of heads: `regard.analysis.compare`, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard.draw import colors, labels, style
from regard.errors import RecordError
from regard.record.layers import short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDED = ("layer", "kind", "head", "other", "distance")
NOTE = "A number is that of the matching head, where it is another one."
CELL, BELOW, GAP = 0.3, 0.5, 0.14  # inches
# The end of the scale at least, so that rounding does not look like a change.
LEAST = 0.1
BAR = "distance of the matching heads"


def changed(compared: Any, *, title: str | None = None) -> Figure:
    """Draw how far each head is from its match, layers down and heads across.

    Args:
        compared: the table that `regard.analysis.compare` returned.
        title: written above.

    Raises:
        RecordError: no such table, or one without a row.
    """
    columns = getattr(compared, "columns", ())
    if any(name not in columns for name in NEEDED) or not len(compared):
        raise RecordError(f"what is drawn must be a table of compare, with the columns {', '.join(NEEDED)}")
    # The table is sorted by distance; layers come in the order of their names' numbers, as models count them.
    keys = {(row.layer, row.kind): None for row in compared.sort_values("head").itertuples()}
    layers = sorted(keys, key=lambda key: ([_part(part) for part in key[0].split(".")], key[1]))
    names = short_names([name for name, _ in layers], [kind for _, kind in layers])
    heads = int(compared["head"].max()) + 1
    values = np.full((len(layers), heads), np.nan)
    for row in compared.itertuples():
        values[layers.index((row.layer, row.kind)), row.head] = row.distance
    left = style.MARGIN + max(style.measure(name, style.SMALL)[0] for name in names) / style.POINTS + 0.3
    width, height = heads * CELL, max(len(layers) * CELL, colors.SHORTEST)
    across = max(left + width + GAP + colors.room(BAR, height), 4.2)
    figure, top = style.sheet(across, height + BELOW, title=title or "What changed", note=NOTE)
    axes = style.place(figure, left, top, width, len(layers) * CELL)
    axes.set_gid("panel")
    limit = max(float(np.nanmax(values)), LEAST)
    norm = colors.norm("linear", limit)
    extent = (-0.5, heads - 0.5, len(layers) - 0.5, -0.5)
    picture = colors.image(axes, np.ma.masked_invalid(values), extent, norm)
    labels.put(axes, labels.of_positions(0, heads - 1, CELL * style.POINTS), across=True)
    axes.set_yticks(range(len(names)), names, fontproperties=style.font(style.SMALL))
    for row in compared[compared["head"] != compared["other"]].itertuples():
        ink = style.INK
        # White on the dark half of the scale.
        if norm(row.distance) > 0.5:
            ink = "white"
        line = layers.index((row.layer, row.kind))
        look = {"ha": "center", "va": "center", "color": ink, "fontproperties": style.font(style.TINY)}
        axes.text(row.head, line, str(row.other), **look)
    style.level(figure, left + width / 2, top + len(layers) * CELL + 0.26, "head")
    ticks = colors.ticks("linear", limit)
    colors.bar(figure, picture, left + width + GAP, top, height, BAR, ticks)
    return figure


def _part(part: str) -> tuple[int, int, str]:
    """A part of a name, so that layer 10 comes after layer 9."""
    if part.isdigit():
        return 0, int(part), ""
    return 1, 0, part
