"""Which calls of a record an analysis is about: by name, pattern or number of the layer, as `watch` takes them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from regard.checks.arguments import listed, shown, whole
from regard.errors import ArgumentError
from regard.record.layers import matching
from regard.record.record import Record
from regard.statistics.observation import close_to

Layers = str | int | Iterable[str | int] | None


def calls_of(record: Record, layers: Layers) -> list[int]:
    """The places of the calls of these layers, in the order of the record.

    Args:
        record: what was watched.
        layers: names, parts of names between dots, patterns with `*`, numbers of blocks (the first number in a
            layer's name), or several of them; None: all.

    Raises:
        ArgumentError: a layer that is not there.
    """
    return places_of([call.layer for call in record], layers)


def places_of(names: list[str], layers: Layers) -> list[int]:
    """Which of these names of layers are meant: see `calls_of`."""
    if layers is None:
        return list(range(len(names)))
    # A text can be gone through too, and its letters are no layers.
    if isinstance(layers, str) or not isinstance(layers, Iterable):
        layers = [layers]
    chosen = set[int]()
    for layer in listed("layers", layers, lambda _, item: item, 1):
        matches = _places(layer, names)
        if not matches:
            raise ArgumentError(
                f"layers must name layers of the record, got {shown(layer)}; {close_to(layer, dict.fromkeys(names))}"
            )
        chosen.update(matches)
    return sorted(chosen)


def number_of(name: str) -> int | None:
    """The first number in a layer's name, which is that of its block."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def _places(layer: str | int, names: list[str]) -> list[int]:
    if not isinstance(layer, str):
        block = whole("layers", layer, 0)
        return [index for index, name in enumerate(names) if number_of(name) == block]
    if "*" in layer:
        return [index for index, name in enumerate(names) if fnmatchcase(name, layer)]
    return matching(layer, names)
