"""Ways to go wrong that many exercises share: the wrong arrays meet, or the right result is spoilt at the end."""

from __future__ import annotations

from functools import partial
from itertools import combinations, product

import numpy as np

from regard.learn.exercise import Variant

DIGITS = (1, 2, 3, 4)


def composed(function, *groups, leave_out=()):
    """Variants with one mistake, and with two of different groups.

    Args:
        function: takes the inputs, and by keyword what a mistake changes.
        groups: of mistakes, each a name, a sentence and its keywords.
        leave_out: names of pairs that come to the same as another mistake.
    """
    # A mistake alone is the likelier one, and so comes first.
    chosen = [(mistake,) for group in groups for mistake in group]
    chosen += [pair for first, second in combinations(groups, 2) for pair in product(first, second)]
    variants = []
    for mistakes in chosen:
        texts = [text for _, text, _ in mistakes]
        text = texts[0]
        if len(texts) == 2:
            text = f"Two things are wrong. First: {texts[0]} Second: {texts[1]}"
        changes = [change for _, _, options in mistakes for change in options.items()]
        # Two that change the same cannot both be there.
        if len(dict(changes)) < len(changes):
            continue
        variants.append(
            Variant(" + ".join(name for name, _, _ in mistakes), text, partial(function, **dict(changes)))
        )
    return tuple(variant for variant in variants if variant.name not in leave_out)


def rounded(solution):
    """Variants that round the result, which nobody asked for."""
    return tuple(
        Variant(
            f"rounded at {digits}",
            f"The result is rounded to {digits} decimal{'s' * (digits > 1)}: return it as it is, rounding is for "
            f"printing.",
            lambda *inputs, digits=digits: np.round(solution(*inputs), digits),
        )
        for digits in DIGITS
    )


def spoilt(solution, leave_out=(), *, axes=2):
    """Variants that have the right result, and return something else.

    Args:
        solution: the right function. leave_out: names that the exercise has already, or whose result is right.
        axes: of its result; one with fewer than two cannot be transposed.
    """
    variants = [
        Variant(
            "negative",
            "The result has the wrong sign: every number is the negative of what it must be.",
            lambda *inputs: -np.asarray(solution(*inputs)),
        ),
        Variant(
            "doubled",
            "The result is twice as large as it must be.",
            lambda *inputs: 2 * np.asarray(solution(*inputs)),
        ),
        Variant(
            "halved",
            "The result is half as large as it must be.",
            lambda *inputs: np.asarray(solution(*inputs)) / 2,
        ),
    ]
    # A result of one axis is its own transpose.
    if axes == 2:
        variants += [
            Variant(
                "result transposed",
                "The result is transposed: each query has a row of it, and not a column.",
                lambda *inputs: np.asarray(solution(*inputs)).T,
            ),
            Variant(
                "mean of the rows",
                "The rows of the result are averaged: each token has a row of its own.",
                lambda *inputs: np.asarray(solution(*inputs)).mean(0),
            ),
            Variant(
                "first row alone",
                "Only the first row of the result comes back: each token has one.",
                lambda *inputs: np.asarray(solution(*inputs))[0],
            ),
        ]
    return tuple(variant for variant in (*variants, *rounded(solution)) if variant.name not in leave_out)


def crossed(solution, leave_out=()):
    """Variants in which query, key and value have changed places.

    Args:
        solution: takes query, key, value and whatever follows. leave_out: names that the exercise has already.
    """
    # Where two of the arrays have other shapes it stops, and that is known too.
    variants = (
        Variant(
            "query and key swapped",
            "Query and key have changed places: a row of the scores belongs to a query, so they are query @ key.T.",
            lambda q, k, v, *more: solution(k, q, v, *more),
        ),
        Variant(
            "keys for values",
            "The weights are multiplied with the keys: they choose the keys, and what is averaged are the values.",
            lambda q, k, v, *more: solution(q, k, k, *more),
        ),
        Variant(
            "values for keys",
            "The scores compare the query with the values: they must compare it with the keys, query @ key.T.",
            lambda q, k, v, *more: solution(q, v, v, *more),
        ),
        Variant(
            "key and value swapped",
            "Key and value have changed places: scores are made with the keys, and what is averaged are the values.",
            lambda q, k, v, *more: solution(q, v, k, *more),
        ),
        Variant(
            "keys for queries",
            "The scores compare the keys with the keys; they must compare the query with them: query @ key.T.",
            lambda q, k, v, *more: solution(k, k, v, *more),
        ),
        Variant(
            "queries for keys",
            "The scores compare the query with the query; they must compare it with the keys: query @ key.T.",
            lambda q, k, v, *more: solution(q, q, v, *more),
        ),
        Variant(
            "queries for values",
            "The weights are multiplied with the queries: what is averaged are the values.",
            lambda q, k, v, *more: solution(q, k, q, *more),
        ),
    )
    return tuple(variant for variant in variants if variant.name not in leave_out)
