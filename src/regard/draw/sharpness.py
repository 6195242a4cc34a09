"""How sharp a softmax is against its temperature: entropy and largest weight, each with its bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from regard.checks.arguments import checked, shown
from regard.draw import inputs
from regard.draw.inputs import Array, Numbers
from regard.draw.series import Panel, series
from regard.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 121


@checked
def sharpness(
    scores: Array | Mapping[str, Array],
    *,
    coldest: float = 0.05,
    hottest: float = 20.0,
    title: str | None = None,
) -> Figure:
    """Draw entropy and largest weight of softmax(scores / temperature) against the temperature.

    The entropy goes from 0 (one key, at temperature 0) to ln n (all n keys alike), the largest weight from 1 to
    1/n; n counts the keys whose score is not −inf.

    Args:
        scores: `(keys,)`, of one query, as the softmax sees them; −inf: may not be attended. A mapping draws a
            line for each query, by its name, all of which must have as many allowed keys.
        coldest: the smallest temperature, above 0.
        hottest: the largest one.
        title: written above.

    Raises:
        ShapeError: scores have other axes, or queries have different numbers of allowed keys.
        ArgumentError: the temperatures are not positive and ascending; a score is NaN or +inf, or all are −inf.

    Example:
        >>> figure = sharpness(np.array([2.0, 1.0, 0.0]), title="Three keys")
    """
    if not 0 < coldest < hottest:
        raise ArgumentError(f"temperatures must have 0 < coldest < hottest, got {coldest} and {hottest}")
    named = scores
    if not isinstance(named, Mapping):
        named = {"softmax(scores / T)": named}
    if not named:
        raise ArgumentError(f"scores must have at least one query, got {shown(scores)}")
    rows = {name: _finite(name, row) for name, row in named.items()}
    counts = {len(row) for row in rows.values()}
    if len(counts) > 1:
        raise ShapeError(f"queries must have as many allowed keys, got {sorted(counts)}")
    (count,) = counts
    degrees = np.geomspace(coldest, hottest, POINTS)
    curves = {name: _curves(row, degrees) for name, row in rows.items()}
    # The bounds come last, so that the first color is that of the first query.
    ends = np.array([coldest, hottest])
    uniform = f"all {count} keys alike"
    entropies = {name: (degrees, entropy) for name, (entropy, _) in curves.items()}
    largest = {name: (degrees, peak) for name, (_, peak) in curves.items()}
    entropies[uniform] = (ends, np.full(2, math.log(count)))
    largest[uniform] = (ends, np.full(2, 1 / count))
    panels = [
        Panel("Entropy", "temperature", "entropy, nats", entropies, "x"),
        Panel("Largest weight", "temperature", "weight", largest, "x"),
    ]
    note = "The temperature divides the scores before the softmax: towards 0 one key has everything."
    return series(panels, dashes=[uniform], title=title, note=note)


def _finite(name: str, row: Array) -> Numbers:
    """The scores of one query that are allowed, in float64."""
    values = inputs.numbers(f"scores of {name}", row, "keys", finite=False).astype(np.float64)
    if np.isnan(values).any() or np.isposinf(values).any() or np.isneginf(values).all():
        raise ArgumentError(
            "scores must be numbers or −inf, at least one of them finite, got NaN, +inf or −inf only"
        )
    return values[np.isfinite(values)]


def _curves(row: Numbers, degrees: Numbers) -> tuple[Numbers, Numbers]:
    """Entropy and largest weight at each temperature."""
    # The largest score is taken off first: at a temperature near 0 its exponential would overflow.
    exponents = (row - row.max())[None, :] / degrees[:, None]
    terms = np.exp(exponents)
    totals = terms.sum(1)
    entropy = np.log(totals) - (terms * exponents).sum(1) / totals
    return entropy, 1 / totals
