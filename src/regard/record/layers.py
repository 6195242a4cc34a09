"""Names of layers: found by a part between dots, and shortened for a table or figure. Knows nothing of calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

# Halves of a model, each of which counts its layers from 0.
SIDES = ("encoder", "decoder")


def matching(name: str, names: Sequence[str]) -> list[int]:
    """Which of `names` are called so; where none is, which have `name` as a part between dots.

    `encoder.layer.3` is a part of `bert.encoder.layer.3.attention.self`, and none of `bert.encoder.layer.30`.
    """
    # A full name may be a part of another: `layer.1` of `decoder.layer.1`.
    exact = [index for index, full in enumerate(names) if full == name]
    return exact or [index for index, full in enumerate(names) if f".{name}." in f".{full}."]


def short_names(names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Short names for layers of these names and kinds, all different where the full ones are: `layer 3`.

    The number is the first one in the name. `encoder 3` and `decoder 3` where both halves are there, `layer 3 · cross`
    where kinds differ; the full names where one has no number, or where short ones would be the same.
    """
    paths = [name.split(".") for name in names]
    numbers = [next((part for part in path if part.isdigit()), None) for path in paths]
    if None in numbers:
        return list(names)
    sides = [_side(path) for path in paths]
    # What all have in common says nothing.
    one_side, one_kind = len(set(sides)) == 1, len(set(kinds)) == 1
    short = []
    for side, layer, kind in zip(sides, numbers, kinds, strict=True):
        label = f"{side} {layer}"
        if one_side or not side:
            label = f"layer {layer}"
        if not one_kind:
            label = f"{label} · {kind}"
        short.append(label)
    if len(set(short)) != len(set(names)):
        return list(names)
    return short


def _side(path: Sequence[str]) -> str:
    """The half of the model that a module is in, said before its number; "" in a model of one part."""
    before = takewhile(lambda part: not part.isdigit(), path)
    return next((part for part in before if part in SIDES), "")
