"""Gradient checkpointing: what is run again for its gradients is changed as it was the first time.

Knows torch's two ways of checkpointing; a function that is run again may be so in another thread, or after the end of
the interventions that changed it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils.checkpoint

from regard.errors import WatchError
from regard.watch import hub
from regard.watch.hooks import torch_calls


def _patches() -> list[hub.Patch]:
    """What `checkpoint` calls: by these names in its own module, however it was imported itself."""
    module = torch.utils.checkpoint
    return [
        hub.Patch(module, "CheckpointFunction", _reentrant),
        hub.Patch(module, "_checkpoint_without_reentrant_generator", _generating),
    ]


HOOK = hub.Hook(_patches)


def _reentrant(original: Any) -> Any:
    def apply(function: Callable[..., Any], *args: Any) -> Any:
        return original.apply(_again(function), *args)

    return SimpleNamespace(apply=apply)


def _generating(original: Callable[..., Any]) -> Callable[..., Any]:
    def generator(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(_again(function), *args, **kwargs)

    return generator


def _again(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, around which the interventions of this moment are there whenever it runs."""
    for session in hub.watching():
        # Torch counts what the first pass saves, and what is observed besides is not there in the second one.
        if session.differentiates and session.sees and torch.is_grad_enabled():
            raise WatchError(
                f"{session.layer} is under gradient checkpointing, which drops what an observed gradient needs. Way "
                f"out: switch it off"
            )
    changing = [session for session in hub.watching() if session.intervenes]
    if not changing:
        return function

    def run(*args: Any, **kwargs: Any) -> Any:
        here = hub.watching()
        with ExitStack() as stack:
            for session in reversed(changing):
                if session not in here:
                    stack.enter_context(session.joined())
            # Within `backward`, a function of torch that our mode handles, calls are not seen.
            if torch._C._current_graph_task_id() != -1 and not torch_calls.is_shown():
                stack.enter_context(torch_calls.shown())
            return function(*args, **kwargs)

    return run
