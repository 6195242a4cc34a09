"""Calls that have vectors and no statistic."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.record import Call
from regard.shapes import sizes_of
from regard.spec import Spec


def a_call(
    query: Tensor,
    key: Tensor,
    layer: str = "layer.0",
    kind: str = "self",
    padded: Tensor | None = None,
    **spec: Any,
) -> Call:
    """A call of these vectors; the keywords are those of a spec."""
    sizes = sizes_of(query, key)
    found = Spec.of(sizes, **spec)
    place = {"layer": layer, "kind": kind, "sizes": sizes, "offset": found.offset}
    return Call(**place, query=query, key=key, spec=found, padded=padded)
