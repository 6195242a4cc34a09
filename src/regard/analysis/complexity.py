"""What each mechanism of attention takes, as formulas in the number of tokens, and the exponent that was measured.

Knows arithmetic: `predicted` counts the operations and bytes of one forward call, `exponent` fits a power to numbers,
`least_within` says what an approximation reaches in a given time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.checks.arguments import check_fields, checked, listed, number, shown
from regard.errors import ArgumentError
from regard.nn.linear import CHUNK
from regard.nn.lowrank import ITERATIONS

FLOAT = 4  # bytes of a number


@dataclass(frozen=True)
class Setting:
    """The numbers of a call that do not grow with the text.

    Attributes:
        heads: how many. dim: of query, key and value.
        window: keys that a query has at most under a sparse mask: its window, its random blocks, the step of a stride.
        rank: features, slots, landmarks, or tokens that all see. hidden: units of the additive score.
    """

    heads: int = 8
    dim: int = 64
    window: int = 256
    rank: int = 64
    hidden: int = 64

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.heads, self.dim, self.window, self.rank, self.hidden) < 1:
            raise ArgumentError(f"the numbers of a setting must be at least 1, got {self}")


@dataclass(frozen=True)
class Cost:
    """What one forward call takes.

    Attributes:
        operations: multiplications and additions of all products; exponentials, one for each weight, are not counted.
        bytes: stored at once beyond query, key and value, in float32, the output among them.
    """

    operations: int
    bytes: int


@dataclass(frozen=True)
class Exponent:
    """A power law that was fitted: value ∝ lengthᵖ.

    Attributes:
        power: p, the slope of ln value against ln length.
        error: its standard error; inf where two points leave nothing to judge it by.
        lengths: that it was fitted over.
    """

    power: float
    error: float
    lengths: tuple[int, ...]


@checked
def predicted(mechanism: str, tokens: int, setting: Setting | None = None) -> Cost:
    """Operations and bytes of one forward call of self-attention, from its formula.

    Args:
        mechanism: one of `MECHANISMS`.
        tokens: queries, and as many keys.
        setting: heads, widths and ranks.

    Raises:
        ArgumentError: an unknown mechanism, or no token.
    """
    if mechanism not in MECHANISMS:
        raise ArgumentError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}")
    if tokens < 1:
        raise ArgumentError(f"tokens must be at least 1, got {tokens}")
    setting = setting or Setting()
    operations, numbers = MECHANISMS[mechanism](tokens, setting)
    return Cost(setting.heads * operations, setting.heads * numbers * FLOAT)


@checked
def exponent(lengths: Sequence[int], values: Sequence[float], *, longest: int | None = None) -> Exponent:
    """The power with which measured times or bytes grow, fitted by least squares in logarithms.

    Short texts are ruled by what a call costs anyway, so only the longest count.

    Args:
        lengths: numbers of tokens, ascending. values: what each took, positive.
        longest: how many of the longest count; by default half of them, and at least 3.

    Raises:
        ArgumentError: numbers that do not fit together, or fewer than two lengths.
    """
    if len(lengths) != len(values) or len(lengths) < 2 or sorted(set(lengths)) != list(lengths):
        raise ArgumentError(
            f"lengths must ascend, at least two, with a value for each, got {list(lengths)} for {list(values)}"
        )
    if lengths[0] < 1 or min(values) <= 0:
        raise ArgumentError(f"lengths and values must be positive, got {list(lengths)} and {list(values)}")
    count = max(3, -(-len(lengths) // 2))
    if longest is not None:
        count = longest
    if count < 2:
        raise ArgumentError(f"longest must be at least 2, got {longest}")
    x, y = ([math.log(number) for number in numbers[-count:]] for numbers in (lengths, values))
    middle, level = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - middle) ** 2 for a in x)
    power = sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - level - power * (a - middle)) ** 2 for a, b in zip(x, y, strict=True))
    error = math.inf
    if len(x) > 2:
        error = math.sqrt(rest / (len(x) - 2) / spread)
    return Exponent(power, error, tuple(lengths[-count:]))


# --- the formulas: operations and stored numbers of one head -------------------------------------------------

Formula = Callable[[int, Setting], tuple[int, int]]


def _fold(pairs: int, n: int, s: Setting) -> tuple[int, int]:
    """q·k and weight · value for each pair; the output, and a largest score and a sum for each row."""
    return 4 * pairs * s.dim, n * (s.dim + 2)


def _stored(n: int, s: Setting) -> tuple[int, int]:
    return 4 * n * n * s.dim, 2 * n * n + n * s.dim


def _additive(n: int, s: Setting) -> tuple[int, int]:
    """For each pair, hidden sums and as many tanh, their product with v, and weight · value."""
    return n * n * (4 * s.hidden + 2 * s.dim) + 4 * n * s.dim * s.hidden, 2 * n * n * s.hidden + n * n


def _linear(n: int, features: int, s: Setting) -> tuple[int, int]:
    """Two products of features with values and a column of ones."""
    counted = s.dim + 1
    return 4 * n * features * counted, n * (2 * features + 2 * counted + s.dim) + features * counted


def _features(n: int, s: Setting) -> tuple[int, int]:
    operations, numbers = _linear(n, s.rank, s)
    return operations + 4 * n * s.dim * s.rank, numbers


def _causal_linear(n: int, s: Setting) -> tuple[int, int]:
    """Weights within chunks, and the sums of each chunk and of all before it; whole chunks are computed."""
    chunk, counted = min(CHUNK, n), s.dim + 1
    chunks = -(-n // chunk)
    full, (operations, numbers) = chunks * chunk, _linear(chunks * chunk, s.dim, s)
    within = 2 * full * chunk * (s.dim + counted)
    return operations + within, numbers + full * (chunk + counted) + 2 * chunks * s.dim * counted


def _slots(n: int, s: Setting) -> tuple[int, int]:
    """Keys and values mixed into slots, and attention to these."""
    return 8 * n * s.rank * s.dim, n * (s.dim + 2) + 2 * s.rank * s.dim


def _landmarks(n: int, s: Setting) -> tuple[int, int]:
    """Attention of landmarks to all and of all to landmarks; between them a pseudo-inverse, four products a time."""
    r = min(s.rank, n)
    if r == n:
        return _fold(n * n, n, s)
    core = 8 * ITERATIONS * r**3 + 4 * r * r * s.dim
    return 8 * n * r * s.dim + core, n * (s.dim + 2) + 4 * r * s.dim + 6 * r * r


def _up_to(n: int, most: int) -> int:
    """Pairs of a causal window: 1 + 2 + … up to `most` keys, and so many from there on."""
    most = min(n, most)
    return n * most - most * (most - 1) // 2


def _strided(n: int, step: int) -> int:
    """Pairs of query i with the keys i, i − step, …: Σ ⌊i / step⌋ + 1."""
    turns, rest = divmod(n, step)
    return step * turns * (turns + 1) // 2 + rest * (turns + 1)


def _global(n: int, s: Setting) -> int:
    seen = min(n, s.rank)
    return 2 * n * seen - seen * seen


MECHANISMS: Mapping[str, Formula] = {
    "stored": _stored,  # exact, with the n × n weights in memory
    "exact": lambda n, s: _fold(n * n, n, s),
    "causal": lambda n, s: _fold(_up_to(n, n), n, s),
    "additive": _additive,  # Bahdanau's score, in memory for all pairs
    "strided": lambda n, s: _fold(_strided(n, s.window), n, s),  # causal, every window-th key
    "window": lambda n, s: _fold(_up_to(n, s.window), n, s),  # causal, the last keys only
    "random": lambda n, s: _fold(n * min(n, s.window), n, s),  # blocks of keys
    "global": lambda n, s: _fold(_global(n, s), n, s),  # a few tokens see all and are seen by all
    "linear": lambda n, s: _linear(n, s.dim, s),  # elu + 1
    "causal linear": _causal_linear,
    "features": _features,  # Performer
    "slots": _slots,  # Linformer
    "landmarks": _landmarks,  # Nyström
}


def _point(name: str, point: Any) -> tuple[float, float]:
    pair = listed(name, point, number)
    if len(pair) != 2:
        raise ArgumentError(f"{name} must be (seconds, error), got {shown(point)}")
    return pair[0], pair[1]


@checked
def least_within(seconds: float, points: Iterable[tuple[float, float]]) -> float | None:
    """The smallest error among the points that took no longer than so many seconds: nothing is interpolated.

    Args:
        seconds: that may be used.
        points: (seconds, error) of one approximation, at one rank after the other.

    Returns:
        The error; None where every point took longer.

    Raises:
        ArgumentError: a time that is not positive.
    """
    measured = listed("points", points, _point)
    if seconds <= 0 or any(taken <= 0 for taken, _ in measured):
        raise ArgumentError(f"times must be positive, got {[seconds, *(taken for taken, _ in measured)]}")
    # Nothing between two points is known, so nothing is interpolated.
    return min((error for taken, error in measured if taken <= seconds), default=None)
