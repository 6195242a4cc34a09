"""Regard shows what attention does, in any PyTorch model, at any length: exact numbers and pictures in O(n) memory."""

from __future__ import annotations

import importlib
from types import ModuleType

from regard.attention import attend, observe, weights
from regard.bias import alibi, relative
from regard.errors import RegardError
from regard.masks import causal, dense, documents, near, padding, prefix, random, strided, tokens
from regard.record import load
from regard.watch import watch

__all__ = [
    "RegardError", "alibi", "attend", "causal", "dense", "documents", "load", "near", "observe", "padding",
    "prefix", "random", "relative", "strided", "tokens", "watch", "weights",
]  # fmt: skip

_PACKAGES = ("draw", "models", "nn", "page", "training")


def __getattr__(name: str) -> ModuleType:
    """Import what needs more than torch when it is first asked for."""
    if name in _PACKAGES:
        return importlib.import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
