"""Where the package keeps what came of a task's models. Knows folders, and nothing of what is in them."""

from __future__ import annotations

from pathlib import Path


def folder(task: str, model: str) -> Path:
    """The folder of a model of a task: its card, and the life of its heads."""
    return Path(__file__).parent / "kept" / task / model
