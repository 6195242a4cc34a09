"""A complete pyramid as a file beside a record, mapped where it is read, and a sealed document that names it.

What is damaged or of another record is not used: a picture that can be made again is worth no error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard import files
from regard.errors import RecordError, require
from regard.files import sealing
from regard.web.tiles.pyramid import KNOWN, MASKED, Level, Pyramid, depth, level_shape

FORM = sealing.Form("regard-pyramid", 1, "pyramid")


def save(pyramid: Pyramid, folder: Path, name: str, about: dict[str, Any]) -> None:
    """Write a complete pyramid, without the tiles in which the mask allows no pair.

    Args:
        pyramid: a complete one. folder: where it goes; it is made if need be.
        name: of the files, without an ending. about: what it is of, as JSON: read back for the same alone.

    Raises:
        RecordError: it cannot be written there.
        MissingPackageError: safetensors is not installed.
    """
    assert pyramid.complete
    numbers = require("safetensors.torch", extra="record")
    tensors = {"states": torch.from_numpy(pyramid.states), "tops": torch.from_numpy(pyramid.tops)}
    for level in range(len(pyramid.levels)):
        slots, tiles = _present(pyramid, level)
        tensors |= {f"{level}.slots": torch.from_numpy(slots), f"{level}.tiles": torch.from_numpy(tiles)}
    with files.replacing_all(folder, last=f"{name}.json", error=RecordError, what="pyramid") as unfinished:
        numbers.save_file(tensors, unfinished / f"{name}.safetensors")
        state = sealing.state(unfinished / f"{name}.safetensors")
        (unfinished / f"{name}.json").write_bytes(sealing.document(FORM, {"about": about, "file": state}))


def read(folder: Path, name: str, about: dict[str, Any], queries: int, keys: int) -> Pyramid | None:
    """The pyramid that was written there about the same; None where there is none, or none that can be used.

    Args:
        folder: where it lies. name: of its files. about: what it must be of.
        queries: of its call. keys: of its call.

    Raises:
        MissingPackageError: safetensors is not installed.
    """
    library = require("safetensors", extra="record")
    path = folder / f"{name}.safetensors"
    try:
        body = sealing.read(folder / f"{name}.json", FORM, RecordError)
        if body.get("about") != about or sealing.fault(path, body.get("file")):
            return None
        with library.safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.offset_keys()}
        return _unpacked(tensors, queries, keys)
    # A type that NumPy has not is a TypeError.
    except (OSError, RecordError, TypeError, library.SafetensorError):
        return None


def _present(pyramid: Pyramid, level: int) -> tuple[np.ndarray, np.ndarray]:
    """The tiles of a level that are not masked as a whole, and which of them each place has."""
    slots, tiles = pyramid.levels[level]
    side, (rows, columns) = 1 << level, slots.shape
    states = pyramid.states
    margin = (0, rows * side - states.shape[0]), (0, columns * side - states.shape[1])
    known = np.pad(states, margin) == KNOWN
    there = known.reshape(rows, side, columns, side).any((1, 3))
    if there.all():
        return slots, tiles
    numbers = np.where(there, there.cumsum().reshape(there.shape) - 1, -1).astype(np.int32)
    return numbers, tiles[slots[there]]


def _unpacked(tensors: dict[str, Tensor], queries: int, keys: int) -> Pyramid | None:
    """A pyramid of tensors that fit a call of so many queries and keys; None where they do not."""
    shapes = [level_shape(queries, keys, level) for level in range(depth(queries, keys))]
    names = {f"{level}.{part}" for level in range(len(shapes)) for part in ("slots", "tiles")}
    if set(tensors) != names | {"states", "tops"}:
        return None
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    states, tops = arrays["states"], arrays["tops"]
    grid = shapes[0][:2]
    if not _fits(states, grid, np.uint8) or not np.isin(states, (MASKED, KNOWN)).all():
        return None
    if not _fits(tops, (4, *grid), np.float32):
        return None
    levels = []
    for level, (rows, columns, *tile) in enumerate(shapes):
        slots, tiles = arrays[f"{level}.slots"], arrays[f"{level}.tiles"]
        many = tiles.shape[:1]
        if not _fits(slots, (rows, columns), np.int32) or not _fits(tiles, (*many, *tile), np.float16):
            return None
        if slots.size and not -1 <= slots.min() <= slots.max() < len(tiles):
            return None
        levels.append(Level(slots, tiles))
    return Pyramid(queries, keys, levels, states, tops)


def _fits(array: np.ndarray, shape: tuple[int, ...], kind: type[np.generic]) -> bool:
    return array.shape == shape and array.dtype == np.dtype(kind)
