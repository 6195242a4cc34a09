"""What √d is for: how far scores spread, with it and without."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import composed, spoilt
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import softmax


def score_variance(query, key):
    """The variance of all scores, as plain dot products and divided by √d.

    query (queries, dim), key (keys, dim); returns (2,): the variance of all q · k, then that of all q · k / √d. A variance
    is the mean of the squared differences from the mean.
    """
    # One mean and one variance of all scores, not one for each query.
    scores = query @ key.T
    return np.array([scores.var(), (scores / np.sqrt(query.shape[-1])).var()])


def _variances(query, key, *, score=lambda q, k: q @ k.T, divisor=np.sqrt, spread=np.var):
    scores = score(query, key)
    return np.array([spread(scores), spread(scores / divisor(query.shape[-1]))])


def _over(divisor):
    # A divisor that knows the sizes of query and key.
    return lambda q, k: np.array([(q @ k.T).var(), (q @ k.T / divisor(q, k)).var()])


def _pair(seed, queries, keys, dim):
    return Case({"query": numbers(seed, queries, dim), "key": numbers(seed + 1, keys, dim)})


# Only the second number knows of them.
DIVISORS = (
    (
        "divided by d",
        "The second scores are divided by d, or by √d twice: divide once by √d, which divides the variance by d.",
        {"divisor": lambda d: d},
    ),
    (
        "not divided",
        "Both variances are of the plain dot products: for the second, divide the scores by √d.",
        {"divisor": lambda d: 1.0},
    ),
    (
        "multiplied by √d",
        "The second scores are multiplied by √d: they must be divided by it.",
        {"divisor": lambda d: 1 / np.sqrt(d)},
    ),
    (
        "fourth root",
        "The second variance is the first divided by √d: the scores are divided by √d, and so their variance by d.",
        {"divisor": lambda d: d**0.25},
    ),
)
# Both numbers go wrong with these, and with what follows.
SPREADS = (
    (
        "standard deviation",
        "It is the standard deviation: its square, the variance, is asked for.",
        {"spread": np.std},
    ),
    (
        "n − 1",
        "The sum of squares is divided by one less than the number of scores: take their plain mean, ddof=0.",
        {"spread": lambda s: s.var(ddof=1)},
    ),
    (
        "mean of the squares",
        "The mean of the scores is not taken away before squaring: these scores do not have the mean 0.",
        {"spread": lambda s: (s**2).mean()},
    ),
    (
        "not averaged",
        "The squared differences are added up: a variance is their mean.",
        {"spread": lambda s: s.var() * s.size},
    ),
    (
        "mean of the rows",
        "Each query has a variance of its own here, and their mean is taken: it is one variance of all scores, around "
        "one mean.",
        {"spread": lambda s: s.var(-1).mean()},
    ),
    (
        "mean of the columns",
        "Each key has a variance of its own here, and their mean is taken: it is one variance of all scores, around "
        "one mean.",
        {"spread": lambda s: s.var(0).mean()},
    ),
    (
        "mean",
        "It is the mean of the scores: their variance is asked for, np.var.",
        {"spread": np.mean},
    ),
)
SCORES = (
    (
        "weights",
        "It is the variance of weights, after a softmax: that of the scores is asked for.",
        {"spread": lambda s: softmax(np.atleast_2d(s)).var()},
    ),
    (
        "cosines",
        "The scores are cosines: here they are plain dot products, and lengths count.",
        {"score": lambda q, k: q @ k.T / np.linalg.norm(q, axis=1)[:, None] / np.linalg.norm(k, axis=1)},
    ),
    (
        "products",
        "It is the variance of the single products: a score is the sum of d of them.",
        {"score": lambda q, k: q[:, None] * k},
    ),
    (
        "one query and one key",
        "Query 0 meets key 0 alone, query 1 key 1, and so on: every query meets every key, query @ key.T.",
        {"score": lambda q, k: (q[: len(k)] * k[: len(q)]).sum(-1)},
    ),
)
# Few scores, so that n − 1 shows, and sizes that are never d.
VARIANCE = Exercise(
    name="score variance",
    lesson=3,
    statement=(
        "Why √d? Write what shows it: the variance of all scores of a matrix, first as plain dot products q · k, then "
        "divided by √d, where d is how many numbers a query has. Return both, in this order."
    ),
    solution=score_variance,
    cases=(
        _pair(841, 2, 2, 3),
        _pair(843, 3, 2, 4),
        _pair(845, 3, 5, 2),
        _pair(847, 2, 3, 7),
        _pair(849, 7, 5, 3),
    ),
    variants=(
        *composed(_variances, DIVISORS, SPREADS[:3]),
        *composed(_variances, SPREADS[3:]),
        *composed(_variances, SCORES),
        Variant(
            "other order",
            "The two have changed places: first the plain dot products, then those divided by √d.",
            lambda q, k: score_variance(q, k)[::-1],
        ),
        *(
            Variant(
                name,
                f"The second scores are divided by {what}: divide by √d, of query.shape[-1].",
                _over(divisor),
            )
            for name, what, divisor in (
                ("√queries", "the root of the number of queries", lambda q, k: np.sqrt(len(q))),
                ("√keys", "the root of the number of keys", lambda q, k: np.sqrt(len(k))),
            )
        ),
        Variant(
            "both divided",
            "Both variances are of the scores divided by √d: the first is of the plain dot products.",
            lambda q, k: np.full(2, (q @ k.T).var() / q.shape[-1]),
        ),
        Variant(
            "only the first",
            "Only the variance of the plain dot products comes back: return both in one array.",
            lambda q, k: (q @ k.T).var(),
        ),
        Variant(
            "only the second",
            "Only the variance of the scores divided by √d comes back: return both in one array.",
            lambda q, k: (q @ k.T).var() / q.shape[-1],
        ),
        *spoilt(score_variance, axes=1),
    ),
    hints=(
        "scores = query @ key.T has all dot products, and scores.var() is one number for all of them.",
        "Divide the scores by np.sqrt(query.shape[-1]) and take the variance again: np.array([first, second]).",
    ),
    praise="Dividing scores by √d divides their variance by d: that is all that √d does, and why it is √d.",
)
