"""A profile as one sealed safetensors file: exact sums as tensors, everything else as JSON in its metadata.

Equal profiles are equal files, byte by byte.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from regard import files
from regard.errors import RecordError
from regard.files import sealing
from regard.record import bins
from regard.record.exact import DIGITS, SHORT
from regard.record.layer_sums import Layer
from regard.record.texts import PEAKS, PIECES

FORMAT, VERSION, KEY = "regard-profile", 1, "profile"
SUMS = ("totals", "counts", "means", "squares", "texts")
Layers = dict[tuple[str, str], Layer]


class Failure(NamedTuple):
    """A text that could not be read.

    Attributes:
        number: of the text, from 0. type: of the error. message: what it says.
    """

    number: int
    type: str
    message: str


class Numbers(TypedDict):
    """What a profile has beside its layers."""

    records: int
    texts: int
    failures: tuple[Failure, ...]
    truncated: int


def write(
    path: str | PathLike[str], layers: Layers, numbers: Numbers, notes: dict[str, Any] | None = None
) -> None:
    """Write a profile; `notes` are what else JSON can hold, for whoever reads it again.

    Raises:
        RecordError: it cannot be written there.
        MissingPackageError: safetensors is not installed.
    """
    files.write(path, packed(layers, numbers, notes), error=RecordError, what="profile")


def packed(layers: Layers, numbers: Numbers, notes: dict[str, Any] | None = None) -> bytes:
    """The content of the file that `write` writes."""
    body: dict[str, Any] = {"format": FORMAT, "version": VERSION, "notes": notes or {}}
    body |= numbers | {"failures": [list(failure) for failure in numbers["failures"]]}
    entries, tensors = [], dict[str, Tensor]()
    for index, ((name, kind), layer) in enumerate(layers.items()):
        entries.append(
            {"name": name, "kind": kind, "records": layer.records, "place": layer.place}
            | {"names": layer.names, "parameters": layer.parameters}
        )
        tensors[f"{index}.queries"] = layer.queries
        tensors |= {f"{index}.{item}": getattr(layer, item) for item in SUMS}
        tensors |= {f"{index}.pieces.{piece}": tensor for piece, tensor in layer.pieces.items()}
    metadata = {KEY: json.dumps(body | {"layers": entries}, allow_nan=False, sort_keys=True)}
    # In the order of names and not of insertion, so that equal profiles are equal bytes.
    return sealing.packed({name: tensors[name] for name in sorted(tensors)}, metadata)


def read(path: str | PathLike[str]) -> tuple[Layers, Numbers, dict[str, Any]]:
    """The layers, the numbers and the notes of a profile that `write` wrote.

    Raises:
        RecordError: no profile, or one that is damaged, altered or too new; names the file.
        MissingPackageError: safetensors is not installed.
    """
    try:
        sealing.plain_size(Path(path))
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: there is no such file") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error
    return unpacked(content, str(path))


def unpacked(content: bytes, path: str) -> tuple[Layers, Numbers, dict[str, Any]]:
    """What `read` gives, of the content of a file; `path` names it in errors."""
    try:
        tensors, metadata = sealing.unpacked(content)
        body = sealing.strict(metadata.get(KEY, "null").encode())
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise RecordError(f"{path}: is no profile of Regard")
    if (version := body.get("version")) != VERSION:
        raise RecordError(f"{path}: has format version {version!r}, this Regard reads {VERSION}: update it")
    try:
        layers: Layers = {}
        for index, entry in enumerate(body["layers"]):
            layers[entry["name"], entry["kind"]] = _layer(entry, index, tensors)
        # What nobody reads may hide anything.
        if tensors or len(layers) != len(body["layers"]):
            raise ValueError("its tensors must be those of its layers, each of which is there once")
        failures = tuple(Failure(*failure) for failure in body["failures"])
        numbers: Numbers = {
            "records": body["records"],
            "texts": body["texts"],
            "failures": failures,
            "truncated": body["truncated"],
        }
        counts = [value for value in numbers.values() if value is not failures]
        counts += [failure.number for failure in failures]
        # Not `isinstance`: booleans of JSON are integers in Python.
        if not all(type(count) is int for count in counts):
            raise ValueError("its counts must be integers")
        return layers, numbers, body["notes"]
    # Whatever a damaged file makes of fields that this version expects.
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{path}: is damaged: {error}") from None


def _layer(entry: dict[str, Any], index: int, tensors: dict[str, Tensor]) -> Layer:
    """One layer, once its tensors are what they must be."""
    names = tuple(entry["names"])
    if not all(type(text) is str for text in (*names, entry["name"], entry["kind"])):
        raise ValueError("names must be strings")
    if not all(type(value) in (int, float, bool) for value in entry["parameters"].values()):
        raise ValueError("its parameters must be numbers")
    queries = tensors.pop(f"{index}.queries")
    sums = {name: tensors.pop(f"{index}.{name}") for name in SUMS}
    heads, wide = len(queries), (len(DIGITS) + 1,)
    shapes: dict[str, tuple[int, ...]] = {name: (len(names), heads) for name in ("counts", "texts")}
    shapes |= {name: (len(names), heads, *wide) for name in ("totals", "means", "squares")}
    prefix = f"{index}.pieces."
    pieces = {name: tensors.pop(f"{prefix}{name}") for name in PIECES if f"{prefix}{name}" in tensors}
    grid, short = (heads, bins.CELLS), (len(SHORT) + 1,)
    shapes |= {
        "queries": (heads,),
        "entropy_fraction": (heads, bins.FRACTIONS),
        "distance": (heads, bins.POWERS),
        "received": (heads, bins.POWERS, *wide),
        "by_offset": (heads, 2, bins.POWERS, *wide),
        "keys": (bins.POWERS,),
        "map": (*grid, bins.CELLS, *short),
        "map_rows": (*grid, *short),
        "map_peak": (*grid, bins.CELLS),
    }
    for name, tensor in ({"queries": queries} | sums | pieces).items():
        kind = torch.float32 if name in PEAKS else torch.int64
        if tuple(tensor.shape) != shapes[name] or tensor.dtype != kind:
            raise ValueError(
                f"{name} must be {shapes[name]} of {kind}, got {tuple(tensor.shape)} of {tensor.dtype}"
            )
    records, position = entry["records"], entry["place"]
    if type(records) is not int or type(position) is not int:
        raise ValueError("records and place must be integers")
    known: dict[str, Any] = {"parameters": entry["parameters"], "names": names, "pieces": pieces, **sums}
    return Layer(queries=queries, records=records, place=position, **known)
