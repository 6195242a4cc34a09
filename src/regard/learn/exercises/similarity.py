"""Cosine, softmax with a temperature, entropy: what attention is built of, and how a row of it is read."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.alike import SCORES
from regard.learn.exercises.general import composed, rounded, spoilt
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import softmax as stable
from regard.learn.exercises.mistakes import softmaxes


def cosine_similarity(a, b):
    """The cosine of the angle between every row of a and every row of b.

    a (rows, dim), b (columns, dim); returns (rows, columns), from −1 to 1.
    """
    unit_a = a / np.linalg.norm(a, axis=-1, keepdims=True)
    unit_b = b / np.linalg.norm(b, axis=-1, keepdims=True)
    return unit_a @ unit_b.T


MORE = (
    "relu for the softmax",
    "sigmoid for the softmax",
    "sigmoid for exp",
    "softmax twice",
    "divided by the norm",
)


def softmax(scores, temperature):
    """The softmax of each row, at a temperature.

    scores (queries, keys), temperature: positive; returns weights (queries, keys).
    """
    scaled = scores / temperature
    terms = np.exp(scaled - scaled.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True)


def entropy(weights):
    """The entropy of each row, in nats.

    weights (queries, keys), each row adds up to 1, and a weight may be 0; returns (queries,).
    """
    logarithms = np.log(np.where(weights > 0, weights, 1.0))
    return -(weights * logarithms).sum(-1)


def _norms(x, axis=-1):
    return np.linalg.norm(x, axis=axis, keepdims=True)


# No row is zero: what its cosine would be is a convention of its own.
COSINE = Exercise(
    name="cosine",
    lesson=1,
    statement=(
        "Write the cosine of the angle between every row of a and every row of b: their dot product, divided by the "
        "lengths of both. It is 1 for rows of one direction, 0 for a right angle, −1 for opposite directions. No row "
        "is zero."
    ),
    solution=cosine_similarity,
    cases=tuple(
        Case({"a": numbers(seed, rows, dim), "b": numbers(seed + 1, columns, dim)})
        for seed, rows, columns, dim in (
            (301, 2, 2, 2),
            (303, 3, 3, 3),
            (305, 2, 3, 5),
            (307, 5, 3, 4),
            (309, 4, 4, 4),
        )
    ),
    variants=(
        *composed(lambda a, b, score: score(a, b), [one for one in SCORES if one[0] != "least alike"]),
        Variant(
            "length of a alone",
            "It is divided by the length of the rows of a alone: those of b count too.",
            lambda a, b: a / _norms(a) @ b.T,
        ),
        Variant(
            "length of b alone",
            "It is divided by the length of the rows of b alone: those of a count too.",
            lambda a, b: a @ (b / _norms(b)).T,
        ),
        Variant(
            "one length for all",
            "np.linalg.norm without an axis gives one number for the whole matrix: take axis=-1 and keepdims=True.",
            lambda a, b: a @ b.T / (np.linalg.norm(a) * np.linalg.norm(b)),
        ),
        Variant(
            "angle",
            "It is the angle itself, in radians: its cosine is asked for.",
            lambda a, b: np.arccos(cosine_similarity(a, b).clip(-1, 1)),
        ),
        Variant(
            "cosine distance",
            "It is 1 minus the cosine, a distance: the cosine itself is asked for.",
            lambda a, b: 1 - cosine_similarity(a, b),
        ),
        Variant(
            "transposed",
            "Rows and columns have changed places: rows belong to a.",
            lambda a, b: cosine_similarity(b, a),
        ),
        Variant(
            "pairs of rows",
            "Row 0 is compared with row 0 alone, row 1 with row 1, and so on: every row of a meets every row of b.",
            lambda a, b: np.diag(cosine_similarity(a[: len(b)], b[: len(a)])),
        ),
        *spoilt(cosine_similarity, ("result transposed",)),
    ),
    hints=(
        "a @ b.T has all dot products at once.",
        "The length of each row is np.linalg.norm(a, axis=-1, keepdims=True); bring the rows to length 1 first.",
    ),
    praise="Right for any lengths, and every row of a meets every row of b.",
)


def _hot(seed, rows, columns, temperature, size=1.0):
    return Case({"scores": size * numbers(seed, rows, columns), "temperature": temperature}, large=size > 10)


# One case has rows far apart: the largest score of all must not be subtracted from both.
SOFTMAX = Exercise(
    name="softmax",
    lesson=2,
    statement=(
        "Write the softmax of each row of scores, at a temperature: exp(score / temperature), divided by the sum of "
        "the row. A low temperature sharpens, a high one flattens. Scores may be as large as a few thousand."
    ),
    solution=softmax,
    cases=(
        _hot(321, 2, 2, 2.0),
        _hot(322, 3, 3, 0.5),
        _hot(323, 3, 5, 2.0),
        _hot(324, 5, 2, 0.25),
        _hot(325, 3, 3, 1.0),
        _hot(326, 3, 5, 2.0, size=2000.0),
        Case({"scores": np.array([[900.0, 901.0], [-900.0, -901.0]]), "temperature": 1.0}, large=True),
    ),
    variants=(
        *softmaxes(
            lambda weigh: lambda scores, temperature: weigh(scores / temperature),
            tuple(
                name
                for name in (
                    "unstable softmax",
                    "softmax over the queries",
                    "sum over the queries",
                    "softmax over everything",
                    "no exponential",
                    "no division by the sum",
                    "shifted, no division by the sum",
                    "sum without keepdims",
                    "largest without keepdims",
                    "overall largest",
                    "no softmax",
                )
            ),
        ),
        # From here on the softmax is right, and the temperature is not.
        Variant(
            "no temperature",
            "The temperature is not used: divide the scores by it, before exp.",
            lambda s, t: stable(s),
        ),
        Variant(
            "multiplied by the temperature",
            "The scores are multiplied by the temperature: a high one must flatten, so divide.",
            lambda s, t: stable(s * t),
        ),
        Variant(
            "temperature after",
            "The weights are divided by the temperature, after the softmax: it belongs to the scores.",
            lambda s, t: stable(s) / t,
        ),
        Variant(
            "root of the temperature",
            "The scores are divided by the root of the temperature: take the temperature itself.",
            lambda s, t: stable(s / np.sqrt(t)),
        ),
        Variant("base 2", "The terms are powers of 2: take np.exp.", lambda s, t: stable(s / t * np.log(2))),
        Variant(
            "logarithm",
            "It is the logarithm of the softmax: the weights themselves are asked for.",
            lambda s, t: (
                s / t
                - (s / t).max(-1, keepdims=True)
                - np.log(np.exp(s / t - (s / t).max(-1, keepdims=True)).sum(-1, keepdims=True))
            ),
        ),
        Variant(
            "negative",
            "The sign is wrong: the largest score must have the largest weight.",
            lambda s, t: stable(-s / t),
        ),
        *spoilt(softmax, ("negative",)),
        *softmaxes(lambda weigh: lambda scores, temperature: weigh(scores / temperature), MORE),
    ),
    hints=(
        "Divide the scores by the temperature first.",
        "terms.sum(-1, keepdims=True) has one sum for each row, and fits below the terms when dividing.",
        "np.exp(1000) is inf: subtract each row's largest score first, which changes no weight.",
    ),
    praise="Every row adds up to 1, a low temperature sharpens it, and no score is too large.",
)


def _weights(seed, rows, columns, zeros):
    shares = np.random.default_rng(seed).integers(1, 9, (rows, columns)).astype(float)
    shares[:, :zeros] = 0.0
    return Case({"weights": shares / shares.sum(-1, keepdims=True)})


def _quietly(function):
    def run(weights):
        with np.errstate(all="ignore"):
            return function(weights)

    return run


def _plain(weights):
    with np.errstate(all="ignore"):
        return -(weights * np.log(weights)).sum(-1)


# One case is of zeros and ones, as sharp heads have it.
ENTROPY = Exercise(
    name="entropy",
    lesson=13,
    statement=(
        "Write the entropy of each row of weights, in nats: −Σ w ln w. It says how spread out a head looks: 0 where "
        "one key has all the weight, ln n where n keys have equal parts. A weight may be 0, and then adds nothing."
    ),
    solution=entropy,
    cases=(
        _weights(341, 2, 2, 0),
        _weights(342, 3, 3, 0),
        Case({"weights": np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])}),
        _weights(343, 3, 5, 2),
        _weights(344, 5, 3, 0),
    ),
    variants=(
        Variant(
            "0 · log 0",
            "np.log(0) is −inf, and 0 times that is NaN: leave weights of 0 out, as they add nothing.",
            _plain,
        ),
        # From here on the unit or the sign is wrong.
        Variant(
            "bits",
            "It is in bits: take np.log, the natural logarithm, for nats.",
            lambda w: entropy(w) / np.log(2),
        ),
        Variant(
            "digits",
            "It is in decimal digits: take np.log, the natural logarithm, for nats.",
            lambda w: entropy(w) / np.log(10),
        ),
        Variant(
            "sign",
            "The sign is missing: logarithms of weights are negative, an entropy is not.",
            lambda w: -entropy(w),
        ),
        Variant("mean", "It is the mean over the keys: take the sum.", lambda w: entropy(w) / w.shape[-1]),
        # From here on the rows are mixed up.
        Variant(
            "wrong axis",
            "The sum runs over the queries: each query has an entropy of its own, so axis=-1.",
            lambda w: entropy(w.T),
        ),
        Variant(
            "one number",
            "It is one number for all rows: each row has its own, so axis=-1.",
            lambda w: entropy(w.reshape(-1)),
        ),
        Variant(
            "mean of the rows",
            "It is the mean of all rows: each row has its own entropy.",
            lambda w: entropy(w).mean(),
        ),
        Variant(
            "not weighted",
            "The logarithms are added up as they are: each counts by its weight, w · ln w.",
            _quietly(lambda w: -np.log(w).sum(-1)),
        ),
        # From here on it is another measure of how spread out a row is.
        Variant(
            "normalized",
            "It is divided by ln n, its largest value: nats are asked for.",
            lambda w: entropy(w) / np.log(w.shape[-1]),
        ),
        Variant(
            "perplexity",
            "It is the exponential of the entropy, the number of keys that it is worth: nats are asked for.",
            lambda w: np.exp(entropy(w)),
        ),
        Variant(
            "sum of squares",
            "It is the sum of the squared weights: an entropy is −Σ w ln w.",
            lambda w: (w**2).sum(-1),
        ),
        Variant(
            "one minus the squares",
            "It is 1 − Σ w², the Gini index: an entropy is −Σ w ln w.",
            lambda w: 1 - (w**2).sum(-1),
        ),
        Variant(
            "not summed",
            "The terms are not summed: one number for each row is asked for.",
            lambda w: -w * np.log(np.where(w > 0, w, 1)),
        ),
        Variant(
            "softmax again",
            "A softmax is taken of the weights first: they are weights already.",
            lambda w: entropy(stable(w)),
        ),
        *rounded(entropy),
    ),
    hints=(
        "-(weights * np.log(weights)).sum(-1) is right where no weight is 0.",
        "np.where(weights > 0, weights, 1.0) puts 1 in their place, and the logarithm of 1 is 0.",
    ),
    praise="In nats, for each row its own, and a weight of 0 adds nothing.",
)
