"""Six tasks whose attention can be held against a known truth: data that are made or found on every machine, recipes.

Knows their names; a task's data are in the module of its name, its models and scores in that of `recipes`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from regard.errors import ArgumentError
from regard.statistics.observation import close_to

if TYPE_CHECKING:
    from regard.tasks.common.task import Task

NAMES = ("translate", "bottleneck", "answer", "summarize", "caption", "language")


def tasks(name: str, only: str | None = None) -> tuple[Task, ...]:
    """The models of a task.

    Args:
        name: one of `NAMES`. only: one of its models; None: all.

    Raises:
        ArgumentError: an unknown name; says which ones are close.
    """
    if name not in NAMES:
        raise ArgumentError(f"the task must be one that Regard has, got {name!r}; {close_to(name, NAMES)}")
    found: tuple[Task, ...] = importlib.import_module(f"regard.tasks.{name}.recipe").TASKS
    if only is None:
        return found
    chosen = tuple(task for task in found if task.model == only)
    if not chosen:
        models = [task.model for task in found]
        raise ArgumentError(f"the model must be one that {name} has, got {only!r}; {close_to(only, models)}")
    return chosen
