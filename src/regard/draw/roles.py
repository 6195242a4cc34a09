"""What each head did at each step of its training, as a row of color."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.analysis import ROLES
from regard.analysis import roles as named
from regard.checks.arguments import checked
from regard.draw.chart import Entry, beside, legend
from regard.draw.panels import TALL, corner, number_heads, panels
from regard.errors import RecordError, require
from regard.record.layers import short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.record.history import History

NOTE = "Looks from left to right, at these steps of training; 0 is before the first update."
COLORS = dict(
    zip(
        ("previous token", "first token", "itself", "one key", "nearby", "even", "mixed"),
        ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#F3E3B0", "#CDD3DA"),
        strict=True,
    )
)
# Heads of a layer up to which a white line stands between two of them.
RULED = 24


@checked
def roles(history: History, *, title: str | None = None) -> Figure:
    """Draw the role of every head along the steps of its training: `regard.analysis.roles`.

    A panel per layer, a row per head, a column per look; the figure says what the roles that occur mean.

    Args:
        history: as `regard.training.train` kept it.
        title: written above.

    Raises:
        RecordError: the history is empty, or a statistic that a role is told by was not kept.
    """
    if not history.steps or not history.layers:
        raise RecordError("a history that is drawn must have at least one step and one layer, got none")
    found = named(history)
    occurring = [role for role in ROLES if (found == role).any()]
    entries = [Entry(role, COLORS[role], "block") for role in occurring]
    names = short_names([layer.name for layer in history.layers], [layer.kind for layer in history.layers])
    figure, grid, width = panels(
        [(name, "") for name in names],
        (0, len(history.steps) - 1),
        names=("step of training", "head"),
        beside=(beside(entries), len(entries) * 0.2 + 0.1),
        title="What each head does" if title is None else title,
        note="\n".join([*(f"{role}: {ROLES[role]}" for role in occurring), NOTE]),
        numbers=history.steps,
    )
    rgb = require("matplotlib.colors", extra="draw").to_rgb
    for place, axes in enumerate(grid):
        own = found[:, history.heads_of(place)].T
        heads, steps = own.shape
        # Roles are names, not numbers: their colors are given as they are, without a scale.
        cells = np.array([[rgb(COLORS[role]) for role in row] for row in own])
        extent = (-0.5, steps - 0.5, heads - 0.5, -0.5)
        axes.imshow(cells, extent=extent, aspect="auto", interpolation="nearest")
        if heads <= RULED:
            axes.hlines(np.arange(1, heads) - 0.5, -0.5, steps - 0.5, color="white", linewidth=1.0)
        number_heads(axes, heads, width)
    legend(corner(grid), entries, width, width * TALL)
    return figure
