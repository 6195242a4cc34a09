"""One attention call and its statistics, and how a later step of the same generation extends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard import html
from regard.errors import RecordError
from regard.record import notebook
from regard.record.segments import Part, join, one_head, window
from regard.shapes import Sizes
from regard.spec import Spec
from regard.statistics import offsets
from regard.statistics.observation import COLUMNS, OFFSETS, ROWS, Observation, Top, check_index

T = TypeVar("T")
OPTIONAL = ("output", *ROWS, *COLUMNS, *OFFSETS, "map", "top", "query", "key", "value", "spec")


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
        value: `(batch, kv_heads, keys, value_dim)`; None where the call told none.
        spec: what turned them into weights.
        parts: where the steps of a generation had more than one spec, all of them in order.
        placed: whether the place of the queries among the keys is known. If not, what needs it (`distance`,
            `self_mass`, `previous`, `local`, `by_offset`) is None, and `offset` only counts queries.
        row_sum: `(batch, heads, queries)`, what the weights of each query add up to, where a model changed them after
            its softmax; None where they add up to 1.
        padded: `(batch, queries)`, bool: queries left out because the caller said that they are padding.
        padding: where that was said, such as `attention_mask of BertModel`; "" where nothing was.
        uniform: by name, what uniform weights under the same mask would give of `first`, `self_mass`, `previous`,
            `local`, the groups, `received` and `by_offset`, as far as they were kept; one row of heads where they
            share a mask. Roles are scored against it.
    """

    layer: str
    kind: str
    seen: str = "query-key"
    sizes: Sizes
    offset: int
    steps: int = 1
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    spec: Spec | None = None
    parts: tuple[Part, ...] = ()
    placed: bool = True
    row_sum: Tensor | None = None
    padded: Tensor | None = None
    padding: str = ""
    uniform: dict[str, Tensor] = field(default_factory=dict)

    @property
    def normalized(self) -> bool:
        """Whether the weights of every query that attends something add up to 1."""
        return self.row_sum is None

    def __repr__(self) -> str:
        size = self.sizes
        return (
            f"Call({self.layer!r}, {self.kind}, batch {size.batch}, heads {size.heads}, "
            f"queries {size.queries}, keys {size.keys})"
        )

    def _repr_html_(self) -> str:
        names = ("batch", "heads", "queries", "keys")
        sizes = [f"{name} {html.number(getattr(self.sizes, name))}" for name in names]
        facts = [f"{self.kind} attention", *sizes]
        if self.steps > 1:
            facts.append(f"{html.number(self.steps)} steps")
        if self.spec is not None and self.spec.mask is not None:
            facts.append(self.spec.mask.name)
        return html.card(html.heading("Call", self.layer, facts), *self._sections())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return notebook.bundle(None, self)

    def _display_(self) -> object:
        return notebook.display(self._repr_html_(), None, self)

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
        parts = tuple(replace(part, spec=one_head(part.spec, batch, head)) for part in self.spec_parts)
        query = self.query[batch : batch + 1, head : head + 1]
        key = self.key[batch : batch + 1, kv_head : kv_head + 1]
        return window(query, key, parts, rows, columns)[0, 0]

    @property
    def spec_parts(self) -> tuple[Part, ...]:
        """Which queries and keys each spec is about; none without `keep="vectors"`."""
        if self.spec is None:
            return ()
        return self.parts or (Part(self.sizes.queries, self.sizes.keys, self.spec),)

    def continues(self, step: Call) -> bool:
        """Whether `step` is the next step of the same generation: `extend` needs it to be."""
        return self._misfit(step) is None

    def extend(self, *steps: Call) -> Call:
        """This call and later decoding steps of the same layer as one, as if all queries had come at once.

        Row statistics follow each other, column statistics and maps are added, and the longest key is kept.

        Raises:
            RecordError: a step does not continue what is before it, and in what.
        """
        if not steps:
            return self
        calls = [self, *steps]
        for before, step in pairwise(calls):
            if reason := before._misfit(step):
                raise RecordError(f"{self.layer}: a step that extends a call must continue it, but {reason}")
        # A step has the keys of the one before it.
        keys = calls[-1].sizes.keys
        names = ("output", "query", "attends", *ROWS)
        rows: dict[str, Any] = {name: _all(calls, name, lambda parts: torch.cat(parts, 2)) for name in names}
        later = (part for step in steps for part in step.spec_parts)
        parts = reduce(join, later, self.spec_parts)
        # One spec for all steps is the common case: it is then the call's own.
        if len(parts) == 1:
            parts = ()
        return replace(
            self,
            **rows,
            received=_all(calls, "received", lambda parts: _merged(parts, keys, torch.add)),
            received_max=_all(calls, "received_max", lambda parts: _merged(parts, keys, torch.maximum)),
            by_offset=_offsets(calls),
            groups={name: torch.cat([call.groups[name] for call in calls], 2) for name in self.groups},
            map=_all(calls, "map", lambda maps: maps[0].merge(*maps[1:])),
            top=_all(calls, "top", lambda tops: reduce(Top.join, tops)),
            sizes=replace(self.sizes, queries=sum(call.sizes.queries for call in calls), keys=keys),
            steps=sum(call.steps for call in calls),
            row_sum=_joined(calls, "row_sum", 1.0),
            padded=_joined(calls, "padded", False),
            padding=next((call.padding for call in calls if call.padding), ""),
            uniform=_uniform(calls),
            key=calls[-1].key,
            value=_all(calls, "value", lambda parts: parts[-1]),
            parts=parts,
        )

    def _misfit(self, step: Call) -> str | None:
        """Why `step` does not continue this call."""
        want = self._identity() | {"position of the first query": self.offset + self.sizes.queries}
        have = step._identity() | {"position of the first query": step.offset}
        for name, value in want.items():
            if have[name] != value:
                return f"{name} must be {value}, got {have[name]}"
        # Keys only grow: a sliding cache's dropped ones stand as zeros.
        if step.sizes.keys < self.sizes.keys:
            return f"keys must be at least {self.sizes.keys}, got {step.sizes.keys}"
        return None

    def _identity(self) -> dict[str, Any]:
        """What all steps of one generation share."""
        shared = {name: getattr(self, name) for name in ("layer", "kind", "seen", "placed", "parameters")}
        shared |= {
            name: getattr(self.sizes, name) for name in ("batch", "heads", "kv_heads", "dim", "value_dim")
        }
        shared["what was kept"] = [name for name in OPTIONAL if getattr(self, name) is not None]
        return shared | {"groups": sorted(self.groups)}


def _uniform(calls: Sequence[Call]) -> dict[str, Tensor]:
    """What uniform weights would give in all these steps together, of what is known of each."""
    keys = calls[-1].sizes.keys
    known = set.intersection(*(set(call.uniform) for call in calls))
    result = {}
    for name in known:
        parts = [call.uniform[name] for call in calls]
        # A mask of one step may differ by head where that of another does not.
        heads = max(part.shape[1] for part in parts)
        parts = [part.expand(-1, heads, -1) for part in parts]
        if name == "received":
            result[name] = _merged(parts, keys, torch.add)
        elif name == "by_offset":
            result[name] = offsets.merge(
                [_strip(call, part) for call, part in zip(calls, parts, strict=True)]
            )
        else:
            result[name] = torch.cat(parts, 2)
    return result


def _strip(call: Call, sums: Tensor) -> offsets.Strip:
    return offsets.Strip(sums, call.sizes.queries, call.sizes.keys, call.offset)


def _all(calls: Sequence[Call], name: str, merge: Callable[[list[Any]], T]) -> T | None:
    """What the calls have of this name, merged; None where one of them has none."""
    parts = [getattr(call, name) for call in calls]
    if any(part is None for part in parts):
        return None
    return merge(parts)


def _offsets(calls: Sequence[Call]) -> Tensor | None:
    """The sums by offset of all calls together, which differ in queries and keys; None where one has none."""
    strips = [
        offsets.Strip(call.by_offset, call.sizes.queries, call.sizes.keys, call.offset)
        for call in calls
        if call.by_offset is not None
    ]
    if len(strips) < len(calls):
        return None
    return offsets.merge(strips)


def _merged(parts: list[Tensor], keys: int, merge: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Column statistics of calls with so many keys or fewer; a key that a call did not have got nothing there."""
    return reduce(merge, (pad(part, (0, keys - part.shape[2])) for part in parts))


def _joined(calls: Sequence[Call], name: str, usual: float | bool) -> Tensor | None:
    """What calls say of their queries, one after the other; `usual` for all of a call that says nothing."""
    parts = [getattr(call, name) for call in calls]
    like = next((part for part in parts if part is not None), None)
    if like is None:
        return None
    # Steps of one generation may differ: the prompt has padded rows, and its continuation none.
    for index, call in enumerate(calls):
        if parts[index] is None:
            parts[index] = like.new_full((*like.shape[:-1], call.sizes.queries), usual)
    return torch.cat(parts, -1)
