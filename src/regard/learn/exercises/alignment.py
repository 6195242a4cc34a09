"""How often a head looks at the right word."""

from __future__ import annotations

import numpy as np

from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.exercises.general import composed, rounded, spoilt


def alignment_score(weights, partner):
    """The share of written words that look most at their partner, among those that have one.

    weights (written, source): of cross-attention, each row adds up to 1. partner (written,) of whole numbers: which source
    word each was written for, counted from 0, and -1 where there is none; at least one has a partner. Returns one number.
    """
    right = weights.argmax(-1) == partner
    # A word without a partner can be neither right nor wrong.
    return right[partner >= 0].mean()


def _score(
    weights, partner, *, right=lambda w, p: w.argmax(-1) == p, among=lambda p: p >= 0, collect=np.mean
):
    with np.errstate(all="ignore"):
        return collect(right(weights, partner)[among(partner)])


def _rank(weights, partner):
    # How many source words have more weight than the partner.
    return (weights > np.take_along_axis(weights, partner[:, None], 1)).sum(-1)


def _at_partner(weights, partner):
    return weights[np.arange(len(partner)), partner]


def _aligned(seed, written, source, without):
    draw = np.random.default_rng(seed)
    partner = draw.integers(0, source, written)
    partner[: min(written, 2)] = 0, source - 1
    partner[list(without)] = -1
    # No two of a row are equally large, so that the largest is one; squares hardly add up to a half.
    shares = draw.permuted(np.tile((1.0 + np.arange(source)) ** 2, (written, 1)), axis=1)
    # About two of three look most at their partner.
    rows = np.flatnonzero((partner >= 0) & (draw.random(written) < 0.7))
    shares[rows, partner[rows]] += source**2 + draw.integers(0, source**3, len(rows))
    return Case({"weights": shares / shares.sum(-1, keepdims=True), "partner": partner})


# Where a word looks, and when that is right.
LOOKS = (
    (
        "argmax over the words written",
        "np.argmax runs over the written words: each of them looks at source words, so axis=-1.",
        {"right": lambda w, p: w.argmax(0) == p},
    ),
    (
        "words that look most at the partner",
        "It is counted which written word looks most at the partner: count where each written word "
        "looks most, axis=-1.",
        {"right": lambda w, p: w.argmax(0)[p] == np.arange(len(p))},
    ),
    (
        "weight of the partner",
        "It is the mean weight on the partner: what counts is whether the partner has the largest weight of its row.",
        {"right": _at_partner},
    ),
    (
        "largest weight",
        "It is the mean of the largest weights, wherever they lie: what counts is whether they lie on the partner.",
        {"right": lambda w, p: w.max(-1)},
    ),
    (
        "more than half",
        "The partner counts only where it has more than half of the weight: the largest of the row is enough.",
        {"right": lambda w, p: _at_partner(w, p) > 0.5},
    ),
    (
        "more than equal weights",
        "The partner counts wherever it has more than 1 / source of the weight: it must have the largest of the row.",
        {"right": lambda w, p: _at_partner(w, p) > 1 / w.shape[1]},
    ),
    (
        "first two",
        "The partner counts where it is second too: it must have the largest weight of the row.",
        {"right": lambda w, p: _rank(w, p) < 2},
    ),
    (
        "neighbors too",
        "The word beside the partner counts as right too: it must be the partner itself.",
        {"right": lambda w, p: abs(w.argmax(-1) - p) < 2},
    ),
    (
        "least weight",
        "The smallest weight is taken for where a word looks: take np.argmax.",
        {"right": lambda w, p: w.argmin(-1) == p},
    ),
    (
        "wrong ones",
        "The words that look elsewhere are counted: those that look most at their partner are asked for.",
        {"right": lambda w, p: w.argmax(-1) != p},
    ),
    (
        "counted from 1",
        "Source words are counted from 1: partner counts from 0, as np.argmax does.",
        {"right": lambda w, p: w.argmax(-1) + 1 == p},
    ),
)
# Which words are counted at all.
AMONG = (
    (
        "all words",
        "Words without a partner are counted too: leave them out, in the sum and in the number that divides it.",
        {"among": lambda p: p == p},
    ),
    (
        "first source word left out",
        "partner > 0 leaves out the words whose partner is number 0: take partner >= 0.",
        {"among": lambda p: p > 0},
    ),
    (
        "words without a partner",
        "Only words without a partner are looked at: take those with partner >= 0.",
        {"among": lambda p: p < 0},
    ),
)
# The words are right, and what is said of them is not.
COLLECT = (
    ("number", "It is the number of words: divide by how many have a partner.", {"collect": np.sum}),
    (
        "percent",
        "It is in percent: a share from 0 to 1 is asked for.",
        {"collect": lambda right: 100 * right.mean()},
    ),
    (
        "not averaged",
        "There is one number for each word: take their mean.",
        {"collect": lambda right: right},
    ),
)
# Source words before and after, words without a partner at either end, and more words than a guess could meet.
ALIGNMENT = Exercise(
    name="alignment",
    lesson=6,
    statement=(
        "Does a head of cross-attention look at the right word? For each written word partner has the number of its "
        "source word, and -1 where there is none, as for a comma. Write the share of words that look most at their "
        "partner, among those that have one."
    ),
    solution=alignment_score,
    cases=(
        _aligned(861, 4, 3, (3,)),
        _aligned(862, 5, 5, (2,)),
        _aligned(863, 7, 5, ()),
        _aligned(864, 11, 7, (3, 10)),
        _aligned(865, 13, 19, (4, 5, 12)),
        _aligned(866, 37, 11, (2, 17, 30, 31, 36)),
    ),
    variants=(
        *composed(_score, LOOKS[2:5], AMONG[:2]),
        *composed(_score, (*LOOKS[:2], *LOOKS[5:])),
        *composed(_score, AMONG[2:]),
        *composed(_score, COLLECT),
        Variant(
            "first rows",
            "The rows of weights are not chosen together with their partners: take the rows with partner >= 0 of both.",
            lambda w, p: (w.argmax(-1)[: (p >= 0).sum()] == p[p >= 0]).mean(),
        ),
        Variant(
            "no partner as the last word",
            "A word without a partner counts as right where it looks at the last source word, as weights[i, -1] is "
            "the last: leave such words out.",
            lambda w, p: (w.argmax(-1) == p % w.shape[1]).mean(),
        ),
        Variant(
            "no partner as right",
            "Words without a partner count as right: leave them out, in the sum and in the number that divides it.",
            lambda w, p: ((w.argmax(-1) == p) | (p < 0)).mean(),
        ),
        Variant(
            "divided by the source words",
            "The number of right words is divided by that of the source words: divide by how many have a partner.",
            lambda w, p: (w.argmax(-1) == p).sum() / w.shape[1],
        ),
        *spoilt(alignment_score, axes=0)[:3],
        *rounded(alignment_score),
    ),
    hints=(
        "weights.argmax(-1) has the source word that each written word looks at most.",
        "Compare it with partner, and take the mean over the words with partner >= 0 alone.",
    ),
    praise="Each written word counts by where it looks most, and words without a partner do not count at all.",
)
