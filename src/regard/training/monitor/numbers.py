"""The numbers of every head, of one forward pass or many, of one process or many.

Knows sums, weights and largest values, which merge in any order; it does not know what they mean for a training.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, distributed

from regard.errors import TrainingError
from regard.record import Call, Profile, Record
from regard.record.history import History, Layer
from regard.record.table import means, names_of

Key = tuple[str, str]
NEEDED = ("entropy", "max_weight", "lse", "allowed")
"""What must be observed so that `largest_score` and `nonfinite` are known, and all that alarms are about."""
LARGEST, NONFINITE = "largest_score", "nonfinite"


@dataclass(eq=False)
class Numbers:
    """What was seen of each head.

    Attributes:
        profile: sums and weights of all statistics.
        largest: by layer and kind `(heads,)`, float64: the largest score of any query, −inf where it is not known.
    """

    profile: Profile = field(default_factory=Profile)
    largest: dict[Key, Tensor] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Take in one forward pass."""
        seen, layers = Profile().add(record), {}
        for key, layer in seen.layers.items():
            calls = [call for call in record if (call.layer, call.kind) == key]
            faults, queries = (torch.stack(parts).sum(0) for parts in zip(*map(_faults, calls), strict=True))
            layers[key] = replace(layer, sums=layer.sums | {NONFINITE: (faults, queries)})
            highest = torch.stack([_largest(call) for call in calls]).amax(0)
            self.largest[key] = torch.maximum(self.largest.get(key, highest), highest)
        self.profile = self.profile.merge(Profile(layers, seen.records))

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
        added, highest = table.sum(0), table.amax(0)
        return self._from(added[1:], highest[1:])

    def _parts(self) -> Iterator[Tensor]:
        """All numbers in one order: which layers they are about, then of each its sums and its largest scores."""
        names = repr([(key, sorted(layer.sums)) for key, layer in self.profile.layers.items()])
        yield torch.tensor([float(zlib.crc32(names.encode()))], dtype=torch.float64)
        for key, layer in self.profile.layers.items():
            for name in sorted(layer.sums):
                yield from layer.sums[name]
            yield layer.queries.double()
            yield self.largest[key]

    def _from(self, added: Tensor, highest: Tensor) -> Numbers:
        """Numbers of the same layers, out of what `_parts` of all processes add up to, and of what is highest."""
        place, numbers = 0, Numbers()
        layers = {}
        for key, layer in self.profile.layers.items():
            heads, names = len(layer.queries), sorted(layer.sums)
            block = added[place : place + heads * (2 * len(names) + 1)].view(-1, heads)
            sums = {name: (block[2 * i], block[2 * i + 1]) for i, name in enumerate(names)}
            layers[key] = replace(layer, sums=sums, queries=block[-1].long())
            place += block.numel()
            numbers.largest[key] = highest[place : place + heads]
            place += heads
        numbers.profile = Profile(layers, self.profile.records)
        return numbers

    def names(self, asked: Iterable[str]) -> tuple[str, ...]:
        """The statistics of `asked` that are known, in the order of tables, and those that are known of any head."""
        sums = [layer.sums for layer in self.profile.layers.values()]
        there = set().union(*sums)
        wanted = {*asked, "entropy_fraction", "received_share"}
        named = [name for name in names_of(sums) if name in there]
        return (*(n for n in named if n in wanted or n.startswith("group.")), LARGEST, NONFINITE)

    def values(self, names: tuple[str, ...]) -> Tensor:
        """`(1, statistics, heads)`, float32: the heads of all layers, one after the other."""
        columns = []
        for key, layer in self.profile.layers.items():
            heads = len(layer.queries)
            column = means(layer.sums, names, heads)
            column[LARGEST] = (
                self.largest[key].masked_fill(self.largest[key] == -torch.inf, torch.nan).numpy()
            )
            columns.append(np.stack([column[name] for name in names]))
        return torch.from_numpy(np.concatenate(columns, 1)).float()[None]

    def history(self, step: int, asked: Iterable[str]) -> History:
        """A history of one step. Its layers have no sizes: texts of every length went in."""
        names, layers = self.names(asked), self.profile.layers
        parameters = {name: value for layer in layers.values() for name, value in layer.parameters.items()}
        return History(
            layers=tuple(Layer(*key, len(layer.queries), 0, 0, 0, 0) for key, layer in layers.items()),
            statistics=names,
            parameters={name: value for name, value in parameters.items() if name in names},
            steps=(step,),
            values=self.values(names),
        )


def _faults(call: Call) -> tuple[Tensor, Tensor]:
    """How many queries of each head have a number that is not finite, and how many there are: `(heads,)` each."""
    entropy, lse = call.entropy, call.lse
    assert entropy is not None
    faulty = ~entropy.isfinite()
    if lse is not None:
        # −inf is no fault: the query may attend nothing.
        faulty = faulty | lse.isnan() | (lse == torch.inf)
    count = torch.full((call.sizes.heads,), faulty.shape[0] * faulty.shape[2], dtype=torch.float64)
    return faulty.sum((0, 2)).double().cpu(), count


def _largest(call: Call) -> Tensor:
    """`(heads,)`: the largest score. That of the largest weight of a query, which is e^(score − lse)."""
    if call.lse is None or call.max_weight is None:
        return torch.full((call.sizes.heads,), -torch.inf, dtype=torch.float64)
    # A weight of 0 beside a sink has a score too small to matter; NaN wins no comparison, and counts elsewhere.
    scores = (call.lse + call.max_weight.log()).detach().double()
    return scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).amax((0, 2)).cpu()
