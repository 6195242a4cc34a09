"""What a plan of sparse masks saves, head by head, and what caches that forget would hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.analysis.sparse_plan import SparsePlan
from regard.checks.arguments import checked
from regard.draw import colors, labels, style
from regard.draw.series import Panel, series
from regard.errors import ArgumentError
from regard.record.layers import short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# Inches: the map's longest side, and the least and the most of one head's cell.
WIDEST, LEAST, MOST = 9.0, 0.14, 0.42
SIGNS = {"window": "w", "window and first": "f", "strided": "s", "columns": "c", "full": ""}
COLUMNS = ("layer", "kind", "head", "policy", "budget", "mass")


@checked
def sparse_plan(plan: SparsePlan, *, title: str | None = None) -> Figure:
    """Draw the share of the pairs that each head is spared, layers down, heads across; a letter says its family.

    Args:
        plan: what `regard.analysis.sparsify` gave.
        title: written above.

    Raises:
        ArgumentError: a plan of no head.
    """
    if not len(plan):
        raise ArgumentError("a plan that is drawn must have at least one head, got none")
    layers = list(dict.fromkeys((one.layer, one.kind) for one in plan.chosen))
    heads = max(one.head for one in plan.chosen) + 1
    saved = np.full((len(layers), heads), np.nan)
    signs = {}
    for one in plan.chosen:
        place = layers.index((one.layer, one.kind)), one.head
        saved[place], signs[place] = one.saved, SIGNS[one.family]
    names = short_names([layer for layer, _ in layers], [kind for _, kind in layers])
    cell = float(np.clip(WIDEST / max(heads, len(layers)), LEAST, MOST))
    width, height = cell * heads, cell * len(layers)
    beside = labels.of_tokens(names, cell * style.POINTS, across=False)
    left = style.MARGIN + max(labels.room(beside, across=False), 0.3)
    bar = min(max(height, 1.6), 2.2)
    name = "share of pairs saved"
    if title is None:
        title = "What sparse masks save"
    room = max(height + 0.45, bar)
    across = max(left + width + 0.2 + colors.room(name, bar), 4.6)
    figure, top = style.sheet(across, room, title=title, note=_note(plan, set(signs.values())))
    axes = style.place(figure, left, top, width, height)
    axes.set_gid("saved")
    extent = (-0.5, heads - 0.5, len(layers) - 0.5, -0.5)
    image = colors.image(axes, np.ma.masked_invalid(saved), extent, colors.span(0.0, 1.0))
    for (row, column), sign in signs.items():
        ink = style.INK
        # On the dark half of the scale ink is not read.
        if saved[row, column] > 0.5:
            ink = "white"
        if sign and cell >= 0.16:
            style.write(axes, column, row, sign, style.SMALL, color=ink, ha="center", va="center_baseline")
    labels.put(axes, beside, across=False)
    labels.put(axes, labels.of_positions(0, heads - 1, cell * style.POINTS), across=True)
    style.level(figure, left + width / 2, top + height + 0.24, "head")
    colors.bar(figure, image, left + width + 0.2, top, bar, name, [0.0, 0.25, 0.5, 0.75, 1.0])
    return figure


def _note(plan: SparsePlan, signs: set[str]) -> str:
    words = ", ".join(f"{sign}: {family}" for family, sign in SIGNS.items() if sign and sign in signs)
    if "" in signs:
        words = f"{words}; no letter: full".lstrip("; ")
    return f"At least {plan.keep:.4g} of the mass stays; {plan.saved:.1%} of all pairs are saved. {words}."


@checked
def eviction(table: DataFrame, *, title: str | None = None) -> Figure:
    """Draw the mass that caches of several sizes hold: on average, and of the head that loses most.

    Args:
        table: what `regard.analysis.eviction` gave.
        title: written above.

    Raises:
        ArgumentError: another table, or one without rows.
    """
    if not set(COLUMNS) <= set(getattr(table, "columns", ())) or not len(table):
        raise ArgumentError(
            f"table must have rows and the columns {', '.join(COLUMNS)}, as of regard.analysis.eviction"
        )
    every, worst = {}, {}
    for policy, rows in table.groupby("policy", sort=False):
        of_budget = rows.groupby("budget")["mass"]
        budgets = np.array(sorted(of_budget.groups), dtype=float)
        every[str(policy)] = (budgets, of_budget.mean().to_numpy())
        worst[str(policy)] = (budgets, of_budget.min().to_numpy())
    names = ("keys that each head may hold", "share of the mass")
    panels = [
        Panel("mean over the heads", *names, every, logs="x"),
        Panel("the head that loses most", *names, worst, logs="x"),
    ]
    note = "Shares are means over the queries."
    if title is None:
        title = "What a cache that forgets still holds"
    return series(panels, title=title, note=note)
