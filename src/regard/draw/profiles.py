"""Profiles of many texts: how queries spread over bins, where mass goes by distance, and maps on relative position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from regard.analysis.roles import by_layer
from regard.analysis.roles import roles as named
from regard.checks.arguments import checked
from regard.draw import colors
from regard.draw.grids import sheet
from regard.draw.inputs import Numbers
from regard.draw.panels import panels, rows_of_color
from regard.draw.weight_pictures import Layer, Picture
from regard.errors import RecordError
from regard.record import Profile
from regard.record.binned import HISTOGRAMS, counts_of, masses_of
from regard.record.layers import short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = tuple[str, str]
# What a bin is named by.
NAMES = {"entropy_fraction": "entropy fraction of a query", "distance": "mean distance of a query (tokens)"}
POWERS = "A bin reaches from its number to the next one."


@checked
def histograms(profile: Profile, statistic: str = "entropy_fraction", *, title: str | None = None) -> Figure:
    """Draw how the queries of every head spread over bins of a statistic: a panel per layer, a row of color per head.

    Args:
        profile: of many texts.
        statistic: "entropy_fraction" or "distance".
        title: written above; None: the statistic's name.

    Raises:
        ArgumentError: a statistic without a histogram. RecordError: no layer has it.
    """
    counts = counts_of(profile.layers, statistic)
    edges = [_plain(edge) for edge in HISTOGRAMS[statistic]()]
    shares = {key: _shares(count.double()) for key, count in counts.items()}
    most = len(edges) - 1
    # The bins go beyond any text: those that no head uses would leave most of a panel blank.
    if statistic == "distance":
        most = _used(list(shares.values()))
    if title is None:
        title = f"{statistic.replace('_', ' ')}: all queries"
    note = f"Each row is a head, and its colors add up to all of its queries. {POWERS}"
    rows = {key: share[:, :most] for key, share in shares.items()}
    return _rows(rows, edges[:most], NAMES[statistic], "share of queries", (title, note))


@checked
def by_distance(profile: Profile, *, title: str | None = None) -> Figure:
    """Draw how far the attention of every head goes: a panel per layer, a row of color per head.

    Args:
        profile: of many texts, with "by_offset".
        title: written above; None: what it shows.

    Raises:
        RecordError: no layer has "by_offset".
    """
    masses = masses_of(profile.layers, "distance")
    shares = {key: _shares(mass.flatten(1)) for key, mass in masses.items()}
    half = next(iter(masses.values())).shape[2]
    before = _used([share[:, :half] for share in shares.values()])
    after = _used([share[:, half:] for share in shares.values()])
    # Later keys to the left of 0, as they have a negative distance; none where all are causal.
    rows = {}
    for key, share in shares.items():
        later = share[:, half + 1 : half + after][:, ::-1]
        rows[key] = np.concatenate((later, share[:, :before]), 1)
    powers = [0, *(1 << power for power in range(half))]
    numbers: list[float] = [*(-power for power in powers[1:after][::-1]), *powers[:before]]
    if title is None:
        title = "attention by distance"
    note = (
        "Each row is a head, and its colors add up to all of its attention. A bin reaches from its number to the next "
        "one away from 0; keys after the query have negative distances."
    )
    return _rows(
        rows, numbers, "position of the query − position of the key", "share of attention", (title, note)
    )


@checked
def relative_maps(
    profile: Profile,
    *,
    shared: bool = False,
    scale: str = "sqrt",
    roles: bool = False,
    title: str | None = None,
) -> Figure:
    """Draw the mean map of every head over texts of all lengths, each from its begin to its end.

    Args:
        profile: of many texts, with maps.
        shared: one color scale for all heads; otherwise each is drawn from 0 to its own largest share.
        scale: `"sqrt"`, which shows small shares beside a large one, or `"linear"`.
        roles: whether each head's role is written over its map, with score and interval, as far as all have room.
        title: written above; None: nothing.

    Raises:
        RecordError: the profile has no maps, or nothing by which a role could be told, where roles are asked for.
    """
    maps = {key: layer.relative_map() for key, layer in profile.layers.items()}
    there = {key: tensor.numpy() for key, tensor in maps.items() if tensor is not None}
    if not there:
        raise RecordError("maps of a profile must have been kept, and it has none: survey with map=64")
    notes: dict[Key, list[tuple[str, ...]]] = {}
    if roles:
        notes = by_layer(named(profile))
    drawn = []
    for name, (key, tensor) in zip(_names(list(there)), there.items(), strict=True):
        # Differences of rounding below 0 are no weights.
        pictures = [Picture(np.clip(head, 0.0, None), 1, *head.shape) for head in tensor]
        drawn.append(Layer(name, pictures, notes.get(key, ())))
    lead = "Queries down, keys across, each text from its begin to its end; means over all texts."
    return sheet(drawn, shared=shared, scale=scale, title=title or "", note=(lead, "head"))


def _rows(
    rows: dict[Key, Numbers], numbers: list[float], across: str, name: str, words: tuple[str, str]
) -> Figure:
    """A panel for each layer with a row of color for each head."""
    # One color scale, so that heads of different layers can be compared.
    largest = max(float(values.max(initial=0.0)) for values in rows.values()) or 1.0
    titles = [(layer, "") for layer in _names(list(rows))]
    figure, grid, width = panels(
        titles,
        (0, len(numbers) - 1),
        names=(across, "head"),
        beside=(0.2 + colors.room(name, 1.5), 1.5),
        title=words[0],
        note=words[1],
        numbers=numbers,
    )
    drawn = [(0, len(numbers), values) for values in rows.values()]
    norm, ticks = colors.norm("sqrt", largest), colors.ticks("sqrt", largest)
    rows_of_color(figure, grid, drawn, norm, width=width, name=f"{name}{colors.SUFFIX['sqrt']}", ticks=ticks)
    return figure


def _shares(values: Tensor) -> Numbers:
    """`(heads, bins)`: the parts of each head's sum; 0 for a head without any."""
    # Smaller than any sum of weights: it matters only to heads without any, which would be 0 / 0.
    return (values / values.sum(-1, keepdim=True).clamp(min=1e-300)).nan_to_num().numpy()


def _used(shares: list[Numbers]) -> int:
    """How many bins it takes to the last one that holds anything, at least one."""
    places = [np.flatnonzero(share.sum(0)) for share in shares]
    return max((int(indices[-1]) + 1 for indices in places if len(indices)), default=1)


def _names(keys: list[Key]) -> list[str]:
    return short_names([name for name, _ in keys], [kind for _, kind in keys])


def _plain(edge: float) -> float:
    if edge.is_integer():
        return int(edge)
    return edge
