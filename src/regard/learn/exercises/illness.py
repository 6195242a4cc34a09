"""Heads that are ill: the gradient that a saturated softmax passes, and how spread out a head is of what it could be."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import spoilt
from regard.learn.exercises.inputs import numbers


def softmax_gradient(weights, gradient):
    """From the gradient of a loss by the weights to that by the scores.

    weights (queries, keys), rows of a softmax, gradient (queries, keys); returns (queries, keys).
    """
    # What a constant added to the gradient changes, which must be nothing.
    mean = (weights * gradient).sum(-1, keepdims=True)
    return weights * (gradient - mean)


def entropy_fraction(weights, allowed):
    """The entropy of each row as a part of the most it could be.

    weights (queries, keys), allowed (queries,): how many keys each query may attend, at least 1. Returns (queries,): Σ −w ln
    w / ln allowed, and 0 where only one key is allowed.
    """
    # ln 1 = 0 stands for keys of no weight.
    terms = weights * np.log(np.where(weights > 0, weights, 1.0))
    return -terms.sum(-1) / np.log(np.maximum(allowed, 2))


def _weights(seed, queries, keys):
    parts = np.random.default_rng(seed).integers(1, 9, (queries, keys)).astype(float)
    return parts / parts.sum(-1, keepdims=True)


def _graded(seed, queries, keys):
    return Case({"weights": _weights(seed, queries, keys), "gradient": numbers(seed + 1, queries, keys)})


SHARP = Case(
    {"weights": np.array([[1.0, 0.0], [0.5, 0.5]]), "gradient": np.array([[1.3, -0.7], [1.3, -0.7]])}
)
# A row with all of its weight on one key passes nothing.
GRADIENT = Exercise(
    name="softmax gradient",
    lesson=15,
    statement=(
        "Why does a collapsed head stop learning? Write the way back through a softmax: from the gradient by each "
        "weight to that by each score, w · (g − Σ w g), where the sum runs over the keys of the query."
    ),
    solution=softmax_gradient,
    cases=(_graded(641, 2, 2), _graded(643, 3, 3), SHARP, _graded(645, 3, 5), _graded(647, 5, 3)),
    variants=(
        Variant(
            "no mean",
            "The mean Σ w g is not subtracted: a constant added to all of a row's gradient must change nothing.",
            lambda w, g: w * g,
        ),
        Variant(
            "diagonal alone",
            "It is the diagonal of the Jacobian alone, w (1 − w) g: each score moves the other weights too.",
            lambda w, g: w * (1 - w) * g,
        ),
        Variant(
            "plain mean",
            "The plain mean of the gradient is subtracted: each counts by its weight, Σ w g.",
            lambda w, g: w * (g - g.mean(-1, keepdims=True)),
        ),
        Variant(
            "sum",
            "The plain sum of the gradient is subtracted: each counts by its weight, Σ w g.",
            lambda w, g: w * (g - g.sum(-1, keepdims=True)),
        ),
        Variant(
            "mean of the products",
            "The mean of w g is subtracted: take its sum, as the weights add up to 1 already.",
            lambda w, g: w * (g - (w * g).mean(-1, keepdims=True)),
        ),
        Variant(
            "not weighted",
            "The difference is not multiplied by the weight: w · (g − Σ w g).",
            lambda w, g: g - (w * g).sum(-1, keepdims=True),
        ),
        Variant(
            "w twice",
            "The mean is multiplied by the weight once too often: w g − w Σ w g.",
            lambda w, g: w * g - w * w * (w * g).sum(-1, keepdims=True),
        ),
        # The same numbers, multiplied out with a factor forgotten.
        Variant(
            "mean outside",
            "The mean is not multiplied by the weight: w g − w Σ w g.",
            lambda w, g: w * g - (w * g).sum(-1, keepdims=True),
        ),
        Variant(
            "added",
            "The mean is added: it must be subtracted.",
            lambda w, g: w * (g + (w * g).sum(-1, keepdims=True)),
        ),
        # From here on the sum runs over something else.
        Variant(
            "over the queries",
            "The sum runs over the queries: each row is a softmax of its own, so sum over axis=-1.",
            lambda w, g: w * (g - (w * g).sum(0)),
        ),
        Variant(
            "over everything",
            "The sum runs over all numbers: each row is a softmax of its own.",
            lambda w, g: w * (g - (w * g).sum()),
        ),
        Variant(
            "without keepdims",
            "The sums of the rows are laid along the columns: add keepdims=True, so that each row keeps its number.",
            lambda w, g: w * (g - (w * g).sum(-1)),
        ),
        Variant(
            "passed on", "The gradient is passed on as it is: a softmax changes it.", lambda w, g: g + 0.0
        ),
        *spoilt(softmax_gradient),
    ),
    hints=(
        "The Jacobian of one row is diag(w) − w wᵀ; times g that is w g − w (w · g).",
        "(weights * gradient).sum(-1, keepdims=True) has w · g of each row.",
    ),
    praise="What a row passes adds up to 0, and a saturated row passes nothing.",
)


def _spread(seed, queries, keys):
    # The last queries of a causal text, as in decoding.
    rows = np.tril(_weights(seed, keys, keys))[-queries:]
    counts = np.arange(keys - queries + 1, keys + 1)
    return Case({"weights": rows / rows.sum(-1, keepdims=True), "allowed": counts})


def _entropy(weights):
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(-1)


def _bound(allowed):
    return np.log(np.maximum(allowed, 2))


def _unguarded(weights, allowed):
    with np.errstate(all="ignore"):
        return _entropy(weights) / np.log(allowed)


def _plain(weights, allowed):
    with np.errstate(all="ignore"):
        return -(weights * np.log(weights)).sum(-1) / _bound(allowed)


# Under a causal mask each query has another bound.
FRACTION = Exercise(
    name="entropy fraction",
    lesson=15,
    statement=(
        "Is a head collapsed, or has it few keys to choose from? Write the entropy of each row as a fraction of its "
        "largest value, ln of the number of keys that the query may attend: 0 on a single key, 1 when all are alike. "
        "Where only one key is allowed it is 0."
    ),
    solution=entropy_fraction,
    cases=(_spread(651, 2, 2), _spread(652, 3, 3), _spread(653, 5, 5), _spread(654, 3, 7)),
    variants=(
        Variant(
            "entropy alone",
            ("The entropy is not divided by its bound, ln of the number of allowed keys."),
            lambda w, a: _entropy(w),
        ),
        Variant(
            "all keys",
            "It is divided by ln of all keys: under a mask a query has only `allowed` of them.",
            lambda w, a: _entropy(w) / np.log(w.shape[-1]),
        ),
        Variant(
            "divided by the number",
            "The entropy is divided by the number of allowed keys: divide by the logarithm of that.",
            lambda w, a: _entropy(w) / a,
        ),
        Variant(
            "0 / 0",
            "Where one key is allowed, ln 1 = 0 and 0 / 0 is NaN: the fraction is 0 there.",
            _unguarded,
        ),
        Variant(
            "0 · log 0",
            "np.log(0) is −inf, and 0 times that is NaN: leave weights of 0 out, as they add nothing.",
            _plain,
        ),
        # From here on the entropy itself is another number.
        Variant(
            "bits",
            "The entropy is in bits and its bound in nats: take np.log for both.",
            lambda w, a: entropy_fraction(w, a) / np.log(2),
        ),
        Variant(
            "sign",
            "The sign is missing: logarithms of weights are negative.",
            lambda w, a: -entropy_fraction(w, a),
        ),
        Variant(
            "one minus",
            "It is 1 minus the fraction: 0 must mean a single key.",
            lambda w, a: 1 - entropy_fraction(w, a),
        ),
        # From here on it is another measure of the same thing.
        Variant(
            "effective keys",
            "It is the effective number of keys, e^entropy, over the allowed ones: divide the entropy by the "
            "logarithm.",
            lambda w, a: np.exp(_entropy(w)) / a,
        ),
        Variant(
            "one more key",
            "Off by one: the bound is ln allowed, not ln (allowed + 1).",
            lambda w, a: _entropy(w) / np.log(a + 1),
        ),
        Variant(
            "largest weight",
            "It is the largest weight: how spread out a row is, its entropy says.",
            lambda w, a: w.max(-1),
        ),
        Variant(
            "mean of the rows",
            "It is the mean of all rows: each has its own.",
            lambda w, a: entropy_fraction(w, a).mean(),
        ),
        Variant(
            "over the queries",
            "The sum runs over the queries: each row has an entropy of its own.",
            lambda w, a: _entropy(w.T) / _bound(a),
        ),
        Variant(
            "divided by the largest",
            "It is divided by the largest entropy of all rows: each has a bound of its own.",
            lambda w, a: _entropy(w) / _entropy(w).max(),
        ),
        *spoilt(entropy_fraction, ("negative",), axes=1),
    ),
    hints=(
        "The entropy is the exercise of lesson 13: leave out weights of 0.",
        "np.log(np.maximum(allowed, 2)) is never 0, and a row of one key has the entropy 0 anyway.",
    ),
    praise="Rows with many keys and with few compare, and one with a single key is no NaN.",
)
