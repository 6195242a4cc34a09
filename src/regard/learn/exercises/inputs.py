"""Inputs of exercises: numbers of one decimal, drawn from a seed."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case


def numbers(seed, *shape):
    """Numbers from −2 to 2 with one decimal, so that an example can be followed by hand."""
    return np.random.default_rng(seed).integers(-20, 21, shape) / 10


def attended(seed, queries, keys, dim, value_dim, *, size=1.0):
    """Query, key and value; `size` multiplies queries and keys, and 100 makes scores at which `exp` overflows."""
    arrays = {
        "query": size * numbers(seed, queries, dim),
        "key": size * numbers(seed + 1, keys, dim),
        "value": numbers(seed + 2, keys, value_dim),
    }
    return Case(arrays, large=size > 10)
