"""Ways to get a softmax wrong, which every exercise with one in it shares."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Variant


def softmax(scores):
    """The softmax over the last axis, stable; a row of −inf alone gives NaN, as in most first solutions."""
    with np.errstate(all="ignore"):
        terms = np.exp(scores - scores.max(-1, keepdims=True))
        return terms / terms.sum(-1, keepdims=True)


def unstable(scores):
    """Without subtracting the largest score."""
    terms = np.exp(scores)
    return terms / terms.sum(-1, keepdims=True)


def over_queries(scores):
    """Over the first axis."""
    return softmax(scores.T).T


def sum_over_queries(scores):
    """Largest score by row, sum by column."""
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(0)


def over_everything(scores):
    """One softmax of the whole matrix."""
    terms = np.exp(scores - scores.max())
    return terms / terms.sum()


def ratio(scores):
    """Shares of the scores themselves."""
    return scores / scores.sum(-1, keepdims=True)


def terms_alone(scores):
    """Exponentials that are not divided by their sum."""
    return np.exp(scores)


def shifted_terms_alone(scores):
    """The same, after the largest score was subtracted."""
    return np.exp(scores - scores.max(-1, keepdims=True))


def sum_as_row(scores):
    """The sums of rows, laid along columns."""
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1)


def largest_as_row(scores):
    """The largest scores of rows, laid along columns."""
    terms = np.exp(scores - scores.max(-1))
    return terms / terms.sum(-1, keepdims=True)


def overall_largest(scores):
    """The largest score of the whole matrix, subtracted everywhere: a row far below it becomes 0 / 0."""
    terms = np.exp(scores - scores.max())
    return terms / terms.sum(-1, keepdims=True)


ROWS = "Each query's weights must add up to 1 over the keys"
KEEPDIMS = "add keepdims=True, so that each row keeps its number"
# Name → how it goes wrong, and one sentence that says so.
SOFTMAXES = {
    "unstable softmax": (
        unstable,
        "np.exp overflows on large scores and NaN comes out: subtract each row's largest score before np.exp, which "
        "changes no weight.",
    ),
    "softmax over the queries": (
        over_queries,
        f"The softmax runs over the wrong axis, the queries. {ROWS}: take axis=-1 of the scores (queries, keys).",
    ),
    "sum over the queries": (
        sum_over_queries,
        f"The exponentials are divided by their sum over the queries. {ROWS}: sum over axis=-1, with keepdims=True.",
    ),
    "softmax over everything": (
        over_everything,
        f"All weights together add up to 1, because the sum is taken over the whole matrix. {ROWS}: sum over axis=-1.",
    ),
    "no exponential": (
        ratio,
        "The scores are divided by their sum without np.exp: that is no softmax, and negative scores give negative "
        "weights.",
    ),
    "no division by the sum": (
        terms_alone,
        f"The exponentials are not divided by their sum. {ROWS}.",
    ),
    "shifted, no division by the sum": (
        shifted_terms_alone,
        f"The largest score is subtracted, but the exponentials are not divided by their sum. {ROWS}.",
    ),
    "sum without keepdims": (
        sum_as_row,
        f"The sums of the rows are laid along the columns when dividing: {KEEPDIMS}.",
    ),
    "largest without keepdims": (
        largest_as_row,
        f"The largest scores of the rows are laid along the columns when subtracting: {KEEPDIMS}.",
    ),
    "overall largest": (
        overall_largest,
        "The largest score of the whole matrix is subtracted, so a row far below it becomes 0 / 0: subtract each "
        "row's own.",
    ),
    "no softmax": (
        lambda scores: scores,
        "The scores are used as weights without a softmax: take np.exp of them, and divide by each row's sum.",
    ),
}
# What stands in the place of a softmax, or is done to its weights; the exercise "softmax" has some as its own.
OTHERS = {
    "relu for exp": (
        lambda scores: _shares(np.maximum(scores, 0)),
        "relu stands in the place of exp: negative scores get no weight at all, and a row without a positive one is 0 "
        "/ 0.",
    ),
    "relu for the softmax": (
        lambda scores: np.maximum(scores, 0),
        f"relu stands in the place of the softmax. {ROWS}.",
    ),
    "sigmoid for the softmax": (
        lambda scores: sigmoid(scores),
        f"A sigmoid of each score stands in the place of the softmax: keys do not compete. {ROWS}.",
    ),
    "sigmoid for exp": (
        lambda scores: _shares(sigmoid(scores)),
        "A sigmoid stands in the place of exp: large scores then all count alike.",
    ),
    "tanh for the softmax": (
        np.tanh,
        f"tanh stands in the place of the softmax: weights may be negative. {ROWS}.",
    ),
    "absolute value for exp": (
        lambda scores: _shares(np.abs(scores)),
        "The absolute value stands in the place of exp: a score far below 0 then counts as much as one far above.",
    ),
    "square for exp": (
        lambda scores: _shares(scores**2),
        "The square stands in the place of exp: a score far below 0 then counts as much as one far above.",
    ),
    "weights base 2": (
        lambda scores: softmax(scores * np.log(2)),
        "Powers of 2 stand in the place of exp, which makes the softmax too flat: take np.exp.",
    ),
    "weights base 10": (
        lambda scores: softmax(scores * np.log(10)),
        "Powers of 10 stand in the place of exp, which makes the softmax too sharp: take np.exp.",
    ),
    "scores negated": (
        lambda scores: softmax(-scores),
        "The scores have the wrong sign: the keys that are least like the query get the most weight.",
    ),
    "log-softmax": (
        lambda scores: np.log(np.maximum(softmax(scores), 1e-300)),
        "The logarithms of the weights are used: take np.exp of them.",
    ),
    "softmax twice": (
        lambda scores: softmax(softmax(scores)),
        "The softmax is taken twice, which makes the weights nearly equal.",
    ),
    "largest of the columns": (
        lambda scores: _shares(np.exp(scores - scores.max(0))),
        "The largest score of each column is subtracted, which changes the weights: subtract each row's own, with "
        "axis=-1.",
    ),
    "divided by the norm": (
        lambda scores: _lengths(np.exp(scores - scores.max(-1, keepdims=True))),
        f"The exponentials are divided by the length of the row, √Σ x², instead of its sum. {ROWS}.",
    ),
    "divided by the largest": (
        lambda scores: np.exp(scores) / np.exp(scores).max(-1, keepdims=True),
        f"The exponentials are divided by the largest of the row instead of their sum. {ROWS}.",
    ),
    "mean for the sum": (
        lambda scores: softmax(scores) * scores.shape[-1],
        f"The exponentials are divided by their mean instead of their sum. {ROWS}.",
    ),
    "divided by the keys": (
        lambda scores: softmax(scores) / scores.shape[-1],
        "The weights are divided by the number of keys besides: after the softmax they add up to 1 already.",
    ),
    **{
        f"weights rounded at {digits}": (
            lambda scores, digits=digits: np.round(softmax(scores), digits),
            f"The weights are rounded to {digits} decimal{'s' * (digits > 1)}, and the result with them: leave them "
            f"as they are.",
        )
        for digits in (1, 2, 3, 4)
    },
}


# Those that stay numbers where masked scores are −inf.
FINITE = (
    "relu for the softmax",
    "sigmoid for the softmax",
    "sigmoid for exp",
    "weights base 2",
    "softmax twice",
    "divided by the norm",
    "mean for the sum",
    "divided by the keys",
    "weights rounded at 1",
    "weights rounded at 2",
    "weights rounded at 3",
    "weights rounded at 4",
)


def sigmoid(scores):
    """1 / (1 + e^−s), without an overflow."""
    # 1 / (1 + np.exp(−s)) gives the same numbers, and a warning.
    return np.exp(-np.logaddexp(0, -scores))


def _shares(terms):
    with np.errstate(all="ignore"):
        return terms / terms.sum(-1, keepdims=True)


def _lengths(terms):
    # The length of a row, as if weights were a unit vector.
    return terms / np.sqrt((terms**2).sum(-1, keepdims=True))


# Those that are often made together with another mistake.
PAIRED = (
    "softmax over the queries",
    "sum over the queries",
    "softmax over everything",
    "no softmax",
    "no division by the sum",
    "shifted, no division by the sum",
    "sum without keepdims",
    "largest without keepdims",
)
COMMON = ("unstable softmax", "softmax over the queries", "softmax over everything", "no softmax")


def softmaxes(with_softmax, names=tuple(SOFTMAXES)):
    """Variants of an exercise that differ in its softmax.

    Args:
        with_softmax: gives, for a softmax, the function that has it.
        names: which of `SOFTMAXES`.
    """
    every = SOFTMAXES | OTHERS
    return tuple(Variant(name, every[name][1], with_softmax(every[name][0])) for name in names)


def pairs(first, with_softmax, names=PAIRED):
    """Variants that have two mistakes: one of `first`, and one in the softmax.

    Args:
        first: variants. with_softmax: gives, for one of them and a softmax, the function that has both.
        names: which of `SOFTMAXES`.
    """
    return tuple(
        Variant(
            f"{variant.name} + {name}",
            f"Two things are wrong. First: {variant.text} Second: {SOFTMAXES[name][1]}",
            with_softmax(variant, SOFTMAXES[name][0]),
        )
        for variant in first
        for name in names
    )
