"""Masks for the heads of a profile: of windows, alone or with first tokens, as far as mass in bins can judge them.

Knows mass by distance and by position; without the vectors nothing can be measured again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from regard.analysis.chosen_layers import Layers, places_of
from regard.analysis.sparse_plan import SparseHead
from regard.errors import RecordError
from regard.masks import Mask, near, prefix
from regard.record.binned import masses_of
from regard.record.layer_sums import Layer
from regard.record.profile import Profile

Numbers = NDArray[np.float64]
# What bins of powers of two can judge.
JUDGED = ("window", "window and first", "full")
# First tokens that are tried; each of these counts ends a bin.
FIRST = (1, 4, 16, 64)


def of_profile(profile: Profile, keep: float, layers: Layers, least_saving: float) -> list[SparseHead]:
    """For each head the cheapest of these masks that keeps at least so much, as `sparsify` says."""
    by_distance = masses_of(profile.layers, "distance")
    keys = list(profile.layers)
    chosen = [keys[index] for index in places_of([name for name, _ in keys], layers)]
    missing = [name for name, kind in chosen if kind == "self" and (name, kind) not in by_distance]
    if missing:
        raise RecordError(
            f"{missing[0]}: its mass by distance must be known, watch with statistics 'by_offset'"
        )
    masks = []
    for name, kind in chosen:
        layer = profile.layers[name, kind]
        by_position = None
        if "received" in layer.pieces:
            by_position = masses_of({(name, kind): layer}, "position")[name, kind].numpy()
        mass = None
        if (name, kind) in by_distance:
            mass = by_distance[name, kind].numpy()
        for head in range(len(layer.queries)):
            text = _Text.of(layer, head, mass, profile.texts)
            best = SparseHead(name, kind, head, "full", None, 1.0, text.pairs, text.pairs, None, 1.0)
            if kind == "self" and mass is not None and text.pairs:
                received = None
                if by_position is not None:
                    received = by_position[head]
                best = _cheapest(text, mass[head], received, best, keep, 1 - least_saving)
            masks.append(best)
    return masks


class _Text:
    """A text of mean length, as a head sees it.

    Attributes:
        tokens: how many. texts: how many of them there were. causal: whether nothing later was attended.
        pairs: of query and key.
    """

    def __init__(self, tokens: int, texts: int, causal: bool) -> None:
        self.tokens, self.texts, self.causal = tokens, texts, causal
        self.pairs = tokens * tokens
        if causal:
            self.pairs = tokens * (tokens + 1) // 2

    @classmethod
    def of(cls, layer: Layer, head: int, mass: Numbers | None, texts: int) -> _Text:
        """From the queries that a head had."""
        # Each text has one first token, where it is known how many tokens stood at each position.
        if "keys" in layer.pieces:
            texts = int(layer.pieces["keys"][0])
        texts = max(1, texts)
        causal = mass is not None and float(mass[head, 1].sum()) == 0.0
        return cls(round(int(layer.queries[head]) / texts), texts, causal)

    def pairs_under(self, before: int, after: int, first: int) -> int:
        """Pairs that near(before, after) | prefix(first) leaves."""
        q = np.arange(self.tokens)
        low, high = np.maximum(q - before, 0), np.minimum(q + after, self.tokens - 1)
        if self.causal:
            high = q
        # First tokens that the window has not got already, before it and, where they may be attended, after it.
        more = np.minimum(low, first)
        if not self.causal:
            more = more + np.maximum(min(first, self.tokens) - high - 1, 0)
        return int((high - low + 1 + more).sum())


def _cheapest(
    text: _Text, mass: Numbers, received: Numbers | None, full: SparseHead, keep: float, most: float
) -> SparseHead:
    best, total = full, float(mass.sum())
    if not total > 0:
        return best
    for family, before, after, first, mass_inside in _windows(text, mass, received, keep * total):
        pairs = text.pairs_under(before, after, first)
        if pairs <= most * full.all_pairs and pairs < best.pairs:
            mask: Mask = near(before, after)
            if first:
                mask = mask | prefix(first)
            share = min(1.0, mass_inside / total)
            cost = pairs / full.all_pairs
            best = SparseHead(
                full.layer, full.kind, full.head, family, mask, share, pairs, full.all_pairs, None, cost
            )
    return best


def _windows(
    text: _Text, mass: Numbers, received: Numbers | None, need: float
) -> Iterator[tuple[str, int, int, int, float]]:
    """The narrowest windows whose mass is known to reach `need`: family, before, after, first tokens, least mass."""
    inside, later = mass[0].cumsum(), mass[1].cumsum()
    # Floating sums may miss a share of 1 by a rounding.
    need -= 1e-9 * need
    for first in (0, *FIRST):
        if first and (received is None or first >= text.tokens):
            continue
        family, of_first = "window", 0.0
        if first:
            # Bins of positions: 0, 1, 2 to 3, 4 to 7 and so on, so the first 4 are three bins.
            family, of_first = "window and first", float(received[: first.bit_length()].sum())  # type: ignore[index]
        for after in range(1 if text.causal else len(later)):
            for before in range(len(inside)):
                # A bin that ends at 2^b − 1; the first one holds distance 0 alone.
                reach, ahead = (1 << before) - 1, (1 << after) - 1
                mass_inside = float(inside[before] + later[after])
                # Weights on first tokens within the window are counted twice, and only the first queries have such.
                mass_inside += of_first - min(
                    of_first, mass_inside, text.texts * (first + reach) if first else 0.0
                )
                if mass_inside >= need:
                    yield family, reach, ahead, first, mass_inside
                    break
