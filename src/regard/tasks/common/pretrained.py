"""The trained models that the package brings: where they lie, and how they are loaded. Knows no particular task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.tasks.common.catalogue import tasks
from regard.tasks.common.task import Card, read_card

ROOT = Path(__file__).parents[1]


def folder(task: str, model: str = "") -> Path:
    """Where a model's weights, card and history lie, if the package brings it; without a model, the task's pages."""
    return ROOT / task / "trained" / model


def load(task: str, model: str) -> tuple[Any, Any]:
    """A trained model, in single precision, and its tokenizer.

    Raises:
        ArgumentError: there is no such task or model.
        ModelError: the package does not bring it.
    """
    (found,) = tasks(task, model)
    if not folder(task, model).exists():
        raise ModelError(
            f"the model must be one that Regard brings, and there is no {model!r} of {task}: regard train {task}"
        )
    return found.load(folder(task, model))


def card(task: str, model: str) -> Card:
    """What was measured of a trained model.

    Raises:
        ModelError: the package does not bring it.
        RecordError: it is damaged or altered.
    """
    try:
        return read_card(folder(task, model))
    except FileNotFoundError:
        raise ModelError(f"there must be a card of {task}'s {model!r}, and the package brings none") from None
