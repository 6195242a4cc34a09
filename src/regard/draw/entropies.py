"""Entropy of each query's weights, for every head, between its bounds 0 and ln (allowed keys).

A few heads share one chart; many get a panel each; many heads of many layers become rows of small heatmaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, inputs, style, weight_pictures
from regard.draw.chart import Entry, beside, chart, legend, plain
from regard.draw.entropy_bounds import Entropies, entropies
from regard.draw.inputs import Array
from regard.draw.lines import LONGEST, line, means, region
from regard.draw.panels import TALL, corner, panels, rows_of_color
from regard.statistics.observation import Observation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from regard.record import Record

BEHIND = "#cdd4db"
# Heads up to which the others show behind each.
MOST_BEHIND = 16
NOTE = (
    "0: all weight on one key. Dashed: the log of the number of keys that the query may attend, "
    "reached when all of them weigh the same."
)
FRACTION = "entropy / ln (allowed keys)"
NOTE_OF_FRACTIONS = (
    "Each row is one head. 0: all weight on one key. 1: the same weight on every key that the query may "
    "attend. Gray: no key to attend, or only one."
)


@checked
def entropy(
    entropy: Array | Observation | Sequence[Observation] | Record,
    *,
    allowed: Array | int | None = None,
    batch: int = 0,
    tokens: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the entropy of each query's weights, in nats, for every head, with its bounds 0 and ln n.

    Up to seven heads of one layer share one chart; more get a panel each. Several layers get a panel each,
    with a line per head, or from eight heads on with a row of color per head: the entropy as a fraction of
    ln n.

    Args:
        entropy: `(heads, queries)`, `(layers, heads, queries)`, what was observed of one call, several of
            them, or a record.
        allowed: number of keys that a query may attend: one number, `(queries,)` or `(heads, queries)`. None:
            what was observed; for an array, as many keys as there are queries. Queries with 0 are left out.
        batch: which row of the batch that was observed.
        tokens: one label per query, for a single chart; panels show positions.
        title: written above; None: the layer of a single call.

    Raises:
        ShapeError: axes that do not fit.
        ArgumentError: entropies that are negative, not finite or above an assumed bound; an observation
            without them.
    """
    drawn = entropies(entropy, allowed, batch)
    if tokens is not None:
        tokens = inputs.token_list("tokens", tokens, drawn[0].values.shape[1], "queries")
    if title is None:
        title = weight_pictures.title_of(entropy)
    most = max(len(layer.values) for layer in drawn)
    if len(drawn) > 1:
        if most <= len(style.PALETTE):
            return _layers(drawn, title)
        return _layers_as_color(drawn, title)
    if most <= len(style.PALETTE):
        return _one_chart(drawn[0], tokens, title)
    return _heads(drawn[0], title)


def _one_chart(layer: Entropies, tokens: Sequence[str] | None, title: str) -> Figure:
    queries = layer.values.shape[1]
    entries = [Entry(layer.bound_name, style.MUTED, "dashes")]
    for head, (mean, color) in enumerate(zip(layer.means, style.PALETTE, strict=False)):
        entries.append(Entry(f"head {head} · mean {mean:.3f}", color))
    names = ("query", "entropy (nats)")
    look: dict[str, Any] = {"title": title, "note": NOTE, "first": layer.first}
    figure, axes = chart(queries, tokens, names=names, entries=_with_range(entries, [layer]), **look)
    _prepare(axes, layer, [layer])
    for values, color in zip(layer.values, style.PALETTE, strict=False):
        line(axes, layer.first, values, color, 1.7)
    return figure


def _heads(layer: Entropies, title: str) -> Figure:
    """A panel per head, the other heads behind it in gray while they are not too many."""
    heads = len(layer.values)
    titles = [(f"head {head}", f"mean {mean:.2f}") for head, mean in enumerate(layer.means)]
    entries = [Entry(layer.bound_name, style.MUTED, "dashes"), Entry("this head", style.PALETTE[0])]
    if heads <= MOST_BEHIND:
        entries.append(Entry("other heads", BEHIND))
    figure, grid = _panels(titles, [layer] * heads, entries, title)
    for head, axes in enumerate(grid):
        for other in range(heads) if heads <= MOST_BEHIND else ():
            line(axes, layer.first, layer.values[other], BEHIND, 0.5, alone=False)
        line(axes, layer.first, layer.values[head], style.PALETTE[0], 1.4)
    return figure


def _layers(drawn: list[Entropies], title: str) -> Figure:
    """A panel per layer, a line per head."""
    bounds = {layer.bound_name for layer in drawn}
    entries = [Entry(bounds.pop() if len(bounds) == 1 else "ln (allowed keys)", style.MUTED, "dashes")]
    for head in range(max(len(layer.values) for layer in drawn)):
        entries.append(Entry(f"head {head}", style.PALETTE[head]))
    titles = [(layer.name, f"mean {np.mean(layer.means):.2f}") for layer in drawn]
    figure, grid = _panels(titles, drawn, entries, title)
    for layer, axes in zip(drawn, grid, strict=True):
        for values, color in zip(layer.values, style.PALETTE, strict=False):
            line(axes, layer.first, values, color, 1.2)
    return figure


def _panels(
    titles: Sequence[tuple[str, str]], drawn: Sequence[Entropies], entries: list[Entry], title: str
) -> tuple[Figure, list[Axes]]:
    """Panels with their bounds and a legend, ready for lines."""
    entries = _with_range(entries, drawn)
    names = ("query", "entropy (nats)")
    room = (beside(entries), len(entries) * 0.2 + 0.1)
    figure, grid, width = panels(titles, _span(drawn), names=names, beside=room, title=title, note=NOTE)
    for layer, axes in zip(drawn, grid, strict=True):
        plain(axes)
        _prepare(axes, layer, drawn)
    legend(corner(grid), entries, width, width * TALL)
    return figure, grid


def _prepare(axes: Axes, layer: Entropies, drawn: Sequence[Entropies]) -> None:
    """The bounds, and a vertical axis from below 0, so that dots there are whole, to above every line."""
    region(axes, layer.first, layer.bound)
    tops = [max(float(one.bound.max()), float(np.nanmax(one.values, initial=0.0))) for one in drawn]
    top = max(tops) or 1.0
    axes.set_ylim(-0.04 * top, 1.06 * top)
    axes.spines["bottom"].set_visible(False)


def _with_range(entries: list[Entry], drawn: Sequence[Entropies]) -> list[Entry]:
    """The legend, with the shade around each line where it stands for many queries."""
    long = max(layer.values.shape[1] for layer in drawn) > LONGEST
    if long:
        return [*entries, Entry("range of neighbors", "#cfe3f1", "block")]
    return entries


def _layers_as_color(drawn: list[Entropies], title: str) -> Figure:
    """A panel per layer, a row of color per head: the entropy as a fraction of its bound."""
    fractions = [layer.fraction for layer in drawn]
    titles = []
    for layer, fraction in zip(drawn, fractions, strict=True):
        # A query that may attend one key has the bound 0, of which nothing is a fraction.
        known = fraction[~np.isnan(fraction)]
        titles.append((layer.name, f"mean {known.mean():.2f}" if len(known) else ""))
    names, room = ("query", "head"), (0.2 + colors.room(FRACTION, 1.5), 1.5)
    figure, grid, width = panels(
        titles, _span(drawn), names=names, beside=room, title=title, note=NOTE_OF_FRACTIONS
    )
    rows = [
        (layer.first, fraction.shape[1], np.array([means(row) for row in fraction]))
        for layer, fraction in zip(drawn, fractions, strict=True)
    ]
    norm, ticks = colors.norm("linear", 1.0), [0.0, 0.25, 0.5, 0.75, 1.0]
    rows_of_color(figure, grid, rows, norm, width=width, name=FRACTION, ticks=ticks)
    return figure


def _span(drawn: Sequence[Any]) -> tuple[int, int]:
    """The first and the last position."""
    ends = [layer.first + layer.values.shape[1] - 1 for layer in drawn]
    return min(layer.first for layer in drawn), max(ends)
