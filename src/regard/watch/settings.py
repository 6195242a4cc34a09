"""What is to be kept of each call that a watch sees."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.statistics.table import Choice


@dataclass(frozen=True)
class Settings:
    """What is kept of each call."""

    vectors: bool
    statistics: str | tuple[str | Choice, ...] | None
    map: int | None
    top: int
    fused: bool
    padding: Tensor | None = None
    source_padding: Tensor | None = None
