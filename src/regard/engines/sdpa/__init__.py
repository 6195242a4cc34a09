"""The engine for devices where torch's fused attention is all that is fast: every number from SDPA alone.

SDPA(query, key, v) is Σ w·v over the keys, whatever v is. With key 0 among the keys of every row, w₀ its weight,

    w₀ = SDPA(query, key, 1 on key 0),    lse = score₀ − ln w₀,    Σ w·φ(key) = SDPA(query, key, φ),
    entropy = lse − Σ w·score = scale · query · (key₀ − SDPA(query, key, key)) − ln w₀,
    Σ w² = w₀² / w₀′, where w₀′ is w₀ at twice the scale,
    received = Σ e^(score − lse) over the queries: SDPA again, with queries and keys exchanged.

No weight is stored, so memory is O(n). What is no such sum (the largest weights, the map, sums by offset) is refused,
and so are weighted queries, whose factors may have any sign; the gradient is that of the tiles.
"""

from __future__ import annotations

from regard.engines.differentiable import differentiable
from regard.engines.protocol import two_folds
from regard.engines.sdpa.call import refuses
from regard.engines.sdpa.folds import columns, fold
from regard.engines.tiles.backward import vjp
from regard.engines.tiles.columns import weighted

name = "sdpa"
rows = differentiable(fold, vjp)
look = two_folds

__all__ = ["columns", "look", "name", "vjp", "refuses", "rows", "weighted"]
