"""The engines: modules of one protocol. Knows how to pick one, and says which ran.

- `rows(query, key, value, spec, want) -> State` is the first fold, differentiable in query, key, value and a bias's
  tensor: the engine's own fold made so by `engines.differentiable`;
- `vjp(query, key, value, spec, want, grads, normalizer, needed)` gives the gradients of those four, None where there is
  none to give, from `grads`, those of the state's l, u, r, o and c (None: none; its m is the state's m itself), from
  `normalizer`, the state's l, and from `needed`, four booleans that say whose gradient is wanted;
- `columns(query, key, spec, m, l, want) -> Sums` is the second fold, given the rows' m and l, a learned sink merged in;
  its weights are e^(score − m)/l, with the scores of the first fold bit for bit: at large scores any rounding of its
  own, that of m + ln l included, would be another weight;
- `look(query, key, spec, want)`, where an engine has it, gives row statistics by name and the Sums at once, of a call
  of which no derivative and no output is asked; None where it does not take one;
- `refuses(query, key, value, spec, want) -> str | None` says why it will not take a case.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from regard.engines import native, sdpa, tiles, triton
from regard.errors import EngineError
from regard.spec import Spec
from regard.statistics.table import Wanted

# In the order in which "auto" asks them; sdpa is for devices where the tiles are slow, so "auto" skips it on the CPU.
ENGINES: tuple[ModuleType, ...] = (native, triton, sdpa, tiles)


def choose(
    name: str, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted
) -> ModuleType:
    """The engine of that name, or with "auto" the first that takes the case.

    Raises:
        EngineError: there is no such engine, or it refuses; asking by name never falls back.
    """
    known = [engine.name for engine in ENGINES]
    if name != "auto" and name not in known:
        raise EngineError(f'engine must be "auto" or one of {known}, got {name!r}')
    reasons = []
    for engine in ENGINES:
        skipped = engine is sdpa and query.device.type == "cpu"
        if name == engine.name or (name == "auto" and not skipped):
            reason = engine.refuses(query, key, value, spec, want)
            if reason is None:
                return engine
            reasons.append(f"{engine.name}: {reason}")
    raise EngineError(f"no engine takes this case: {'; '.join(reasons)}")
