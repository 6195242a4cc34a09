"""In which order examples come, and with which random numbers they are put together.

Knows numbers of examples and seeds. Both depend on the place in the run and on nothing else, so a run that resumes,
or that many devices share, sees what the whole run would have seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset


class Shuffled(Dataset):
    """All examples in a random order, then in another one, and so on: `count` of them, each with its place."""

    def __init__(self, data: Any, count: int, seed: int) -> None:
        self.data, self.count, self.seed = data, count, seed
        # Two epochs, as a batch may begin in one and end in the next; each holds a number for every example.
        self._permutation = lru_cache(maxsize=2)(self._shuffled)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: int) -> tuple[int, Any]:
        epoch, index = divmod(position, len(self.data))
        return position, self.data[int(self._permutation(epoch)[index])]

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        # From seed and epoch alone: a run that resumes in the seventh need not draw the six before.
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.data))


class InOrder(Dataset):
    """Each example once, with its place."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, position: int) -> tuple[int, Any]:
        return position, self.data[position]


def seeded(collate: Callable[[list[Any]], Any], seed: int) -> Callable[[list[tuple[int, Any]]], Any]:
    """`collate` for examples with their places; torch's random numbers in it follow from the first place."""

    def collated(placed: list[tuple[int, Any]]) -> Any:
        with torch.random.fork_rng([]):
            # From the place in the run, so that a resumed run masks the same tokens in any worker. On the CPU alone:
            # `torch.manual_seed` would seed accelerators too, and so dropout, which nothing takes back here.
            drawn = np.random.SeedSequence((seed, placed[0][0])).generate_state(1)
            torch.default_generator.manual_seed(int(drawn[0]))
            return collate([example for _, example in placed])

    return collated
