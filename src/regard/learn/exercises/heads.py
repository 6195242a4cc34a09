"""One head with its projections, many heads, cross-attention."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import COMMON, PAIRED, pairs, softmax, softmaxes


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


def split_heads(x, heads):
    """Columns dealt out to heads: head 0 has the first columns, in their order, and the last head the last.

    x (tokens, heads · head_dim); returns (heads, tokens, head_dim).
    """
    tokens, dim = x.shape
    return x.reshape(tokens, heads, dim // heads).transpose(1, 0, 2)


def merge_heads(x):
    """The heads' outputs side by side: head 0 gives the first columns.

    x (heads, tokens, head_dim); returns (tokens, heads · head_dim).
    """
    heads, tokens, head_dim = x.shape
    return x.transpose(1, 0, 2).reshape(tokens, heads * head_dim)


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
        "The scores are divided by the square root of the model's width: it must be that of the head, the columns of query.",
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
        "Write self-attention of one head. Three matrices make query, key and value of the same tokens x; the rest is scaled "
        "dot-product attention. The width of a head is not that of the model."
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
        *softmaxes(lambda weigh: partial(_head, weigh=weigh), COMMON),
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
        "Write cross-attention: the queries come from x, what a decoder has written so far, and keys and values from memory, "
        "what an encoder has read. It is how a translator looks at the sentence that it translates."
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
    ),
    hints=("The query is x @ w_query.", "Key and value are both made of memory."),
    praise="Queries come from one text, keys and values from the other, whichever of them is longer.",
)


def _dealt(tokens, heads, head_dim, seed):
    return Case({"x": numbers(seed, tokens, heads * head_dim), "heads": heads})


# The mistake of this exercise runs without an error, and trains, badly.
SPLIT = Exercise(
    name="split heads",
    lesson=5,
    statement=(
        "Deal the columns of x out to the heads: of (tokens, heads · head_dim) make (heads, tokens, head_dim). Each head has "
        "neighboring columns, and all tokens."
    ),
    solution=split_heads,
    cases=(
        _dealt(2, 2, 2, 161),
        _dealt(3, 2, 3, 162),
        _dealt(3, 3, 3, 163),
        _dealt(5, 3, 2, 164),
        _dealt(7, 5, 1, 165),
    ),
    variants=(
        Variant(
            "reshape without transposing",
            "A plain reshape to (heads, tokens, head_dim) deals out tokens, not columns: reshape to (tokens, heads, head_dim), "
            "then transpose.",
            lambda x, heads: x.reshape(heads, len(x), -1),
        ),
        Variant(
            "not transposed",
            "The heads stand in the middle: after the reshape to (tokens, heads, head_dim), bring them to the front with "
            "transpose(1, 0, 2).",
            lambda x, heads: x.reshape(len(x), heads, -1),
        ),
        # The right reshape with its last two axes exchanged.
        Variant(
            "every so many columns",
            "A head gets every so many columns instead of neighboring ones: reshape to (tokens, heads, head_dim), in this order.",
            lambda x, heads: x.reshape(len(x), -1, heads).transpose(2, 0, 1),
        ),
        Variant(
            "tokens last",
            "Tokens and columns of a head have changed places: it must be (heads, tokens, head_dim).",
            lambda x, heads: x.reshape(len(x), heads, -1).transpose(1, 2, 0),
        ),
        Variant(
            "all reversed",
            "The transpose reverses all axes: with .T the shape becomes (head_dim, heads, tokens); take transpose(1, 0, 2).",
            lambda x, heads: x.reshape(len(x), heads, -1).T,
        ),
        Variant(
            "heads reversed",
            "The heads come in the wrong order: head 0 has the first columns.",
            lambda x, heads: split_heads(x, heads)[::-1],
        ),
        Variant(
            "every head has all columns",
            "Each head has all columns: it must have only its part of them, dim // heads.",
            lambda x, heads: np.stack([x] * heads),
        ),
    ),
    hints=(
        "Each row must be cut into `heads` pieces of dim // heads columns: a reshape can do that.",
        "x.reshape(tokens, heads, head_dim) keeps every row together; then heads and tokens change places.",
    ),
    praise="Each head has its own columns of every token, in their order.",
)

# The way back has the same trap.
MERGE = Exercise(
    name="merge heads",
    lesson=5,
    statement=(
        "Put the outputs of the heads side by side again: of (heads, tokens, head_dim) make (tokens, heads · head_dim), head 0 "
        'first. It undoes the exercise "split heads".'
    ),
    solution=merge_heads,
    cases=tuple(
        Case({"x": numbers(170 + number, *shape)})
        for number, shape in enumerate(((2, 2, 2), (2, 3, 2), (3, 3, 3), (3, 5, 2), (5, 2, 3)))
    ),
    variants=(
        Variant(
            "reshape without transposing",
            "A plain reshape mixes tokens of one head: bring the tokens to the front first, with transpose(1, 0, 2).",
            lambda x: x.reshape(x.shape[1], -1),
        ),
        # From here on the shape gives the mistake away.
        Variant(
            "sum of the heads", "The heads are added up: they must stand side by side.", lambda x: x.sum(0)
        ),
        Variant(
            "mean of the heads", "The heads are averaged: they must stand side by side.", lambda x: x.mean(0)
        ),
        Variant(
            "one below the other",
            "The heads stand one below the other, as more tokens: they must stand side by side, as more columns.",
            lambda x: x.reshape(-1, x.shape[2]),
        ),
        Variant(
            "columns shuffled",
            "The columns of the heads are shuffled together: first all of head 0, then all of head 1.",
            lambda x: x.transpose(1, 2, 0).reshape(x.shape[1], -1),
        ),
        Variant(
            "heads reversed",
            "The heads come in the wrong order: head 0 gives the first columns.",
            lambda x: merge_heads(x[::-1]),
        ),
        Variant(
            "not merged",
            "The heads are still on an axis of their own: a reshape must follow.",
            lambda x: x.transpose(1, 0, 2),
        ),
    ),
    hints=(
        "A reshape never moves a number past another: what is to stand side by side must be neighbors first.",
        "It is the way back: first transpose(1, 0, 2), then reshape.",
    ),
    praise="Each token has the outputs of all heads side by side, head 0 first.",
)
