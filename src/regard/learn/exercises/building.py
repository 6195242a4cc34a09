"""What stands around attention in a model: additive scores, layer norm, the loss of a language model, warm-up, clipping."""

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


def next_token_loss(logits, tokens):
    """The mean cross-entropy of each token, given those before it.

    logits (tokens, vocabulary), tokens (tokens,) of whole numbers; the logits at a position predict the token after it.
    Returns one number, in nats.
    """
    logits, targets = logits[:-1], tokens[1:]
    high = logits.max(-1, keepdims=True)
    log_sums = high[:, 0] + np.log(np.exp(logits - high).sum(-1))
    return (log_sums - logits[np.arange(len(targets)), targets]).mean()


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
        Variant("no mean", "The mean is not taken away: that is half of it.", _by(center=False)),
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
            "gain is not used: it is multiplied, number by number.",
            lambda x, gain, bias: layer_norm(x, 1.0, bias),
        ),
        Variant(
            "no bias", "bias is not used: it is added last.", lambda x, gain, bias: layer_norm(x, gain, 0.0)
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


def _loss(logits, tokens, *, before=slice(None, -1), after=slice(1, None)):
    logits, targets = logits[before], tokens[after]
    return -np.log(_chances(logits)[np.arange(len(targets)), targets])


def _chances(logits, axis=-1):
    terms = np.exp(logits - logits.max(axis, keepdims=True))
    return terms / terms.sum(axis, keepdims=True)


def _unstable(logits, tokens):
    with np.errstate(all="ignore"):
        terms = np.exp(logits[:-1])
        chances = terms / terms.sum(-1, keepdims=True)
        return -np.log(chances[np.arange(len(tokens) - 1), tokens[1:]]).mean()


def _chosen(values, tokens):
    return values[:-1][np.arange(len(tokens) - 1), tokens[1:]]


def _text(seed, tokens, vocabulary, size=1.0):
    ids = np.random.default_rng(seed + 1).integers(0, vocabulary, tokens)
    return Case({"logits": size * numbers(seed, tokens, vocabulary), "tokens": ids}, large=size > 10)


# Logits of ±1000 give chances that round to 0, of which no logarithm can be taken.
LOSS = Exercise(
    name="next token loss",
    lesson=10,
    statement=(
        "Write the loss of a GPT: the logits at position p predict the token at p + 1. The loss is the mean of −ln of "
        "the chance that the softmax of the logits gives to the right token. The last logits predict nothing that is "
        "there."
    ),
    solution=next_token_loss,
    cases=(
        _text(421, 3, 3),
        _text(423, 5, 5),
        _text(425, 5, 3),
        _text(427, 7, 11),
        _text(429, 5, 3, size=1000.0),
    ),
    variants=(
        Variant(
            "not shifted",
            "Nothing is shifted: the logits at p are compared with the token at p, and predict the one after it.",
            lambda logits, tokens: _loss(logits, tokens, before=slice(None), after=slice(None)).mean(),
        ),
        Variant(
            "shifted the wrong way",
            "It is shifted the wrong way: logits[:-1] belong to tokens[1:].",
            lambda logits, tokens: _loss(logits, tokens, before=slice(1, None), after=slice(None, -1)).mean(),
        ),
        Variant(
            "shifted by two",
            "It is shifted by two: the logits at p predict the token at p + 1.",
            lambda logits, tokens: _loss(logits, tokens, before=slice(None, -2), after=slice(2, None)).mean(),
        ),
        Variant(
            "sum",
            # From here on the shift is right.
            "The losses are added up: take their mean.",
            lambda logits, tokens: _loss(logits, tokens).sum(),
        ),
        Variant(
            "mean over all tokens",
            "The sum is divided by the number of all tokens: the first one is predicted by nothing, so it is "
            "one less.",
            lambda logits, tokens: _loss(logits, tokens).sum() / len(tokens),
        ),
        Variant("not averaged", "There is one loss for each token: take their mean.", _loss),
        Variant(
            "bits",
            "It is in bits: take np.log, the natural logarithm.",
            lambda logits, tokens: _loss(logits, tokens).mean() / np.log(2),
        ),
        Variant(
            "sign",
            "The sign is missing: logarithms of chances are negative, a loss is not.",
            lambda logits, tokens: -_loss(logits, tokens).mean(),
        ),
        Variant(
            "no logarithm",
            "It is the mean of the chances: take −ln of each first.",
            lambda logits, tokens: _chosen(_chances(logits), tokens).mean(),
        ),
        Variant(
            "one minus the chance",
            "It is the mean of 1 minus the chances: take −ln of each chance.",
            lambda logits, tokens: (1 - _chosen(_chances(logits), tokens)).mean(),
        ),
        Variant(
            "logarithm of the mean",
            "It is −ln of the mean chance: take the mean of the logarithms.",
            lambda logits, tokens: -np.log(_chosen(_chances(logits), tokens).mean()),
        ),
        Variant(
            "no softmax",
            "The logits themselves are taken for logarithms of chances: subtract ln Σ exp first.",
            lambda logits, tokens: -_chosen(logits, tokens).mean(),
        ),
        # From here on the chances are wrong.
        Variant(
            "softmax over the positions",
            "The softmax runs over the positions: it must run over the vocabulary, axis=-1.",
            lambda logits, tokens: -np.log(_chosen(_chances(logits, 0), tokens)).mean(),
        ),
        Variant(
            "perplexity",
            "It is the perplexity, the exponential of the loss: the loss itself is asked for.",
            lambda logits, tokens: np.exp(next_token_loss(logits, tokens)),
        ),
        Variant(
            "unstable",
            "np.exp overflows on large logits: subtract each row's largest first, and work with ln Σ exp.",
            _unstable,
        ),
        *spoilt(next_token_loss, axes=0),
    ),
    hints=(
        "logits[:-1] and tokens[1:] belong together.",
        "ln of a chance is logit − ln Σ exp(logits): no chance is needed, which might round to 0.",
        "logits[np.arange(len(targets)), targets] takes from each row the logit of the right token.",
    ),
    praise="Each position predicts the one after it, and a chance too small for a float does no harm.",
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
            "There is no tanh: without it queries change nothing in the order of the keys.",
            lambda q, k, a, b, v: _hidden(q, k, a, b) @ v,
        ),
        Variant(
            "tanh last",
            "tanh comes last: it belongs before v.",
            lambda q, k, a, b, v: np.tanh(_hidden(q, k, a, b) @ v),
        ),
        Variant(
            "a tanh each",
            "Query and key have a tanh each: they are added first, and then comes one tanh.",
            lambda q, k, a, b, v: (np.tanh(q @ a)[:, None] + np.tanh(k @ b)[None]) @ v,
        ),
        Variant(
            "product",
            "Query and key are multiplied: they are added.",
            lambda q, k, a, b, v: np.tanh((q @ a)[:, None] * (k @ b)[None]) @ v,
        ),
        Variant(
            "difference",
            "The key is subtracted: it is added.",
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
            "v is not used: what tanh gives is summed with the weights v.",
            lambda q, k, a, b, v: np.tanh(_hidden(q, k, a, b)).sum(-1),
        ),
        Variant(
            "mean for v",
            "v is not used, and there is a mean: take the sum with the weights v.",
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
            "Only queries and keys of the same number are compared: every query meets every key.",
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
