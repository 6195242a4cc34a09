"""Attention over two sets of keys, from the outputs over each."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import spoilt
from regard.learn.exercises.inputs import numbers


def merge(output_a, lse_a, output_b, lse_b):
    """The output of attention over two sets of keys, from the outputs over each.

    output_a, output_b (queries, value_dim), lse_a, lse_b (queries,): ln of the sum of exp(score) over the keys of each set.
    Returns the output over both (queries, value_dim).
    """
    high = np.maximum(lse_a, lse_b)
    part_a, part_b = np.exp(lse_a - high)[:, None], np.exp(lse_b - high)[:, None]
    return (part_a * output_a + part_b * output_b) / (part_a + part_b)


def _sets(seed, queries, value_dim, size=1.0):
    arrays = {
        "output_a": numbers(seed, queries, value_dim),
        "lse_a": size * numbers(seed + 1, queries),
        "output_b": numbers(seed + 2, queries, value_dim),
        "lse_b": size * numbers(seed + 3, queries),
    }
    return Case(arrays, large=size > 10)


def _joined(a, x, b, y, weigh_a, weigh_b):
    with np.errstate(all="ignore"):
        first, second = weigh_a(x, y)[:, None], weigh_b(x, y)[:, None]
        return (first * a + second * b) / (first + second)


def _weighted(weigh):
    return lambda a, x, b, y: _joined(a, x, b, y, lambda x, y: weigh(x), lambda x, y: weigh(y))


# The last case has an lse of ±1000, as scores of long texts may have.
MERGING = Exercise(
    name="merge",
    lesson=17,
    statement=(
        "Attention over many keys can be computed piece by piece, if each piece leaves its output and its lse, ln Σ "
        "exp(score). Write the merge of two pieces: their outputs are averaged, with parts in proportion to exp(lse). "
        "An lse may be ±1000."
    ),
    solution=merge,
    cases=(
        _sets(551, 2, 2),
        _sets(555, 3, 3),
        _sets(559, 5, 2),
        _sets(563, 3, 7),
        _sets(567, 5, 3, size=600.0),
    ),
    variants=(
        Variant(
            "plain mean",
            "It is the plain mean: parts are in proportion to exp(lse).",
            lambda a, x, b, y: (a + b) / 2,
        ),
        Variant(
            "sum",
            "The outputs are added up: they must be averaged, with parts that add up to 1.",
            lambda a, x, b, y: a + b,
        ),
        Variant(
            "lse without exp",
            "The parts are in proportion to the lse: take exp(lse).",
            _weighted(lambda x: x),
        ),
        Variant(
            "parts swapped",
            "The parts have changed places, or the sign of the lse is wrong: the larger lse has the larger part.",
            lambda a, x, b, y: merge(a, y, b, x),
        ),
        Variant(
            "unstable",
            "np.exp overflows or vanishes for a large lse: subtract the larger of both first.",
            _weighted(np.exp),
        ),
        Variant(
            "not divided",
            "It is not divided by the sum of both parts.",
            lambda a, x, b, y: np.exp(x)[:, None] * a + np.exp(y)[:, None] * b,
        ),
        Variant(
            "the larger one",
            "Only the output with the larger lse is taken: both have a part.",
            lambda a, x, b, y: np.where((x > y)[:, None], a, b),
        ),
        Variant(
            "one part for all rows",
            "There is one part for all queries: each has its own.",
            lambda a, x, b, y: (
                (np.exp(x).sum() * a + np.exp(y).sum() * b) / (np.exp(x).sum() + np.exp(y).sum())
            ),
        ),
        Variant(
            "shifted, not divided",
            "The larger lse is subtracted, but it is not divided by the sum of both parts.",
            lambda a, x, b, y: (
                np.exp(x - np.maximum(x, y))[:, None] * a + np.exp(y - np.maximum(x, y))[:, None] * b
            ),
        ),
        Variant("powers of 2", "The parts are powers of 2: take np.exp.", _weighted(np.exp2)),
        *spoilt(merge),
    ),
    hints=(
        "The sum of all exp(score) is exp(lse_a) + exp(lse_b); each output has its part in it.",
        "np.exp(1000) is inf: subtract np.maximum(lse_a, lse_b) from both first, which changes no proportion.",
    ),
    praise="The parts are in proportion to exp(lse), query by query, and no lse is too large.",
)
