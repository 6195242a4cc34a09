"""What `watch` saw in a model: the attention calls in order, each with its statistics.

Knows how a call is found by name and how the steps of a generation merge; not how calls are caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard import packing, storage
from regard.axes import Sizes
from regard.errors import RecordError
from regard.heads import table
from regard.observation import COLUMNS, ROWS, Observation, check_index, close_to
from regard.parts import Part, join, one_head, window
from regard.spec import Spec

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Call(Observation):
    """One attention call, or the steps of one generation merged.

    Attributes:
        layer: the module's qualified name, such as `encoder.layer.3.attention.self`.
        kind: "self" or "cross".
        seen: "query-key", or "weights" where the model made the weights itself.
        sizes: all sizes of the call.
        offset: position of query 0.
        steps: how many calls were merged.
        query: `(batch, heads, queries, dim)`, as all below with `keep="vectors"` only.
        key: `(batch, kv_heads, keys, dim)`.
        spec: what turned them into weights.
        parts: where the steps of a generation had more than one spec, all of them in order.
    """

    layer: str
    kind: str
    seen: str = "query-key"
    sizes: Sizes
    offset: int
    steps: int = 1
    query: Tensor | None = None
    key: Tensor | None = None
    spec: Spec | None = None
    parts: tuple[Part, ...] = ()

    def __repr__(self) -> str:
        size = self.sizes
        return (
            f"Call({self.layer!r}, {self.kind}, batch {size.batch}, heads {size.heads}, "
            f"queries {size.queries}, keys {size.keys})"
        )

    def weights(
        self, head: int, rows: slice = slice(None), columns: slice = slice(None), batch: int = 0
    ) -> Tensor:
        """An exact window of the weights of one head, from the kept vectors.

        Args:
            head: which head.
            rows: which queries. columns: which keys. Slices that go forwards.
            batch: which row of the batch.

        Returns:
            `(rows, columns)`.

        Raises:
            RecordError: the vectors were not kept.
            ArgumentError: no such head or row of the batch.
        """
        if self.query is None or self.key is None or self.spec is None:
            raise RecordError(
                f"{self.layer}: a window of weights needs the query and key vectors, which were not kept: "
                f'watch with keep="vectors"'
            )
        check_index("head", head, self.sizes.heads)
        check_index("batch", batch, self.sizes.batch)
        head, batch = head % self.sizes.heads, batch % self.sizes.batch
        kv_head = head // self.sizes.group
        parts = tuple(replace(part, spec=one_head(part.spec, batch, head)) for part in self.own_parts)
        query = self.query[batch : batch + 1, head : head + 1]
        key = self.key[batch : batch + 1, kv_head : kv_head + 1]
        return window(query, key, parts, rows, columns)[0, 0]

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """Which queries and keys each spec is about; none without `keep="vectors"`."""
        if self.spec is None:
            return ()
        return self.parts or (Part(self.sizes.queries, self.sizes.keys, self.spec),)

    def continues(self, step: Call) -> bool:
        """Whether `step` is the next step of the same generation: `extend` needs it to be."""
        return self._misfit(step) is None

    def extend(self, step: Call) -> Call:
        """This call and a later decoding step of the same layer as one, as if all queries had come at once.

        Row statistics follow each other, column statistics and maps are added, and the longest key is kept.

        Raises:
            RecordError: `step` does not continue this call, and in what.
        """
        if reason := self._misfit(step):
            raise RecordError(f"{self.layer}: a step that extends a call must continue it, but {reason}")
        keys = max(self.sizes.keys, step.sizes.keys)
        rows: dict[str, Any] = {
            name: _both(getattr(self, name), getattr(step, name), lambda a, b: torch.cat((a, b), 2))
            for name in ("output", "query", *ROWS)
        }
        received, received_max = (
            _both(_padded(getattr(self, name), keys), _padded(getattr(step, name), keys), merge)
            for name, merge in (("received", torch.add), ("received_max", torch.maximum))
        )
        parts = reduce(join, step.own_parts, self.own_parts)
        return replace(
            self,
            **rows,
            received=received,
            received_max=received_max,
            groups={name: torch.cat((mass, step.groups[name]), 2) for name, mass in self.groups.items()},
            map=_both(self.map, step.map, lambda a, b: a.merge(b)),
            top=_both(self.top, step.top, lambda a, b: a.join(b)),
            sizes=replace(self.sizes, queries=self.sizes.queries + step.sizes.queries, keys=keys),
            steps=self.steps + step.steps,
            key=step.key if step.sizes.keys == keys else self.key,
            parts=parts if len(parts) > 1 else (),
        )

    def _misfit(self, step: Call) -> str | None:
        """Why `step` does not continue this call."""
        want = self._identity() | {"position of the first query": self.offset + self.sizes.queries}
        have = step._identity() | {"position of the first query": step.offset}
        for name, value in want.items():
            if have[name] != value:
                return f"{name} must be {value}, got {have[name]}"
        if step.sizes.keys < self.sizes.keys:
            return f"keys must be at least {self.sizes.keys}, got {step.sizes.keys}"
        return None

    def _identity(self) -> dict[str, Any]:
        """What all steps of one generation share."""
        names = ("output", *ROWS, *COLUMNS, "map", "top", "query", "key", "spec")
        kept = [name for name in names if getattr(self, name) is not None]
        own = {"layer": self.layer, "kind": self.kind, "seen": self.seen, "parameters": self.parameters}
        sizes = asdict(replace(self.sizes, queries=0, keys=0))  # what may differ
        return own | sizes | {"what was kept": kept, "groups": sorted(self.groups)}


def _padded(tensor: Tensor | None, keys: int) -> Tensor | None:
    return None if tensor is None else pad(tensor, (0, keys - tensor.shape[2]))


def _both(a: T | None, b: T | None, merge: Callable[[T, T], T]) -> T | None:
    return None if a is None or b is None else merge(a, b)


@dataclass(eq=False, repr=False)
class Record:
    """Everything seen while a model was watched: a list of calls, in order.

    Attributes:
        calls: the attention calls.
        tokens: for each row of the batch the tokens that the queries are, and with "self" the keys.
        source_tokens: the tokens that the keys of "cross" calls are.
        info: model class, versions, date, settings: whatever JSON can hold.
    """

    calls: list[Call] = field(default_factory=list)
    tokens: list[list[str]] | None = None
    source_tokens: list[list[str]] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

    def __repr__(self) -> str:
        calls = (f"{place:4}  {call!r}" for place, call in enumerate(self))
        return "\n".join([f"Record of {len(self)} calls", *calls])

    def __getitem__(self, which: int | str) -> Call:
        """One call, by its place or by its layer's name.

        A part of the name between dots is enough where only one layer has it: `encoder.layer.3` finds
        `bert.encoder.layer.3.attention.self`.

        Raises:
            RecordError: there is no such call, or there are several.
        """
        if isinstance(which, str):
            return self.calls[self._find(which)]
        if not -len(self) <= which < len(self):
            raise RecordError(f"the record has {len(self)} calls, counted from 0: there is no call {which}")
        return self.calls[which]

    def _find(self, name: str) -> int:
        layers = list(dict.fromkeys(call.layer for call in self))
        found = [layer for layer in layers if layer == name]
        found = found or [layer for layer in layers if f".{name}." in f".{layer}."]
        if not found:
            raise RecordError(f"no layer {name!r} in the record; {close_to(name, layers)}")
        if len(found) > 1:
            raise RecordError(f"{name!r} must be a part of one layer's name, got several: {', '.join(found)}")
        places = [place for place, call in enumerate(self) if call.layer == found[0]]
        if len(places) > 1:
            raise RecordError(
                f"layer {found[0]!r} was called {len(places)} times: take record[i], i one of {places}"
            )
        return places[0]

    @property
    def heads(self) -> DataFrame:
        """One row per call and head: see `regard.heads.table`."""
        return table(self.calls)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the record into a folder, which is made if need be; a record that is there is replaced whole.

        The folder holds safetensors (every tensor), Parquet (the table of heads, for other tools) and JSON.

        Raises:
            RecordError: the folder cannot be written, or the record holds what cannot be saved.
        """
        entries, tensors = [], dict[str, Tensor]()
        for place, call in enumerate(self):
            entry, own = packing.pack(call)
            entries.append(entry)
            tensors |= {f"{place}.{name}": tensor for name, tensor in own.items()}
        body = {"info": self.info, "tokens": self.tokens, "source_tokens": self.source_tokens}
        storage.write(Path(path), body | {"calls": entries}, tensors, self.heads)


def load(path: str | PathLike[str]) -> Record:
    """Read a record that `Record.save` wrote.

    Raises:
        RecordError: no record, or one that is damaged, too new or hostile; says which file and why.
    """
    body, tensors = storage.read(Path(path))
    own: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, _, rest = name.partition(".")
        own.setdefault(place, {})[rest] = tensor
    try:
        entries = packing.entries(body)
        calls = [Call(**packing.unpack(e, own.pop(str(i), {}), f"calls[{i}]")) for i, e in enumerate(entries)]
        if own:
            raise RecordError(f"tensors of calls that it does not list: {', '.join(sorted(own))}")
    except RecordError as error:
        raise RecordError(f"{Path(path) / storage.RECORD}: {error}") from None
    return Record(calls, body["tokens"], body["source_tokens"], body["info"])
