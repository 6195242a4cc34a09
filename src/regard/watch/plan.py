"""What is to be done to which heads, as frozen values that are saved and loaded: a `Change`, and a `Plan` of several.

Knows what can be said and what must hold of it; it does not know how a call is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from regard import files
from regard.checks.arguments import flag, listed, number, shown, whole
from regard.errors import ArgumentError, RecordError
from regard.files import sealing
from regard.masks import Mask, Prefix, deserialize_mask, serialize_mask
from regard.masks.algebra import as_mask
from regard.watch.changes import ByLayer, Fixed, HeadChange, Output, Zero

Pair = tuple[str | int, int]
FORM = sealing.Form("regard-plan", 1, "plan")
# The mask of a head that stays full.
EVERYTHING = ~Prefix(0)
FIELDS = ("heads", "kind", "mask", "temperature", "softcap", "output", "top", "uniform")


@dataclass(frozen=True, eq=False, kw_only=True)
class Change:
    """What is done to some heads of a model.

    Attributes:
        heads: pairs (layer, head): a layer is the number of a block (the first number in a module's name, as for
            `watch(layers=…)`) or the name of a module, with all inside it; heads count from 0. None: all heads.
        kind: "self" or "cross" attention alone; None: both.
        mask: which keys they may attend, besides what the model itself blocks.
        temperature: what their scores are divided by, the bias and a learned sink's logit included.
        softcap: c in c · tanh(score / c), before the bias, in the place of the model's own.
        output: "zero", or a tensor in the place of their outputs: `(pairs, value_dim)`, one row for each of the pairs;
            `(batch, queries, value_dim)`, the same for each; or `(batch, pairs, queries, value_dim)`. Or a mapping
            from names of modules to tensors `(heads, value_dim)`, as `analysis.mean_outputs` gives. Without pairs, a
            tensor has all heads of a layer.
        top: only so many of the largest weights of each query are left, and add up to 1 again.
        uniform: whether all keys that may be attended have equal weights; a learned sink then has none.
    """

    heads: tuple[Pair, ...] | None = None
    kind: Literal["self", "cross"] | None = None
    mask: Mask | None = None
    temperature: float | None = None
    softcap: float | None = None
    output: Literal["zero"] | Tensor | Mapping[str, Tensor] | Output | None = None
    top: int | None = None
    uniform: bool = False

    def __post_init__(self) -> None:
        values: dict[str, Any] = {"mask": as_mask(self.mask), "uniform": flag("uniform", self.uniform)}
        if self.heads is not None:
            values["heads"] = tuple(listed("heads", self.heads, _pair, least=1))
        if self.kind not in (None, "self", "cross"):
            raise ArgumentError(f'kind must be "self", "cross" or None, got {shown(self.kind)}')
        for name in ("temperature", "softcap"):
            if getattr(self, name) is not None:
                values[name] = number(name, getattr(self, name), above=0)
        if self.top is not None:
            values["top"] = whole("top", self.top, 1)
        values["output"] = _output(self.output)
        # Heads and kind say where and not what: such a change would do nothing, and nobody would notice.
        names = [name for name in FIELDS[2:] if values.get(name) is not None and values[name] is not False]
        if not names:
            raise ArgumentError(f"a change must say at least one of {', '.join(FIELDS[2:])}, got none")
        # Past the guard of a frozen dataclass, and only after all values have been checked.
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        words = []
        for name in FIELDS:
            value = getattr(self, name)
            if value is None or value is False:
                continue
            if isinstance(value, Mask):
                value = value.name
            elif isinstance(value, Tensor):
                value = f"tensor {tuple(value.shape)}"
            elif isinstance(value, Mapping):
                value = f"means of {len(value)} modules"
            else:
                value = repr(value)
            words.append(f"{name}={value}")
        return f"Change({', '.join(words)})"

    def change(self) -> HeadChange:
        """The same in the form in which it is applied."""
        output: Output | None = None
        if isinstance(self.output, Output):
            output = self.output
        elif isinstance(self.output, Tensor):
            output = Fixed(self.output)
        elif isinstance(self.output, Mapping):
            output = ByLayer(self.output, tuple(head for _, head in self.heads or ()))
        elif self.output is not None:
            output = Zero()
        temperature = 1.0
        if self.temperature is not None:
            temperature = self.temperature
        return HeadChange(
            mask=self.mask,
            temperature=temperature,
            softcap=self.softcap,
            top=self.top,
            uniform=self.uniform,
            output=output,
        )


class Plan(Sequence[Change]):
    """Several changes, all made at once: a frozen sequence.

    Args:
        changes: they. Those that concern one head must not contradict each other: one output, one softcap.

    Example:
        >>> from regard.watch import Change, Plan
        >>> plan = Plan([Change(heads=[(0, 1)], output="zero"), Change(heads=[(1, 3)], temperature=2.0)])
        >>> plan.save("plan.json")
        >>> Plan.load("plan.json")
        Plan([Change(heads=((0, 1),), output='zero'), Change(heads=((1, 3),), temperature=2.0)])
    """

    def __init__(self, changes: Iterable[Change]) -> None:
        self._changes = tuple(listed("changes", changes, _change, least=1))

    @overload
    def __getitem__(self, index: int) -> Change: ...

    @overload
    def __getitem__(self, index: slice) -> Plan: ...

    def __getitem__(self, index: int | slice) -> Change | Plan:
        if isinstance(index, slice):
            return Plan(self._changes[index])
        return self._changes[index]

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes)

    def __repr__(self) -> str:
        return f"Plan([{', '.join(map(repr, self._changes))}])"

    def save(self, path: str | Path) -> None:
        """Write the plan into a file that carries its seal: JSON, or safetensors where tensors are in it.

        Raises:
            RecordError: it cannot be written there.
            MaskError: a mask is Python code.
            ArgumentError: an output is Python code.
        """
        tensors: dict[str, Tensor] = {}
        body = {"changes": [_encoded(change, tensors) for change in self._changes]}
        if not tensors:
            content = sealing.document(FORM, body, indent=1)
        else:
            kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
            # Bytes are stored as larger numbers: the seal is the tensor with the smallest ones.
            wide = {name: t.short() if t.element_size() == 1 else t for name, t in tensors.items()}
            content = sealing.packed(wide, {"plan": json.dumps(body | {"dtypes": kinds})})
        files.write(path, content, what="plan")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan in a file that `save` wrote.

        Raises:
            RecordError: there is none, or it is not what was written.
        """
        file = Path(path)
        try:
            content = file.read_bytes()
            tensors: dict[str, Tensor] = {}
            # Safetensors begins with the length of its header, a multiple of 8, so its first byte is never a brace.
            if content.startswith(b"{"):
                body = sealing.opened(content, FORM)
            else:
                tensors, metadata = sealing.unpacked(content)
                body = sealing.strict(metadata["plan"].encode())
                tensors = {n: t.to(getattr(torch, body["dtypes"][n])) for n, t in tensors.items()}
            return cls([_decoded(change, tensors) for change in body["changes"]])
        except OSError as fault:
            raise RecordError(f"{file}: cannot be read: {fault.strerror or fault}") from fault
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            raise RecordError(f"{file}: holds no plan that this Regard can read: {fault}") from fault


def of_masks(rows: Iterable[tuple[str | int, str | None, int, Mask | None]]) -> Plan:
    """A plan of masks, with one change for all heads that have the same, which so go through one fold together.

    Args:
        rows: `(layer, kind, head, mask)`; None is the mask of a head that stays full. Where another head of its layer
            has a mask, it is given one that blocks nothing: with all heads named, the layer's own attention is not
            needed.

    Raises:
        ArgumentError: no head has a mask.
    """
    rows = list(rows)
    sparse = {(layer, kind) for layer, kind, _, mask in rows if mask is not None}
    if not sparse:
        raise ArgumentError("a plan of masks must have a mask for at least one head, got none")
    pairs: dict[tuple[Any, Mask], list[Pair]] = {}
    for layer, kind, head, mask in rows:
        if mask is None:
            mask = EVERYTHING
        if (layer, kind) in sparse:
            pairs.setdefault((kind, mask), []).append((layer, head))
    return Plan([Change(heads=tuple(heads), kind=kind, mask=mask) for (kind, mask), heads in pairs.items()])


def _pair(name: str, value: Any) -> Pair:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence) or len(value) != 2:
        raise ArgumentError(f"{name} must be a pair (layer, head), got {shown(value)}")
    layer, head = value
    if not isinstance(layer, str):
        layer = whole(f"the layer of {name}", layer, 0)
    return layer, whole(f"the head of {name}", head, 0)


def _output(value: Any) -> Any:
    if value is None or isinstance(value, Output) or (isinstance(value, str) and value == "zero"):
        return value
    if isinstance(value, Tensor) and value.is_floating_point() and value.ndim in (2, 3, 4):
        return value
    if isinstance(value, Mapping):
        for name, tensor in value.items():
            if not isinstance(tensor, Tensor) or tensor.ndim != 2:
                raise ArgumentError(
                    f"output[{name!r}] must be a tensor (heads, value_dim), got {shown(tensor)}"
                )
        # A copy, as the mapping of the caller may change after the plan is frozen.
        return dict(value)
    raise ArgumentError(
        f'output must be "zero", a floating tensor (heads, value_dim), (batch, queries, value_dim) or (batch, heads, '
        f"queries, value_dim), or a mapping from names of modules to tensors, got {shown(value)}"
    )


def _change(name: str, value: Any) -> Change:
    if not isinstance(value, Change):
        raise ArgumentError(f"{name} must be a Change, got {shown(value)}")
    return value


def _encoded(change: Change, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A change as JSON; its tensors go to the others, each under a name of its own."""

    def named(tensor: Tensor) -> dict[str, str]:
        name = f"tensor.{len(tensors)}"
        tensors[name] = tensor.detach().cpu()
        return {"tensor": name}

    body: dict[str, Any] = {name: getattr(change, name) for name in FIELDS if name not in ("mask", "output")}
    body |= {"mask": None, "output": change.output}
    if change.mask is not None:
        mask, arrays = serialize_mask(change.mask)
        # Masks of several changes may name their tensors alike.
        prefix = f"{len(tensors)}."
        tensors.update({prefix + name: tensor.cpu() for name, tensor in arrays.items()})
        body["mask"] = {"prefix": prefix, "mask": mask}
    if isinstance(change.output, Tensor):
        body["output"] = named(change.output)
    elif isinstance(change.output, Mapping):
        body["output"] = {"layers": {layer: named(tensor) for layer, tensor in change.output.items()}}
    elif isinstance(change.output, Output):
        raise ArgumentError(f"an output of type {type(change.output).__name__} is Python code")
    return body


def _decoded(body: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Change:
    # A missing field is an error and not a default: the file would do something other than what was saved.
    values = {name: body[name] for name in FIELDS}
    mask, output = values["mask"], values["output"]
    if mask is not None:
        arrays = {name.removeprefix(mask["prefix"]): tensor for name, tensor in tensors.items()}
        values["mask"] = deserialize_mask(mask["mask"], arrays)
    if isinstance(output, dict) and "layers" in output:
        values["output"] = {layer: tensors[held["tensor"]] for layer, held in output["layers"].items()}
    elif isinstance(output, dict):
        values["output"] = tensors[output["tensor"]]
    return Change(**values)
