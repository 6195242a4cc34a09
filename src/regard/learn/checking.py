"""Checks a function or a file against an exercise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import ArgumentError
from regard.learn import running
from regard.learn.box import Box
from regard.learn.diagnosis import diagnose
from regard.learn.exercise import Exercise
from regard.learn.exercises import EXERCISES
from regard.learn.verdict import Verdict


def exercises() -> tuple[Exercise, ...]:
    """All exercises, in the order in which they are best done.

    Example:
        >>> import regard as rg
        >>> [exercise.name for exercise in rg.learn.exercises()][:3]
        ['cosine', 'nearest', 'softmax']
    """
    return EXERCISES


def exercise(name: str) -> Exercise:
    """The exercise of a name; "causal-mask" and "causal_mask" are "causal mask".

    Raises:
        ArgumentError: there is none.
    """
    plain = name.replace("-", " ").replace("_", " ").strip().lower() if isinstance(name, str) else name
    for known in EXERCISES:
        if known.name == plain:
            return known
    names = ", ".join(known.name for known in EXERCISES)
    raise ArgumentError(f"the exercise must be one of {names}; got {name!r:.60}")


def check(function: Callable[..., Any], name: str) -> Verdict:
    """Check a solution of an exercise, and say what is wrong with it.

    The function is run on small inputs, beside a catalogue of known mistakes. Where it does on all inputs what one of
    them does, that mistake is named, with the smallest input that shows it. It runs in a fork of this process, with
    limits of time (5 seconds of computing) and memory (1 GiB); where there is no fork, in this process, and the verdict
    says so.

    Args:
        function: the solution; for "attention" it takes `query`, `key` and `value`, NumPy arrays `(tokens, dim)`,
            and returns the output.
        name: the exercise, one of `rg.learn.exercises()`.

    Returns:
        `passed`, and `messages`, each with `kind` ("must_mend", "could_be_better", "note" or "praise") and `text`.

    Raises:
        ArgumentError: there is no such exercise, or the function cannot be called.

    Example:
        >>> import numpy as np
        >>> import regard as rg
        >>> def attention(query, key, value):
        ...     scores = query @ key.T
        ...     weights = np.exp(scores - scores.max(-1, keepdims=True))
        ...     return weights / weights.sum(-1, keepdims=True) @ value
        >>> verdict = rg.learn.check(attention, "attention")
        >>> verdict.passed, verdict.messages[0].variant
        (False, 'no scale')
    """
    wanted = exercise(name)
    if not callable(function):
        raise ArgumentError(
            f"the solution must be a function, such as {wanted.function}, got {type(function).__name__}"
        )
    return diagnose(wanted, running.function(function, wanted.cases))


def check_file(path: str | os.PathLike[str], name: str) -> Verdict:
    """Check the solution in a file, in a fresh process.

    Args:
        path: the file, which defines the function that the exercise asks for. name: as for `check`.

    Raises:
        ArgumentError: there is no such exercise, or no such file.
    """
    return check_in(None, path, name)


def check_in(box: Box | None, path: str | os.PathLike[str], name: str) -> Verdict:
    """Check the solution in a file, in a box that keeps hostile code from everything else.

    Args:
        box: None for a fresh process without one, as `check_file` has it. path, name: as there.

    Raises:
        ArgumentError: there is no such exercise, or no such file.
    """
    wanted = exercise(name)
    # Path takes nothing else, and says so in another kind of error.
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        raise ArgumentError(f"the solution must be a file, got {str(path)!r:.200}")
    return diagnose(wanted, running.file(Path(path), wanted.function, wanted.cases, box=box))
