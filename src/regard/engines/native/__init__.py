"""The engine in C++ for the CPU: AVX-512, AVX2 or plain builds of one source, chosen at run time."""

from __future__ import annotations

from regard.engines.differentiable import differentiable
from regard.engines.native.backward import pull
from regard.engines.native.call import refuses
from regard.engines.native.columns import columns
from regard.engines.native.library import build, builds, why_not
from regard.engines.native.rows import fold

name = "native"
rows = differentiable(fold, pull)

__all__ = ["build", "builds", "columns", "name", "pull", "refuses", "rows", "why_not"]
