"""Causal linear attention, which is a recurrent network."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Exercise, Variant
from regard.learn.exercises.general import composed, crossed, spoilt
from regard.learn.exercises.inputs import attended
from regard.learn.exercises.mistakes import softmax


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


def _before(sums):
    # What had been summed before the token itself came in.
    return np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])


def _cumulated(products):
    return np.cumsum(products, 0)


def _run(
    query, key, value, *, of_query=_elu, of_key=_elu, states=_cumulated, sums=_cumulated, divide=np.divide
):
    q, k = of_query(query), of_key(key)
    state, normalizer = states(k[:, :, None] * value[:, None]), sums(k)
    with np.errstate(all="ignore"):
        return divide((q[:, :, None] * state).sum(1), (q * normalizer).sum(1)[:, None])


def _both(function):
    return {"states": function, "sums": function}


def _decayed(products):
    out = np.array(products)
    for token in range(1, len(out)):
        out[token] += 0.9 * out[token - 1]
    return out


PHI = "φ(x) is elu(x) + 1, so x + 1 above 0 and exp(x) below."
FEATURES = (
    (
        "no features",
        f"There is no φ, and a sum of weights may be 0: {PHI}",
        {"of_query": lambda x: x, "of_key": lambda x: x},
    ),
    (
        "elu without 1",
        "φ is elu: add 1, so that it is never negative.",
        {"of_query": lambda x: _elu(x) - 1, "of_key": lambda x: _elu(x) - 1},
    ),
    ("query without features", "Only the key goes through φ: the query must too.", {"of_query": lambda x: x}),
    ("key without features", "Only the query goes through φ: the key must too.", {"of_key": lambda x: x}),
    (
        "exp for features",
        f"φ is exp: {PHI}",
        {"of_query": np.exp, "of_key": np.exp},
    ),
    (
        "relu for features",
        f"φ is a relu, which may be 0: {PHI}",
        {"of_query": lambda x: np.maximum(x, 0), "of_key": lambda x: np.maximum(x, 0)},
    ),
    (
        "1 added on both sides",
        f"1 is added to exp(x) as well: {PHI}",
        {"of_query": lambda x: _elu(x) + (x <= 0), "of_key": lambda x: _elu(x) + (x <= 0)},
    ),
    (
        "scaled",
        "Queries and keys are divided by √d: here there is no scale.",
        {
            "of_query": lambda x: _elu(x / np.sqrt(x.shape[1])),
            "of_key": lambda x: _elu(x / np.sqrt(x.shape[1])),
        },
    ),
    (
        "query scaled",
        "The query is divided by √d: here there is no scale.",
        {"of_query": lambda x: _elu(x / np.sqrt(x.shape[1]))},
    ),
)
SUMS = (
    (
        "all tokens",
        "Every token sees all tokens, those after it too: let the sums grow token by token, np.cumsum.",
        _both(lambda x: x.sum(0) + 0 * x),
    ),
    (
        "not itself",
        "A token is answered before it was taken in, so it does not see itself: first add to the sums, then answer.",
        _both(lambda x: _before(_cumulated(x))),
    ),
    (
        "normalizer of all tokens",
        "The divisor has the keys of all tokens, those after it too: its sum runs along with the state.",
        {"sums": lambda x: x.sum(0) + 0 * x},
    ),
    (
        "state of all tokens",
        "The state has all tokens in it, those after it too: it runs along with the divisor.",
        {"states": lambda x: x.sum(0) + 0 * x},
    ),
    (
        "normalizer one late",
        "The divisor is used before the token was added to it: state and divisor are both brought up to date first.",
        {"sums": lambda x: _before(_cumulated(x))},
    ),
    (
        "state one late",
        "The state is used before the token was added to it: state and divisor are both brought up to date first.",
        {"states": lambda x: _before(_cumulated(x))},
    ),
    (
        "state overwritten",
        "The state is overwritten by each token, and the divisor is not: both are sums that grow, with +=.",
        {"states": lambda x: x},
    ),
    (
        "normalizer overwritten",
        "The divisor is overwritten by each token, and the state is not: both are sums that grow, with +=.",
        {"sums": lambda x: x},
    ),
    (
        "both overwritten",
        "State and divisor are overwritten by each token, so it sees itself alone: both are sums that grow, with +=.",
        _both(lambda x: x),
    ),
    (
        "from the end",
        "The sums begin at the last token, so a token sees what comes after it: begin at the first.",
        _both(lambda x: np.cumsum(x[::-1], 0)[::-1]),
    ),
    (
        "fading",
        "What was summed before is made smaller at each step: a plain sum was asked for.",
        _both(_decayed),
    ),
)
DIVISIONS = (
    (
        "not divided",
        "The output is not divided by the sum of the weights, φ(q) · Σ φ(k).",
        {"divide": lambda x, total: x},
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
    (
        "divided by its root",
        "It is divided by the root of the sum of the weights: divide by the sum itself, φ(q) · Σ φ(k).",
        {"divide": lambda x, total: x / np.sqrt(total)},
    ),
    (
        "multiplied by the sum",
        "It is multiplied by the sum of the weights: divide by it.",
        {"divide": np.multiply},
    ),
    (
        "one divisor",
        "The last divisor is used for all tokens: each has its own.",
        {"divide": lambda x, total: x / total[-1]},
    ),
)


def _causal(scores):
    return np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)


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
        *composed(_run, DIVISIONS[:1], SUMS[:2], FEATURES[:4]),
        *composed(_run, DIVISIONS[1:]),
        *composed(_run, SUMS[2:]),
        *composed(_run, FEATURES[4:]),
        Variant(
            "softmax",
            "It is causal attention with a softmax: here a weight is φ(q) · φ(k).",
            lambda q, k, v: softmax(_causal(q @ k.T / np.sqrt(q.shape[1]))) @ v,
        ),
        Variant(
            "softmax without scale",
            "It is a causal softmax of q · k: here a weight is φ(q) · φ(k).",
            lambda q, k, v: softmax(_causal(q @ k.T)) @ v,
        ),
        Variant(
            "softmax of the features",
            "There is a softmax of φ(q) · φ(k): divide by the sum alone.",
            lambda q, k, v: softmax(_causal(_elu(q) @ _elu(k).T)) @ v,
        ),
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
