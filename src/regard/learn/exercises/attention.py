"""Scaled dot-product attention of one head."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Exercise, Variant
from regard.learn.exercises.general import crossed, spoilt
from regard.learn.exercises.inputs import attended
from regard.learn.exercises.mistakes import OTHERS, SOFTMAXES, pairs, softmax, softmaxes


def attention(query, key, value):
    """Scaled dot-product attention.

    query (queries, dim), key (keys, dim), value (keys, value_dim); returns the output (queries, value_dim).
    """
    scores = query @ key.T / np.sqrt(query.shape[-1])
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return weights @ value


# The solution with its parts open to change, of which most variants are made.
def _attend(query, key, value, *, divisor=lambda query, key, value: np.sqrt(query.shape[-1]), weigh=softmax):
    return weigh(query @ key.T / divisor(query, key, value)) @ value


def _by(divisor):
    return partial(_attend, divisor=divisor)


def _weights(query, key, value):
    return softmax(query @ key.T / np.sqrt(query.shape[-1]))


def _in_place(query, key, value):
    query /= np.sqrt(query.shape[-1])
    return softmax(query @ key.T) @ value


def _scaled_after(query, key, value):
    return softmax(query @ key.T) / np.sqrt(query.shape[-1]) @ value


def _swapped(query, key, value):
    return attention(key, query, value)


def _rounded(query, key, value):
    query, key, value = (array.astype(np.float16) for array in (query, key, value))
    return _attend(query, key, value)


def _whole_numbers(query, key, value):
    return attention(query, key, value).astype(int)


def _features(query, key, value):
    # Scores of features with features: it fits where there are as many tokens as dimensions.
    return softmax(query.T @ key / np.sqrt(query.shape[-1])) @ value


def _cosine(query, key, value):
    unit = query / np.linalg.norm(query, axis=-1, keepdims=True)
    return softmax(unit @ (key / np.linalg.norm(key, axis=-1, keepdims=True)).T) @ value


SCALE = "must be divided by √dim, where dim is the number of columns of the query"
# Wrong divisors, told apart by the later cases, in which dim, queries, keys and value_dim differ.
SCALES = (
    Variant("no scale", f"The scores are not divided by √d: they {SCALE}.", _by(lambda q, k, v: 1.0)),
    Variant(
        "divided by d",
        "The scores are divided by d instead of √d, or by √d twice, which makes the softmax too flat.",
        _by(lambda q, k, v: q.shape[-1]),
    ),
    Variant(
        "multiplied by √d",
        "The scores are multiplied by √d instead of divided by it, which makes the softmax too sharp.",
        _by(lambda q, k, v: q.shape[-1] ** -0.5),
    ),
    # √n is what a mean of n numbers suggests.
    Variant(
        "√queries",
        f"The scores are divided by the square root of the number of queries: they {SCALE}.",
        _by(lambda q, k, v: np.sqrt(q.shape[0])),
    ),
    Variant(
        "√keys",
        f"The scores are divided by the square root of the number of keys, √n instead of √d: they {SCALE}.",
        _by(lambda q, k, v: np.sqrt(k.shape[0])),
    ),
    Variant(
        "√value_dim",
        f"The scores are divided by the square root of the values' width: they {SCALE}.",
        _by(lambda q, k, v: np.sqrt(v.shape[-1])),
    ),
)
MORE_SCALES = (
    # Slips of a factor or a root.
    Variant(
        "2√d",
        f"The scores are divided by 2√d, twice too much: they {SCALE}.",
        _by(lambda q, k, v: 2 * np.sqrt(q.shape[-1])),
    ),
    Variant(
        "√d / 2",
        f"The scores are divided by half of √d, or doubled: they {SCALE}.",
        _by(lambda q, k, v: np.sqrt(q.shape[-1]) / 2),
    ),
    Variant(
        "√2d",
        f"The scores are divided by √(2d): they {SCALE}.",
        _by(lambda q, k, v: np.sqrt(2 * q.shape[-1])),
    ),
    Variant(
        "d squared",
        f"The scores are divided by d²: they {SCALE}.",
        _by(lambda q, k, v: q.shape[-1] ** 2),
    ),
    Variant(
        "d / 2",
        f"The scores are divided by d / 2, where ** 0.5 may have become * 0.5: they {SCALE}.",
        _by(lambda q, k, v: q.shape[-1] / 2),
    ),
    Variant(
        "cube root",
        f"The scores are divided by the cube root of d: they {SCALE}.",
        _by(lambda q, k, v: q.shape[-1] ** (1 / 3)),
    ),
    Variant(
        "fourth root",
        "The scores are divided by the fourth root of d: query and key may each be divided by it, but then both of "
        "them.",
        _by(lambda q, k, v: q.shape[-1] ** 0.25),
    ),
    Variant(
        "ln d",
        f"The scores are divided by the logarithm of d: they {SCALE}.",
        _by(lambda q, k, v: np.log(q.shape[-1])),
    ),
    # np.sqrt of the whole size, where .size stands for .shape[-1].
    Variant(
        "√size",
        f"The scores are divided by the square root of all numbers in the query: they {SCALE}.",
        _by(lambda q, k, v: np.sqrt(q.size)),
    ),
    Variant(
        "number of keys",
        f"The scores are divided by the number of keys: they {SCALE}.",
        _by(lambda q, k, v: k.shape[0]),
    ),
    Variant(
        "number of queries",
        f"The scores are divided by the number of queries: they {SCALE}.",
        _by(lambda q, k, v: q.shape[0]),
    ),
)


def _causal(query, key, value):
    # As many tokens back as forth is what np.tril takes, whatever the shapes.
    scores = query @ key.T / np.sqrt(query.shape[-1])
    return softmax(np.where(np.tril(np.ones(scores.shape)) > 0, scores, -np.inf)) @ value


VARIANTS = (
    *SCALES,
    *MORE_SCALES,
    Variant(
        "causal",
        "There is a causal mask, and none was asked for: every query may attend every key.",
        _causal,
    ),
    Variant(
        "without itself",
        "Each token leaves itself out: every query may attend every key, those at its own position too.",
        lambda q, k, v: (
            softmax(q @ k.T / np.sqrt(q.shape[-1]) + np.where(np.eye(len(q), len(k)) > 0, -np.inf, 0)) @ v
        ),
    ),
    Variant(
        "distance for dot product",
        "The scores are distances between queries and keys: the score is their dot product, divided by √d.",
        lambda q, k, v: softmax(-np.linalg.norm(q[:, None] - k[None], axis=-1) / np.sqrt(q.shape[-1])) @ v,
    ),
    # From here on something is added that belongs to the layer around.
    Variant(
        "query added",
        "The query is added to the output: a residual connection belongs to the layer around, not here.",
        lambda q, k, v: _weights(q, k, v) @ v + q,
    ),
    Variant(
        "value added",
        "The values are added to the output: it is weights @ value, and nothing more.",
        lambda q, k, v: _weights(q, k, v) @ v + v,
    ),
    # Right up to here; what follows is about the order of the steps.
    Variant(
        "scale after the softmax",
        "The division by √d comes after the softmax: divide the scores, or the weights no longer add up to 1.",
        _scaled_after,
    ),
    # From here on the wrong arrays meet.
    Variant(
        "query and key swapped",
        "Query and key have changed places: a row of the scores belongs to a query, so they are query @ key.T.",
        _swapped,
    ),
    Variant(
        "scores of features",
        "The wrong matrix is transposed: query.T @ key compares columns with columns; the scores are query @ key.T.",
        _features,
    ),
    Variant(
        "cosine for dot product",
        "Queries and keys are brought to length 1 first: the score is the dot product itself, divided by √d.",
        _cosine,
    ),
    # From here on the scores are right, and what is done with the weights is not.
    Variant(
        "returns the weights",
        "It returns the weights: multiply them with the values, weights @ value.",
        _weights,
    ),
    Variant(
        "weights transposed",
        "The weights are transposed before they meet the values: it is weights @ value, a row for each query.",
        lambda q, k, v: _weights(q, k, v).T @ v,
    ),
    Variant(
        "keys for values",
        "The weights are multiplied with the keys: they choose the keys, and what is averaged are the values.",
        lambda q, k, v: _weights(q, k, v) @ k,
    ),
    Variant(
        "keys for queries",
        "The scores compare the keys with the keys; they must compare the query with them: query @ key.T.",
        lambda q, k, v: attention(k, k, v),
    ),
    Variant(
        "queries for keys",
        "The scores compare the query with the query; they must compare it with the keys: query @ key.T.",
        lambda q, k, v: attention(q, q, v),
    ),
    Variant(
        "hard maximum",
        "Each query takes the value of its best key alone: the softmax gives every key some weight.",
        lambda q, k, v: v[(q @ k.T).argmax(-1)],
    ),
    Variant(
        "mean of the values",
        "Every query gets the plain mean of the values: the weights do not depend on the scores.",
        lambda q, k, v: np.repeat(v.mean(0, keepdims=True), len(q), 0),
    ),
    # From here on the formula is right, and the code is not.
    Variant(
        "in place",
        "The query is changed in place, and whoever called still needs it: write query / … instead of query /= ….",
        _in_place,
    ),
    Variant(
        "float16",
        "The numbers go through float16, which has three digits: compute in the type of the inputs.",
        _rounded,
    ),
    Variant(
        "whole numbers",
        "The result is cut to whole numbers: it must stay a floating-point array.",
        _whole_numbers,
    ),
    Variant(
        "key not transposed",
        "The key is not transposed: query @ key fits only where there are as many keys as dimensions; take query @ "
        "key.T.",
        lambda q, k, v: softmax(q @ k / np.sqrt(q.shape[-1])) @ v,
    ),
    *softmaxes(lambda weigh: partial(_attend, weigh=weigh), (*SOFTMAXES, *OTHERS)),
    *crossed(attention, ("query and key swapped", "keys for values", "keys for queries", "queries for keys")),
    *spoilt(attention),
    # The scale is what is forgotten most often, whatever else is wrong.
    *pairs(SCALES[:2], lambda scale, weigh: partial(scale.function, weigh=weigh)),
)

EXERCISE = Exercise(
    name="attention",
    lesson=3,
    statement=(
        "Write scaled dot-product attention: softmax(Q Kᵀ / √d) V. A score is the dot product of a query and a key, "
        "divided by the square root of their dimension; a softmax over the keys makes weights of each query's scores; "
        "the output is the mean of the values under these weights. Scores may be very large, so mind what np.exp does "
        "then."
    ),
    solution=attention,
    # Square ones, in which every mistake runs; then others, whose shapes give some away; then large scores.
    cases=(
        attended(1, 2, 2, 2, 2),
        attended(4, 3, 3, 3, 3),
        attended(7, 2, 3, 5, 4),
        attended(10, 7, 5, 3, 2),
        attended(13, 5, 5, 4, 3),
        attended(16, 3, 7, 4, 5, size=100.0),
        attended(22, 5, 5, 4, 3, size=100.0),
    ),
    variants=VARIANTS,
    hints=(
        "Begin with the scores: one number for each query and each key, an array (queries, keys).",
        "query @ key.T has all dot products. Divide it by np.sqrt(query.shape[-1]).",
        "The softmax of a row is np.exp(row) / np.exp(row).sum(). Do it for all rows with axis=-1 and keepdims=True.",
        "np.exp(1000) is inf. Subtract each row's largest score first: scores - scores.max(-1, keepdims=True).",
        "The output is weights @ value.",
    ),
    praise="Right for other numbers of queries than keys, for values of another width, and for scores at which exp alone "
    "overflows.",
)
