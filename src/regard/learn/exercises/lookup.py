"""A dictionary that answers softly: cosines, a temperature, and the mean of the values."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import composed, crossed, spoilt
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import COMMON, softmax, softmaxes


def look_up(query, key, value, temperature):
    """The answer of a soft dictionary that compares by the cosine.

    query (queries, dim), key (keys, dim), value (keys, value_dim), temperature: positive; returns (queries, value_dim).
    """
    unit_query = query / np.linalg.norm(query, axis=-1, keepdims=True)
    unit_key = key / np.linalg.norm(key, axis=-1, keepdims=True)
    scores = unit_query @ unit_key.T / temperature
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True) @ value


def _unit(x, axis=-1):
    return x / np.linalg.norm(x, axis=axis, keepdims=True)


def _cosines(query, key):
    return _unit(query) @ _unit(key).T


def _look_up(query, key, value, temperature, *, score=_cosines, heat=np.divide, weigh=softmax):
    return weigh(heat(score(query, key), temperature)) @ value


def _entries(seed, queries, keys, dim, value_dim, temperature):
    arrays = {
        "query": numbers(seed, queries, dim),
        "key": numbers(seed + 1, keys, dim),
        "value": numbers(seed + 2, keys, value_dim),
    }
    # At a thousandth, exp of a score overflows.
    return Case(arrays | {"temperature": temperature}, large=temperature < 0.01)


SCORES = (
    (
        "dot product",
        "The scores are plain dot products: divide them by the lengths of query and key.",
        {"score": lambda q, k: q @ k.T},
    ),
    (
        "scaled dot product",
        "The scores are dot products divided by √d: here they are cosines, divided by both lengths.",
        {"score": lambda q, k: q @ k.T / np.sqrt(q.shape[-1])},
    ),
    (
        "length of the query alone",
        "Only the query has the length 1: a cosine is divided by the length of the key too.",
        {"score": lambda q, k: _unit(q) @ k.T},
    ),
    (
        "length of the key alone",
        "Only the keys have the length 1: a cosine is divided by the length of the query too.",
        {"score": lambda q, k: q @ _unit(k).T},
    ),
    (
        "divided by √d too",
        "The cosines are divided by √d besides: the temperature takes its part here.",
        {"score": lambda q, k: _cosines(q, k) / np.sqrt(q.shape[-1])},
    ),
    (
        "squared lengths",
        "The dot products are divided by squared lengths: a root is missing.",
        {"score": lambda q, k: q @ k.T / (q**2).sum(-1)[:, None] / (k**2).sum(-1)},
    ),
    (
        "one length for all",
        "np.linalg.norm without an axis is one number for the whole matrix: take axis=-1 and keepdims=True.",
        {"score": lambda q, k: q @ k.T / np.linalg.norm(q) / np.linalg.norm(k)},
    ),
    (
        "lengths of columns",
        "The lengths are those of the columns: rows are the vectors here, so axis=-1.",
        {"score": lambda q, k: _unit(q, 0) @ _unit(k, 0).T},
    ),
    (
        "distance",
        "The scores are distances with a minus: here they are cosines.",
        {"score": lambda q, k: -np.linalg.norm(q[:, None] - k, axis=-1)},
    ),
    (
        "scores negated",
        "The scores are 1 minus the cosine, or have the wrong sign: the least alike key gets the most weight. Take the "
        "cosine.",
        {"score": lambda q, k: 1 - _cosines(q, k)},
    ),
    (
        "angle",
        "The scores are angles, and a larger one is less alike: take the cosine.",
        {"score": lambda q, k: np.arccos(_cosines(q, k).clip(-1, 1))},
    ),
    (
        "absolute value",
        "The sign of the cosine is lost: a key that points the opposite way is the least alike.",
        {"score": lambda q, k: abs(_cosines(q, k))},
    ),
)
HEATS = (
    (
        "no temperature",
        "The temperature is not used: divide the scores by it, before the softmax.",
        {"heat": lambda s, t: s},
    ),
    (
        "multiplied by the temperature",
        "The scores are multiplied by the temperature: a low one must sharpen, so divide.",
        {"heat": np.multiply},
    ),
    (
        "root of the temperature",
        "The scores are divided by the root of the temperature: take the temperature itself.",
        {"heat": lambda s, t: s / np.sqrt(t)},
    ),
)
MORE = ("no exponential", "no division by the sum", "weights base 2", "softmax twice")
# Scores from −1 to 1 need a low temperature to be sharp.
LOOK_UP = Exercise(
    name="look up",
    lesson=2,
    statement=(
        "Write a dictionary that answers softly: the score of a query and a key is their cosine, divided by a "
        "temperature; a softmax over the keys makes weights of the scores; the answer is the mean of the values under "
        "them. No row is zero. At a low temperature the best key takes all."
    ),
    solution=look_up,
    cases=(
        _entries(821, 2, 2, 2, 1, 0.5),
        _entries(824, 3, 3, 3, 3, 2.0),
        _entries(827, 2, 3, 5, 4, 0.25),
        _entries(830, 5, 3, 3, 2, 0.5),
        _entries(833, 3, 7, 2, 2, 2.0),
        _entries(836, 3, 5, 4, 2, 0.001),
    ),
    variants=(
        *composed(_look_up, SCORES, HEATS[:2]),
        *composed(_look_up, HEATS[2:]),
        Variant(
            "temperature after",
            "The weights are divided by the temperature, after the softmax: it belongs to the scores.",
            lambda q, k, v, t: look_up(q, k, v, 1.0) / t,
        ),
        Variant(
            "returns the weights",
            "It returns the weights: multiply them with the values, weights @ value.",
            lambda q, k, v, t: softmax(_cosines(q, k) / t),
        ),
        Variant(
            "hard",
            "The value of the best key alone comes back: every key has a part, by the softmax.",
            lambda q, k, v, t: v[_cosines(q, k).argmax(-1)],
        ),
        Variant(
            "plain mean",
            "Every key has the same weight: a softmax of the scores makes weights.",
            lambda q, k, v, t: v.mean(0) + 0 * q[:, :1],
        ),
        *softmaxes(lambda weigh: lambda q, k, v, t: _look_up(q, k, v, t, weigh=weigh), (*COMMON, *MORE)),
        *crossed(look_up),
        *spoilt(look_up),
    ),
    hints=(
        "Bring queries and keys to the length 1: then their dot product is the cosine.",
        "Divide the cosines by the temperature, then take the softmax over the keys, axis=-1.",
        "Subtract each row's largest score before np.exp: at a temperature of 0.001 scores reach 1000.",
    ),
    praise="Lengths do not count, a low temperature sharpens, and the answer is a mean of the values.",
)
