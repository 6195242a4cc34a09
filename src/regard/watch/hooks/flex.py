"""`flex_attention`, however it was imported or compiled: its code is exchanged while somebody watches.

Knows FlexAttention's arguments; what a `BlockMask` means is in `blockmask.py`.
"""

from __future__ import annotations

import inspect
import sys
import types
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from regard.spec.bias import ScoreMod
from regard.watch import hub
from regard.watch.captured import CapturedCall
from regard.watch.hooks.blockmask import mask_of
from regard.watch.hooks.torch_calls import set_aside
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher

MODULE = "torch.nn.attention.flex_attention"
# The name in torch's module under which the exchanged code finds what to call: its globals are that module's.
PARTS = "_regard_parts"


@lru_cache(maxsize=2)
def _exchange(function: types.FunctionType, code: types.CodeType) -> tuple[types.CodeType, Any]:
    """The code that runs instead of the function's own, and what it calls; made once, as the compiler is slow to tell.

    References to the function are everywhere, inside `torch.compile` as well, so its code is exchanged, not its name.
    The compiler steps over the exchanged frame and compiles the original inside it as it did before.
    """
    # Loaded with FlexAttention already; `import regard` does without the compiler.
    from torch._dynamo.decorators import skip

    original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    skip(_instead)
    return _instead.__code__, (torch.compiler.disable(_before), original, torch.compiler.disable(_after))


def _patches() -> list[hub.Patch]:
    """The function's code, and what the exchanged code calls as a global of torch's module."""
    module = sys.modules.get(MODULE)
    if module is None:
        return []
    code, parts = _exchange(module.flex_attention, module.flex_attention.__code__)
    return [
        hub.Patch(module, PARTS, lambda _: parts),
        hub.Patch(module.flex_attention, "__code__", lambda _: code),
    ]


HOOK = hub.Hook(_patches)


def _instead(*args: Any, **kwargs: Any) -> Any:
    """What runs instead of `flex_attention`, with the globals of torch's module."""
    before, original, after = _regard_parts  # type: ignore[name-defined]  # noqa: F821
    known = before()
    result = None
    try:
        result = original(*args, **kwargs)
    finally:
        result = after(known, original, args, kwargs, result)
    return result


def _before() -> tuple[list[tuple[Watcher, CallSite | None]], ExitStack]:
    """Who watches this call; our modes are taken away, which the compiler would trace."""
    sites: list[tuple[Watcher, CallSite | None]] = [
        (recorder, recorder.site()) for recorder in hub.watching()
    ]
    aside = ExitStack()
    aside.enter_context(set_aside())
    return sites, aside


def _after(
    known: tuple[list[tuple[Watcher, CallSite | None]], ExitStack],
    original: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> Any:
    sites, aside = known
    aside.close()
    # The call raised.
    if result is None:
        return None
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    changing = [watcher for watcher, site in sites if watcher.intervenes and site is not None]
    # One applies all that the others change as well; who only looks sees what it made of the call.
    if changing:
        model_result = result
        result = changing[0].through(lambda _site: read(bound.arguments), lambda: model_result)
    for watcher, site in sites:
        if site is not None and not watcher.intervenes:
            watcher.observe(site, read(bound.arguments), result)
    return result


def read(arguments: dict[str, Any]) -> CapturedCall:
    """Read a call: `softmax(score_mod(scale · query · keyᵀ))` over the keys that the block mask allows."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    batch, bias = query.shape[0], None
    if arguments["score_mod"] is not None:
        bias = ScoreMod(arguments["score_mod"])
    return CapturedCall(
        query=query,
        key=key.expand(batch, -1, -1, -1),
        value=value.expand(batch, -1, -1, -1),
        mask_at=mask_of(arguments["block_mask"], batch, query.shape[1]),
        bias=bias,
        scale=arguments["scale"],
        output=_output,
        changed=_changed,
        whole=False,
    )


def _changed(output: Tensor, result: Any, _weights: Any) -> Any:
    """The output alone; beside the lse, which would be another, nothing can stand in its place."""
    if isinstance(result, tuple):
        return None
    return output


def _output(result: Any) -> Any:
    """The output alone, also where the lse was asked for."""
    if isinstance(result, tuple):
        return result[0]
    return result
