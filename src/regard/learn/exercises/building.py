"""What stands around attention in a model: additive scores, and layer norm."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import spoilt
from regard.learn.exercises.inputs import numbers


def layer_norm(x, gain, bias):
    """Each token with mean 0 and variance 1, then scaled and shifted.

    x (tokens, dim), gain (dim,), bias (dim,); returns (tokens, dim).
    """
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return gain * (x - mean) / np.sqrt(variance + 1e-5) + bias


def additive_scores(query, key, w_query, w_key, v):
    """The scores of Bahdanau et al. 2015: a small network looks at query and key together.

    query (queries, dim), key (keys, dim), w_query and w_key (dim, hidden), v (hidden,); returns (queries, keys).
    """
    return np.tanh((query @ w_query)[:, None, :] + (key @ w_key)[None, :, :]) @ v


def _normed(x, gain, bias, *, axis=-1, center=True, root=True, ddof=0, inside=1e-5, outside=0.0):
    mean = x.mean(axis, keepdims=True)
    variance = x.var(axis, keepdims=True, ddof=ddof)
    divisor = variance + inside
    if root:
        divisor = np.sqrt(divisor)
    if center:
        x = x - mean
    return gain * x / (divisor + outside) + bias


def _by(**changed):
    return lambda x, gain, bias: _normed(x, gain, bias, **changed)


def _tokens_to_norm(seed, tokens, dim, size=1.0):
    x = numbers(seed, tokens, dim) * size
    return Case({"x": x, "gain": numbers(seed + 1, dim), "bias": numbers(seed + 2, dim)})


# One case has numbers so alike that the 1e-5 shows.
NORM = Exercise(
    name="layer norm",
    lesson=9,
    statement=(
        "Write layer norm: each token's numbers get mean 0 and variance 1, are multiplied by gain, and bias is added. "
        "The variance is the mean of the squared differences, and 1e-5 is added to it before the root, so that "
        "nothing is divided by 0."
    ),
    solution=layer_norm,
    cases=(
        _tokens_to_norm(401, 2, 3),
        _tokens_to_norm(404, 3, 3),
        _tokens_to_norm(407, 5, 4),
        _tokens_to_norm(410, 3, 7),
        _tokens_to_norm(413, 3, 4, size=0.002),
    ),
    variants=(
        Variant(
            "over the tokens",
            "Mean and variance run over the tokens: each token has its own, so axis=-1.",
            _by(axis=0),
        ),
        Variant(
            "over everything",
            "There is one mean and variance for all tokens: each has its own, so axis=-1.",
            _by(axis=None),
        ),
        # From here on the statistics are wrong.
        Variant("no mean", "The mean is not taken away: subtract it before dividing.", _by(center=False)),
        Variant(
            "root mean square",
            "It is divided by the root of the mean square, and no mean is taken away: that is RMS norm, another layer.",
            lambda x, gain, bias: gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) + bias,
        ),
        Variant("no root", "It is divided by the variance: divide by its root.", _by(root=False)),
        Variant(
            "n − 1",
            "The variance is divided by n − 1: here it is the plain mean of squares, ddof=0.",
            _by(ddof=1),
        ),
        Variant(
            "epsilon outside",
            "1e-5 is added to the root: it belongs to the variance, before the root.",
            _by(inside=0.0, outside=1e-5),
        ),
        Variant(
            "no epsilon",
            "1e-5 is not added to the variance, which shows where a token's numbers hardly differ.",
            _by(inside=0.0),
        ),
        # From here on what follows the statistics is wrong.
        Variant(
            "no gain",
            "gain is not used: multiply by it, column by column.",
            lambda x, gain, bias: layer_norm(x, 1.0, bias),
        ),
        Variant(
            "no bias",
            "bias is not used: add it at the very end.",
            lambda x, gain, bias: layer_norm(x, gain, 0.0),
        ),
        Variant(
            "neither",
            "Neither gain nor bias is used: multiply by gain, then add bias.",
            lambda x, gain, bias: layer_norm(x, 1.0, 0.0),
        ),
        Variant(
            "bias first",
            "bias is added before gain is multiplied: gain comes first.",
            lambda x, gain, bias: gain * (layer_norm(x, 1.0, 0.0) + bias),
        ),
        Variant(
            "gain and bias swapped",
            "gain and bias have changed places: gain is multiplied, bias added.",
            lambda x, gain, bias: layer_norm(x, bias, gain),
        ),
        *spoilt(layer_norm),
    ),
    hints=(
        "x.mean(-1, keepdims=True) and x.var(-1, keepdims=True) have one number for each token.",
        "(x - mean) / np.sqrt(variance + 1e-5), then gain and bias.",
    ),
    praise="Each token has its own mean and variance, gain and bias come after, and equal numbers do no harm.",
)


def _hidden(query, key, w_query, w_key):
    return (query @ w_query)[:, None, :] + (key @ w_key)[None, :, :]


def _additive(seed, queries, keys, dim, hidden):
    shapes = {
        "query": (queries, dim),
        "key": (keys, dim),
        "w_query": (dim, hidden),
        "w_key": (dim, hidden),
        "v": (hidden,),
    }
    return Case({name: numbers(seed + number, *shape) for number, (name, shape) in enumerate(shapes.items())})


# No product of query and key: adding them is what gave the scores their name.
ADDITIVE = Exercise(
    name="additive scores",
    lesson=7,
    statement=(
        "Write the scores of Bahdanau et al. 2015: v · tanh(W_query q + W_key k), for every query and every key. It "
        "was the first attention of machine translation; no dot product, and no √d."
    ),
    solution=additive_scores,
    cases=(
        _additive(441, 2, 2, 2, 2),
        _additive(446, 3, 3, 3, 3),
        _additive(451, 2, 3, 5, 4),
        _additive(456, 5, 3, 2, 7),
    ),
    variants=(
        Variant(
            "no tanh",
            "There is no tanh: without it every query puts the keys in the same order.",
            lambda q, k, a, b, v: _hidden(q, k, a, b) @ v,
        ),
        Variant(
            "tanh last",
            "tanh comes last: it belongs before v.",
            lambda q, k, a, b, v: np.tanh(_hidden(q, k, a, b) @ v),
        ),
        Variant(
            "a tanh each",
            "Query and key have a tanh each: add them first, then take one tanh of the sum.",
            lambda q, k, a, b, v: (np.tanh(q @ a)[:, None] + np.tanh(k @ b)[None]) @ v,
        ),
        Variant(
            "product",
            "Query and key are multiplied with each other: add them.",
            lambda q, k, a, b, v: np.tanh((q @ a)[:, None] * (k @ b)[None]) @ v,
        ),
        Variant(
            "difference",
            "The key is subtracted from the query: add them.",
            lambda q, k, a, b, v: np.tanh((q @ a)[:, None] - (k @ b)[None]) @ v,
        ),
        # From here on another function stands in place of the tanh.
        Variant(
            "relu",
            "There is a relu in place of the tanh: take np.tanh.",
            lambda q, k, a, b, v: np.maximum(_hidden(q, k, a, b), 0) @ v,
        ),
        Variant(
            "sigmoid",
            "There is a sigmoid in place of the tanh: take np.tanh.",
            lambda q, k, a, b, v: 1 / (1 + np.exp(-_hidden(q, k, a, b))) @ v,
        ),
        Variant(
            "v not used",
            "v is not used: what tanh gives is summed with v as its weights, tanh(…) @ v.",
            lambda q, k, a, b, v: np.tanh(_hidden(q, k, a, b)).sum(-1),
        ),
        Variant(
            "mean for v",
            "There is a plain mean, and v is not used: sum with v as the weights, tanh(…) @ v.",
            lambda q, k, a, b, v: np.tanh(_hidden(q, k, a, b)).mean(-1),
        ),
        # From here on the wrong arrays meet.
        Variant(
            "matrices swapped",
            "w_query and w_key have changed places: query goes through w_query.",
            lambda q, k, a, b, v: additive_scores(q, k, b, a, v),
        ),
        Variant(
            "w_query for both",
            "The key goes through w_query: it has a matrix of its own, w_key.",
            lambda q, k, a, b, v: additive_scores(q, k, a, a, v),
        ),
        Variant(
            "transposed",
            "Rows and columns have changed places: a row belongs to a query.",
            lambda q, k, a, b, v: additive_scores(q, k, a, b, v).T,
        ),
        Variant(
            "pairs",
            "Query 0 meets key 0 alone, query 1 key 1, and so on: every query meets every key.",
            lambda q, k, a, b, v: np.tanh(q @ a + k @ b) @ v,
        ),
        Variant(
            "scaled",
            "The scores are divided by √hidden: additive scores have no scale.",
            lambda q, k, a, b, v: additive_scores(q, k, a, b, v) / np.sqrt(len(v)),
        ),
        Variant(
            "scaled by √dim",
            "The scores are divided by √dim: additive scores have no scale.",
            lambda q, k, a, b, v: additive_scores(q, k, a, b, v) / np.sqrt(q.shape[1]),
        ),
        Variant(
            "dot product",
            "It is the dot product of the projections: here they are added, and go through tanh and v.",
            lambda q, k, a, b, v: (q @ a) @ (k @ b).T,
        ),
        *spoilt(additive_scores, ("result transposed",)),
    ),
    hints=(
        "The sum of every query with every key needs three axes: (queries, 1, hidden) + (1, keys, hidden).",
        "x[:, None, :] puts in an axis of one; then tanh, then @ v.",
    ),
    praise="Every query meets every key, and tanh stands between the sum and v.",
)
