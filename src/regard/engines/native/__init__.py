"""The engine in C++ for the CPU: AVX-512, AVX2 or plain builds of one source, chosen at run time."""

from __future__ import annotations

from regard.engines.differentiable import differentiable
from regard.engines.native.backward import vjp
from regard.engines.native.columns import CELL_SIDE, add_window, columns, weighted
from regard.engines.native.library import build, builds, verdict, why_not
from regard.engines.native.look import look
from regard.engines.native.marshal import refuses
from regard.engines.native.rows import fold

name = "native"
rows = differentiable(fold, vjp)

__all__ = [
    "CELL_SIDE",
    "add_window",
    "build",
    "builds",
    "columns",
    "look",
    "name",
    "vjp",
    "refuses",
    "rows",
    "verdict",
    "why_not",
    "weighted",
]
