"""The trained models that the package brings: where they lie, and how they are loaded. Knows no particular task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.training.tasks import tasks
from regard.training.tasks.task import CARD, Card

ROOT = Path(__file__).parent / "trained"


def folder(task: str, model: str) -> Path:
    """Where a model's weights, card and life lie; they are there for those that the package brings."""
    return ROOT / task / model


def load(task: str, model: str) -> tuple[Any, Any]:
    """A trained model, in single precision, and its words.

    Raises:
        ArgumentError: there is no such task or model.
        ModelError: the package does not bring it.
    """
    (found,) = tasks(task, model)
    if not folder(task, model).exists():
        raise ModelError(
            f"the model must be one that Regard brings, and there is no {model!r} of {task}: regard train {task}"
        )
    return found.kept(folder(task, model))


def card(task: str, model: str) -> Card:
    """What was measured of a trained model.

    Raises:
        ModelError: the package does not bring it.
    """
    try:
        found: Card = json.loads((folder(task, model) / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"there must be a card of {task}'s {model!r}, and the package brings none") from None
    return found
