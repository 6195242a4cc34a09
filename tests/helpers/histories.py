"""Histories made by hand, for the tests of what is read from them and drawn of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from regard.record.history import History, Layer

ROLE_NAMES = ("previous token", "self", "first token", "diagonal", "broadcast", "local", "uniform", "global")
STATISTICS = (
    "entropy_fraction",
    "max_weight",
    "first",
    "self_mass",
    "previous",
    "local",
    *(f"role.{name}" for name in ROLE_NAMES),
)
# Of a head with no role; its shares and scores are 0.
PLAIN = {"entropy_fraction": 0.5, "max_weight": 0.4}


def history_of(
    means: Sequence[Mapping[str, float]],
    kinds: Sequence[str] = ("self",),
    *,
    keys: int = 101,
    radius: int = 8,
) -> History:
    """One step of a history whose heads, shared evenly among layers of these kinds, have these means."""
    values = [[(PLAIN | dict(head)).get(name, 0.0) for head in means] for name in STATISTICS]
    heads = len(means) // len(kinds)
    layers = tuple(Layer(f"layers.{i}.{kind}", kind, heads, 0, 0, keys, keys) for i, kind in enumerate(kinds))
    parameters = {"first": 1, "local": radius}
    return History(layers, STATISTICS, parameters, (0,), torch.tensor(values, dtype=torch.float32)[None])


def random_history(looks: int, layers: int, heads: int, *, keys: int = 101) -> History:
    """A history of random means in which every role of `ROLE_NAMES` occurs, if there are heads and steps enough."""
    random = np.random.default_rng(5)
    values = torch.from_numpy(random.random((looks, len(STATISTICS), layers * heads)) ** 2).float()
    values[:, len(STATISTICS) - len(ROLE_NAMES) :] *= 0.4
    # One role each passes its threshold, or none: the first of nine.
    chosen = torch.from_numpy(random.integers(len(ROLE_NAMES) + 1, size=(looks, 1, layers * heads)))
    strong = torch.arange(1, len(ROLE_NAMES) + 1)[None, :, None] == chosen
    values[:, -len(ROLE_NAMES) :][strong] = 0.95
    steps = tuple(round(2 ** (min(i, 40) / 2)) + i for i in range(looks))
    kinds = [("self", "cross")[i % 2] for i in range(layers)]
    made = tuple(Layer(f"h.{i}.{kind}", kind, heads, 0, 0, keys, keys) for i, kind in enumerate(kinds))
    return History(made, STATISTICS, {"first": 1, "local": 8}, steps, values)
