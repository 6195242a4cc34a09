"""Calls whose tokens lie on many processes: what one process sees of them is not the attention that is computed."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor
from torch.nn import functional

from regard.watch.captured import unreadable
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher

WAY_OUT = "watch the model on one process, without context parallelism, or observe the shards with regard.scale.observe"


def refuse_shards(watcher: Watcher) -> None:
    """Raise where a module that is watched or changed calls `regard.scale.attend`.

    Raises:
        WatchError: naming the module and the way out.
    """
    site = watcher.site()
    if site is None or (watcher.intervenes and not watcher.changed(site)):
        return
    raise unreadable(site, f"it calls regard.scale.attend, of which this process has a part: {WAY_OUT}")


def check_whole(site: CallSite, *arguments: Any) -> None:
    """Raise where a process holds only part of a call.

    Raises:
        WatchError: tensors are distributed, or torch's context parallelism has taken the place of its attention.
    """
    if any(_distributed(argument) for argument in arguments):
        raise unreadable(site, f"its tensors are distributed over processes (DTensor): {WAY_OUT}")
    # Within `context_parallel` torch's own function is another one, and each process has some of the tokens.
    where = getattr(functional.scaled_dot_product_attention, "__module__", None) or ""
    if where.startswith("torch.distributed."):
        raise unreadable(site, f"it runs within torch's context_parallel: {WAY_OUT}")


def _distributed(argument: Any) -> bool:
    # Whoever has such a tensor has imported its module.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(argument, Tensor) and isinstance(argument, module.DTensor)
