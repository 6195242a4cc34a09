"""What the second fold returns. Knows nothing of who folded it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.observation import Map


@dataclass(frozen=True)
class Sums:
    """Column statistics `(batch, heads, keys)` and the map; what was not asked for is None."""

    received: Tensor | None
    received_max: Tensor | None
    map: Map | None
