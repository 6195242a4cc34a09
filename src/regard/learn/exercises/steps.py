"""The first steps of a training: a learning rate that warms up, and a gradient that is clipped."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import rounded, spoilt
from regard.learn.exercises.inputs import numbers


def warm_up(steps, rate, warm, total):
    """The learning rate of each step: it grows evenly, reaches `rate` and falls evenly to 0.

    steps (n,): numbers of steps from 0. Step s < warm has rate · (s + 1) / warm; a later one rate · (total − s) / (total −
    warm), and those from `total` on 0. warm and total are whole numbers, 0 < warm < total. Returns (n,).
    """
    # Both for all steps: an array has no if.
    rising = (steps + 1) / warm
    falling = np.maximum(total - steps, 0) / (total - warm)
    return rate * np.where(steps < warm, rising, falling)


def clip(gradient, most):
    """A gradient whose norm is at most `most`, with its direction as it was.

    gradient (rows, columns), most: a positive number; returns (rows, columns). A shorter gradient stays as it is.
    """
    # Of all numbers together, so that the direction stays.
    norm = np.sqrt((gradient**2).sum())
    if norm <= most:
        return gradient
    return gradient * (most / norm)


def _rates(rate, warm, total):
    return Case({"steps": np.arange(total + 2), "rate": rate, "warm": warm, "total": total})


def _schedule(rising, falling, steps, rate, warm, total):
    return rate * np.where(steps < warm, rising(steps, warm), falling(steps, warm, total))


def _falling(steps, warm, total):
    return np.maximum(total - steps, 0) / (total - warm)


# The rise and the fall are each got wrong by themselves.
WARM_UP = Exercise(
    name="warm up",
    lesson=11,
    statement=(
        "Write a learning rate with a warm-up: in the first `warm` steps it grows evenly from rate / warm to rate, "
        "then it falls evenly, to 0 at step `total`, and stays there. Steps are counted from 0, and come as an array."
    ),
    solution=warm_up,
    cases=(_rates(0.5, 2, 5), _rates(0.1, 3, 7), _rates(0.4, 1, 4), _rates(0.3, 5, 11)),
    variants=(
        Variant(
            "starts at 0",
            "Off by one: the first step has a rate of 0 and learns nothing. Step s, counted from 0, is number s + 1.",
            lambda s, r, w, t: _schedule(lambda s, w: s / w, _falling, s, r, w, t),
        ),
        Variant(
            "no warm-up",
            "There is no warm-up: the first `warm` steps must grow evenly to the rate.",
            lambda s, r, w, t: _schedule(lambda s, w: 1.0 + 0 * s, _falling, s, r, w, t),
        ),
        Variant(
            "falls from the start",
            "The rate falls from step 0 on: it must first grow, and fall after `warm` steps.",
            lambda s, r, w, t: r * np.maximum(t - s, 0) / t,
        ),
        Variant(
            "no fall",
            "After the warm-up the rate stays: it must fall evenly, to 0 at step `total`.",
            lambda s, r, w, t: r * np.minimum(1, (s + 1) / w),
        ),
        Variant(
            "below 0",
            "After `total` steps the rate goes below 0, and training would go backwards: np.maximum(…, 0).",
            lambda s, r, w, t: _schedule(
                lambda s, w: (s + 1) / w, lambda s, w, t: (t - s) / (t - w), s, r, w, t
            ),
        ),
        # The fall has as many ways to be off as the rise.
        Variant(
            "falls over all steps",
            "The fall is spread over `total` steps: it has only total − warm, and so begins with a jump here.",
            lambda s, r, w, t: _schedule(
                lambda s, w: (s + 1) / w, lambda s, w, t: np.maximum(t - s, 0) / t, s, r, w, t
            ),
        ),
        Variant(
            "falls one step early",
            "Off by one: the fall is one step ahead, and the rate is 0 at step total − 1.",
            lambda s, r, w, t: _schedule(
                lambda s, w: (s + 1) / w, lambda s, w, t: np.maximum(t - 1 - s, 0) / (t - w), s, r, w, t
            ),
        ),
        Variant(
            "minimum of both",
            "The smaller of rise and fall is taken: before step `warm` the rise counts, from there on the fall.",
            lambda s, r, w, t: r * np.minimum((s + 1) / (w + 1), np.maximum(t - s, 0) / (t - w)),
        ),
        Variant(
            "inverse root",
            "It falls with the inverse square root of the step, as in the first transformer: here it falls evenly, to "
            "0.",
            lambda s, r, w, t: r * np.minimum((s + 1) / w, np.sqrt(w / (s + 1))),
        ),
        Variant(
            "cosine",
            "It falls as a cosine: here it falls evenly.",
            lambda s, r, w, t: _schedule(
                lambda s, w: (s + 1) / w,
                lambda s, w, t: (1 + np.cos(np.pi * np.clip((s - w) / (t - w), 0, 1))) / 2,
                s,
                r,
                w,
                t,
            ),
        ),
        # What follows has the right shape over the steps, and another height.
        Variant(
            "no rate",
            "The rate is missing: what is computed goes from 0 to 1, and must be multiplied by it.",
            lambda s, r, w, t: warm_up(s, 1.0, w, t),
        ),
        Variant(
            "squared rise",
            "The rate grows with the square of the step: it must grow evenly.",
            lambda s, r, w, t: _schedule(lambda s, w: ((s + 1) / w) ** 2, _falling, s, r, w, t),
        ),
        *spoilt(warm_up, axes=1)[:3],
        *rounded(warm_up)[:2],
    ),
    hints=(
        "Write the rise for all steps, and the fall for all steps; np.where(steps < warm, rising, falling) chooses.",
        "The rise is (steps + 1) / warm. The fall is total − steps, divided by how many steps it has.",
    ),
    praise="No step is lost at a rate of 0, the largest rate is reached once, and it never goes below 0.",
)


def _gradient(seed, rows, columns, most):
    return Case({"gradient": numbers(seed, rows, columns), "most": most})


def _norm(gradient):
    return np.sqrt((gradient**2).sum())


def _in_place(gradient, most):
    gradient *= min(1.0, most / _norm(gradient))
    return gradient


# Some gradients are short enough, and must stay.
CLIP = Exercise(
    name="clipping",
    lesson=11,
    statement=(
        "Write the clipping of a gradient by its norm: where the norm of all its numbers together is above `most`, "
        "all are made smaller by one factor, so that it is `most`. A shorter gradient stays as it is."
    ),
    solution=clip,
    cases=(
        _gradient(611, 2, 2, 1.0),
        _gradient(612, 2, 3, 2.0),
        _gradient(613, 3, 2, 50.0),
        _gradient(614, 5, 3, 0.5),
    ),
    variants=(
        Variant(
            "by value",
            "Each number is clipped by itself, which changes the direction: multiply all of them by one factor.",
            lambda g, m: np.clip(g, -m, m),
        ),
        Variant(
            "always scaled",
            "A gradient that is short enough is made longer: the factor must be at most 1.",
            lambda g, m: g * (m / _norm(g)),
        ),
        Variant(
            "only short ones",
            "Long gradients stay and short ones are made longer: it must be the other way round, and "
            "short ones stay.",
            lambda g, m: g * max(1.0, m / _norm(g)),
        ),
        Variant(
            "not clipped", "Nothing is clipped: the gradient comes back as it was.", lambda g, m: g + 0.0
        ),
        Variant(
            "length 1",
            "A long gradient gets the norm 1: it must get the norm `most`.",
            lambda g, m: g / _norm(g) if _norm(g) > m else g,
        ),
        Variant(
            "always length 1",
            "Every gradient gets the norm 1: a long one must get the norm `most`, and a short one stay.",
            lambda g, m: g / _norm(g),
        ),
        # From here on the wrong norm decides.
        Variant(
            "squared norm",
            "The root is missing: the norm is √Σ g².",
            lambda g, m: g * min(1.0, m / (g**2).sum()),
        ),
        Variant(
            "sum of the sizes",
            "The sum of the absolute values is taken for the norm, which is √Σ g².",
            lambda g, m: g * min(1.0, m / abs(g).sum()),
        ),
        Variant(
            "largest number",
            "The largest absolute value is taken for the norm, which is √Σ g².",
            lambda g, m: g * min(1.0, m / abs(g).max()),
        ),
        Variant(
            "spectral norm",
            "The largest singular value is taken for the norm, as np.linalg.norm(…, 2) does with a "
            "matrix: it is √Σ g².",
            lambda g, m: g * min(1.0, m / np.linalg.norm(g, 2)),
        ),
        Variant(
            "root of the mean",
            "The root of the mean square is taken for the norm, which is √Σ g², without a division.",
            lambda g, m: g * min(1.0, m / np.sqrt((g**2).mean())),
        ),
        Variant(
            "row by row",
            "Each row is clipped by its own norm: the norm is that of all numbers together.",
            lambda g, m: g * np.minimum(1.0, m / np.sqrt((g**2).sum(-1, keepdims=True))),
        ),
        Variant(
            "column by column",
            "Each column is clipped by its own norm: the norm is that of all numbers together.",
            lambda g, m: g * np.minimum(1.0, m / np.sqrt((g**2).sum(0))),
        ),
        Variant(
            "subtracted",
            "What is too much is subtracted: multiply by most / norm.",
            lambda g, m: g - max(0.0, _norm(g) - m),
        ),
        # The right numbers, in the wrong array.
        Variant(
            "in place",
            "The gradient is changed in place, and whoever called still needs it: write gradient * … instead of *=.",
            _in_place,
        ),
        *spoilt(clip)[:4],
        *rounded(clip)[1:],
    ),
    hints=(
        "norm = np.sqrt((gradient ** 2).sum()), one number for the whole array.",
        "The factor is most / norm where that is below 1, else 1.",
    ),
    praise="One factor for all, so the direction stays, and a short gradient is left alone.",
)
