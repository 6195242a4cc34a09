"""Attention with a causal mask, and within a window."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import crossed, spoilt
from regard.learn.exercises.inputs import attended
from regard.learn.exercises.mistakes import COMMON, FINITE, pairs, softmax, softmaxes


def causal_attention(query, key, value):
    """Attention in which a token sees itself and the tokens before it.

    query, key (tokens, dim), value (tokens, value_dim); returns the output (tokens, value_dim).
    """
    scores = query @ key.T / np.sqrt(query.shape[-1])
    seen = np.tril(np.ones(scores.shape, dtype=bool))
    scores = np.where(seen, scores, -np.inf)
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return weights @ value


def near_attention(query, key, value, before):
    """Attention in which a token sees itself and `before` tokens before it.

    query, key (tokens, dim), value (tokens, value_dim), before: a whole number; returns the output (tokens, value_dim).
    """
    scores = query @ key.T / np.sqrt(query.shape[-1])
    positions = np.arange(len(query))
    distance = positions[:, None] - positions[None, :]
    scores = np.where((distance >= 0) & (distance <= before), scores, -np.inf)
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return weights @ value


def _behind(scores):
    """How many positions each key lies behind each query; negative ahead of it."""
    return np.arange(scores.shape[0])[:, None] - np.arange(scores.shape[1])[None, :]


# The solution with its mask open to change.
def _masked(query, key, value, *, seen=lambda behind: behind >= 0, low=-np.inf, weigh=softmax, scale=None):
    scores = query @ key.T / (scale or np.sqrt(query.shape[-1]))
    return weigh(np.where(seen(_behind(scores)), scores, low)) @ value


def _seeing(seen, low=-np.inf):
    return partial(_masked, seen=seen, low=low)


def _after_softmax(query, key, value):
    weights = softmax(query @ key.T / np.sqrt(query.shape[-1]))
    return np.tril(weights) @ value


def _added(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    return softmax(scores + np.tril(np.ones(scores.shape))) @ value


def _infinite_weights(query, key, value):
    weights = softmax(query @ key.T / np.sqrt(query.shape[-1]))
    with np.errstate(all="ignore"):
        return np.where(_behind(weights) >= 0, weights, -np.inf) @ value


def _without_values(query, key, value):
    # A running sum of values in place of a mask.
    return softmax(query @ key.T / np.sqrt(query.shape[-1])) @ np.tril(np.ones((len(key), len(key)))) @ value


def _in_place(query, key, value):
    query /= np.sqrt(query.shape[-1])
    return _masked(query, key, value, scale=1.0)


FIRST = "The first token must see itself alone, the second two tokens, and the last one all."
# Wrong triangles; those with an empty row differ by what stands for −inf.
MASKS = (
    Variant(
        "no mask",
        f"There is no mask: tokens see what comes after them. {FIRST}",
        _seeing(lambda d: d == d),
    ),
    Variant(
        "mask inverted",
        "The mask is inverted: where it must block it lets through, so tokens see only what comes after them.",
        _seeing(lambda d: d < 0),
    ),
    Variant(
        "mask inverted, −1e9",
        "The mask is inverted: tokens see only what comes after them, and the last one, with nothing left, sees all "
        "alike.",
        _seeing(lambda d: d < 0, -1e9),
    ),
    Variant(
        "upper triangle",
        "The mask keeps the wrong triangle: tokens see themselves and what comes after. Take np.tril, or transpose it.",
        _seeing(lambda d: d <= 0),
    ),
    Variant(
        "off by one: not itself",
        "Off by one: a token must see itself too, and here the first one sees nothing, which gives NaN. Take k <= q.",
        _seeing(lambda d: d > 0),
    ),
    Variant(
        "off by one: not itself, −1e9",
        "Off by one: a token must see itself too, and here the first one, with nothing left, sees all alike. Take k "
        "<= q.",
        _seeing(lambda d: d > 0, -1e9),
    ),
    Variant(
        "off by one: the next token",
        "Off by one: each token sees the one after it, and that is what a language model has to guess. Take k <= q.",
        _seeing(lambda d: d >= -1),
    ),
    Variant(
        "itself alone",
        "Each token sees itself alone: the mask keeps the diagonal, and must keep all that is before it too.",
        _seeing(lambda d: d == 0),
    ),
    # From here on the triangle is right, and what it puts into the scores is not.
    Variant(
        "zero for −inf",
        "Masked scores are 0, or as good as 0 like −1e-9, instead of −inf: exp(0) is 1, so those keys still get "
        "weight. Put -np.inf there.",
        _seeing(lambda d: d >= 0, 0.0),
    ),
    Variant(
        "−10 for −inf",
        "Masked scores are −10, and some weight still leaks to later tokens: put -np.inf there.",
        _seeing(lambda d: d >= 0, -10.0),
    ),
    Variant(
        "−1 for −inf",
        "Masked scores are −1, and much weight still leaks to later tokens: put -np.inf there.",
        _seeing(lambda d: d >= 0, -1.0),
    ),
)
NO_SCALE = "The scores are not divided by √d, where d is the number of columns of the query."
VARIANTS = (
    *MASKS,
    # From here on the triangle is right, and stands in the wrong step.
    Variant(
        "mask after the softmax",
        "The mask comes after the softmax: later tokens have already taken their part, and the weights of a row no "
        "longer add up to 1. Mask the scores.",
        _after_softmax,
    ),
    Variant(
        "−inf after the softmax",
        "−inf is put among the weights, after the softmax: it belongs among the scores, before it.",
        _infinite_weights,
    ),
    Variant(
        "mask added as 0 and 1",
        "The mask of 0 and 1 is added to the scores, which blocks nothing: add 0 and −inf, or take np.where.",
        _added,
    ),
    Variant(
        "mask on the values",
        "The triangle is multiplied with the values: it must block scores, before the softmax.",
        _without_values,
    ),
    Variant("no scale", NO_SCALE, partial(_masked, scale=1.0)),
    *(
        Variant(
            f"{mask.name} + no scale",
            f"Two things are wrong. First: {mask.text} Second: {NO_SCALE}",
            partial(mask.function, scale=1.0),
        )
        for mask in MASKS
        # Where a token sees one key alone, no scale shows.
        if mask.name != "itself alone"
    ),
    *pairs(MASKS[:1], lambda mask, weigh: partial(mask.function, weigh=weigh)),
    Variant(
        "in place",
        "The query is changed in place, and whoever called still needs it: write query / … instead of query /= ….",
        _in_place,
    ),
    *softmaxes(lambda weigh: partial(_masked, weigh=weigh), (*COMMON[:3], "no division by the sum", *FINITE)),
    *crossed(causal_attention),
    *spoilt(causal_attention),
    *(
        Variant(
            name,
            f"The scores are divided by {what}: they must be divided by √d, d being the query's columns.",
            function,
        )
        for name, what, function in (
            (
                "divided by d",
                "d instead of √d, or by √d twice",
                lambda q, k, v: _masked(q, k, v, scale=q.shape[-1]),
            ),
            (
                "√tokens",
                "the root of the number of tokens",
                lambda q, k, v: _masked(q, k, v, scale=np.sqrt(len(q))),
            ),
            (
                "√value_dim",
                "the root of the values' width",
                lambda q, k, v: _masked(q, k, v, scale=np.sqrt(v.shape[1])),
            ),
            (
                "multiplied by √d",
                "1 / √d, which multiplies",
                lambda q, k, v: _masked(q, k, v, scale=q.shape[-1] ** -0.5),
            ),
        )
    ),
    Variant(
        "counted from the end",
        "The mask is mirrored: the last token sees itself alone, and the first one all. Row q of np.tril sees keys up "
        "to q.",
        lambda q, k, v: (
            softmax(
                np.where(
                    np.fliplr(np.tril(np.ones((len(q), len(k))))) > 0, q @ k.T / np.sqrt(q.shape[-1]), -np.inf
                )
            )
            @ v
        ),
    ),
    Variant(
        "returns the weights",
        "It returns the weights: multiply them with the values, weights @ value.",
        lambda q, k, v: causal_attention(q, k, np.eye(len(k))),
    ),
)

# As many queries as keys: with fewer, where they stand is a convention of its own.
CAUSAL = Exercise(
    name="causal mask",
    lesson=4,
    statement=(
        "Write attention with a causal mask: a token sees itself and the tokens before it, and nothing after. It is "
        "what lets a language model learn from every position of a text at once."
    ),
    solution=causal_attention,
    # Large scores come last; before them sizes at which an offset of one shows.
    cases=(
        attended(31, 2, 2, 2, 2),
        attended(34, 3, 3, 2, 2),
        attended(37, 3, 3, 3, 3),
        attended(40, 5, 5, 3, 2),
        attended(43, 7, 7, 4, 5),
        attended(46, 5, 5, 3, 4, size=100.0),
    ),
    variants=VARIANTS,
    hints=(
        "Begin with plain attention; only the scores change, before the softmax.",
        "np.tril(np.ones((tokens, tokens), dtype=bool)) is True where a key is not after the query.",
        "Where it is False, the score becomes -np.inf: np.where(seen, scores, -np.inf). Its exp is exactly 0.",
    ),
    praise="No token sees what comes after it, each sees itself, and the weights of every row add up to 1.",
)


# Seen as a function of the distance and of `before`.
def _near(query, key, value, before, *, seen, low=-np.inf):
    return _masked(query, key, value, seen=lambda behind: seen(behind, before), low=low)


def _window(seen, low=-np.inf):
    return partial(_near, seen=seen, low=low)


def _windows(seed, tokens, before):
    case = attended(seed, tokens, tokens, 3, 2)
    return Case(dict(case.arguments) | {"before": before})


NEAR = Exercise(
    name="window",
    lesson=16,
    statement=(
        "Write attention within a window: a token sees itself and at most `before` tokens before it, and nothing "
        "after. So before=0 leaves each token alone with itself, and with before=2 it sees three tokens."
    ),
    solution=near_attention,
    # before=0 and a window wider than the text are where offsets hide.
    cases=tuple(_windows(*sizes) for sizes in ((61, 3, 1), (64, 5, 2), (67, 7, 3), (70, 7, 0), (73, 5, 9))),
    variants=(
        Variant(
            "off by one: too narrow",
            "Off by one: `before` counts the other tokens, so a token sees before + 1 with itself; here it sees one "
            "less.",
            _window(lambda d, before: (d >= 0) & (d < np.maximum(before, 0))),
        ),
        # Written with max(before, 1), a window of nothing sees itself after all.
        Variant(
            "off by one: too narrow, never empty",
            "Off by one: `before` counts the other tokens, so a token sees before + 1 with itself; here it sees one "
            "less.",
            _window(lambda d, before: (d >= 0) & (d < max(before, 1))),
        ),
        Variant(
            "off by one: too wide",
            "Off by one: the window has one token too many at its far end; the farthest is at a distance of `before`.",
            _window(lambda d, before: (d >= 0) & (d <= before + 1)),
        ),
        Variant(
            "both sides",
            "The window reaches to both sides: tokens see what comes after them. Mask distances below 0 too.",
            _window(lambda d, before: abs(d) <= before),
        ),
        Variant(
            "ahead",
            "The window looks ahead instead of back: the distance is the query's position minus the key's.",
            _window(lambda d, before: (d <= 0) & (-d <= before)),
        ),
        Variant(
            "no window",
            "It is a plain causal mask: tokens farther back than `before` must be masked too.",
            _window(lambda d, before: d >= 0),
        ),
        Variant(
            "no causal mask",
            "The far end is masked, but tokens after the query are not.",
            _window(lambda d, before: d <= before),
        ),
        Variant(
            "without itself",
            "A token does not see itself: its distance of 0 must be within the window.",
            _window(lambda d, before: (d > 0) & (d <= before), -1e9),
        ),
        Variant(
            "zero for −inf",
            "Masked scores are 0 instead of −inf: exp(0) is 1, so those keys still get weight. Put -np.inf there.",
            _window(lambda d, before: (d >= 0) & (d <= before), 0.0),
        ),
        Variant(
            "no mask",
            "There is no mask at all: every token sees every other.",
            _window(lambda d, before: d == d),
        ),
        Variant(
            "no scale",
            NO_SCALE,
            lambda q, k, v, before: near_attention(q * np.sqrt(q.shape[-1]), k, v, before),
        ),
        Variant(
            "after the softmax",
            "The window comes after the softmax: the weights of a row no longer add up to 1. Mask the scores.",
            lambda q, k, v, before: (
                softmax(q @ k.T / np.sqrt(q.shape[-1]))
                * (
                    (_behind(np.empty((len(q), len(k)))) >= 0)
                    & (_behind(np.empty((len(q), len(k)))) <= before)
                )
                @ v
            ),
        ),
        Variant(
            "twice as wide",
            "The window is twice as wide as `before` says.",
            _window(lambda d, before: (d >= 0) & (d <= 2 * before)),
        ),
        Variant(
            "half as wide",
            "The window is half as wide as `before` says: all of it lies before the query.",
            _window(lambda d, before: (d >= 0) & (d <= before // 2)),
        ),
        Variant(
            "centered",
            "The window is laid around the query, half of it ahead: all of it must lie before the query.",
            _window(lambda d, before: (d >= before // 2 - before) & (d <= before // 2)),
        ),
        *crossed(near_attention, ("values for keys", "key and value swapped")),
        *spoilt(near_attention),
    ),
    hints=(
        "positions[:, None] - positions[None, :] is how far each key lies behind each query.",
        "Two conditions, joined with &: not after the query, and not farther back than `before`.",
    ),
    praise="The window has before + 1 tokens, none of them ahead, and fewer at the beginning of the text.",
)
