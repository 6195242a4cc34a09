"""Attention whose cost grows with the number of tokens: linear attention, of a whole text and token by token."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Exercise, Variant
from regard.learn.exercises.general import composed, crossed, spoilt
from regard.learn.exercises.inputs import attended
from regard.learn.exercises.mistakes import softmax


def linear_attention(query, key, value):
    """Attention without a softmax, whose cost grows with the number of tokens, not with its square.

    query (queries, dim), key (keys, dim), value (keys, value_dim); returns the output (queries, value_dim).
    """
    query = np.where(query > 0, query + 1, np.exp(np.minimum(query, 0)))
    key = np.where(key > 0, key + 1, np.exp(np.minimum(key, 0)))
    return query @ (key.T @ value) / (query @ key.sum(0))[:, None]


def running_attention(query, key, value):
    """Causal linear attention, token by token, with a state whose size does not grow.

    query, key (tokens, dim), value (tokens, value_dim); returns the output (tokens, value_dim).
    """
    query = np.where(query > 0, query + 1, np.exp(np.minimum(query, 0)))
    key = np.where(key > 0, key + 1, np.exp(np.minimum(key, 0)))
    state, normalizer = np.zeros((key.shape[1], value.shape[1])), np.zeros(key.shape[1])
    output = np.zeros(value.shape)
    for token in range(len(query)):
        # First take the token in, then answer: it attends itself.
        state += np.outer(key[token], value[token])
        normalizer += key[token]
        output[token] = query[token] @ state / (query[token] @ normalizer)
    return output


def _elu(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def _total(terms):
    return terms.sum(0, keepdims=True)


def _so_far(terms):
    return np.cumsum(terms, 0)


def _late(terms):
    # What had been summed before the token itself came in.
    return np.cumsum(terms, 0) - terms


def _attend(query, key, value, *, of_query=_elu, of_key=_elu, states=_total, sums=_total, divide=np.divide):
    q, k = of_query(query), of_key(key)
    state, divisor = states(k[:, :, None] * value[:, None]), sums(k)
    with np.errstate(all="ignore"):
        return divide((q[:, :, None] * state).sum(1), (q * divisor).sum(1)[:, None])


_run = partial(_attend, states=_so_far, sums=_so_far)


def _features(phi):
    return {"of_query": phi, "of_key": phi}


def _scaled(x):
    return _elu(x / np.sqrt(x.shape[1]))


PHI = "φ(x) is elu(x) + 1, so x + 1 above 0 and exp(x) below."
# Both exercises have the same features, and the same quotient.
FEATURES = (
    ("no features", f"There is no φ, and weights may be negative: {PHI}", _features(lambda x: x)),
    ("elu without 1", "φ is elu: add 1, so that it is never negative.", _features(lambda x: _elu(x) - 1)),
    (
        "features of the key alone",
        "Only the key goes through φ: the query must too.",
        {"of_query": lambda x: x},
    ),
    (
        "features of the query alone",
        "Only the query goes through φ: the key must too.",
        {"of_key": lambda x: x},
    ),
    ("exp", f"φ is exp: {PHI}", _features(np.exp)),
    ("relu", f"φ is a relu, which may be 0: {PHI}", _features(lambda x: np.maximum(x, 0))),
    ("1 added below 0", f"1 is added to exp(x) as well: {PHI}", _features(lambda x: _elu(x) + (x <= 0))),
    ("softmax for φ", f"φ is a softmax of each row: {PHI}", _features(softmax)),
    ("scaled", "Queries and keys are divided by √d: here there is no scale.", _features(_scaled)),
    ("query scaled", "The query is divided by √d: here there is no scale.", {"of_query": _scaled}),
)
# Without the right divisor rows of weights do not add up to 1.
QUOTIENTS = (
    (
        "not divided",
        "The output is not divided by the sum of the weights, φ(q) · Σ φ(k).",
        {"divide": lambda x, total: x},
    ),
    (
        "root of the sum",
        "It is divided by the root of the sum of the weights: divide by the sum itself, φ(q) · Σ φ(k).",
        {"divide": lambda x, total: x / np.sqrt(total)},
    ),
    (
        "multiplied by the sum",
        "It is multiplied by the sum of the weights: divide by it.",
        {"divide": np.multiply},
    ),
    (
        "one sum for all",
        "There is one sum for all queries: each has its own.",
        {"divide": lambda x, total: x / total.sum()},
    ),
    (
        "last sum for all",
        "The sum of the last query's weights divides all: each query has its own.",
        {"divide": lambda x, total: x / total[-1]},
    ),
)


def _around(mask):
    """Variants that have a softmax, which this attention does without."""
    return tuple(
        Variant(name, text, lambda q, k, v, score=score: softmax(mask(score(q, k))) @ v)
        for name, text, score in (
            (
                "softmax",
                "It is attention with a softmax: here a weight is φ(q) · φ(k).",
                lambda q, k: q @ k.T / np.sqrt(q.shape[1]),
            ),
            (
                "softmax without scale",
                "It is a softmax of q · k: here a weight is φ(q) · φ(k).",
                lambda q, k: q @ k.T,
            ),
            (
                "softmax of the features",
                "There is a softmax of φ(q) · φ(k): divide by the sum alone.",
                lambda q, k: _elu(q) @ _elu(k).T,
            ),
        )
    )


# Scores of features: there is nothing to overflow, and so no large case.
LINEAR = Exercise(
    name="linear attention",
    lesson=12,
    statement=(
        "Write the attention of Katharopoulos et al. 2020: in place of exp(q · k), a weight is φ(q) · φ(k) with φ(x) "
        "= elu(x) + 1, which is x + 1 above 0 and exp(x) below; weights of a row are divided by their sum. There is "
        "no √d. Multiply keys with values first: then no matrix (queries, keys) is needed."
    ),
    solution=linear_attention,
    cases=tuple(
        attended(seed, *sizes)
        for seed, sizes in (
            (531, (2, 2, 2, 2)),
            (534, (3, 3, 3, 3)),
            (537, (2, 3, 5, 4)),
            (540, (7, 5, 3, 2)),
        )
    ),
    variants=(
        *composed(_attend, QUOTIENTS[:1], FEATURES[:4]),
        *composed(_attend, QUOTIENTS[1:]),
        *composed(_attend, FEATURES[4:]),
        Variant(
            "divided by the keys",
            "It is divided by the number of keys: divide by φ(q) · Σ φ(k), for each query its own.",
            lambda q, k, v: _attend(q, k, v, divide=lambda x, total: x / len(k)),
        ),
        Variant(
            "sum over the queries",
            "The weights are divided by their sum over the queries: divide by that over the keys.",
            lambda q, k, v: (_elu(q) @ _elu(k).T / (_elu(q) @ _elu(k).T).sum(0)) @ v,
        ),
        *_around(lambda scores: scores),
        *crossed(linear_attention),
        *spoilt(linear_attention),
    ),
    hints=(
        "φ of the whole array: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))).",
        "key.T @ value is (dim, value_dim), however many tokens there are; query @ that is the output before division.",
        "The sum of a query's weights is query @ key.sum(0), one number for each query.",
    ),
    praise="Every row of weights adds up to 1, and no matrix of queries by keys is needed.",
)


def _both(function):
    return {"states": function, "sums": function}


def _fading(terms):
    sums = np.array(terms)
    for token in range(1, len(sums)):
        sums[token] += 0.9 * sums[token - 1]
    return sums


# What goes wrong with the sums alone, of one of them or of both.
SUMS = (
    (
        "all tokens",
        "Every token sees all tokens, those after it too: let the sums grow token by token.",
        _both(_total),
    ),
    (
        "not itself",
        "A token is answered before it was taken in, so it does not see itself: first add to the sums, then answer.",
        _both(_late),
    ),
    (
        "divisor of all tokens",
        "The divisor has the keys of all tokens, those after it too: it grows along with the state.",
        {"sums": _total},
    ),
    (
        "state of all tokens",
        "The state has all tokens in it, those after it too: it grows along with the divisor.",
        {"states": _total},
    ),
    (
        "divisor late",
        "The divisor is used before the token was added to it: bring both sums up to date first.",
        {"sums": _late},
    ),
    (
        "state late",
        "The state is used before the token was added to it: bring both sums up to date first.",
        {"states": _late},
    ),
    (
        "state overwritten",
        "The state is overwritten by each token, and the divisor is not: both are sums that grow, with +=.",
        {"states": lambda terms: terms},
    ),
    (
        "divisor overwritten",
        "The divisor is overwritten by each token, and the state is not: both are sums that grow, with +=.",
        {"sums": lambda terms: terms},
    ),
    (
        "both overwritten",
        "State and divisor are overwritten by each token, so it sees itself alone: both are sums that grow, with +=.",
        _both(lambda terms: terms),
    ),
    (
        "from the end",
        "The sums begin at the last token, so a token sees what comes after it: begin at the first.",
        _both(lambda terms: np.cumsum(terms[::-1], 0)[::-1]),
    ),
    (
        "fading",
        "What was summed before is made smaller at each step: a plain sum was asked for.",
        _both(_fading),
    ),
    (
        "state transposed",
        "Rows and columns of the state have changed places: it is (dim, value_dim), np.outer(φ(k), v).",
        {"states": lambda terms: _so_far(terms).transpose(0, 2, 1)},
    ),
    (
        "not itself, 0 at first",
        "A token is answered before it was taken in, so it does not see itself, and the first token gets 0: first add "
        "to the sums, then answer.",
        _both(_late) | {"divide": lambda x, total: x / np.where(total > 0, total, 1)},
    ),
    (
        "divided by the number",
        "It is divided by the number of tokens so far: divide by φ(q) · Σ φ(k).",
        {"divide": lambda x, total: x / np.arange(1, len(x) + 1)[:, None]},
    ),
    (
        "divided by all tokens",
        "It is divided by the number of all tokens: divide by φ(q) · Σ φ(k).",
        {"divide": lambda x, total: x / len(x)},
    ),
)
# Texts of one token and of many: with one there is no past.
RUNNING = Exercise(
    name="running sums",
    lesson=12,
    statement=(
        "Write linear attention for a language model, where a token sees itself and those before it. A weight is φ(q) "
        "· φ(k), with φ(x) = elu(x) + 1, and no √d. Go from token to token with two sums: a state, to which φ(k) vᵀ "
        "of each token is added, and a divisor, to which its φ(k) is added. The output is φ(q) · state, divided by "
        "φ(q) · divisor."
    ),
    solution=running_attention,
    cases=tuple(
        attended(seed, *sizes)
        for seed, sizes in (
            (921, (3, 3, 2, 2)),
            (924, (1, 1, 3, 2)),
            (927, (5, 5, 3, 4)),
            (930, (7, 7, 7, 7)),
        )
    ),
    variants=(
        *composed(_run, QUOTIENTS[:1], SUMS[:2], FEATURES[:4]),
        *composed(_run, QUOTIENTS[1:]),
        *composed(_run, SUMS[2:]),
        *composed(_run, FEATURES[4:]),
        Variant(
            "divided by the keys alone",
            "It is divided by all numbers of the divisor added up: divide by φ(q) · divisor, for "
            "which the query is needed.",
            lambda q, k, v: _run(q, k, v, divide=lambda x, total: x) / _so_far(_elu(k)).sum(1)[:, None],
        ),
        Variant(
            "divided by √d",
            "It is divided by √d and not by the sum of the weights, φ(q) · divisor: here there is no scale.",
            lambda q, k, v: _run(q, k, v, divide=lambda x, total: x / np.sqrt(k.shape[1])),
        ),
        *_around(lambda scores: np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)),
        *crossed(running_attention),
        *spoilt(running_attention),
    ),
    hints=(
        "np.outer(key[t], value[t]) is what token t adds to the state, after φ.",
        "Add token t to both sums first, then answer its query: a token sees itself.",
        "Without a loop: np.cumsum of key[:, :, None] * value[:, None] has the state after each token.",
    ),
    praise="Each token sees itself and its past, in a state that is as large after a million tokens as after one.",
)
