"""What lessons 13 to 17 say: reading heads, what weights do not show, illness, long contexts, the engine."""

from __future__ import annotations

import numpy as np

from regard.learn.quizzes.concepts.concept import Concept, weights_of
from regard.learn.quizzes.picture import Picture

LENGTH = 10
BACK = np.arange(LENGTH)[:, None] - np.arange(LENGTH)[None, :]
PREVIOUS = weights_of(np.where(BACK >= 0, np.where(BACK == 1, 4.0, 0.0), -np.inf))
NEAR = np.where((BACK >= 0) & (BACK <= 3), 0.0, -np.inf)

LAST = (
    Concept(
        13,
        "diagonal",
        "A map, queries down and keys across, has a dark line just below its diagonal. What does the head look at?",
        "At the token just before.",
        ("At the token itself.", "At the token just after.", "At the first token."),
        "In row q the dark cell is in column q − 1.",
        Picture.of_weights(PREVIOUS, title="A previous-token head"),
    ),
    Concept(
        13,
        "bound",
        "A causal head has an entropy of 0.69 nats at query 1, the second one, and of 0.69 at query 100. Which is "
        "sharper?",
        "Query 100: of 101 keys it looks at about two, query 1 looks at both that it has.",
        (
            "Neither: equal entropies are equally sharp.",
            "Query 1: it has fewer keys.",
            "That cannot be: the entropy of a causal head grows with the position of the query, from 0 on.",
        ),
        "Entropy is at most ln n, and ln 2 = 0.69. So heads are compared by the fraction of that bound: 1 at query 1, "
        "0.15 at query 100.",
    ),
    Concept(
        13,
        "one text",
        "On one short text a head looks like an induction head. What makes that more than a guess?",
        "Random tokens, said twice, on which it does the same.",
        (
            "A larger picture of the same map.",
            "That its entropy is low.",
            "That its layer is one of the last ones, where such heads stand.",
        ),
        "A pattern on one text may be that text's. Random tokens leave nothing to go by but the repetition.",
    ),
    Concept(
        14,
        "explanation",
        "A head gives 0.9 of its weight to one token. What may be said of the model's answer?",
        "That this head looked there; whether the answer depends on it must be tried.",
        (
            "That the token could not be left out.",
            "That the head could be removed.",
            "That the answer rests on this token, and all others together count for a tenth of it.",
        ),
        "The value there may be nearly 0, later layers may not use the head, others may stand in for it. Switch it "
        "off, by rg.intervene, and see.",
    ),
    Concept(
        14,
        "short value",
        "A head gives the first token 0.6 of its weight, whose value vector is nearly 0. What does that token move?",
        "Hardly anything: what moves is weight times value.",
        (
            "0.6 of the output.",
            "More than all other tokens together.",
            "Nothing can be said without the queries and the keys.",
        ),
        "Kobayashi et al. (2020) multiply each weight by the length of what it brings. Such a head is at rest, "
        "although its map is striking.",
    ),
    Concept(
        14,
        "stand-ins",
        "Each of four heads is switched off alone, and the loss hardly changes. May all four be left out?",
        "Not without trying: they may stand in for each other.",
        (
            "Yes: the sum of four small changes is small.",
            "Yes, if they are in different layers, one after the other.",
            "No: a head can never be left out.",
        ),
        "In lesson 14 four induction heads together cost more than five times the sum of what each costs alone.",
    ),
    Concept(
        15,
        "collapse",
        "All queries of a head have an entropy near 0, and their scores grow without bound. Why does it stop learning?",
        "A saturated softmax passes hardly any gradient.",
        (
            "Its weights no longer add up to 1.",
            "Its values become 0.",
            "An entropy of 0 makes the loss infinite.",
        ),
        "The derivative of the softmax is diag(w) − w wᵀ, which is 0 where one weight is 1.",
    ),
    Concept(
        15,
        "sharp or ill",
        "A head has all of its weight on one key for every query. Is it ill?",
        "Not by that alone: a previous-token head is as sharp, and healthy.",
        (
            "Yes: the weights of a healthy head are spread over many keys.",
            "No: the sharper, the better.",
            "Only if it is in the first layer.",
        ),
        "Sharpness is what many roles need. What tells illness is the same key for all queries, scores that keep "
        "growing, and a gradient that vanishes.",
    ),
    Concept(
        16,
        "cache",
        "A model writes token by token with a KV cache. What does it compute for each new token in a layer's "
        "attention?",
        "One row: the new query against all keys so far.",
        (
            "All rows again.",
            "One column: all queries against the new key.",
            "One weight: the new query against the new key.",
        ),
        "Keys and values of the past do not change under a causal mask, so they are stored. Their memory grows with "
        "every token.",
    ),
    Concept(
        16,
        "sink",
        "Why do many heads of trained models give the first token so much weight?",
        "Weights must add up to 1, and somewhere a head must rest.",
        (
            "The first word says what the text is about.",
            "It is the only one whose key all queries may attend, by chance.",
            "Rounding errors add up there.",
        ),
        "The sink's value is short, so resting there moves little. A learned sink, a logit beside the keys, does the "
        "same without a token.",
    ),
    Concept(
        16,
        "window",
        "A causal window lets each token attend itself and 3 before it. How many keys may the token at position 7 "
        "attend?",
        "4",
        ("3", "7", "8"),
        "Positions 4, 5, 6 and 7. In Regard that is rg.near(before=3): it counts other keys, so that nothing is off by "
        "one.",
        Picture.of_weights(weights_of(NEAR), title="A causal window: itself and 3 before"),
    ),
    Concept(
        17,
        "state",
        "A softmax over two halves of the keys is to be merged. What must each half hand over beside its output?",
        "Its largest score and its sum of exponentials, or their log-sum-exp.",
        (
            "All of its weights, as the softmax has to be computed again over all keys together.",
            "Its number of keys alone.",
            "Nothing: the mean of the two outputs is right.",
        ),
        "Each half has divided by its own sum. By the two sums, at a common largest score, each gets its share of the "
        "whole.",
    ),
    Concept(
        17,
        "received",
        "Why does what a key receives from all queries take a second walk over the tiles?",
        "A weight is known only when its row's sum over all keys is.",
        (
            "Columns lie apart in memory.",
            "The first walk is in lower precision, and the second one corrects it.",
            "The mask is not known before.",
        ),
        "Output and entropy can be folded along a row, tile by tile. A column adds weights of many rows, each of which "
        "must first be finished.",
    ),
)
