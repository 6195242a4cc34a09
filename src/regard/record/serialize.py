"""A call as JSON and tensors, and back, with every type, shape and number checked.

Knows the fields of a call and of a spec; it knows no files, and trusts nothing that it unpacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import ArgumentError, MaskError, RecordError
from regard.record.call import Call
from regard.record.folder import entry
from regard.record.segments import Part
from regard.shapes import FLOATS, Sizes
from regard.spec import Spec, codec
from regard.statistics.observation import COLUMNS, OFFSETS, ROWS, Map, Top

CHOICES = {"kind": ("self", "cross"), "seen": ("query-key", "weights")}
# No size, position or count of a real call is beyond.
LARGEST = 1 << 40
MOST_HEADS = 1 << 16
WAY_OUT = 'watch without keep="vectors" to save this record'
VECTORS = ("output", "query", "key", "value")
ABOUT_ROWS = ("row_sum", "padded")
MAP, TOP = ("total", "peak", "rows"), ("weights", "keys")
NUMBERS = (torch.int64,)
STATISTICS = (torch.float32, torch.float64)
NULL = type(None)
SPEC_FIELDS: dict[str, type | tuple[type, ...]] = {
    "scale": float,
    "softcap": (float, NULL),
    "bias": (str, NULL),
    "mask": (dict, NULL),
    "sink_logit": bool,
}


def pack(call: Call) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The call as a dict for JSON and its tensors by name.

    Raises:
        RecordError: its mask or its bias is a function, which no file can hold.
    """
    plain = {name: getattr(call, name) for name in (*VECTORS, *ROWS, *COLUMNS, *OFFSETS, *ABOUT_ROWS)}
    tensors = {name: tensor for name, tensor in plain.items() if tensor is not None}
    # By number, as a group may be called anything.
    tensors |= {f"groups.{index}": share for index, share in enumerate(call.groups.values())}
    tensors |= {f"uniform.{index}": chance for index, chance in enumerate(call.uniform.values())}
    if call.map is not None:
        tensors |= {f"map.{name}": getattr(call.map, name) for name in MAP}
    if call.top is not None:
        tensors |= {f"top.{name}": getattr(call.top, name) for name in TOP}
    parts = []
    for index, part in enumerate(call.spec_parts):
        spec, spec_tensors = _pack_spec(part.spec, call.layer)
        parts.append({"queries": part.queries, "keys": part.keys, "spec": spec})
        tensors |= {f"parts.{index}.{name}": tensor for name, tensor in spec_tensors.items()}
    names = ("layer", "kind", "seen", "offset", "steps", "engine", "parameters", "placed", "padding")
    body = {name: getattr(call, name) for name in names} | {"sizes": asdict(call.sizes)}
    grid = None
    if call.map is not None:
        grid = {name: getattr(call.map, name) for name in ("cell", "queries", "keys", "offset")}
    body |= {"groups": list(call.groups), "uniform": list(call.uniform)}
    return body | {"map": grid, "parts": parts}, tensors


def _pack_spec(spec: Spec, layer: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        return codec.encode(spec)
    except MaskError as error:
        raise RecordError(f"{layer}: its mask cannot be saved, {error}: {WAY_OUT}") from None
    except ArgumentError:
        raise RecordError(f"{layer}: its score_mod cannot be saved, it is Python code: {WAY_OUT}") from None


def entries(body: dict[str, Any]) -> list[Any]:
    """The calls of a record's body, once what is beside them has the right types.

    Raises:
        RecordError: it has not.
    """
    entry(body, "info", dict, "the record")
    for name in ("tokens", "source_tokens"):
        rows = entry(body, name, (list, type(None)), "the record") or []
        if not all(isinstance(row, list) and all(isinstance(token, str) for token in row) for row in rows):
            raise RecordError(f"the record: {name!r} must be lists of strings")
    unseen = entry(body, "unseen", dict, "the record")
    if not all(isinstance(reason, str) for reason in unseen.values()):
        raise RecordError("the record: 'unseen' must give a reason for each module")
    calls = entry(body, "calls", list, "the record")
    assert isinstance(calls, list)
    return calls


def unpack(body: Any, tensors: dict[str, Tensor], where: str) -> dict[str, Any]:
    """The arguments of the call that `pack` took apart.

    Args:
        body: its dict.
        tensors: its tensors.
        where: what to call it in errors.

    Raises:
        RecordError: a field is missing, of another type, beyond its range, or does not agree with the sizes.
    """
    # What is taken leaves; what is left at the end belongs to no call.
    left = dict(tensors)
    call = {name: entry(body, name, str, where) for name in ("layer", "kind", "seen", "engine", "padding")}
    for name, known in CHOICES.items():
        if call[name] not in known:
            raise RecordError(f"{where}: {name!r} must be one of {', '.join(known)}, got {call[name]!r:.60}")
    sizes = _sizes(entry(body, "sizes", dict, where), f"{where}.sizes")
    numbers = {"offset": _number(body, "offset", where, -LARGEST), "steps": _number(body, "steps", where, 1)}
    placed = entry(body, "placed", bool, where)
    parameters = entry(body, "parameters", dict, where)
    for name in parameters:
        entry(parameters, name, (int, float, bool), f"{where}.parameters")
    shapes = _shapes(sizes)
    plain = {name: _take(left, name, shape, where) for name, shape in shapes.items() if name in left}
    names = _names(body, "groups", where)
    groups = {name: _take(left, f"groups.{i}", shapes["lse"], where) for i, name in enumerate(names)}
    uniform = _uniform(_names(body, "uniform", where), left, sizes, where)
    grid = _map(entry(body, "map", (dict, type(None)), where), left, sizes, f"{where}.map")
    top = None
    if "top.keys" in left:
        # How many were kept is written nowhere else; a tensor of no axes has no last one.
        count = left["top.keys"].shape[-1:] or (0,)
        shape = (*shapes["lse"], *count)
        top = Top(_take(left, "top.weights", shape, where), _take(left, "top.keys", shape, where))
    parts = _parts(entry(body, "parts", list, where), left, sizes, where)
    if left:
        raise RecordError(f"{where}: holds what no call has: {', '.join(sorted(left)):.200}")
    spec = None
    if parts:
        spec = parts[0].spec
    # One part is the call itself.
    if len(parts) == 1:
        parts = ()
    more = {
        "spec": spec,
        "parts": parts,
        "parameters": parameters,
        "placed": placed,
    }
    more |= {"sizes": sizes, "groups": groups, "uniform": uniform, "map": grid, "top": top}
    return call | numbers | plain | more


def _names(body: Any, name: str, where: str) -> list[str]:
    names = entry(body, name, list, where)
    if not all(isinstance(text, str) for text in names) or len(set(names)) < len(names):
        raise RecordError(f"{where}: {name!r} must be different strings, got {names!r:.60}")
    return list(names)


def _uniform(names: list[str], left: dict[str, Tensor], sizes: Sizes, where: str) -> dict[str, Tensor]:
    """What uniform weights would give, by name: of all heads, or one row for all of them."""
    lengths = {"received": sizes.keys, "by_offset": max(0, sizes.queries + sizes.keys - 1)}
    result = {}
    for index, name in enumerate(names):
        heads = sizes.heads
        if left.get(f"uniform.{index}", torch.empty(0)).shape[1:2] == (1,):
            heads = 1
        shape = (sizes.batch, heads, lengths.get(name, sizes.queries))
        result[name] = _take(left, f"uniform.{index}", shape, where)
    return result


@contextmanager
def _trying(where: str) -> Iterator[None]:
    """Whatever a hostile value makes a constructor say becomes a RecordError."""
    # Any exception: tensors of odd shapes and types reach arithmetic that no check foresees.
    try:
        yield
    except RecordError:
        raise
    except Exception as error:
        raise RecordError(f"{where}: {error}") from error


def _number(body: Any, name: str, where: str, least: int = 0, most: int = LARGEST) -> int:
    number = entry(body, name, int, where)
    if not least <= number <= most:
        raise RecordError(f"{where}: {name!r} must be from {least} to {most}, got {number}")
    assert isinstance(number, int)
    return number


def _sizes(body: dict[str, Any], where: str) -> Sizes:
    most = {"batch": MOST_HEADS, "heads": MOST_HEADS, "kv_heads": MOST_HEADS}
    names = [item.name for item in fields(Sizes)]
    sizes = Sizes(**{name: _number(body, name, where, 0, most.get(name, LARGEST)) for name in names})
    heads, kv_heads = sizes.heads, sizes.kv_heads
    if kv_heads == 0 or heads % kv_heads:
        raise RecordError(f"{where}: heads must be a multiple of kv_heads, got {heads} and {kv_heads}")
    return sizes


def _shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The shape of each plain tensor of a call."""
    row, column = (sizes.batch, sizes.heads, sizes.queries), (sizes.batch, sizes.heads, sizes.keys)
    shapes: dict[str, tuple[int, ...]] = {
        "output": (*row, sizes.value_dim),
        "query": (*row, sizes.dim),
        "key": (sizes.batch, sizes.kv_heads, sizes.keys, sizes.dim),
        "value": (sizes.batch, sizes.kv_heads, sizes.keys, sizes.value_dim),
    }
    shapes |= {"row_sum": row, "padded": (sizes.batch, sizes.queries)}
    shapes |= dict.fromkeys(OFFSETS, (sizes.batch, sizes.heads, sizes.diagonals))
    return shapes | dict.fromkeys(ROWS, row) | dict.fromkeys(COLUMNS, column)


def _take(left: dict[str, Tensor], name: str, shape: tuple[int, ...], where: str) -> Tensor:
    """Take out a tensor of this shape, of the type that its name asks for."""
    if name not in left:
        raise RecordError(f"{where}: the tensor {name!r} is missing")
    tensor = left.pop(name)
    if tuple(tensor.shape) != shape:
        raise RecordError(f"{where}: {name!r} must be {shape}, got {tuple(tensor.shape)}")
    types: tuple[torch.dtype, ...] = STATISTICS
    if name == "padded":
        types = (torch.bool,)
    elif name in ("argmax", "allowed", "top.keys"):
        types = NUMBERS
    elif name in VECTORS:
        types = FLOATS
    if tensor.dtype not in types:
        raise RecordError(f"{where}: {name!r} must be {' or '.join(map(str, types))}, got {tensor.dtype}")
    return tensor


def _map(body: dict[str, Any] | None, left: dict[str, Tensor], sizes: Sizes, where: str) -> Map | None:
    if body is None:
        return None
    cell, offset = _number(body, "cell", where, 1), _number(body, "offset", where, -LARGEST)
    queries, keys = _number(body, "queries", where), _number(body, "keys", where)
    missing = [name for name in MAP if f"map.{name}" not in left]
    if missing:
        raise RecordError(f"{where}: the tensors {', '.join(missing)} are missing")
    total, peak, rows = (left.pop(f"map.{name}") for name in MAP)
    if (*total.shape[:2], queries, keys) != (sizes.batch, sizes.heads, sizes.queries, sizes.keys):
        raise RecordError(f"{where}: must have the sizes of its call, {sizes}")
    if {total.dtype, peak.dtype} - set(STATISTICS) or rows.dtype not in (*NUMBERS, *STATISTICS):
        raise RecordError(
            f"{where}: must be float32 or float64, got {total.dtype}, {peak.dtype}, {rows.dtype}"
        )
    with _trying(where):
        return Map(total=total, peak=peak, rows=rows, cell=cell, queries=queries, keys=keys, offset=offset)


def _parts(bodies: list[Any], left: dict[str, Tensor], sizes: Sizes, where: str) -> tuple[Part, ...]:
    parts = []
    for index, body in enumerate(bodies):
        here, prefix = f"{where}.parts[{index}]", f"parts.{index}."
        spec_tensors = {
            name.removeprefix(prefix): left.pop(name) for name in list(left) if name.startswith(prefix)
        }
        queries, keys = _number(body, "queries", here), _number(body, "keys", here, most=sizes.keys)
        of = replace(sizes, queries=queries, keys=keys)
        parts.append(Part(queries, keys, _spec(entry(body, "spec", dict, here), spec_tensors, of, here)))
    if parts and sum(part.queries for part in parts) != sizes.queries:
        raise RecordError(f"{where}: its parts must have {sizes.queries} queries together")
    return tuple(parts)


def _spec(body: dict[str, Any], tensors: dict[str, Tensor], sizes: Sizes, where: str) -> Spec:
    for name, kind in SPEC_FIELDS.items():
        entry(body, name, kind, where)
    _number(body, "offset", where, -LARGEST)
    with _trying(where):
        return codec.decode(body, tensors, sizes)
