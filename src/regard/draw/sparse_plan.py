"""What a plan of sparse masks saves, head by head, and what caches that forget would hold."""

from __future__ import annotations

import math
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
SIGNS = {"window": "w", "window and first": "f", "strided": "s", "columns": "c", "block": "b", "full": ""}
COLUMNS = ("layer", "kind", "head", "policy", "budget", "mass")


@checked
def sparse_plan(plan: SparsePlan, *, title: str | None = None) -> Figure:
    """Draw the share of the pairs that each head is spared, layers down, heads across; a letter says its family.

    Beside it is how far each mask moves its head's output, where that was measured.

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
    error, signs = saved.copy(), {}
    for one in plan.chosen:
        at = layers.index((one.layer, one.kind)), one.head
        saved[at], signs[at] = one.saved, SIGNS[one.family]
        if one.error is not None:
            error[at] = one.error
    names = short_names([layer for layer, _ in layers], [kind for _, kind in layers])
    panels = [("saved", "share of pairs saved", saved, 1.0)]
    if not np.isnan(error).all():
        panels.append(("error", "relative output error", error, _round_up(float(np.nanmax(error)))))
    cell = float(np.clip(WIDEST / len(panels) / max(heads, len(layers) / 2), LEAST, MOST))
    width, height = cell * heads, cell * len(layers)
    beside = labels.of_tokens(names, cell * style.POINTS, across=False)
    left = style.MARGIN + max(labels.room(beside, across=False), 0.3)
    bar = min(max(height, 1.6), 2.2)
    if title is None:
        title = "What sparse masks save"
    step = width + 0.4 + max(colors.room(name, bar) for _, name, *_ in panels)
    across = max(left + step * len(panels), 4.6)
    figure, top = style.sheet(
        across, max(height + 0.45, bar), title=title, note=_note(plan, set(signs.values()))
    )
    extent = (-0.5, heads - 0.5, len(layers) - 0.5, -0.5)
    for number, (gid, name, values, most) in enumerate(panels):
        start = left + number * step
        axes = style.place(figure, start, top, width, height)
        axes.set_gid(gid)
        image = colors.image(axes, np.ma.masked_invalid(values), extent, colors.span(0.0, most))
        for (row, column), sign in signs.items():
            ink = style.INK
            # On the dark half of the scale ink is not read.
            if values[row, column] > most / 2:
                ink = "white"
            if sign and cell >= 0.16:
                style.write(
                    axes, column, row, sign, style.SMALL, color=ink, ha="center", va="center_baseline"
                )
        axes.set_yticks([])
        if not number:
            labels.put(axes, beside, across=False)
        labels.put(axes, labels.of_positions(0, heads - 1, cell * style.POINTS), across=True)
        style.level(figure, start + width / 2, top + height + 0.24, "head")
        ticks = [most * share for share in (0.0, 0.5, 1.0)]
        colors.bar(figure, image, start + width + 0.2, top, bar, name, ticks)
    return figure


def _round_up(value: float) -> float:
    """Where a scale of errors ends: the next number of one digit and zeros, at least 0.01."""
    value = max(value, 0.01)
    magnitude = 10.0 ** math.floor(math.log10(value))
    return float(math.ceil(value / magnitude - 1e-9) * magnitude)


def _note(plan: SparsePlan, signs: set[str]) -> str:
    words = ", ".join(f"{sign}: {family}" for family, sign in SIGNS.items() if sign and sign in signs)
    if "" in signs:
        words = f"{words}; no letter: full".lstrip("; ")
    if plan.not_judged:
        words = f"{words}. Not judged: {', '.join(plan.not_judged)}"
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
