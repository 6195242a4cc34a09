"""What an exercise is: a statement, a solution, inputs, hints, and the mistakes that are known. Knows none of them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


# Arrays have no plain equality: a case is equal to itself alone.
@dataclass(frozen=True, eq=False)
class Case:
    """Inputs by name, in the order in which the function takes them.

    Attributes:
        arguments: arrays and numbers.
        large: scores so large that `exp` overflows, unless the largest is subtracted first. A mistake that shows
            elsewhere may give anything here.
    """

    arguments: Mapping[str, Any]
    large: bool = False


@dataclass(frozen=True)
class Variant:
    """A wrong solution.

    Attributes:
        name: one or a few words, unique within its exercise.
        text: one sentence that says what is wrong, and what to do about it.
        function: takes the arguments of the exercise, and does it wrong.
    """

    name: str
    text: str
    function: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Exercise:
    """One function to write.

    Attributes:
        name: as it is asked for, such as "causal mask".
        lesson: the number of the lesson that it belongs to.
        statement: what is to be written, in a few sentences.
        solution: the function, right; its docstring has the shapes.
        cases: inputs, the smallest first, chosen so that each variant differs from the solution and from the others.
        variants: known wrong solutions.
        hints: from the first thought to nearly the line itself.
        praise: what a passing solution has got right, in one sentence.
    """

    name: str
    lesson: int
    statement: str
    solution: Callable[..., Any]
    cases: tuple[Case, ...]
    variants: tuple[Variant, ...]
    hints: tuple[str, ...]
    praise: str

    @property
    def function(self) -> str:
        """The name of the function that is to be written."""
        return self.solution.__name__

    @property
    def file(self) -> str:
        """The name of the file to fill in."""
        return f"{self.name.replace(' ', '_')}.py"

    @property
    def unsolved(self) -> str:
        """The file to fill in: the statement, and the function without its body."""
        # Written from the solution, so that names and shapes are the same in both.
        signature = inspect.signature(self.solution)
        inner = textwrap.indent(f'"""{inspect.getdoc(self.solution)}\n"""', "    ")
        statement = textwrap.fill(self.statement, 96)
        return (
            f'"""Exercise "{self.name}", of lesson {self.lesson}.\n\n{statement}\n"""\n\nimport numpy as np\n\n\n'
            f"def {self.function}{signature}:\n{inner}\n    raise NotImplementedError\n"
        )

    @property
    def solved(self) -> str:
        """The file with the solution."""
        return f"import numpy as np\n\n\n{inspect.getsource(self.solution)}"
