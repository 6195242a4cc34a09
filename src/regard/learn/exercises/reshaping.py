"""Columns dealt out to heads, and the way back."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.inputs import numbers


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


def _dealt(tokens, heads, head_dim, seed):
    return Case({"x": numbers(seed, tokens, heads * head_dim), "heads": heads})


# The mistake of this exercise runs without an error, and trains, badly.
SPLIT = Exercise(
    name="split heads",
    lesson=5,
    statement=(
        "Deal the columns of x out to the heads: of (tokens, heads · head_dim) make (heads, tokens, head_dim). Each "
        "head has neighboring columns, and all tokens."
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
            "A plain reshape to (heads, tokens, head_dim) deals out tokens, not columns: reshape to (tokens, heads, "
            "head_dim), then transpose.",
            lambda x, heads: x.reshape(heads, len(x), -1),
        ),
        Variant(
            "not transposed",
            "The heads stand in the middle: after the reshape to (tokens, heads, head_dim), bring them to the front "
            "with transpose(1, 0, 2).",
            lambda x, heads: x.reshape(len(x), heads, -1),
        ),
        # The right reshape with its last two axes exchanged.
        Variant(
            "every so many columns",
            "A head gets every so many columns instead of neighboring ones: reshape to (tokens, heads, head_dim), in "
            "this order.",
            lambda x, heads: x.reshape(len(x), -1, heads).transpose(2, 0, 1),
        ),
        Variant(
            "tokens last",
            "Tokens and columns of a head have changed places: it must be (heads, tokens, head_dim).",
            lambda x, heads: x.reshape(len(x), heads, -1).transpose(1, 2, 0),
        ),
        Variant(
            "all reversed",
            "The transpose reverses all axes: with .T the shape becomes (head_dim, heads, tokens); take transpose(1, "
            "0, 2).",
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
        "Put the outputs of the heads side by side again: of (heads, tokens, head_dim) make (tokens, heads · "
        "head_dim), head 0 "
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
