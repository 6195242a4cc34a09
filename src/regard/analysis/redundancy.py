"""How far the weights of every two heads of a model are from each other, and which heads do the same.

Knows weights, tile by tile; it does not know outputs: heads that look alike may still move different values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from regard import html
from regard.analysis.chosen_layers import Layers, calls_of
from regard.analysis.head_distances import distances_of
from regard.analysis.weight_tiles import comparable, keys_of
from regard.checks.arguments import checked, number, shown, whole
from regard.errors import ArgumentError, RecordError, require
from regard.record.call import Call
from regard.record.layers import short_names
from regard.record.record import Record
from regard.record.table import frame, identity

if TYPE_CHECKING:
    from pandas import DataFrame

Measure = Literal["hellinger", "jensen_shannon"]
MEASURES = ("hellinger", "jensen_shannon")
Linkage = Literal["average", "complete", "single"]
# Pairs in the card of a notebook, and pixels of its picture.
SHOWN, SIDE = 8, 288


@dataclass(frozen=True, eq=False, repr=False)
class Redundancy:
    """Distances between heads, all at once.

    Attributes:
        heads: a row per head, in the order of `distance`: `layer`, `kind`, `head`, `call` (place in the record) and
            `set`: heads with one number have the same queries and keys and were compared, others were not.
        distance: `(heads, heads)`, float64, from 0 (the same weights) to 1 (no key in common), symmetric; NaN where two
            heads were not compared.
        measure: which distance, one of `MEASURES`.
    """

    heads: DataFrame
    distance: NDArray[np.float64]
    measure: str

    def __repr__(self) -> str:
        return f"Redundancy({self.measure}, {len(self.heads)} heads, {self._sets()})"

    def _sets(self) -> str:
        sets = self.heads["set"].nunique()
        if sets == 1:
            return "all compared"
        return f"{sets} sets that were not compared with each other"

    @property
    def names(self) -> list[str]:
        """A short name for each head: `layer 3 · 5`."""
        layers = short_names(list(self.heads["layer"]), list(self.heads["kind"]))
        return [f"{layer} · {head}" for layer, head in zip(layers, self.heads["head"], strict=True)]

    @checked
    def closest(self, count: int = 10) -> DataFrame:
        """The pairs of heads that are closest to each other, closest first.

        Columns: `layer`, `kind`, `head`, `other_layer`, `other_kind`, `other_head`, `distance`.

        Raises:
            ArgumentError: a count below 1.
        """
        one, other = self._nearest(whole("count", count, 1))
        which = self.heads[["layer", "kind", "head"]]
        first = which.iloc[one].reset_index(drop=True)
        second = which.iloc[other].reset_index(drop=True).add_prefix("other_")
        return first.join(second).assign(distance=self.distance[one, other])

    @checked
    def clusters(
        self, threshold: float | None = None, *, count: int | None = None, linkage: Linkage = "average"
    ) -> NDArray[np.int64]:
        """Heads that do alike, by hierarchical clustering (scipy's `linkage`); heads not compared never join.

        Args:
            threshold: clusters whose distance is at most this are joined.
            count: or else, how many clusters there are to be.
            linkage: the distance of two clusters: the average over pairs of heads, the largest or the smallest.

        Returns:
            `(heads,)`, the number of each head's cluster, counted from 0 in the order of their first heads.

        Raises:
            ArgumentError: not exactly one of threshold and count; a count that cannot be met; no such linkage.
            MissingPackageError: scipy is not installed.
        """
        if (threshold is None) == (count is None):
            raise ArgumentError(
                f"exactly one of threshold and count must be given, got {threshold} and {count}"
            )
        merges = self.merges(linkage)
        if threshold is not None:
            number("threshold", threshold, least=0)
            merges = [merge for merge in merges if merge[0] <= threshold]
        if count is not None:
            least = len(self.heads) - len(merges)
            if not max(least, 1) <= count <= len(self.heads):
                raise ArgumentError(f"count must be from {least} to {len(self.heads)}, got {count}")
            merges = merges[: len(self.heads) - count]
        cluster = np.arange(len(self.heads))
        for _, one, other in merges:
            cluster[cluster == cluster[other]] = cluster[one]
        _, first, numbers = np.unique(cluster, return_index=True, return_inverse=True)
        # Numbered by their first heads, not by the heads that name them while they grow.
        return np.argsort(np.argsort(first))[numbers]

    def merges(self, linkage: Linkage = "average") -> list[tuple[float, int, int]]:
        """Every step of the clustering, nearest first: its distance, and a head of either of the two clusters."""
        merges = []
        for members in self.members():
            for distance, one, other in self._tree(members, linkage):
                merges.append((distance, int(members[one]), int(members[other])))
        return sorted(merges, key=lambda merge: merge[0])

    def members(self) -> list[NDArray[np.int64]]:
        """The heads of each set, by their rows; a head that could not be compared with all of its set is left out."""
        result = []
        for which in self.heads["set"].unique():
            rows = np.flatnonzero(self.heads["set"] == which)
            rows = rows[np.isfinite(np.diag(self.distance)[rows])]
            if np.isfinite(self.distance[np.ix_(rows, rows)]).all():
                result.append(rows)
        return result

    def _tree(self, members: NDArray[np.int64], linkage: Linkage) -> list[tuple[float, int, int]]:
        """The steps within one set, by places in it."""
        # scipy has no tree of a single leaf.
        if len(members) < 2:
            return []
        first, steps = list(range(len(members))), []
        for one, other, distance, _ in self.tree(members, linkage).tolist():
            steps.append((distance, first[int(one)], first[int(other)]))
            # scipy numbers each cluster after the ones before it; ours goes by a head in it.
            first.append(first[int(one)])
        return steps

    def tree(self, members: NDArray[np.int64], linkage: Linkage = "average") -> NDArray[np.float64]:
        """scipy's linkage of these heads, at least two, for its `dendrogram`."""
        if linkage not in ("average", "complete", "single"):
            raise ArgumentError(f"linkage must be 'average', 'complete' or 'single', got {linkage!r}")
        hierarchy = require("scipy.cluster.hierarchy", extra="analysis")
        condensed = require("scipy.spatial.distance", extra="analysis").squareform
        between = self.distance[np.ix_(members, members)]
        return hierarchy.linkage(condensed(between, checks=False), linkage, optimal_ordering=True)

    def _repr_html_(self) -> str:
        facts = [self.measure.replace("_", " "), f"{len(self.heads)} heads", self._sets()]
        parts = [html.heading("Redundancy", "", facts)]
        if len(self.heads):
            image = html.picture(html.levels(self.distance, 1.0), SIDE, "distance of every two heads")
            parts.append(html.pictures([("distance, from 0 (light) to 1", image)]))
        parts += [html.note(words) for words in self._pairs(SHOWN)]
        return html.card(*parts)

    def _pairs(self, count: int) -> list[str]:
        """The closest pairs of heads, a line each."""
        one, other = self._nearest(count)
        names, distances = self.names, self.distance[one, other]
        return [
            f"{names[i]} and {names[j]}: {distance:.3f}"
            for i, j, distance in zip(one, other, distances, strict=True)
        ]

    def _nearest(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of the closest pairs of heads that were compared."""
        one, other = np.triu_indices(len(self.distance), 1)
        distances = self.distance[one, other]
        order = np.argsort(distances, kind="stable")[:count]
        # NaN is sorted last.
        order = order[np.isfinite(distances[order])]
        return one[order], other[order]


@checked
def redundancy(
    record: Record,
    *,
    measure: Measure = "hellinger",
    layers: Layers = None,
    rows: slice | None = None,
) -> Redundancy:
    """The distance between the weights of every two heads of a model, exact, in O(n) memory.

        hellinger        √(mean over queries of 1 − Σ_k √(w·w′))
        jensen_shannon   √(mean over queries of H((w + w′)/2) − (H(w) + H(w′))/2), in bits

    Both are metrics from 0 to 1 (Endres and Schindelin 2003 for the second). The mean is over the queries that are
    valid for both heads; a learned sink is one key more. Heads are compared where they have the same queries and keys:
    self-attention with self-attention, cross with cross, an encoder with itself; others have a distance of NaN, and
    another number in the column `set` of `heads`.

    With h heads and p allowed pairs of query and key, Hellinger takes h²·p multiplications, as a matrix product of
    tiles; Jensen–Shannon takes h²·p/2 logarithms, more than ten times as long. Memory: one tile of all heads, and h².

    Args:
        record: made with `watch(model, keep="vectors")`.
        measure: "hellinger" or "jensen_shannon".
        layers: names, patterns with `*`, numbers of blocks; None: all.
        rows: which queries, counted from 0; a slice that goes forwards. None: all. A part of them costs that part.

    Raises:
        RecordError: a call without vectors, or a record without calls.
        ArgumentError: no such measure or layer; rows that are no such slice, or none at all.
        MissingPackageError: pandas is not installed.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 4)
        >>> with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        ...     output = layer(torch.randn(1, 9, 16))
        >>> found = redundancy(record)
        >>> found.distance.shape, found.clusters(count=2).shape
        ((4, 4), (4,))
    """
    if measure not in MEASURES:
        raise ArgumentError(f"measure must be one of {', '.join(map(repr, MEASURES))}, got {measure!r}")
    places = calls_of(record, layers)
    if not places:
        raise RecordError("redundancy needs a record with at least one call, got none")
    calls = [record[index] for index in places]
    sets = comparable(calls)
    first = np.cumsum([0, *(call.sizes.heads for call in calls)])
    distance = np.full((first[-1], first[-1]), np.nan)
    number_of_set = np.empty(len(calls), dtype=np.int64)
    for index, members in enumerate(sets):
        heads = np.concatenate([np.arange(first[i], first[i + 1]) for i in members])
        number_of_set[members] = index
        some = [calls[i] for i in members]
        distance[np.ix_(heads, heads)] = distances_of(some, measure, queries_of(some, rows)).numpy()
    parts = [
        identity(call.layer, call.kind, call.sizes.heads, call=index, set=int(which))
        for call, index, which in zip(calls, places, number_of_set, strict=True)
    ]
    return Redundancy(frame(parts, parts[0]), distance, measure)


@checked
def distances(
    one: Record,
    other: Record,
    *,
    measure: Measure = "hellinger",
    layers: Layers = None,
    rows: slice | None = None,
) -> NDArray[np.float64]:
    """The distances between the heads of two records of one text: two models, two checkpoints, two interventions.

    Args:
        one: made with `watch(model, keep="vectors")`.
        other: likewise, of the same tokens.
        measure, layers, rows: as for `redundancy`; layers of both.

    Returns:
        `(heads of one, heads of other)`, float64, heads in the order of `Record.heads`; NaN where two were not
        compared, as they have other queries or keys.

    Raises:
        RecordError: a call without vectors, or a record without calls.
        ArgumentError: records of other tokens; no such measure or layer; rows that are no such slice.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer, text = rg.nn.MultiHeadAttention(16, 4), torch.randn(1, 9, 16)
        >>> with torch.no_grad(), rg.watch(layer, keep="vectors") as before:
        ...     output = layer(text)
        >>> distances(before, before).diagonal().tolist()
        [0.0, 0.0, 0.0, 0.0]
    """
    if measure not in MEASURES:
        raise ArgumentError(f"measure must be one of {', '.join(map(repr, MEASURES))}, got {measure!r}")
    sides = [[record[index] for index in calls_of(record, layers)] for record in (one, other)]
    if not all(sides):
        raise RecordError("distances need two records with at least one call each")
    for name in ("tokens", "source_tokens"):
        texts = getattr(one, name), getattr(other, name)
        if None not in texts and texts[0] != texts[1]:
            raise ArgumentError(f"records that are compared must be of one text, but their {name} differ")
    first = [np.cumsum([0, *(call.sizes.heads for call in calls)]) for calls in sides]
    result = np.full((first[0][-1], first[1][-1]), np.nan)
    # What stands for the same queries and keys is equal in both records, whatever their layers are called.
    keys = [keys_of(calls) for calls in sides]
    for key in dict.fromkeys(keys[0]):
        places = [[i for i, other_key in enumerate(of_side) if other_key == key] for of_side in keys]
        calls = [side[i] for side, of_side in zip(sides, places, strict=True) for i in of_side]
        if not places[1]:
            continue
        between = distances_of(calls, measure, queries_of(calls, rows)).numpy()
        heads = [
            np.concatenate([np.arange(start[i], start[i + 1]) for i in of_side])
            for start, of_side in zip(first, places, strict=True)
        ]
        result[np.ix_(*heads)] = between[: len(heads[0]), len(heads[0]) :]
    return result


def queries_of(calls: Sequence[Call], rows: slice | None) -> slice:
    """The queries that were asked for, of comparable calls.

    Raises:
        ArgumentError: no slice that goes forwards, or one that is empty.
    """
    if rows is None:
        return slice(None)
    if not isinstance(rows, slice) or (rows.step or 1) < 1:
        raise ArgumentError(f"rows must be a slice that goes forwards, got {shown(rows)}")
    queries = calls[0].sizes.queries
    if not range(queries)[rows]:
        raise ArgumentError(f"rows must be at least one of {queries} queries of {calls[0].layer}, got {rows}")
    return rows
