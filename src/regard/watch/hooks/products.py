"""Products of two tensors, whatever function makes them, as the letters of an einsum. Knows no attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

# Where the factors stand among the arguments, and under which keywords.
PRODUCTS: dict[str, tuple[int, tuple[str, str]]] = {
    "matmul": (0, ("input", "other")),
    "__matmul__": (0, ("self", "other")),
    "linalg_matmul": (0, ("input", "other")),
    "mm": (0, ("input", "mat2")),
    "bmm": (0, ("input", "mat2")),
    "mv": (0, ("input", "vec")),
    "linear": (0, ("input", "weight")),
    "baddbmm": (1, ("batch1", "batch2")),
    "addmm": (1, ("mat1", "mat2")),
    "__rmatmul__": (0, ("self", "other")),
    "einsum": (0, ("", "")),
}
BATCH = "ABCDEFGHIJ"


@dataclass(frozen=True, eq=False)
class Product:
    """A product of two tensors.

    Attributes:
        factors: both.
        letters: a letter for each of their axes.
        result: letters of the result's axes.
    """

    factors: tuple[Tensor, Tensor]
    letters: tuple[str, str]
    result: str

    def summed(self, which: int, letter: str) -> bool:
        """Whether an axis of a factor is summed over together with one of the other factor."""
        return letter in self.letters[1 - which] and letter not in self.result

    def rows(self, which: int) -> str:
        """Letters of a factor that the other one does not have and the result has."""
        other = self.letters[1 - which]
        return "".join(a for a in self.letters[which] if a not in other and a in self.result)


def product_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Product | None:
    """The product that a function computes, as far as it is one of two tensors."""
    if name == "einsum":
        return _einsum(args)
    start, names = PRODUCTS[name]
    given = [*args[start : start + 2], *(kwargs[key] for key in names if key in kwargs)]
    if len(given) != 2 or not all(isinstance(factor, Tensor) and factor.ndim for factor in given):
        return None
    left, right = given
    if name == "__rmatmul__":
        left, right = right, left
    if name == "linear":
        if right.ndim != 2:
            return None
        lead = BATCH[: left.ndim - 1]
        return Product((left, right), (f"{lead}k", "mk"), f"{lead}m")
    most = max(left.ndim, right.ndim, 2) - 2
    if most > len(BATCH):
        return None
    lead = BATCH[:most]
    first = lead[most - max(left.ndim - 2, 0) :] + ("nk" if left.ndim > 1 else "k")
    second = lead[most - max(right.ndim - 2, 0) :] + ("km" if right.ndim > 1 else "k")
    result = lead + ("n" if left.ndim > 1 else "") + ("m" if right.ndim > 1 else "")
    return Product((left, right), (first, second), result)


def _einsum(args: tuple[Any, ...]) -> Product | None:
    equation, *given = args
    operands = list(given[0]) if given and isinstance(given[0], list | tuple) else given
    if not isinstance(equation, str) or len(operands) != 2:
        return None
    if not all(isinstance(factor, Tensor) for factor in operands):
        return None
    inputs, _, output = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if len(letters) != 2:
        return None
    if "->" not in equation:
        joined = inputs.replace(",", "").replace(".", "")
        output = "".join(sorted(a for a in set(joined) if joined.count(a) == 1))
        output = ("..." if "..." in inputs else "") + output
    if "..." in equation:
        free = [a for a in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if a not in equation]
        letters = [_spelled(own, factor.ndim, free) for own, factor in zip(letters, operands, strict=True)]
        most = max(
            factor.ndim - len(own.replace("...", ""))
            for own, factor in zip(inputs.split(","), operands, strict=True)
        )
        output = output.replace("...", "".join(free[-most:]) if most else "")
    fits = all(len(own) == factor.ndim for own, factor in zip(letters, operands, strict=True))
    twice = any(len(set(own)) < len(own) for own in letters)
    if not fits or twice:
        return None
    return Product((operands[0], operands[1]), (letters[0], letters[1]), output)


def _spelled(letters: str, ndim: int, free: list[str]) -> str:
    """Letters with the ellipsis spelled out: the last of the free ones, aligned to the right."""
    missing = ndim - len(letters.replace("...", ""))
    return letters.replace("...", "".join(free[len(free) - missing :]) if missing > 0 else "")
