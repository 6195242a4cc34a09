"""The engines, and which of them takes a case. What an engine is, is said in `engines.protocol`."""

from __future__ import annotations

from torch import Tensor

from regard.engines import native, sdpa, tiles, triton
from regard.engines.protocol import Engine
from regard.errors import EngineError
from regard.spec import Spec
from regard.statistics.table import Wanted

# In the order in which "auto" asks them.
ENGINES: tuple[Engine, ...] = (native, triton, sdpa, tiles)


def choose(name: str, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> Engine:
    """The engine of that name, or with "auto" the first that takes the case.

    Raises:
        EngineError: there is no such engine, or it refuses; asking by name never falls back.
    """
    known = [engine.name for engine in ENGINES]
    if name != "auto" and name not in known:
        raise EngineError(f'engine must be "auto" or one of {known}, got {name!r}')
    reasons = []
    for engine in ENGINES:
        # sdpa is for devices where the tiles are slow, which the CPU is not.
        skipped = engine is sdpa and query.device.type == "cpu"
        if name == engine.name or (name == "auto" and not skipped):
            reason = engine.refuses(query, key, value, spec, want)
            if reason is None:
                return engine
            reasons.append(f"{engine.name}: {reason}")
    raise EngineError(f"no engine takes this case: {'; '.join(reasons)}")
