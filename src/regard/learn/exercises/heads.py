"""One head with its projections, and cross-attention."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import spoilt
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import COMMON, OTHERS, PAIRED, pairs, softmax, softmaxes


def one_head(x, w_query, w_key, w_value):
    """Self-attention of one head.

    x (tokens, dim), w_query and w_key (dim, head_dim), w_value (dim, value_dim); returns (tokens, value_dim).
    """
    query, key, value = x @ w_query, x @ w_key, x @ w_value
    scores = query @ key.T / np.sqrt(query.shape[-1])
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return weights @ value


def cross_attention(x, memory, w_query, w_key, w_value):
    """Attention from one text to another.

    x (queries, dim), memory (keys, dim), w_query and w_key (dim, head_dim), w_value (dim, value_dim); returns
    (queries, value_dim).
    """
    query, key, value = x @ w_query, memory @ w_key, memory @ w_value
    scores = query @ key.T / np.sqrt(query.shape[-1])
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return weights @ value


def _projected(seed, tokens, dim, head_dim, value_dim, memory=0, size=1.0):
    arrays = {"x": size * numbers(seed, tokens, dim)}
    if memory:
        arrays["memory"] = size * numbers(seed + 1, memory, dim)
    arrays |= {
        "w_query": numbers(seed + 2, dim, head_dim),
        "w_key": numbers(seed + 3, dim, head_dim),
        "w_value": numbers(seed + 4, dim, value_dim),
    }
    return Case(arrays, large=size > 10)


# Attention, to put projections around it.
def _attend(query, key, value, divisor=None, weigh=softmax):
    return weigh(query @ key.T / (divisor or np.sqrt(query.shape[-1]))) @ value


def _head(x, q, k, v, *, weigh=softmax, divisor=lambda dim, head_dim, tokens: np.sqrt(head_dim)):
    return _attend(x @ q, x @ k, x @ v, divisor(x.shape[1], q.shape[1], len(x)), weigh)


# The width of the model is near at hand, and is the wrong d.
SCALES = (
    Variant(
        "√ of the model's width",
        "The scores are divided by the square root of the model's width: it must be that of the head, the columns of "
        "query.",
        partial(_head, divisor=lambda dim, head_dim, tokens: np.sqrt(dim)),
    ),
    Variant(
        "no scale",
        "The scores are not divided by √d, where d is the width of the head.",
        partial(_head, divisor=lambda dim, head_dim, tokens: 1.0),
    ),
)
ONE_HEAD = Exercise(
    name="one head",
    lesson=5,
    statement=(
        "Write self-attention of one head. Three matrices make query, key and value of the same tokens x; the rest is "
        "scaled dot-product attention. The width of a head is not that of the model."
    ),
    solution=one_head,
    cases=(
        _projected(101, 2, 2, 2, 2),
        _projected(106, 3, 3, 3, 3),
        _projected(111, 3, 2, 3, 2),
        _projected(116, 5, 4, 2, 3),
        _projected(121, 5, 5, 5, 5),
        _projected(126, 5, 3, 2, 2, size=100.0),
    ),
    variants=(
        *SCALES,
        Variant(
            "divided by d",
            "The scores are divided by d instead of √d, where d is the width of the head.",
            partial(_head, divisor=lambda dim, head_dim, tokens: head_dim),
        ),
        Variant(
            "√tokens",
            "The scores are divided by the square root of the number of tokens: it must be that of the head's width.",
            partial(_head, divisor=lambda dim, head_dim, tokens: np.sqrt(tokens)),
        ),
        # From here on a projection is missing, or the wrong one.
        Variant(
            "query not projected",
            "x itself is taken as the query: it must be x @ w_query.",
            lambda x, q, k, v: _attend(x, x @ k, x @ v),
        ),
        Variant(
            "key not projected",
            "x itself is taken as the key: it must be x @ w_key.",
            lambda x, q, k, v: _attend(x @ q, x, x @ v),
        ),
        Variant(
            "value not projected",
            "x itself is averaged: the value must be x @ w_value.",
            lambda x, q, k, v: _attend(x @ q, x @ k, x),
        ),
        Variant(
            "nothing projected",
            "The three matrices are not used: query, key and value are x @ w_….",
            lambda x, q, k, v: _attend(x, x, x),
        ),
        Variant(
            "query and key swapped",
            "Query and key have changed places: a row of the scores belongs to a query, so they are query @ key.T.",
            lambda x, q, k, v: _head(x, k, q, v),
        ),
        Variant(
            "w_query for both",
            "The key is made with w_query too: it must be x @ w_key.",
            lambda x, q, k, v: _head(x, q, q, v),
        ),
        Variant(
            "w_key for both",
            "The query is made with w_key too: it must be x @ w_query.",
            lambda x, q, k, v: _head(x, k, k, v),
        ),
        Variant(
            "w_key for the value",
            "The value is made with w_key: it must be x @ w_value.",
            lambda x, q, k, v: _head(x, q, k, k),
        ),
        # As torch stores them: nn.Linear computes x @ w.T.
        Variant(
            "matrices transposed",
            "The matrices are transposed: tokens are rows here, so a projection is x @ w, not x @ w.T or w @ x.",
            lambda x, q, k, v: _attend(x @ q.T, x @ k.T, x @ v.T),
        ),
        Variant(
            "returns the weights",
            "It returns the weights: multiply them with the values, weights @ value.",
            lambda x, q, k, v: softmax((x @ q) @ (x @ k).T / np.sqrt(q.shape[1])),
        ),
        *softmaxes(lambda weigh: partial(_head, weigh=weigh), (*COMMON, *OTHERS)),
        *spoilt(one_head),
        Variant(
            "w_query for the value",
            "The value is made with w_query: it must be x @ w_value.",
            lambda x, q, k, v: _head(x, q, k, q),
        ),
        Variant(
            "w_value for the key",
            "The key is made with w_value: it must be x @ w_key.",
            lambda x, q, k, v: _head(x, q, v, v),
        ),
        Variant(
            "key and value matrices swapped",
            "w_key and w_value have changed places: the key is x @ w_key, the value x @ w_value.",
            lambda x, q, k, v: _head(x, q, v, k),
        ),
        Variant(
            "x added",
            "x is added to the output: a residual connection belongs to the layer around, not here.",
            lambda x, q, k, v: x + _head(x, q, k, v),
        ),
        Variant(
            "causal",
            "There is a causal mask, and none was asked for: every token sees every token.",
            partial(
                _head,
                weigh=lambda scores: softmax(np.where(np.tril(np.ones(scores.shape)) > 0, scores, -np.inf)),
            ),
        ),
        *pairs(SCALES, lambda scale, weigh: partial(scale.function, weigh=weigh), PAIRED[:5]),
    ),
    hints=(
        "Make query, key and value first: x @ w_query, x @ w_key, x @ w_value.",
        'What follows is the exercise "attention", with the square root of query.shape[-1].',
    ),
    praise="Right for heads narrower and wider than the model, and for values of another width.",
)

# Queries and keys differ in number, so that whose rows come out is seen.
CROSS = Exercise(
    name="cross attention",
    lesson=6,
    statement=(
        "Write cross-attention: the queries come from x, what a decoder has written so far, and keys and values from "
        "memory, what an encoder has read. It is how a translator looks at the sentence that it translates."
    ),
    solution=cross_attention,
    cases=(
        _projected(131, 2, 2, 2, 2, memory=2),
        _projected(136, 3, 3, 2, 2, memory=3),
        _projected(141, 2, 3, 2, 3, memory=5),
        _projected(146, 7, 2, 3, 2, memory=3),
        _projected(151, 3, 2, 3, 2, memory=5, size=100.0),
    ),
    variants=(
        Variant(
            "x and memory swapped",
            "x and memory have changed places: queries come from x, keys and values from memory.",
            lambda x, m, q, k, v: cross_attention(m, x, q, k, v),
        ),
        # From here on one of the two texts is taken twice.
        Variant(
            "self-attention",
            "Everything comes from x, which is self-attention: keys and values come from memory.",
            lambda x, m, q, k, v: cross_attention(x, x, q, k, v),
        ),
        Variant(
            "memory alone",
            "Everything comes from memory: the queries come from x.",
            lambda x, m, q, k, v: cross_attention(m, m, q, k, v),
        ),
        Variant(
            "values of x",
            "The values come from x: what is averaged is memory @ w_value.",
            lambda x, m, q, k, v: _attend(x @ q, m @ k, x @ v),
        ),
        Variant(
            "keys of x",
            "The keys come from x: they are memory @ w_key.",
            lambda x, m, q, k, v: _attend(x @ q, x @ k, m @ v),
        ),
        Variant(
            "both texts as keys",
            "Keys and values come from x and memory, one after the other: only memory is looked at.",
            lambda x, m, q, k, v: cross_attention(x, np.concatenate([x, m]), q, k, v),
        ),
        Variant(
            "no scale",
            "The scores are not divided by √d, where d is the width of the head.",
            lambda x, m, q, k, v: _attend(x @ q, m @ k, m @ v, 1.0),
        ),
        *softmaxes(lambda weigh: lambda x, m, q, k, v: _attend(x @ q, m @ k, m @ v, weigh=weigh), COMMON),
        *softmaxes(
            lambda weigh: lambda x, m, q, k, v: _attend(x @ q, m @ k, m @ v, weigh=weigh),
            ("no division by the sum", "sum without keepdims", "largest without keepdims", *OTHERS),
        ),
        *spoilt(cross_attention),
        *(
            Variant(name, text, function)
            for name, text, function in (
                (
                    "w_query for both",
                    "The key is made with w_query too: it must be memory @ w_key.",
                    lambda x, m, q, k, v: cross_attention(x, m, q, q, v),
                ),
                (
                    "w_key for both",
                    "The query is made with w_key too: it must be x @ w_query.",
                    lambda x, m, q, k, v: cross_attention(x, m, k, k, v),
                ),
                (
                    "w_key for the value",
                    "The value is made with w_key: it must be memory @ w_value.",
                    lambda x, m, q, k, v: cross_attention(x, m, q, k, k),
                ),
                (
                    "w_query and w_key swapped",
                    "w_query and w_key have changed places: the query is x @ w_query.",
                    lambda x, m, q, k, v: cross_attention(x, m, k, q, v),
                ),
                (
                    "divided by d",
                    "The scores are divided by d instead of √d, or by √d twice.",
                    lambda x, m, q, k, v: _attend(x @ q, m @ k, m @ v, q.shape[1]),
                ),
                (
                    "√ of the model's width",
                    "The scores are divided by the root of the model's width: it must be that of the head.",
                    lambda x, m, q, k, v: _attend(x @ q, m @ k, m @ v, np.sqrt(x.shape[1])),
                ),
            )
        ),
    ),
    hints=("The query is x @ w_query.", "Key and value are both made of memory."),
    praise="Queries come from one text, keys and values from the other, whichever of them is longer.",
)
