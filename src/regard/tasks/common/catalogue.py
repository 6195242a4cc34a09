"""The names of the tasks, and how the models of one are found.

Knows names alone; a task's data are in `tasks/<name>/data.py`, its models and scores in `tasks/<name>/recipe.py`.
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
    """The models of a task, each with its recipe, data and scores.

    Args:
        name: one of `NAMES`. only: one of its models; None: all.

    Returns:
        one `Task` for each model.

    Raises:
        ArgumentError: an unknown name; says which ones are close.
    """
    if name not in NAMES:
        raise ArgumentError(f"the task must be one that Regard has, got {name!r}; {close_to(name, NAMES)}")
    # Recipes need transformers, which takes seconds to import: only that of the task is imported.
    every: tuple[Task, ...] = importlib.import_module(f"regard.tasks.{name}.recipe").TASKS
    if only is None:
        return every
    chosen = tuple(task for task in every if task.model == only)
    if not chosen:
        models = [task.model for task in every]
        raise ArgumentError(f"the model must be one that {name} has, got {only!r}; {close_to(only, models)}")
    return chosen
