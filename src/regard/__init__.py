"""Regard shows what attention does, in any PyTorch model, at any length: exact numbers and pictures in O(n) memory."""

from __future__ import annotations

import importlib
from typing import Any

# First, as the imports below take a second.
from regard.cli import interrupts as interrupts

# isort: split
from regard.attention import attend, observe, weights
from regard.errors import RegardError
from regard.files.versions import own_version
from regard.masks import (
    causal,
    dense,
    documents,
    global_tokens,
    near,
    padding,
    prefix,
    random_blocks,
    strided,
)
from regard.record import load, notebook
from regard.spec import alibi, relative
from regard.survey import survey
from regard.watch import intervene, watch

__all__ = [
    "RegardError",
    "alibi",
    "attend",
    "causal",
    "dense",
    "documents",
    "global_tokens",
    "intervene",
    "load",
    "near",
    "observe",
    "padding",
    "prefix",
    "random_blocks",
    "relative",
    "strided",
    "survey",
    "watch",
    "weights",
]


def _in_notebook(value: Any, call: Any) -> Any:
    """The explorer, in a cell of a notebook; imported when a record or a history is first shown there."""
    return importlib.import_module("regard.explorer.notebook").widget(value, call)


notebook.register(_in_notebook)

_PACKAGES = ("analysis", "draw", "learn", "models", "nn", "page", "scale", "tasks", "training")


def __getattr__(name: str) -> Any:
    """Import what needs more than torch when it is first asked for."""
    if name == "__version__":
        return own_version()
    if name in _PACKAGES:
        return importlib.import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
