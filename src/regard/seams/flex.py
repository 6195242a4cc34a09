"""`flex_attention`, however it was imported or compiled: its code is exchanged while somebody watches.

Knows FlexAttention's arguments; what a `BlockMask` means is in `blockmask.py`.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from regard.bias import ScoreMod
from regard.seams.blockmask import mask_of
from regard.seams.place import Place
from regard.seams.reading import Reading, Watcher
from regard.seams.torch_calls import set_aside

MODULE = "torch.nn.attention.flex_attention"
PARTS = "_regard_parts"  # the name in torch's module under which the exchanged code finds what to call

_watching: list[Watcher] = []  # who watches now; the code is exchanged as long as there is somebody


@contextmanager
def seen(watcher: Watcher) -> Iterator[None]:
    """Watch `flex_attention`, if it was loaded.

    References to the function are everywhere, inside `torch.compile` as well, so its code is exchanged, not its name.
    The compiler steps over the exchanged frame and compiles the original inside it as it did before.
    """
    module = sys.modules.get(MODULE)
    if module is None:
        yield
        return
    _watching.append(watcher)
    try:
        if len(_watching) > 1:
            yield
        else:
            with _exchanged(module):
                yield
    finally:
        _watching.remove(watcher)


@contextmanager
def _exchanged(module: types.ModuleType) -> Iterator[None]:
    # Loaded with FlexAttention already; `import regard` does without the compiler.
    from torch._dynamo.decorators import skip

    function = module.flex_attention
    code = function.__code__
    original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    skip(_instead)
    setattr(module, PARTS, (torch.compiler.disable(_before), original, torch.compiler.disable(_after)))
    function.__code__ = _instead.__code__
    try:
        yield
    finally:
        function.__code__ = code
        delattr(module, PARTS)


def _instead(*args: Any, **kwargs: Any) -> Any:
    """What runs instead of `flex_attention`, with the globals of torch's module."""
    before, original, after = _regard_parts  # type: ignore[name-defined]  # noqa: F821
    known = before()
    result = None
    try:
        result = original(*args, **kwargs)
    finally:
        after(known, original, args, kwargs, result)
    return result


def _before() -> tuple[list[tuple[Watcher, Place | None]], ExitStack]:
    """Who watches this call; our modes are taken away, which the compiler would trace."""
    places = [(watcher, watcher.place()) for watcher in _watching]
    aside = ExitStack()
    aside.enter_context(set_aside())
    return places, aside


def _after(
    known: tuple[list[tuple[Watcher, Place | None]], ExitStack],
    original: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> None:
    places, aside = known
    aside.close()
    if result is None:
        return
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    for watcher, place in places:
        if place is not None:
            watcher.observe(place, read(bound.arguments), result)


def read(given: dict[str, Any]) -> Reading:
    """Read a call: `softmax(score_mod(scale · query · keyᵀ))` over the keys that the block mask allows."""
    query, key, value = (given[name] for name in ("query", "key", "value"))
    batch = query.shape[0]
    return Reading(
        query=query,
        key=key.expand(batch, -1, -1, -1),
        value=value.expand(batch, -1, -1, -1),
        mask_at=mask_of(given["block_mask"], batch, query.shape[1]),
        bias=None if given["score_mod"] is None else ScoreMod(given["score_mod"]),
        scale=given["scale"],
        output=lambda result: result[0] if isinstance(result, tuple) else result,
    )
