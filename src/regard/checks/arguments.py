"""Checks of what users give, one for each kind of argument. Knows names, types and ranges, and nothing of their use.

A count is an int, one of numpy's integers, or an integer tensor of no axes; a number is any of these, a float, one of
numpy's, or a floating tensor of no axes without a gradient. A bool is neither, and text is no number.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache, wraps
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, is_typeddict

import numpy as np
import torch
from torch import Tensor

from regard.checks.transforms import concrete
from regard.errors import ArgumentError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")

# No size, position or count of a real call is beyond.
MOST = 1 << 40
# Of a layer: what is beyond would take more memory than there is.
MOST_SIZE = 1 << 24


def shown(value: object) -> str:
    """A value as a message shows it: short, and with its type where that is what is wrong."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except ValueError:
        # An int of too many digits.
        return f"a {type(value).__name__} of too many digits"
    if len(text) > 60:
        text = f"{text[:60]}…"
    if isinstance(value, str | int | float | list | tuple | slice) or value is None:
        return text
    return f"{type(value).__name__} {text}"


def whole(name: str, value: Any, least: int | None = None, most: int = MOST) -> int:
    """A count or position as an int within these bounds.

    Raises:
        ArgumentError: anything else: a bool, a fraction, text, a number out of range.
    """
    # A size of a graph has no value yet: guarding on it here would compile anew for each length.
    if isinstance(value, torch.SymInt):
        symbol: Any = value
        return symbol
    value = concrete(name, value)
    # True is an int to Python, and operator.index takes it: near(True) would be a window of 1.
    truth = isinstance(value, bool | np.bool_) or getattr(value, "dtype", None) == torch.bool
    try:
        number = operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        truth = True
    if truth:
        raise ArgumentError(f"{name} must be a whole number, got {shown(value)}")
    if least is not None and number < least:
        raise ArgumentError(f"{name} must be at least {least}, got {shown(number)}")
    if number > most or number < -most:
        raise ArgumentError(f"{name} must be at most {most}, got {shown(number)}")
    return number


def number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """A finite number within these bounds.

    Raises:
        ArgumentError: anything else: a bool, text, NaN, infinity, a tensor with a gradient, which it would lose.
    """
    value = concrete(name, value)
    if isinstance(value, torch.SymFloat | torch.SymInt):
        return value  # type: ignore[return-value]
    # float() would cut the graph without a word, and what was to be learned would stand still.
    if isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled():
        raise ArgumentError(
            f"{name} must be a number, got a tensor whose gradient would be lost: multiply with it"
        )
    if not _is_number(value):
        raise ArgumentError(f"{name} must be a number, got {shown(value)}")
    try:
        exact = float(value)
    except OverflowError:
        exact = math.inf
    # As math.isfinite, which torch.compile cannot trace.
    if not -math.inf < exact < math.inf:
        raise ArgumentError(f"{name} must be a finite number, got {shown(value)}")
    if least is not None and exact < least:
        raise ArgumentError(f"{name} must be at least {least:g}, got {shown(value)}")
    if above is not None and exact <= above:
        raise ArgumentError(f"{name} must be {_above(above)}, got {shown(value)}")
    if below is not None and exact >= below:
        raise ArgumentError(f"{name} must be below {below:g}, got {shown(value)}")
    return exact


def share(name: str, value: Any) -> float:
    """A probability of dropping something: at least 0 and below 1.

    Raises:
        ArgumentError: anything else.
    """
    # The usual case says both bounds at once; a tensor's number is not looked at twice.
    if _is_number(value) and not isinstance(value, Tensor) and not 0.0 <= value < 1.0:
        raise ArgumentError(f"{name} must be at least 0 and below 1, got {shown(value)}")
    return number(name, value, least=0, below=1)


def _above(bound: float) -> str:
    return "positive" if bound == 0 else f"above {bound:g}"


def _is_number(value: object) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, Tensor):
        real = not value.is_complex() and value.dtype != torch.bool
        return value.ndim == 0 and real and not value.is_meta
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, int | float | np.integer | np.floating)


def flag(name: str, value: Any) -> bool:
    """True or False.

    Raises:
        ArgumentError: anything else, 0 and 1 too.
    """
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def text(name: str, value: Any) -> str:
    """A string.

    Raises:
        ArgumentError: anything else.
    """
    if not isinstance(value, str):
        raise ArgumentError(f"{name} must be a string, got {shown(value)}")
    return value


def tensor(name: str, value: Any) -> Tensor:
    """A tensor.

    Raises:
        ShapeError: anything else.
    """
    if not isinstance(value, Tensor):
        raise ShapeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    return value


def module(name: str, value: Any) -> torch.nn.Module:
    """A module.

    Raises:
        ArgumentError: anything else.
    """
    if not isinstance(value, torch.nn.Module):
        raise ArgumentError(f"{name} must be a torch.nn.Module, got {shown(value)}")
    return value


def listed(name: str, values: Any, check: Callable[[str, Any], R], least: int = 0) -> list[R]:
    """An iterable as a list of what `check` lets through, at least so many.

    Raises:
        ArgumentError: what cannot be iterated, text among it, too few, or an element that is wrong.
    """
    wanted = "a list of strings" if check is text else "a list"
    # Text can be iterated, letter by letter, which no one means by a list.
    if isinstance(values, str | bytes) or not isinstance(values, Iterable | Tensor | np.ndarray):
        raise ArgumentError(f"{name} must be {wanted}, got {shown(values)}")
    try:
        elements = list(values)
    except TypeError:
        raise ArgumentError(f"{name} must be {wanted}, got {shown(values)}") from None
    if len(elements) < least:
        raise ArgumentError(f"{name} must have at least {least}, got {len(elements)}")
    return [check(f"{name}[{i}]", value) for i, value in enumerate(elements)]


Kinds = dict[str, Callable[[str, Any], Any]]
_KINDS: Kinds = {
    "int": whole,
    "float": number,
    "bool": flag,
    "str": text,
    "Tensor": tensor,
    "nn.Module": module,
}
_SIZES: Kinds = {**_KINDS, "int": lambda name, value: whole(name, value, most=MOST_SIZE)}
# Who takes one says more of what stands in its place than its class.
OWN_WORDS = ("Mask", "HeadPositions")
_LISTS = ("Iterable", "Sequence", "Collection", "tuple")


def _check(kinds: Kinds, known: Mapping[str, Any], annotation: str, name: str, value: Any) -> Any:
    """A value as its annotation wants it; where that is no plain kind, list, mapping or class, it passes.

    `known` are the names of the module that says the annotation.
    """
    kind = annotation.removesuffix(" | None")
    if kind != annotation and value is None:
        return value
    if kind in kinds:
        return kinds[kind](name, value)
    if kind in OWN_WORDS:
        return value
    outer, _, inner = kind.partition("[")
    if outer in _LISTS and kind.count("|") == inner.count("|"):
        if "|" in kind.rpartition("]")[2]:
            return value
        element = inner.removesuffix("]").removesuffix(", ...")
        elements = listed(name, value, kinds.get(element, lambda _, item: item))
        return tuple(elements) if isinstance(value, tuple) else elements
    if outer == "Mapping" and kind.count("|") == inner.count("|"):
        element = inner.removesuffix("]").partition(", ")[2]
        return _check_mapping(kinds.get(element), name, value)
    if outer == "Literal" and not isinstance(value, str):
        raise ArgumentError(f"{name} must be one of {inner.removesuffix(']')}, got {shown(value)}")
    wanted = known.get(kind)
    if is_typeddict(wanted):
        return _check_keywords(kinds, name, wanted, value)
    if get_origin(wanted) is Literal and not isinstance(value, str):
        raise ArgumentError(
            f"{name} must be one of {', '.join(map(repr, get_args(wanted)))}, got {shown(value)}"
        )
    if get_origin(wanted) is Callable and not callable(value):
        raise ArgumentError(f"{name} must be a function, got {shown(value)}")
    if not isinstance(wanted, type) or getattr(wanted, "_is_protocol", False):
        return value
    if not isinstance(value, wanted) and not _does_as(wanted, value):
        raise ArgumentError(f"{name} must be a {wanted.__name__}, got {shown(value)}")
    return value


def _does_as(wanted: type, value: object) -> bool:
    """Whether a module that is none of these can do what one does: a score function of one's own, say."""
    if not issubclass(wanted, torch.nn.Module) or not isinstance(value, torch.nn.Module):
        return False
    methods = set(vars(wanted)) - set(dir(torch.nn.Module))
    return any(hasattr(value, method) for method in methods if not method.startswith("_"))


def _check_mapping(check: Callable[[str, Any], Any] | None, name: str, value: Any) -> Any:
    """A mapping, and where its values are of a plain kind, each of them."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name} must be a mapping such as a dict, got {shown(value)}")
    if check is None:
        return value
    return {key: check(f"{name}[{key!r}]", item) for key, item in value.items()}


@cache
def _keywords(kind: Any) -> dict[str, str]:
    """The annotations of a TypedDict as they are written."""
    annotations = kind.__annotations__.items()
    return {name: getattr(annotation, "__forward_arg__", str(annotation)) for name, annotation in annotations}


def _check_keywords(kinds: Kinds, name: str, kind: Any, value: Any) -> Any:
    """Keywords in a dict, each as the TypedDict says; one that it does not know is left to who takes it."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ArgumentError(f"{name} must be keywords in a dict, got {shown(value)}")
    known, annotations = vars(sys.modules[kind.__module__]), _keywords(kind)
    unknown = [key for key in value if key not in annotations]
    if unknown:
        raise ArgumentError(f"{name} must have keywords of {sorted(annotations)}, got {unknown[0]!r}")
    return {key: _check(kinds, known, annotations[key], key, item) for key, item in value.items()}


def _unpacked(parameters: Iterable[inspect.Parameter], known: Mapping[str, Any]) -> dict[str, str]:
    """Annotations of the keywords behind ** that a TypedDict lists."""
    for parameter in parameters:
        if parameter.kind == parameter.VAR_KEYWORD:
            kind = known.get(str(parameter.annotation).removeprefix("Unpack[").removesuffix("]"))
            if is_typeddict(kind):
                return _keywords(kind)
    return {}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose plainly annotated arguments (numbers, text, tensors, lists, classes) are checked."""
    return _checked(function, _KINDS)


def sized(function: Callable[P, R]) -> Callable[P, R]:
    """As `checked`, of a layer's `__init__`: its counts are sizes in memory."""
    return _checked(function, _SIZES)


def _checked(function: Callable[P, R], kinds: Kinds) -> Callable[P, R]:
    parameters = inspect.signature(function).parameters
    plain = [p for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    annotations = {p.name: str(p.annotation) for p in plain if p.annotation is not p.empty}
    positional = [
        (index, p.name) for index, p in enumerate(plain) if p.name in annotations and p.kind != p.KEYWORD_ONLY
    ]
    known = inspect.unwrap(function).__globals__
    annotations |= _unpacked(parameters.values(), known)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # In a graph the checks would be guards; a layer was checked when it was built outside.
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        values: list[Any] = list(args)
        for index, name in positional:
            if index < len(values):
                values[index] = _check(kinds, known, annotations[name], name, values[index])
        for name, value in kwargs.items():
            if name in annotations:
                kwargs[name] = _check(kinds, known, annotations[name], name, value)
        return function(*values, **kwargs)

    return run


@cache
def _annotations(kind: Any) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, str(field.type)) for field in fields(kind))


def check_fields(value: Any) -> None:
    """Check the plainly annotated fields of a frozen dataclass, and hold them as what they are: from `__post_init__`.

    Raises:
        ArgumentError, ShapeError: a field of another type.
    """
    kind: Any = type(value)
    known = vars(sys.modules[kind.__module__])
    for name, annotation in _annotations(kind):
        object.__setattr__(value, name, _check(_KINDS, known, annotation, name, getattr(value, name)))
