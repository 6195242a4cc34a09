"""Positions: sinusoidal encoding, rotation, and a bias by distance."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import spoilt
from regard.learn.exercises.inputs import numbers


def positional_encoding(tokens, dim):
    """Sine and cosine of each position, with a frequency for each pair of columns.

    tokens, dim: whole numbers, dim even; returns (tokens, dim).
    """
    positions = np.arange(tokens)[:, None]
    frequencies = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    encoding = np.zeros((tokens, dim))
    encoding[:, 0::2] = np.sin(positions * frequencies)
    encoding[:, 1::2] = np.cos(positions * frequencies)
    return encoding


def rotate(x):
    """Each pair of neighboring columns, rotated by an angle that grows with the position.

    x (tokens, dim), dim even; returns (tokens, dim).
    """
    tokens, dim = x.shape
    angles = np.arange(tokens)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    even, odd = x[:, 0::2], x[:, 1::2]
    rotated = np.empty_like(x)
    rotated[:, 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    rotated[:, 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return rotated


def distance_bias(tokens, slope):
    """What is added to the scores of causal attention: the farther back a key is, the less.

    tokens: a whole number, slope: positive; returns (queries, keys), −inf where a key is after the query.
    """
    positions = np.arange(tokens)
    distance = positions[:, None] - positions[None, :]
    return np.where(distance >= 0, -slope * distance, -np.inf)


# The angles of both exercises, with each part of the formula open to change.
def _angles(tokens, dim, *, base=10000.0, start=0, step=2.0, divisor=None):
    pairs = np.arange(dim // 2)
    return (np.arange(tokens) + start)[:, None] * base ** (-step * pairs / (divisor or dim))


def _interleaved(sines, cosines):
    return np.stack([sines, cosines], -1).reshape(len(sines), -1)


def _encoded(tokens, dim, **changed):
    angles = _angles(tokens, dim, **changed)
    return _interleaved(np.sin(angles), np.cos(angles))


def _each_column(tokens, dim, step):
    # A frequency for each column, where two columns share one.
    columns = np.arange(dim)
    angles = np.arange(tokens)[:, None] * 10000.0 ** (-step * columns / dim)
    return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles))


def _halves(tokens, dim):
    angles = _angles(tokens, dim)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def _only(wave, tokens, dim):
    angles = _angles(tokens, dim)
    return _interleaved(wave(angles), wave(angles))


def _swapped(tokens, dim):
    angles = _angles(tokens, dim)
    return _interleaved(np.cos(angles), np.sin(angles))


def _added(tokens, dim):
    angles = np.arange(tokens)[:, None] + 10000.0 ** (-2 * np.arange(dim // 2) / dim)
    return _interleaved(np.sin(angles), np.cos(angles))


SHARED = "columns 2i and 2i + 1 share the frequency 10000^(−2i/dim)"
ENCODING = Exercise(
    name="positional encoding",
    lesson=8,
    statement=(
        "Write the sinusoidal encoding of Vaswani et al. 2017: column 2i of position p is sin(p / 10000^(2i/dim)), "
        "and column 2i + 1 the cosine of the same angle. Positions begin at 0."
    ),
    solution=positional_encoding,
    cases=tuple(
        Case({"tokens": tokens, "dim": dim})
        for tokens, dim in ((2, 4), (3, 4), (4, 4), (5, 6), (7, 10), (1, 2), (8, 8))
    ),
    variants=(
        # Another convention, that of tensor2tensor: the same numbers, in another order.
        Variant(
            "halves",
            "All sines come first and then all cosines: they must be interleaved, sine and cosine of one frequency "
            "side by side.",
            _halves,
        ),
        Variant("swapped", "Sine and cosine have changed places: even columns have the sine.", _swapped),
        Variant("all sines", "Every column has a sine: odd columns have the cosine.", partial(_only, np.sin)),
        Variant(
            "all cosines", "Every column has a cosine: even columns have the sine.", partial(_only, np.cos)
        ),
        # From here on the frequencies are wrong.
        Variant(
            "a frequency for each column",
            f"Each column has a frequency of its own, 10000^(−column/dim): {SHARED}.",
            partial(_each_column, step=1.0),
        ),
        Variant(
            "column for pair",
            f"The exponent is 2 · column / dim, with the column in place of the pair i: {SHARED}.",
            partial(_each_column, step=2.0),
        ),
        Variant(
            "no 2 in the exponent",
            f"The exponent is i/dim for the pair i, without the 2: {SHARED}.",
            partial(_encoded, step=1.0),
        ),
        Variant(
            "dim / 2 with the 2",
            f"The exponent is 2i/(dim/2), so the 2 counts twice: {SHARED}.",
            partial(_encoded, step=4.0),
        ),
        Variant("base 1000", "The base is 1 000: it must be 10 000.", partial(_encoded, base=1000.0)),
        Variant("base 100000", "The base is 100 000: it must be 10 000.", partial(_encoded, base=100000.0)),
        # From here on the positions are wrong.
        Variant(
            "positions from 1",
            "Positions begin at 1: they must begin at 0, with a row of 0, 1, 0, 1, ….",
            partial(_encoded, start=1),
        ),
        Variant(
            "multiplied by the power",
            "The position is multiplied by 10000^(2i/dim) instead of divided by it: frequencies must fall with the "
            "column.",
            partial(_encoded, step=-2.0),
        ),
        Variant(
            "transposed",
            "Rows and columns have changed places: the shape must be (tokens, dim).",
            lambda tokens, dim: _encoded(tokens, dim).T,
        ),
        Variant(
            "degrees",
            "The angles are taken for degrees: np.sin and np.cos take radians, and so does the formula.",
            lambda tokens, dim: _interleaved(
                np.sin(np.radians(_angles(tokens, dim))), np.cos(np.radians(_angles(tokens, dim)))
            ),
        ),
        Variant("added", "The frequency is added to the position: the angle is their product.", _added),
        *spoilt(positional_encoding, ("result transposed",)),
    ),
    hints=(
        "There are dim / 2 frequencies, one for each pair of columns: 10000 ** (-np.arange(0, dim, 2) / dim).",
        "All angles at once: np.arange(tokens)[:, None] * frequencies, an array (tokens, dim / 2).",
        "encoding[:, 0::2] are the even columns, for the sine; encoding[:, 1::2] the odd ones.",
    ),
    praise="Sine and cosine of one frequency stand side by side, and the frequencies fall from 1 towards 1/10000.",
)


def _rotated(x, *, sign=1.0, **changed):
    angles = sign * _angles(*x.shape, **changed)
    even, odd = x[:, 0::2], x[:, 1::2]
    return _interleaved(
        even * np.cos(angles) - odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles)
    )


def _rotated_halves(x):
    angles = _angles(*x.shape)
    first, second = np.split(x, 2, axis=1)
    parts = first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)
    return np.concatenate(parts, 1)


def _without_sign(x):
    angles = _angles(*x.shape)
    even, odd = x[:, 0::2], x[:, 1::2]
    return _interleaved(
        even * np.cos(angles) + odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles)
    )


def _overwritten(x):
    # The second line takes what the first has changed already.
    angles, x = _angles(*x.shape), x.copy()
    x[:, 0::2] = x[:, 0::2] * np.cos(angles) - x[:, 1::2] * np.sin(angles)
    x[:, 1::2] = x[:, 0::2] * np.sin(angles) + x[:, 1::2] * np.cos(angles)
    return x


def _in_place(x):
    x[:] = _rotated(x)
    return x


# Which columns are a pair differs from model to model: GPT-NeoX and Llama of transformers take halves.
ROTARY = Exercise(
    name="rotary",
    lesson=8,
    statement=(
        "Write the rotation of Su et al. 2021 (RoPE): columns 2i and 2i + 1 of position p are a point in a plane, "
        "which is rotated by the angle p · 10000^(−2i/dim), counterclockwise: (a, b) becomes (a cos − b sin, a sin + "
        "b cos)."
    ),
    solution=rotate,
    cases=tuple(
        Case({"x": numbers(200 + number, *shape)})
        for number, shape in enumerate(((2, 2), (2, 4), (3, 4), (5, 6), (7, 8)))
    ),
    variants=(
        Variant(
            "halves",
            "The pairs are made of the first and the second half of the columns, which is another convention: here "
            "they are neighbors, 2i and 2i + 1.",
            _rotated_halves,
        ),
        Variant(
            "clockwise",
            "It rotates the wrong way: the minus sign belongs to the first of the pair, a cos − b sin.",
            partial(_rotated, sign=-1.0),
        ),
        Variant(
            "no minus",
            "There is no minus sign: the first of the pair is a cos − b sin, or lengths do not stay.",
            _without_sign,
        ),
        Variant(
            "positions from 1",
            "Positions begin at 1: position 0 must stay as it is.",
            partial(_rotated, start=1),
        ),
        Variant(
            "one frequency",
            "All pairs rotate alike: each has the frequency 10000^(−2i/dim) of its own.",
            partial(_rotated, step=0.0),
        ),
        Variant(
            "no 2 in the exponent",
            "The exponent is i/dim for the pair i: it must be 2i/dim.",
            partial(_rotated, step=1.0),
        ),
        Variant("base 1000", "The base is 1 000: it must be 10 000.", partial(_rotated, base=1000.0)),
        # From here on the formula is right, and the code is not.
        Variant(
            "overwritten",
            "The second of the pair is computed from the first after that was changed: keep the old columns in "
            "variables.",
            _overwritten,
        ),
        Variant(
            "in place",
            "x is changed in place, and whoever called still needs it: begin with np.empty_like(x).",
            _in_place,
        ),
        Variant(
            "added",
            "A sinusoidal encoding is added: here each pair is rotated instead.",
            lambda x: x + _encoded(*x.shape),
        ),
        *spoilt(rotate),
    ),
    hints=(
        'The angles are those of the exercise "positional encoding": (tokens, dim / 2).',
        "Take the even and the odd columns apart first, x[:, 0::2] and x[:, 1::2]; write the new ones to another "
        "array.",
    ),
    praise="Position 0 stays, lengths stay, and each pair rotates at a speed of its own.",
)


def _distances(tokens):
    return np.arange(tokens)[:, None] - np.arange(tokens)[None, :]


# A slope of 1 would hide whether it is used at all.
BIAS = Exercise(
    name="distance bias",
    lesson=8,
    statement=(
        "Write the bias of ALiBi (Press et al. 2021) for causal attention: a key that lies n tokens before the query "
        "has the bias −slope · n, the query's own position 0, and a key after it −inf."
    ),
    solution=distance_bias,
    cases=tuple(
        Case({"tokens": tokens, "slope": slope})
        for tokens, slope in ((2, 0.5), (3, 0.25), (5, 0.5), (7, 1.5))
    ),
    variants=(
        Variant(
            "wrong sign",
            "The bias grows with the distance: it must fall, −slope · distance.",
            lambda tokens, slope: -distance_bias(tokens, slope),
        ),
        Variant(
            "wrong sign, −inf ahead",
            "The bias grows with the distance: it must fall, −slope · distance.",
            lambda tokens, slope: np.where(_distances(tokens) >= 0, slope * _distances(tokens), -np.inf),
        ),
        # From here on keys ahead of the query are not −inf.
        Variant(
            "no causal mask",
            "Keys after the query must be −inf; here their bias is above 0, which prefers them.",
            lambda tokens, slope: -slope * _distances(tokens),
        ),
        Variant(
            "both sides",
            "Keys after the query must be −inf; here they have the bias of their distance.",
            lambda tokens, slope: -slope * abs(_distances(tokens)),
        ),
        Variant(
            "zero ahead",
            "Keys after the query have the bias 0: it must be −inf, or they get the largest weight.",
            lambda tokens, slope: -slope * np.maximum(_distances(tokens), 0),
        ),
        Variant(
            "transposed",
            "Rows and columns have changed places: a row is a query, and what comes after it is −inf.",
            lambda tokens, slope: distance_bias(tokens, slope).T,
        ),
        Variant(
            "from 1",
            "The distance of a token from itself is 1 here: it must be 0.",
            lambda tokens, slope: distance_bias(tokens, slope) - slope,
        ),
        Variant(
            "no slope",
            "The slope is not used: the bias is −slope · distance.",
            lambda tokens, slope: distance_bias(tokens, 1.0),
        ),
        Variant(
            "divided by the slope",
            "The distance is divided by the slope: it must be multiplied with it.",
            lambda tokens, slope: distance_bias(tokens, 1 / slope),
        ),
        Variant(
            "power",
            "The bias is a power of the slope: it is the plain product −slope · distance.",
            lambda tokens, slope: np.where(
                _distances(tokens) >= 0, -(slope ** np.maximum(_distances(tokens), 0)), -np.inf
            ),
        ),
        *spoilt(
            distance_bias, ("negative", "result transposed", "rounded at 2", "rounded at 3", "rounded at 4")
        ),
    ),
    hints=(
        "positions[:, None] - positions[None, :] has all distances at once.",
        "np.where puts -np.inf where a distance is below 0.",
    ),
    praise="The bias falls by slope with each token back, and nothing ahead can be seen.",
)
