"""Distances between heads as a map of colors, heads that do alike side by side, with the tree that orders them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.analysis.redundancy import Linkage, Redundancy
from regard.checks.arguments import checked, number
from regard.draw import colors, labels, style
from regard.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the longest side of the map, the least and the most of one head, and the height of the tree.
WIDEST, LEAST, MOST, TREE = 8.2, 0.03, 0.3, 1.1
NAMES = {"hellinger": "Hellinger distance", "jensen_shannon": "root of the Jensen–Shannon divergence"}


@checked
def redundancy(
    result: Redundancy,
    *,
    threshold: float | None = None,
    linkage: Linkage = "average",
    title: str | None = None,
) -> Figure:
    """Draw the distance between every two heads; dark is near. A tree above says in which order heads join.

    Heads are ordered by the tree, and by set where some were not compared with others, whose cells are gray.

    Args:
        result: what `regard.analysis.redundancy` gave.
        threshold: a line across the tree at this distance; what hangs together below it is a cluster.
        linkage: as in `Redundancy.clusters`.
        title: written above.

    Raises:
        ArgumentError: no head, a threshold below 0, no such linkage.
        MissingPackageError: scipy is not installed.
    """
    if not len(result.heads):
        raise ArgumentError("a redundancy that is drawn must have at least one head, got none")
    if threshold is not None:
        number("threshold", threshold, least=0)
    order, trees = _ordered(result, linkage)
    count = len(order)
    side = float(np.clip(WIDEST / count, LEAST, MOST)) * count
    pitch = side / count * style.POINTS
    names = [result.names[head] for head in order]
    beside = labels.of_tokens(names, pitch, across=False)
    left = style.MARGIN + max(labels.room(beside, across=False), 0.5)
    name = NAMES[result.measure]
    bar = min(max(side, colors.SHORTEST), 2.2)
    if title is None:
        title = "Which heads have the same weights"
    figure, top = style.sheet(
        left + side + 0.2 + colors.room(name, bar),
        TREE + max(side, bar) + 0.08,
        title=title,
        note=_note(result, linkage, threshold),
    )
    axes = style.place(figure, left, top + TREE, side, side)
    axes.set_gid("distances")
    shown = np.ma.masked_invalid(result.distance[np.ix_(order, order)])
    shades = colors.sequential().reversed().with_extremes(bad=style.BLOCKED)
    extent = (-0.5, count - 0.5, count - 0.5, -0.5)
    image = colors.image(axes, shown, extent, colors.span(0.0, 1.0), shades)
    labels.put(axes, beside, across=False)
    axes.set_xticks([])
    above = style.place(figure, left, top, side, TREE - 0.04)
    above.set_gid("tree")
    _draw_trees(above, trees, count, threshold)
    colors.bar(figure, image, left + side + 0.2, top + TREE, bar, name, [0.0, 0.25, 0.5, 0.75, 1.0])
    return figure


def _ordered(result: Redundancy, linkage: Linkage) -> tuple[NDArray[np.int64], list[tuple[int, dict]]]:
    """The heads in the order of the trees, and each tree of scipy's with the place of its first leaf."""
    order: list[int] = []
    trees = []
    for members in result.members():
        if len(members) < 2:
            order += members.tolist()
            continue
        hierarchy = require("scipy.cluster.hierarchy", extra="analysis")
        tree = hierarchy.dendrogram(result.tree(members, linkage), no_plot=True)
        trees.append((len(order), tree))
        order += members[tree["leaves"]].tolist()
    # Heads that no set could take, as they have no query in common with it, stand at the end.
    order += sorted(set(range(len(result.heads))) - set(order))
    return np.array(order), trees


def _draw_trees(axes: Axes, trees: list[tuple[int, dict]], count: int, threshold: float | None) -> None:
    """The trees above the map, each over its own leaves."""
    highest = 0.0
    for first, tree in trees:
        for across, up in zip(tree["icoord"], tree["dcoord"], strict=True):
            # scipy puts leaves at 5, 15, 25 …
            places = [first + (x - 5) / 10 for x in across]
            axes.plot(places, up, color=style.INK, linewidth=0.6)
            highest = max(highest, *up)
    highest = max(highest, threshold or 0.0) or 1.0
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(0.0, 1.05 * highest)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xticks([])
    # The first head's name stands where 0 would.
    ticks = [tick for tick in colors.even(0.0, highest) if 0 < tick <= highest][1::2]
    axes.set_yticks(ticks, [colors.number(tick) for tick in ticks], fontproperties=style.font(style.SMALL))
    if threshold is not None:
        axes.axhline(threshold, color=style.PALETTE[1], linewidth=0.9, linestyle=(0, (4, 2)))


def _note(result: Redundancy, linkage: Linkage, threshold: float | None) -> str:
    """How to read the figure."""
    words = f"Heads in the order of the tree above, which joins by the {linkage} distance between heads."
    if linkage != "average":
        words = words.replace("complete", "largest").replace("single", "smallest")
    if not np.isfinite(result.distance).all():
        words += " Gray: not compared, as the heads have other queries or keys."
    if threshold is not None:
        clusters = len(np.unique(result.clusters(threshold, linkage=linkage)))
        words += f" At {threshold:g}, the dashed line, they are {clusters} clusters."
    return words
