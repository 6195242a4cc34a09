"""Which row is most alike, by the cosine."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise
from regard.learn.exercises.general import composed
from regard.learn.exercises.inputs import numbers


def nearest(x):
    """For each row, the number of the other row that is most like it, by the cosine.

    x (rows, dim), of at least two rows; returns (rows,) of whole numbers, counted from 0. A row of zeros has the cosine 0
    with every row; of rows that are equally alike the first counts.
    """
    lengths = np.linalg.norm(x, axis=-1, keepdims=True)
    units = x / np.where(lengths > 0, lengths, 1.0)
    cosines = units @ units.T
    # A row is most like itself, and the others are asked for.
    np.fill_diagonal(cosines, -np.inf)
    return cosines.argmax(-1)


def _cosines(x, lengths=lambda x: np.linalg.norm(x, axis=-1, keepdims=True)):
    units = x / np.where(lengths(x) > 0, lengths(x), 1.0)
    return units @ units.T


def _unguarded(x):
    with np.errstate(all="ignore"):
        units = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return units @ units.T


def _nearest(x, *, score=_cosines, itself=-np.inf, pick=lambda scores, x: scores.argmax(-1)):
    scores = score(x)
    if itself is not None:
        np.fill_diagonal(scores, itself)
    return pick(scores, x)


def _rows(seed, rows, dim, zeros=()):
    x = numbers(seed, rows, dim)
    x[list(zeros)] = 0.0
    return Case({"x": x})


# What a row is compared by; the first three are often met together with a diagonal that is left in.
SCORES = (
    (
        "dot product",
        "Long rows win, as in a plain dot product: divide by the length of each row that is compared with, axis=-1.",
        {"score": lambda x: x @ x.T},
    ),
    (
        "rows of zeros",
        "A row of zeros is divided by its length, 0, and np.argmax takes the NaN for the largest: divide by 1 there.",
        {"score": _unguarded},
    ),
    (
        "least alike",
        "The least alike row is taken: the largest cosine is wanted, which is the smallest angle.",
        {"score": lambda x: -_cosines(x)},
    ),
    (
        "absolute value",
        "The sign of the cosine is lost: a row that points the opposite way is the least alike of all.",
        {"score": lambda x: abs(_cosines(x))},
    ),
    (
        "squared lengths",
        "It is divided by squared lengths, so short rows win: a length is the root of the sum of squares.",
        {"score": lambda x: _cosines(x, lambda x: (x**2).sum(-1, keepdims=True))},
    ),
    (
        "sums for lengths",
        "It is divided by sums of absolute values: a length is the root of the sum of squares.",
        {"score": lambda x: _cosines(x, lambda x: abs(x).sum(-1, keepdims=True))},
    ),
    (
        "lengths of columns",
        "The lengths are those of the columns: rows are the vectors here, so axis=-1.",
        {"score": lambda x: _cosines(x, lambda x: np.linalg.norm(x, axis=0))},
    ),
    (
        "largest for lengths",
        "It is divided by the largest number of each row: divide by its length, the root of the sum of squares.",
        {"score": lambda x: _cosines(x, lambda x: abs(x).max(-1, keepdims=True))},
    ),
    (
        "centered",
        "The mean of each row is taken away first, which makes a correlation of the cosine: leave it in.",
        {"score": lambda x: _cosines(x - x.mean(-1, keepdims=True))},
    ),
)
# Distances know no direction, and a row is at 0 from itself in each of them.
DISTANCES = (
    (
        "distance",
        "The distance between rows decides, so their lengths count: a cosine sees the direction alone.",
        {"score": lambda x: -np.linalg.norm(x[:, None] - x, axis=-1)},
    ),
    (
        "city block distance",
        "The sum of absolute differences decides, so lengths count: a cosine sees the direction alone.",
        {"score": lambda x: -abs(x[:, None] - x).sum(-1)},
    ),
    (
        "farthest",
        "The row at the largest distance is taken: the one with the largest cosine is asked for.",
        {"score": lambda x: np.linalg.norm(x[:, None] - x, axis=-1)},
    ),
)
ITSELF = (
    (
        "itself",
        "Each row is compared with itself too, and nothing is more alike: put -np.inf on the diagonal first.",
        {"itself": None},
    ),
    (
        "itself as 0",
        "The diagonal is 0, which wins where all other cosines are below 0: put -np.inf there.",
        {"itself": 0.0},
    ),
    (
        "second largest",
        "The second largest cosine is taken, as if a row itself were always first: a row of zeros is not. Put -np.inf "
        "on the diagonal, and take the largest.",
        {"itself": None, "pick": lambda scores, x: scores.argsort(-1)[:, -2]},
    ),
)
PICKS = (
    (
        "counted from 1",
        "Rows are counted from 1: the first one is number 0, as np.argmax has it.",
        {"pick": lambda scores, x: scores.argmax(-1) + 1},
    ),
    (
        "cosine itself",
        "The largest cosine is returned: its number among the rows is asked for, np.argmax.",
        {"pick": lambda scores, x: scores.max(-1)},
    ),
    (
        "row itself",
        "The most alike rows themselves are returned: their numbers are asked for.",
        {"pick": lambda scores, x: x[scores.argmax(-1)]},
    ),
    (
        "one for all",
        "One number for the whole matrix comes out: each row has its own, so np.argmax(…, axis=-1).",
        {"pick": lambda scores, x: scores.argmax()},
    ),
    (
        "not chosen",
        "All cosines are returned: of each row the number of the largest is asked for.",
        {"pick": lambda scores, x: scores},
    ),
    (
        "last of equals",
        "Of rows that are equally alike the last is taken: the first counts, as with np.argmax.",
        {"pick": lambda scores, x: scores.shape[1] - 1 - scores[:, ::-1].argmax(-1)},
    ),
    (
        "infinity times 0",
        "NaN wins: np.eye(n) * np.inf has NaN beside its diagonal, as 0 · inf is none. Use np.fill_diagonal.",
        {"pick": lambda scores, x: 0 * scores.argmax(-1)},
    ),
)
# With one zero row and with several, and sizes at which length and direction disagree.
NEAREST = Exercise(
    name="nearest",
    lesson=1,
    statement=(
        "Which word is most like which? Write, for each row of x, the number of the other row with the largest "
        "cosine. A long row must not win by its length, nor a row over itself; a row of zeros has the cosine 0 with "
        "all."
    ),
    solution=nearest,
    cases=(
        _rows(801, 4, 2),
        _rows(802, 5, 3),
        _rows(803, 7, 2),
        _rows(804, 5, 3, (2,)),
        _rows(805, 17, 5),
        _rows(806, 13, 3, (0, 7)),
        _rows(807, 23, 4, (22,)),
    ),
    variants=(
        *composed(_nearest, SCORES[:3], ITSELF[:2], leave_out=("rows of zeros + itself as 0",)),
        *composed(_nearest, SCORES[3:]),
        *composed(_nearest, DISTANCES),
        *composed(_nearest, DISTANCES[:1], ITSELF[:1])[2:],
        *composed(_nearest, ITSELF[2:]),
        *composed(_nearest, PICKS),
    ),
    hints=(
        "Divide each row by its length, np.linalg.norm(x, axis=-1, keepdims=True), and by 1 where that is 0.",
        "units @ units.T has all cosines; np.fill_diagonal(cosines, -np.inf) takes each row itself out.",
        "cosines.argmax(-1) is the number of the largest of each row, and of equal ones the first.",
    ),
    praise="Direction alone counts, no row is compared with itself, and a row of zeros does no harm.",
)
