"""Attention to texts that were filled up to one length."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import crossed, spoilt
from regard.learn.exercises.inputs import attended
from regard.learn.exercises.mistakes import COMMON, FINITE, softmax, softmaxes


def padded_attention(query, key, value, keep):
    """Attention to real tokens alone.

    query (queries, dim), key (keys, dim), value (keys, value_dim), keep (keys,) of truths: True where a key is a token,
    False where it is padding; at least one is True. Returns the output (queries, value_dim).
    """
    scores = query @ key.T / np.sqrt(query.shape[-1])
    scores = np.where(keep[None, :], scores, -np.inf)
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return weights @ value


def _padded(query, key, value, keep, *, low=-np.inf, weigh=softmax, scale=None, invert=False):
    scores = query @ key.T / (scale or np.sqrt(query.shape[-1]))
    return weigh(np.where(keep[None, :] != invert, scores, low)) @ value


def _scaled(query, key, value, keep, *, scale):
    return _padded(query, key, value, keep, scale=scale(query, key, value))


def _after(query, key, value, keep):
    return softmax(query @ key.T / np.sqrt(query.shape[-1])) * keep @ value


def _keeping(seed, queries, keys, dim, value_dim, padding, size=1.0):
    case = attended(seed, queries, keys, dim, value_dim, size=size)
    keep = np.ones(keys, bool)
    keep[list(padding)] = False
    return Case(dict(case.arguments) | {"keep": keep}, large=case.large)


def _rows(query, key, value, keep):
    # Fits where there are as many queries as keys.
    scores = query @ key.T / np.sqrt(query.shape[-1])
    return softmax(np.where(keep[:, None] & (len(query) == len(keep)), scores, -1e9)) @ value


# Padding stands at either end, and once there is none.
PADDING = Exercise(
    name="padding mask",
    lesson=4,
    statement=(
        "Write attention with a padding mask: texts of a batch are filled up to one length, and what was filled in "
        "must get no weight. keep is True for real tokens. Here True means may attend, as in torch's "
        "scaled_dot_product_attention."
    ),
    solution=padded_attention,
    cases=(
        _keeping(501, 2, 2, 2, 2, (1,)),
        _keeping(504, 3, 3, 2, 2, (2,)),
        _keeping(507, 2, 5, 3, 4, (3, 4)),
        _keeping(510, 5, 3, 2, 2, (0,)),
        _keeping(513, 5, 5, 3, 2, (1, 4)),
        _keeping(516, 5, 5, 3, 2, ()),
        _keeping(519, 3, 5, 4, 2, (4,), size=100.0),
    ),
    variants=(
        Variant(
            "no mask",
            "keep is not used: padding gets weight.",
            lambda q, k, v, keep: _padded(q, k, v, keep | True),
        ),
        Variant(
            "inverted",
            "The mask is inverted: True means may attend here, and only padding gets weight. torch's key_padding_mask "
            "means the opposite.",
            partial(_padded, invert=True),
        ),
        Variant(
            "inverted, −1e9",
            "The mask is inverted: True means may attend here, and only padding gets weight, or all alike where there "
            "is none.",
            partial(_padded, invert=True, low=-1e9),
        ),
        # From here on the right keys are meant, and some weight leaks all the same.
        Variant(
            "zero for −inf",
            "Scores of padding are 0, or as good as 0, instead of −inf: exp(0) is 1, so it still gets weight. Put "
            "-np.inf there.",
            partial(_padded, low=0.0),
        ),
        Variant(
            "−10 for −inf",
            "Scores of padding are −10, and some weight still leaks: put -np.inf there.",
            partial(_padded, low=-10.0),
        ),
        Variant(
            "after the softmax",
            "The mask comes after the softmax: padding has already taken its part, and the weights no longer add up "
            "to 1.",
            _after,
        ),
        Variant(
            "added as 0 and 1",
            "The truths are added to the scores as 0 and 1, which blocks nothing: add 0 and −inf, or take np.where.",
            lambda q, k, v, keep: softmax(q @ k.T / np.sqrt(q.shape[-1]) + keep) @ v,
        ),
        Variant(
            "rows for columns",
            "The mask lies on the queries: it must lie on the keys, keep[None, :], as padding must not be looked at.",
            _rows,
        ),
        Variant(
            "no scale",
            "The mask is right, but the scores are not divided by √d.",
            partial(_padded, scale=1.0),
        ),
        Variant(
            "no scale, no mask",
            "Two things are wrong: keep is not used, and the scores are not divided by √d.",
            lambda q, k, v, keep: _padded(q, k, v, keep | True, scale=1.0),
        ),
        *softmaxes(lambda weigh: partial(_padded, weigh=weigh), COMMON[:1]),
        *softmaxes(lambda weigh: partial(_padded, weigh=weigh, low=-1e9), COMMON[1:3]),
        *softmaxes(lambda weigh: partial(_padded, weigh=weigh), FINITE),
        *crossed(padded_attention),
        *spoilt(padded_attention),
        *(
            Variant(
                name,
                f"The scores are divided by {what}: they must be divided by √d.",
                partial(_scaled, scale=scale),
            )
            for name, what, scale in (
                ("divided by d", "d instead of √d, or by √d twice", lambda q, k, v: q.shape[-1]),
                ("√keys", "the root of the number of keys", lambda q, k, v: np.sqrt(len(k))),
                ("√value_dim", "the root of the values' width", lambda q, k, v: np.sqrt(v.shape[-1])),
                ("multiplied by √d", "1 / √d, which multiplies", lambda q, k, v: q.shape[-1] ** -0.5),
            )
        ),
        Variant(
            "mean over all keys",
            "Padding gets no weight, but is counted when dividing: the weights of a row must add up "
            "to 1 over real tokens.",
            lambda q, k, v, keep: padded_attention(q, k, v, keep) * keep.mean(),
        ),
        Variant(
            "padding as 0",
            "Keys and values of padding are set to 0: their score is then 0, and exp(0) is 1. Mask the scores.",
            lambda q, k, v, keep: _padded(q, k * keep[:, None], v * keep[:, None], keep | True),
        ),
    ),
    hints=(
        "Only the scores change, before the softmax, and the same keys are blocked for every query.",
        "np.where(keep[None, :], scores, -np.inf): the None lays the mask along the columns, which are the keys.",
    ),
    praise="Padding gets no weight, wherever it stands, and the weights of real tokens add up to 1.",
)
