"""Pieces of the engine and of reading heads: the log-sum-exp of a row, one step with a cache, the previous-token score."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import rounded, spoilt
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import COMMON, softmax, softmaxes


def log_sum_exp(scores):
    """ln Σ exp(score) of each row.

    scores (queries, keys), which may be in the thousands and, where a key is masked, −inf; returns (queries,). A row of −inf alone has
    −inf.
    """
    # The largest is taken off, so that no exponential overflows, and added again.
    high = scores.max(-1)
    safe = np.where(np.isfinite(high), high, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.exp(scores - safe[:, None]).sum(-1))


def step(query, key, value, keys, values):
    """The output for a new token, whose past is in a cache.

    query, key (dim,), value (value_dim,): of the new token. keys (past, dim), values (past, value_dim): those before it.
    Returns (value_dim,): attention of the new token to the past and to itself.
    """
    # The token is in its own past: it attends itself.
    keys, values = np.vstack([keys, key]), np.vstack([values, value])
    scores = keys @ query / np.sqrt(len(query))
    terms = np.exp(scores - scores.max())
    return terms / terms.sum() @ values


def previous_mass(weights):
    """How much of its weight a head gives to the token just before.

    weights (tokens, tokens), queries down; returns one number, the mean over all queries but the first, which has no token
    before it.
    """
    return weights[np.arange(1, len(weights)), np.arange(len(weights) - 1)].mean()


def _scores(seed, queries, keys, size=1.0, masked=()):
    scores = size * numbers(seed, queries, keys)
    for row, column in masked:
        scores[row, column] = -np.inf
    return Case({"scores": scores})


def _quiet(function):
    def run(scores):
        with np.errstate(all="ignore"):
            return function(scores)

    return run


# A row that overflows, and one in which nothing is left.
LSE = Exercise(
    name="log sum exp",
    lesson=17,
    statement=(
        "Write ln Σ exp(score) of each row, by which pieces of attention are merged. Scores may be in the thousands, "
        "and −inf where a key is masked; a row of −inf alone gives −inf, and no NaN."
    ),
    solution=log_sum_exp,
    cases=(
        _scores(661, 2, 2),
        _scores(662, 3, 3),
        _scores(663, 3, 5, masked=((0, 1), (2, 4))),
        _scores(664, 2, 3, size=1000.0),
        _scores(665, 3, 2, masked=((1, 0), (1, 1))),
    ),
    variants=(
        Variant(
            "unstable",
            "np.exp overflows on large scores: subtract each row's largest first, and add it to the logarithm again.",
            _quiet(lambda s: np.log(np.exp(s).sum(-1))),
        ),
        Variant(
            "NaN for an empty row",
            "A row of −inf alone gives NaN, as −inf − (−inf) is none: subtract 0 there.",
            _quiet(lambda s: s.max(-1) + np.log(np.exp(s - s.max(-1, keepdims=True)).sum(-1))),
        ),
        Variant(
            "largest not added",
            "The largest score is subtracted and not added again: the result is ln Σ exp(s − m) + m.",
            lambda s: log_sum_exp(s) - np.where(np.isfinite(s.max(-1)), s.max(-1), 0.0),
        ),
        Variant(
            "largest score",
            ("It is the largest score m alone, which is only near: add ln Σ exp(s − m)."),
            lambda s: s.max(-1),
        ),
        # From here on another row of steps.
        Variant(
            "no logarithm",
            "It is the sum of the exponentials: take its logarithm.",
            _quiet(lambda s: np.exp(s).sum(-1)),
        ),
        Variant(
            "sum of the scores",
            "The logarithm is taken of each term, which undoes exp: sum first, then take the logarithm.",
            lambda s: s.sum(-1),
        ),
        Variant(
            "mean",
            "It is the logarithm of the mean: take that of the sum.",
            _quiet(lambda s: log_sum_exp(s) - np.log(s.shape[-1])),
        ),
        Variant(
            "bits",
            "It is in bits: take np.log, the natural logarithm.",
            _quiet(lambda s: log_sum_exp(s) / np.log(2)),
        ),
        Variant(
            "over the queries",
            "The sum runs over the queries: each row has a number of its own, so axis=-1.",
            lambda s: log_sum_exp(s.T),
        ),
        Variant(
            "one number",
            "It is one number for all rows: each has its own, so axis=-1.",
            lambda s: log_sum_exp(s.reshape(1, -1))[0],
        ),
        # From here on the sum is nearly right.
        Variant(
            "log1p",
            "It is ln (1 + Σ): np.log1p adds 1.",
            lambda s: np.logaddexp(0, log_sum_exp(s)),
        ),
        *spoilt(log_sum_exp, axes=1),
    ),
    hints=(
        "With m the largest of a row, ln Σ exp(s) = m + ln Σ exp(s − m).",
        "Where m is −inf, subtract 0: np.where(np.isfinite(m), m, 0.0).",
    ),
    praise="Right for scores at which exp overflows, for masked keys, and for a row with nothing left.",
)


def _cached(seed, past, dim, value_dim, size=1.0):
    arrays = {
        "query": size * numbers(seed, dim),
        "key": size * numbers(seed + 1, dim),
        "value": numbers(seed + 2, value_dim),
        "keys": size * numbers(seed + 3, past, dim),
        "values": numbers(seed + 4, past, value_dim),
    }
    return Case(arrays, large=size > 10)


def _look(query, keys, values, *, weigh=softmax, divisor=None):
    # As a matrix of one row, so that the shared mistakes fit.
    scores = query[None] @ keys.T / (divisor or np.sqrt(len(query)))
    return (weigh(scores) @ values)[0]


def _joined(key, value, keys, values):
    return np.vstack([keys, key]), np.vstack([values, value])


STEP = Exercise(
    name="cache",
    lesson=16,
    statement=(
        "Write one step of decoding: keys and values of the past are in a cache, and a new token comes with its "
        "query, key and value. It attends the past and itself. Only one row of weights is computed."
    ),
    solution=step,
    cases=(
        _cached(671, 2, 2, 2),
        _cached(676, 3, 2, 3),
        _cached(681, 1, 3, 2),
        _cached(686, 5, 4, 3),
        _cached(691, 5, 3, 2, size=100.0),
    ),
    variants=(
        Variant(
            "without itself",
            "The new token attends the past alone: its own key and value belong to the cache first.",
            lambda q, k, v, keys, values: _look(q, keys, values),
        ),
        Variant(
            "itself alone",
            "The new token attends itself alone: the cache is not used.",
            lambda q, k, v, keys, values: v + 0.0,
        ),
        Variant(
            "new key forgotten",
            "The new value is in the cache and the new key is not: the last key stands for it here.",
            lambda q, k, v, keys, values: _look(q, *_joined(keys[-1], v, keys, values)),
        ),
        # From here on the numbers of two tokens are mixed.
        Variant(
            "value at the wrong end",
            "The new key stands at the end and the new value at the beginning: each key must meet its own value.",
            lambda q, k, v, keys, values: _look(q, np.vstack([keys, k]), np.vstack([v, values])),
        ),
        Variant(
            "last one overwritten",
            "The new token overwrites the last one of the cache: it must be added.",
            lambda q, k, v, keys, values: _look(q, *_joined(k, v, keys[:-1], values[:-1])),
        ),
        Variant(
            "first one dropped",
            "The first token of the cache is dropped: it must stay.",
            lambda q, k, v, keys, values: _look(q, *_joined(k, v, keys[1:], values[1:])),
        ),
        # From here on the cache is right.
        Variant(
            "key for query",
            "The scores are made with the new key: they are keys @ query.",
            lambda q, k, v, keys, values: _look(k, *_joined(k, v, keys, values)),
        ),
        Variant(
            "query for key",
            "The query goes into the cache instead of the key.",
            lambda q, k, v, keys, values: _look(q, *_joined(q, v, keys, values)),
        ),
        Variant(
            "no scale",
            "The scores are not divided by √d.",
            lambda q, k, v, keys, values: _look(q, *_joined(k, v, keys, values), divisor=1.0),
        ),
        Variant(
            "divided by d",
            "The scores are divided by d instead of √d, or by √d twice.",
            lambda q, k, v, keys, values: _look(q, *_joined(k, v, keys, values), divisor=len(q)),
        ),
        Variant(
            "√keys",
            "The scores are divided by the square root of the number of keys: they must be divided by √d.",
            lambda q, k, v, keys, values: _look(
                q, *_joined(k, v, keys, values), divisor=np.sqrt(len(keys) + 1)
            ),
        ),
        # Two softmaxes do not make one.
        Variant(
            "mean with the past",
            "The output over the past and the new value are averaged: one softmax must run over all of them.",
            lambda q, k, v, keys, values: (_look(q, keys, values) + v) / 2,
        ),
        *softmaxes(
            lambda weigh: lambda q, k, v, keys, values: _look(q, *_joined(k, v, keys, values), weigh=weigh),
            (COMMON[0], "no softmax", "no division by the sum"),
        ),
        *spoilt(step, axes=1),
    ),
    hints=(
        "np.vstack([keys, key]) is the cache with the new token.",
        "keys @ query has all scores of the new token: one row, so no axis is needed.",
    ),
    praise="One row of weights, over the past and the token itself, as in a pass over the whole text.",
)


def _weights(seed, tokens, causal):
    parts = np.random.default_rng(seed).integers(1, 9, (tokens, tokens)).astype(float)
    # Half of the cases have nothing above the diagonal, where the wrong diagonal is 0.
    if causal:
        parts = np.tril(parts)
    return Case({"weights": parts / parts.sum(-1, keepdims=True)})


# Causal or not: what lies after the query must not be counted.
PREVIOUS = Exercise(
    name="previous token",
    lesson=13,
    statement=(
        "Is it a previous-token head? Write the mean weight that a query gives to the token just before it, over all "
        "queries but the first, which has none before it. weights has queries down and keys across."
    ),
    solution=previous_mass,
    cases=(_weights(701, 3, False), _weights(702, 4, True), _weights(703, 5, False), _weights(704, 7, True)),
    variants=(
        Variant(
            "the next token",
            "It is the diagonal above: that is the weight on the token just after.",
            lambda w: np.diagonal(w, 1).mean(),
        ),
        Variant(
            "the token itself",
            "It is the main diagonal: that is the weight on the token itself.",
            lambda w: np.diagonal(w).mean(),
        ),
        Variant(
            "itself, without the first",
            "It is the main diagonal without its first number: that is the weight on the token itself.",
            lambda w: np.diagonal(w)[1:].mean(),
        ),
        Variant(
            "two before",
            "Off by one: it is the weight on the token two before.",
            lambda w: np.diagonal(w, -2).mean(),
        ),
        # From here on the right diagonal is taken.
        Variant(
            "divided by all",
            "The sum is divided by the number of all tokens: the first query has none before it, and is left out.",
            lambda w: np.diagonal(w, -1).sum() / len(w),
        ),
        Variant(
            "sum", "It is the sum of these weights: take their mean.", lambda w: np.diagonal(w, -1).sum()
        ),
        Variant(
            "not averaged",
            "One number for each query comes back: take their mean.",
            lambda w: np.diagonal(w, -1) + 0.0,
        ),
        Variant(
            "largest",
            "It is the largest of these weights: take their mean.",
            lambda w: np.diagonal(w, -1).max(),
        ),
        Variant(
            "median",
            "It is the median of these weights: take their mean.",
            lambda w: np.median(np.diagonal(w, -1)),
        ),
        Variant(
            "all before",
            "It is the weight on all tokens before: only the one just before counts.",
            lambda w: np.tril(w, -1).sum(-1)[1:].mean(),
        ),
        Variant(
            "how often the largest",
            "It is how often the token just before has the largest weight: the mean of the weights is asked for.",
            lambda w: (w[1:].argmax(-1) == np.arange(len(w) - 1)).mean(),
        ),
        Variant(
            "the first token",
            "It is the weight on the first token: that would be a sink.",
            lambda w: w[1:, 0].mean(),
        ),
        *spoilt(previous_mass, axes=0)[:3],
        *rounded(previous_mass),
    ),
    hints=(
        "Row q has its weight on the token just before in column q − 1.",
        "np.diagonal(weights, -1) has them all.",
    ),
    praise="The first query is left out, and the token after counts for nothing.",
)
