"""The numbers of every head, of one forward pass or many, of one process or many.

Knows sums, weights and largest values, which merge in any order; it does not know what they mean for a training.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, distributed

from regard.errors import TrainingError
from regard.record import Call, Record
from regard.record.history import History, Layer
from regard.record.table import Sums, added, means, names_of, sums

Key = tuple[str, str]
NEEDED = ("entropy", "max_weight", "lse", "allowed")
"""What must be observed so that `largest_score` and `nonfinite` are known, and all that alarms are about."""
LARGEST, NONFINITE = "largest_score", "nonfinite"


@dataclass(eq=False)
class Numbers:
    """What was seen of each head.

    Attributes:
        sums: by layer and kind, sums and weights of all statistics, `(heads,)` each.
        parameters: by layer and kind, what the statistics were told.
        largest: by layer and kind `(heads,)`, float64: the largest score of any query, −inf where it is not known.
    """

    sums: dict[Key, Sums] = field(default_factory=dict)
    parameters: dict[Key, dict[str, int | float | bool]] = field(default_factory=dict)
    largest: dict[Key, Tensor] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Take in one forward pass."""
        for call in record:
            key, highest = (call.layer, call.kind), largest_scores(call).amax(0)
            self.sums[key] = added(self.sums.get(key, {}), sums(call) | {NONFINITE: _faults(call)})
            self.parameters[key] = call.parameters
            self.largest[key] = torch.maximum(self.largest.get(key, highest), highest)

    def reduced(self, device: torch.device) -> Numbers:
        """The numbers of all processes together, the same in each; those of this one where there is no other.

        Args:
            device: where processes exchange tensors: that of the model.

        Raises:
            TrainingError: the processes saw other layers.
        """
        if not (distributed.is_available() and distributed.is_initialized()):
            return self
        mine = torch.cat([part.reshape(-1) for part in self._parts()]).to(device)
        everyone = [torch.empty_like(mine) for _ in range(distributed.get_world_size())]
        # One exchange for all numbers. Each process then adds in the same order, and gets the same bits.
        distributed.all_gather(everyone, mine)
        table = torch.stack(everyone).cpu()
        if bool((table[:, 0] != table[0, 0]).any()):
            raise TrainingError(
                "processes that train one model must run the same layers in a step, and do not"
            )
        return self._from(table.sum(0)[1:], table.amax(0)[1:])

    def _parts(self) -> Iterator[Tensor]:
        """All numbers in one order: which layers they are about, then of each its sums and its largest scores."""
        names = repr([(key, sorted(summed)) for key, summed in self.sums.items()])
        # 32 bits are exact in float64: the checksum travels with the sums, in the same exchange.
        yield torch.tensor([float(zlib.crc32(names.encode()))], dtype=torch.float64)
        for key, summed in self.sums.items():
            for name in sorted(summed):
                yield from summed[name]
            yield self.largest[key]

    def _from(self, total: Tensor, highest: Tensor) -> Numbers:
        """Numbers of the same layers, out of what `_parts` of all processes add up to, and of what is highest."""
        start, numbers = 0, Numbers(parameters=self.parameters)
        for key, summed in self.sums.items():
            heads, names = len(self.largest[key]), sorted(summed)
            block = total[start : start + 2 * heads * len(names)].view(-1, heads)
            numbers.sums[key] = {name: (block[2 * i], block[2 * i + 1]) for i, name in enumerate(names)}
            start += block.numel()
            numbers.largest[key] = highest[start : start + heads]
            start += heads
        return numbers

    def names(self, statistics: Iterable[str]) -> tuple[str, ...]:
        """Those of the statistics that are known, in the order of tables, and what is known of any head."""
        there = set[str]().union(*self.sums.values())
        # Shares follow from what is always observed.
        wanted = {*statistics, "entropy_fraction", "received_share"}
        named = [name for name in names_of(self.sums.values()) if name in there]
        return (*(n for n in named if n in wanted or n.startswith("group.")), LARGEST, NONFINITE)

    def values(self, names: tuple[str, ...]) -> Tensor:
        """`(1, statistics, heads)`, float32: the heads of all layers, one after the other."""
        columns = []
        for key, largest in self.largest.items():
            column = means(self.sums[key], names, len(largest))
            column[LARGEST] = largest.masked_fill(largest == -torch.inf, torch.nan).numpy()
            columns.append(np.stack([column[name] for name in names]))
        return torch.from_numpy(np.concatenate(columns, 1)).float()[None]

    def history(self, step: int, statistics: Iterable[str]) -> History:
        """A history of one step. Its layers have no sizes: texts of every length went in."""
        names = self.names(statistics)
        parameters = {name: value for item in self.parameters.values() for name, value in item.items()}
        return History(
            layers=tuple(Layer(*key, len(largest), 0, 0, 0, 0) for key, largest in self.largest.items()),
            statistics=names,
            parameters={name: value for name, value in parameters.items() if name in names},
            steps=(step,),
            values=self.values(names),
        )


def faulty_queries(call: Call) -> Tensor:
    """`(batch, heads, queries)`, bool: queries with a number that is NaN or infinite."""
    entropy, lse = call.entropy, call.lse
    assert entropy is not None
    faulty = ~entropy.isfinite()
    if lse is not None:
        # −inf is no fault: the query may attend nothing.
        faulty = faulty | lse.isnan() | (lse == torch.inf)
    return faulty.cpu()


def largest_scores(call: Call) -> Tensor:
    """`(batch, heads)`, float64: the largest score of each text, −inf where it is not known."""
    if call.lse is None or call.max_weight is None or not call.sizes.queries:
        return torch.full((call.sizes.batch, call.sizes.heads), -torch.inf, dtype=torch.float64)
    return query_scores(call).amax(2)


def query_scores(call: Call) -> Tensor:
    """`(batch, heads, queries)`, float64: the score of each query's largest weight, which is e^(score − lse)."""
    assert call.lse is not None and call.max_weight is not None
    # A weight of 0 beside a sink has a score too small to matter; NaN wins no comparison, and counts elsewhere.
    scores = (call.lse + call.max_weight.log()).detach().double().cpu()
    return scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def _faults(call: Call) -> tuple[Tensor, Tensor]:
    """How many queries of each head have a number that is not finite, and how many there are: `(heads,)` each."""
    faulty = faulty_queries(call)
    count = torch.full((call.sizes.heads,), faulty.shape[0] * faulty.shape[2], dtype=torch.float64)
    return faulty.sum((0, 2)).double(), count
