"""Cosines at work: which row is most alike, and a dictionary that answers softly."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import composed, crossed, spoilt
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import OTHERS, SOFTMAXES, softmax, softmaxes


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


def look_up(query, key, value, temperature):
    """The answer of a soft dictionary that compares by the cosine.

    query (queries, dim), key (keys, dim), value (keys, value_dim), temperature: positive; returns (queries, value_dim).
    """
    unit_query = query / np.linalg.norm(query, axis=-1, keepdims=True)
    unit_key = key / np.linalg.norm(key, axis=-1, keepdims=True)
    scores = unit_query @ unit_key.T / temperature
    # The largest is taken off, so that no exponential overflows.
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True) @ value


def _lengths(x, axis=-1):
    return np.linalg.norm(x, axis=axis, keepdims=True)


def _cosines(a, b, lengths=_lengths):
    units = [x / np.where(lengths(x) > 0, lengths(x), 1.0) for x in (a, b)]
    return units[0] @ units[1].T


def _by(lengths):
    return {"score": lambda a, b: _cosines(a, b, lengths)}


def _unguarded(a, b):
    # NaN for a row of zeros, without a warning.
    with np.errstate(all="ignore"):
        return a / _lengths(a) @ (b / _lengths(b)).T


# What stands in the place of the cosine, whatever it is used for.
SCORES = (
    (
        "dot product",
        "It is the plain dot product, so long rows win: divide it by the length of each row, with axis=-1.",
        {"score": lambda a, b: a @ b.T},
    ),
    (
        "absolute value",
        "The sign of the cosine is lost: a row that points the opposite way is the least alike of all.",
        {"score": lambda a, b: abs(_cosines(a, b))},
    ),
    (
        "least alike",
        "The sign is wrong, or it is 1 minus the cosine, and so the least alike wins: take the cosine itself.",
        {"score": lambda a, b: -_cosines(a, b)},
    ),
    (
        "distance",
        "It is the distance between the rows with a minus, so lengths count: a cosine sees the direction alone.",
        {"score": lambda a, b: -np.linalg.norm(a[:, None] - b, axis=-1)},
    ),
    (
        "squared lengths",
        "It is divided by squared lengths, so short rows win: a length is the root of the sum of squares.",
        _by(lambda x: (x**2).sum(-1, keepdims=True)),
    ),
    (
        "sums for lengths",
        "It is divided by sums of absolute values: a length is the root of the sum of squares.",
        _by(lambda x: abs(x).sum(-1, keepdims=True)),
    ),
    (
        "largest for lengths",
        "It is divided by the largest number of each row: a length is the root of the sum of squares.",
        _by(lambda x: abs(x).max(-1, keepdims=True)),
    ),
    (
        "lengths of columns",
        "The lengths are those of the columns: rows are the vectors here, so axis=-1.",
        _by(lambda x: _lengths(x, 0)),
    ),
    (
        "centered",
        "The mean of each row is taken away first, which makes a correlation of the cosine: leave it in.",
        {"score": lambda a, b: _cosines(a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True))},
    ),
)


def _nearest(x, *, score=_cosines, itself=-np.inf, pick=lambda scores, x: scores.argmax(-1)):
    scores = score(x, x)
    if itself is not None:
        np.fill_diagonal(scores, itself)
    return pick(scores, x)


def _rows(seed, rows, dim, zeros=()):
    x = numbers(seed, rows, dim)
    x[list(zeros)] = 0.0
    return Case({"x": x})


ZEROS = (
    (
        "rows of zeros",
        "A row of zeros is divided by its length, 0, and np.argmax takes the NaN for the largest: divide by 1 there.",
        {"score": _unguarded},
    ),
)
# A dictionary would not be looked up by these.
FARTHEST = (
    (
        "farthest",
        "The row at the largest distance is taken: the one with the largest cosine is asked for.",
        {"score": lambda a, b: np.linalg.norm(a[:, None] - b, axis=-1)},
    ),
    (
        "city block distance",
        "The sum of absolute differences decides, so lengths count: a cosine sees the direction alone.",
        {"score": lambda a, b: -abs(a[:, None] - b).sum(-1)},
    ),
)
# What becomes of the diagonal, where each row meets itself.
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
        "1 subtracted on the diagonal",
        "Subtracting 1 leaves 0 on the diagonal, which wins where all other cosines are below 0: put -np.inf there.",
        {"itself": None, "pick": lambda scores, x: (scores - np.eye(len(x))).argmax(-1)},
    ),
    (
        "second largest",
        "The second largest cosine is taken, as if a row itself were always first: a row of zeros is not. Put -np.inf "
        "on the diagonal, and take the largest.",
        {"itself": None, "pick": lambda scores, x: scores.argsort(-1)[:, -2]},
    ),
)
# The cosines are right from here on, and what is returned is not.
PICKS = (
    (
        "counted among the others",
        "Only the other rows are counted, so numbers behind the row itself are one too small: leave "
        "it in, and put -np.inf on the diagonal.",
        {"pick": lambda scores, x: scores.argmax(-1) - (scores.argmax(-1) > np.arange(len(x)))},
    ),
    (
        "rows behind alone",
        "Each row is compared only with those after it: the rows before it are others too.",
        {"pick": lambda scores, x: np.where(np.tri(len(x), dtype=bool), -np.inf, scores).argmax(-1)},
    ),
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
        "np.eye(n) * np.inf has NaN beside its diagonal, as 0 · inf is no number, and np.argmax takes"
        " NaN for the largest: use np.fill_diagonal.",
        {"pick": lambda scores, x: 0 * scores.argmax(-1)},
    ),
)
# One row has a negative cosine with all others; with one zero row and with several; and sizes at which length and direction disagree.
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
        _rows(804, 4, 2),
        _rows(812, 5, 3),
        _rows(816, 7, 2),
        _rows(808, 5, 3, (2,)),
        _rows(805, 17, 5),
        _rows(806, 13, 3, (0, 7)),
        _rows(807, 23, 4, (22,)),
    ),
    variants=(
        *composed(
            _nearest,
            (*SCORES[:2], *ZEROS),
            ITSELF,
            leave_out=(
                "rows of zeros + itself as 0",
                "absolute value + itself",
                "absolute value + 1 subtracted on the diagonal",
            ),
        ),
        *composed(_nearest, (*SCORES[2:], *FARTHEST)),
        *composed(_nearest, SCORES[3:4], ITSELF[:1])[2:],
        *composed(_nearest, PICKS),
    ),
    hints=(
        "Divide each row by its length, np.linalg.norm(x, axis=-1, keepdims=True), and by 1 where that is 0.",
        "units @ units.T has all cosines; np.fill_diagonal(cosines, -np.inf) takes each row itself out.",
        "cosines.argmax(-1) is the number of the largest of each row, and of equal ones the first.",
    ),
    praise="Direction alone counts, no row is compared with itself, and a row of zeros does no harm.",
)


def _look_up(query, key, value, temperature, *, score=_cosines, heat=np.divide, weigh=softmax):
    return weigh(heat(score(query, key), temperature)) @ value


def _weighing(weigh):
    return lambda *inputs: _look_up(*inputs, weigh=weigh)


def _entries(seed, queries, keys, dim, value_dim, temperature):
    arrays = {
        "query": numbers(seed, queries, dim),
        "key": numbers(seed + 1, keys, dim),
        "value": numbers(seed + 2, keys, value_dim),
    }
    # At a thousandth, exp of a score overflows.
    return Case(arrays | {"temperature": temperature}, large=temperature < 0.01)


# Half a cosine, or a cosine and something else.
HALVES = (
    (
        "length of the query alone",
        "The scores are divided by the length of the query alone: a cosine is divided by that of the key too.",
        {"score": lambda q, k: q / _lengths(q) @ k.T},
    ),
    (
        "length of the key alone",
        "The scores are divided by the lengths of the keys alone: a cosine is divided by that of the query too.",
        {"score": lambda q, k: q @ (k / _lengths(k)).T},
    ),
    (
        "scaled dot product",
        "The scores are dot products divided by √d: here they are cosines, divided by both lengths.",
        {"score": lambda q, k: q @ k.T / np.sqrt(q.shape[-1])},
    ),
    (
        "divided by √d too",
        "The cosines are divided by √d besides: only the temperature divides them here.",
        {"score": lambda q, k: _cosines(q, k) / np.sqrt(q.shape[-1])},
    ),
    (
        "one length for all",
        "np.linalg.norm without an axis is one number for the whole matrix: take axis=-1 and keepdims=True.",
        {"score": lambda q, k: q @ k.T / np.linalg.norm(q) / np.linalg.norm(k)},
    ),
    (
        "angle",
        "The scores are angles, and a larger one is less alike: take the cosine.",
        {"score": lambda q, k: np.arccos(_cosines(q, k).clip(-1, 1))},
    ),
)
# A cosine without its temperature can hardly be sharp.
HEATS = (
    (
        "temperature squared",
        "The scores are divided by the temperature twice, perhaps with the query and with the key: divide once.",
        {"heat": lambda s, t: s / t**2},
    ),
    (
        "no temperature",
        "The temperature is not used: divide the scores by it, before the softmax.",
        {"heat": lambda s, t: s},
    ),
    (
        "multiplied by the temperature",
        "The scores are multiplied by the temperature: a low one must sharpen, so divide.",
        {"heat": np.multiply},
    ),
    (
        "root of the temperature",
        "The scores are divided by the root of the temperature: take the temperature itself.",
        {"heat": lambda s, t: s / np.sqrt(t)},
    ),
)
# Scores from −1 to 1 need a low temperature to be sharp.
LOOK_UP = Exercise(
    name="look up",
    lesson=2,
    statement=(
        "Write a dictionary that answers softly: the score of a query and a key is their cosine, divided by a "
        "temperature; a softmax over the keys makes weights of the scores; the answer is the mean of the values under "
        "them. No row is zero. At a low temperature the best key takes all."
    ),
    solution=look_up,
    cases=(
        _entries(821, 2, 2, 2, 1, 0.5),
        _entries(824, 3, 3, 3, 3, 2.0),
        _entries(827, 2, 3, 5, 4, 0.25),
        _entries(830, 5, 3, 3, 2, 0.5),
        _entries(833, 3, 7, 2, 2, 2.0),
        _entries(836, 3, 5, 4, 2, 0.001),
        _entries(839, 5, 2, 2, 2, 0.001),
    ),
    variants=(
        *composed(_look_up, (*SCORES, *HALVES), HEATS[1:3]),
        *composed(_look_up, (HEATS[0], HEATS[3])),
        Variant(
            "temperature after",
            "The weights are divided by the temperature, after the softmax: it belongs to the scores.",
            lambda q, k, v, t: look_up(q, k, v, 1.0) / t,
        ),
        Variant(
            "returns the weights",
            "It returns the weights: multiply them with the values, weights @ value.",
            lambda q, k, v, t: softmax(_cosines(q, k) / t),
        ),
        Variant(
            "hard",
            "The value of the best key alone comes back: every key has a part, by the softmax.",
            lambda q, k, v, t: v[_cosines(q, k).argmax(-1)],
        ),
        Variant(
            "plain mean",
            "Every key has the same weight: a softmax of the scores makes weights.",
            lambda q, k, v, t: v.mean(0) + 0 * q[:, :1],
        ),
        Variant(
            "values of length 1",
            "The values are divided by their lengths: only queries and keys are, as only they are compared.",
            lambda q, k, v, t: look_up(q, k, v / np.maximum(_lengths(v), 1e-12), t),
        ),
        *softmaxes(_weighing, [name for name in SOFTMAXES | OTHERS if name != "scores negated"]),
        *crossed(look_up),
        *spoilt(look_up),
    ),
    hints=(
        "Bring queries and keys to the length 1: then their dot product is the cosine.",
        "Divide the cosines by the temperature, then take the softmax over the keys, axis=-1.",
        "Subtract each row's largest score before np.exp: at a temperature of 0.001 scores reach 1000.",
    ),
    praise="Lengths do not count, a low temperature sharpens, and the answer is a mean of the values.",
)
