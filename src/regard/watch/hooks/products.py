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
    factors = [*args[start : start + 2], *(kwargs[key] for key in names if key in kwargs)]
    if len(factors) != 2 or not all(isinstance(factor, Tensor) and factor.ndim for factor in factors):
        return None
    left, right = factors
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
    # Batch axes are aligned to the right, as broadcasting does; a vector has neither rows nor columns.
    lead = BATCH[:most]
    first, second, result = "k", "k", lead
    if left.ndim > 1:
        first, result = "nk", f"{result}n"
    if right.ndim > 1:
        second, result = "km", f"{result}m"
    first = lead[most - max(left.ndim - 2, 0) :] + first
    second = lead[most - max(right.ndim - 2, 0) :] + second
    return Product((left, right), (first, second), result)


def _einsum(args: tuple[Any, ...]) -> Product | None:
    equation, *operands = args
    # torch.einsum takes operands one by one or as a list.
    if operands and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        return None
    if not all(isinstance(factor, Tensor) for factor in operands):
        return None
    inputs, _, output = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if len(letters) != 2:
        return None
    # The implicit output: letters that occur once, in the order of the alphabet.
    if "->" not in equation:
        joined = inputs.replace(",", "").replace(".", "")
        output = "".join(sorted(a for a in set(joined) if joined.count(a) == 1))
        if "..." in inputs:
            output = f"...{output}"
    if "..." in equation:
        free = [a for a in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if a not in equation]
        letters = [_spelled(part, factor.ndim, free) for part, factor in zip(letters, operands, strict=True)]
        most = max(
            factor.ndim - len(part.replace("...", ""))
            for part, factor in zip(inputs.split(","), operands, strict=True)
        )
        # Of none, as free[-0:] would be all.
        spelled = ""
        if most:
            spelled = "".join(free[-most:])
        output = output.replace("...", spelled)
    # A letter twice in one operand is a diagonal.
    fits = all(len(part) == factor.ndim for part, factor in zip(letters, operands, strict=True))
    twice = any(len(set(part)) < len(part) for part in letters)
    if not fits or twice:
        return None
    return Product((operands[0], operands[1]), (letters[0], letters[1]), output)


def _spelled(letters: str, ndim: int, free: list[str]) -> str:
    """Letters with the ellipsis spelled out: the last of the free ones, aligned to the right."""
    missing = max(ndim - len(letters.replace("...", "")), 0)
    return letters.replace("...", "".join(free[len(free) - missing :]))
