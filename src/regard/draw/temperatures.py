"""Curves over queries and keys: entropy with its bounds, weights under several temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, inputs, style
from regard.draw.chart import DASHES, DOTS, Entry, chart
from regard.draw.inputs import Array
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@checked
def temperatures(
    scores: Array,
    *,
    temperatures: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
    tokens: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the weights of one query, softmax(scores / temperature), under several temperatures.

    A temperature below 1 sharpens, towards all weight on the largest score; above 1 it flattens, towards 1/n
    each.

    Args:
        scores: `(keys,)`, of one query, as the softmax sees them: `key @ query / √dim`. −inf: may not be
            attended.
        temperatures: positive; one line each.
        tokens: one label per key.
        title: written above.

    Raises:
        ShapeError: the scores have other axes, or tokens do not fit them.
        ArgumentError: a temperature is not positive; a score is NaN or +inf, or all are −inf.
    """
    values = inputs.numbers("scores", scores, "keys", finite=False).astype(np.float64)
    if np.isnan(values).any() or np.isposinf(values).any() or np.isneginf(values).all():
        raise ArgumentError(
            "scores must be numbers or −inf, at least one of them finite, got NaN, +inf or −inf only"
        )
    degrees = [float(degree) for degree in temperatures]
    if not degrees or not all(0 < degree < float("inf") for degree in degrees):
        raise ArgumentError(
            f"temperatures must be positive numbers, at least one, got {list(temperatures)!r}"
        )
    names = None
    if tokens is not None:
        names = inputs.token_list("tokens", tokens, len(values), "keys")
    curves = [_softmax(values / degree) for degree in degrees]
    hues = colors.graded(len(degrees))
    entries = [
        Entry(f"T = {degree:g} · entropy {_entropy(curve):.2f} nats", color)
        for degree, color, curve in zip(degrees, hues, curves, strict=True)
    ]
    # What may not be attended is not among those alike.
    free = int(np.isfinite(values).sum())
    entries.append(Entry(f"1/{free}, all keys alike", style.MUTED, "dashes"))
    note = "T divides the scores before the softmax: below 1 the weights become sharper, above 1 flatter."
    figure, axes = chart(
        len(values), names, names=("key", "attention weight"), entries=entries, title=title or "", note=note
    )
    marker = ""
    if len(values) <= DOTS:
        marker = "o"
    for curve, color in zip(curves, hues, strict=True):
        axes.plot(curve, color=color, linewidth=1.8, marker=marker, markersize=4.5, markeredgewidth=0)
    axes.axhline(1 / free, color=style.MUTED, zorder=1, **DASHES)
    top = max(float(curve.max()) for curve in curves)
    axes.axhline(0, color=style.FAINT, linewidth=0.8, zorder=1)
    axes.spines["bottom"].set_visible(False)
    # Points at 0 are whole, and the highest has room.
    axes.set_ylim(-0.03 * top, 1.06 * top)
    return figure


def _softmax(scores: inputs.Numbers) -> inputs.Numbers:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def _entropy(weights: inputs.Numbers) -> float:
    positive = weights[weights > 0]
    return float(-(positive * np.log(positive)).sum())
