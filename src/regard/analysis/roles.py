"""What each head does at each step of its training, in a word: the pattern that holds most of its attention.

Knows means over a batch, as a `History` keeps them, and plain thresholds; it does not look at single weights. A mean
says where most of the attention goes, not that every query does so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.checks.arguments import checked
from regard.errors import RecordError

if TYPE_CHECKING:
    from regard.record.history import History, Layer

# Share of the attention from which a place holds most of it.
MOST = 0.5
# Mean of the largest weights from which each query looks at one key.
SHARP = 0.7
# Entropy, as a fraction of the most it could be, from which attention is even.
EVEN = 0.9
# Part of the keys that "nearby" may be at most: there even attention stays below MOST, causal or not.
NARROW = 0.25

PLACES = {"first": "first token", "self_mass": "itself", "previous": "previous token"}
ROLES = {
    "even": f"entropy of {EVEN} or more of the most it could be",
    "first token": f"{MOST} or more on the first key",
    "itself": f"{MOST} or more on the query's own position",
    "previous token": f"{MOST} or more on the position before",
    "nearby": f"{MOST} or more within the radius of local, if that spans at most {NARROW} of the keys",
    "one key": f"largest weight {SHARP} or more, wherever it is",
    "mixed": "nothing of all this",
}
"""What each role means, as means over the queries. The first that fits is given, and of the three places the one that
holds most."""

_OF_ANY = ("entropy_fraction", "max_weight", "first")
_OF_SELF = ("self_mass", "previous", "local")


@checked
def roles(history: History) -> NDArray[np.str_]:
    """The role of every head at every step.

    With cross attention, where queries have no place among the keys, it is "even", "first token", "one key" or
    "mixed". A `first` that was told to count several keys counts them here too.

    Args:
        history: as `regard.training.train` kept it.

    Returns:
        `(steps, heads)`, names of `ROLES`; heads are those of all layers, as in `history.of_statistic`.

    Raises:
        RecordError: a statistic that a role is told by was not kept.
    """
    named = []
    for place, layer in enumerate(history.layers):
        # In cross-attention a query has no place among the keys, so places say nothing there.
        needed = _OF_ANY + (_OF_SELF if layer.kind == "self" else ())
        means = {
            name: history.of_statistic(name).double().numpy()[:, history.heads_of(place)] for name in needed
        }
        missing = [name for name, values in means.items() if np.isnan(values).any()]
        if missing:
            raise RecordError(f"roles need {', '.join(needed)} of {layer.name}, got NaN in {missing[0]}")
        named.append(_named(means, narrow=_narrow(history, layer)))
    return np.concatenate(named or [np.empty((len(history.steps), 0), dtype=np.str_)], axis=1)


def _narrow(history: History, layer: Layer) -> bool:
    """Whether `local` tells anything: in a short text everything is nearby."""
    return 2 * history.parameters.get("local", layer.keys) + 1 <= NARROW * layer.keys


def _named(means: dict[str, NDArray[np.float64]], *, narrow: bool) -> NDArray[np.str_]:
    """The roles of the heads of one layer: of those that fit, the first in the order of `ROLES`."""
    shares = {role: means[name] for name, role in PLACES.items() if name in means}
    # Two places can both hold half: the one that holds more gives the name.
    best = np.maximum.reduce(list(shares.values()))
    fits = {"even": means["entropy_fraction"] >= EVEN}
    fits |= {role: (share == best) & (share >= MOST) for role, share in shares.items()}
    if narrow and "local" in means:
        fits["nearby"] = means["local"] >= MOST
    fits["one key"] = means["max_weight"] >= SHARP
    # np.select takes the first that fits, so the order of `fits` is that of `ROLES`.
    return np.select(list(fits.values()), list(fits), "mixed")
