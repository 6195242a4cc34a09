"""One step of a decoder that looks back, as Luong has it."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise
from regard.learn.exercises.general import composed, spoilt
from regard.learn.exercises.inputs import numbers
from regard.learn.exercises.mistakes import OTHERS, SOFTMAXES, softmax


def luong_step(state, states, w):
    """What a decoder hands on in one step: what it has found in the source, joined with its state.

    state (dim,): of the decoder. states (source, dim): of the encoder, one for each source word. w (2 · dim, out). Returns
    (out,): tanh([context, state] @ w), where context is the mean of the states, weighted by a softmax of states · state.
    """
    # One score for each source word, and so one row of weights.
    scores = states @ state
    terms = np.exp(scores - scores.max())
    context = terms / terms.sum() @ states
    return np.tanh(np.concatenate([context, state]) @ w)


def _read(state, states, *, score=lambda s, states: states @ s, weigh=softmax):
    # One row of scores, as softmaxes are taken of rows.
    return weigh(score(state, states)[None])[0] @ states


def _joined(context, state):
    return np.concatenate([context, state])


def _step(state, states, w, *, read=_read, join=_joined, apply=lambda x, w: np.tanh(x @ w), **scores):
    return apply(join(read(state, states, **scores), state), w)


def _decoder(seed, source, dim, out, size=1.0):
    arrays = {
        "state": size * numbers(seed, dim),
        "states": size * numbers(seed + 1, source, dim),
        # Small, as tanh hides what lies far from 0.
        "w": numbers(seed + 2, 2 * dim, out) / 4 / size,
    }
    return Case(arrays, large=size > 10)


# How the source is read; the first three undo what the attention was for.
READS = (
    (
        "√d",
        "The scores are divided by √d: Luong's dot score has no scale.",
        {"score": lambda s, states: states @ s / np.sqrt(len(s))},
    ),
    (
        "last state",
        "Only the encoder's last state is used, which is the bottleneck: take the weighted mean of all states.",
        {"read": lambda s, states: states[-1]},
    ),
    (
        "plain mean",
        "All states have the same weight: weights are a softmax of states @ state.",
        {"read": lambda s, states: states.mean(0)},
    ),
    (
        "best state alone",
        "Only the state with the largest score is used: take the mean of all, weighted by the softmax.",
        {"read": lambda s, states: states[(states @ s).argmax()]},
    ),
    (
        "sum",
        "The states are added up without weights: weights are a softmax of states @ state.",
        {"read": lambda s, states: states.sum(0)},
    ),
    (
        "tanh of the scores",
        "The scores go through tanh, as additive ones do: the dot score has none.",
        {"score": lambda s, states: np.tanh(states @ s)},
    ),
    (
        "divided by the source words",
        "The weights are divided by the number of source words once more: they add up to 1 already.",
        {"weigh": lambda scores: softmax(scores) / scores.shape[1]},
    ),
)
# Rows cannot be mixed up where there is one.
ROWS_ALONE = (
    "softmax over the queries",
    "sum over the queries",
    "softmax over everything",
    "sum without keepdims",
    "largest without keepdims",
    "overall largest",
    "largest of the columns",
    "divided by the keys",
)
WEIGHTS = tuple(
    (name, text, {"weigh": weigh})
    for name, (weigh, text) in (SOFTMAXES | OTHERS).items()
    if name not in ROWS_ALONE
)
# The context may be right and still be joined wrongly.
JOINS = (
    (
        "state first",
        "The two are joined in the other order: first the context, then the state.",
        {"join": lambda c, s: np.concatenate([s, c])},
    ),
    (
        "context alone",
        "The decoder's own state is left out: join it to the context, np.concatenate([context, state]).",
        {"join": lambda c, s: np.concatenate([c, 0 * s])},
    ),
    (
        "state alone",
        "The context is left out: join it to the decoder's state, np.concatenate([context, state]).",
        {"join": lambda c, s: np.concatenate([0 * c, s])},
    ),
    (
        "context twice",
        "The context is joined to itself: the second half is the decoder's state.",
        {"join": lambda c, s: np.concatenate([c, c])},
    ),
    (
        "state twice",
        "The state is joined to itself: the first half is the context.",
        {"join": lambda c, s: np.concatenate([s, s])},
    ),
    (
        "added",
        "State and context are added before they meet w: join them, so that each has rows of w for itself.",
        {"join": lambda c, s: np.concatenate([c + s, 0 * s])},
    ),
)
# What comes last, with everything before it right.
LASTS = (
    (
        "no tanh",
        "There is no tanh: it comes last, around the product with w.",
        {"apply": lambda x, w: x @ w},
    ),
    (
        "tanh first",
        "tanh comes before the product with w: it comes last.",
        {"apply": lambda x, w: np.tanh(x) @ w},
    ),
    (
        "tanh twice",
        "tanh is taken twice, before the product with w and after it: only after it.",
        {"apply": lambda x, w: np.tanh(np.tanh(x) @ w)},
    ),
    (
        "relu for tanh",
        "There is a relu in place of the tanh: take np.tanh.",
        {"apply": lambda x, w: np.maximum(x @ w, 0)},
    ),
    (
        "sigmoid for tanh",
        "There is a sigmoid in place of the tanh: take np.tanh.",
        {"apply": lambda x, w: 1 / (1 + np.exp(-x @ w))},
    ),
    (
        "w not used",
        "w is not used: multiply context and state by it, before tanh.",
        {"apply": lambda x, w: np.tanh(x)},
    ),
    (
        "joined vector",
        "Context and state come back as they were joined: multiply them by w, and take tanh.",
        {"apply": lambda x, w: x},
    ),
    (
        "context returned",
        "The context alone comes back: join it to the state, multiply by w, and take tanh.",
        {"apply": lambda x, w: x[: len(x) // 2]},
    ),
    (
        "tanh of the context",
        "tanh is taken of the context alone, before the product with w: it comes last.",
        {"join": lambda c, s: np.concatenate([np.tanh(c), s]), "apply": lambda x, w: x @ w},
    ),
    (
        "softmax last",
        "There is a softmax in place of the tanh: that belongs to the scores, and what is handed on is no weight.",
        {"apply": lambda x, w: softmax(x @ w)},
    ),
)
# Sizes differ from each other, so that a vector on the wrong side of a product stops.
LUONG = Exercise(
    name="luong step",
    lesson=7,
    statement=(
        "Write what a decoder with the attention of Luong et al. 2015 hands on in one step. Scores are the dot "
        "products of its state with each state of the encoder, without √d; a softmax makes weights of them; the "
        "context is the mean of the encoder's states under these weights. Then tanh([context, state] @ w): context "
        "first."
    ),
    solution=luong_step,
    cases=(
        _decoder(881, 2, 2, 2),
        _decoder(884, 3, 3, 3),
        _decoder(887, 5, 3, 2),
        _decoder(890, 2, 5, 7),
        _decoder(893, 5, 2, 3, size=100.0),
    ),
    variants=(
        *composed(_step, READS[:2], JOINS[:2], LASTS[:2]),
        *composed(_step, READS[2:]),
        *composed(_step, WEIGHTS),
        *composed(_step, JOINS[2:]),
        *composed(_step, LASTS[2:]),
        *spoilt(luong_step, axes=1),
    ),
    hints=(
        "states @ state has one score for each source word; the softmax of them is one row of weights.",
        "weights @ states is the context, as wide as the state; np.concatenate([context, state]) is twice as wide.",
    ),
    praise="The decoder reads all of the source in each step, and hands on what it found beside its own state.",
)
