"""The losses of a GPT and of a BERT."""

from __future__ import annotations

from functools import partial

import numpy as np

from regard.learn.exercise import Case, Exercise
from regard.learn.exercises.general import composed, spoilt
from regard.learn.exercises.inputs import numbers


def next_token_loss(logits, tokens):
    """The mean cross-entropy of each token, given those before it.

    logits (tokens, vocabulary), tokens (tokens,) of whole numbers; the logits at a position predict the token after it.
    Returns one number, in nats.
    """
    logits, targets = logits[:-1], tokens[1:]
    high = logits.max(-1, keepdims=True)
    log_sums = high[:, 0] + np.log(np.exp(logits - high).sum(-1))
    return (log_sums - logits[np.arange(len(targets)), targets]).mean()


def masked_loss(logits, labels):
    """The mean cross-entropy of the hidden tokens.

    logits (tokens, vocabulary): what the model says at each position. labels (tokens,) of whole numbers: the token that was
    hidden there, and -100 where none was; at least one was. Returns one number, in nats.
    """
    # What was not hidden could be read off, and teaches nothing.
    hidden = labels >= 0
    logits, labels = logits[hidden], labels[hidden]
    high = logits.max(-1, keepdims=True)
    log_sums = high[:, 0] + np.log(np.exp(logits - high).sum(-1))
    return (log_sums - logits[np.arange(len(labels)), labels]).mean()


def _logs(logits, axis=-1):
    shifted = logits - logits.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def _chances(logits):
    return np.exp(_logs(logits))


def _unstable(logits):
    with np.errstate(all="ignore"):
        terms = np.exp(logits)
        return np.log(terms / terms.sum(-1, keepdims=True))


def _rounded_to_0(logits):
    with np.errstate(all="ignore"):
        return np.log(_chances(logits))


def _mean(losses, known):
    return losses[known].mean()


def _all(logs, labels):
    return logs, labels


def _next(logs, tokens):
    return logs[:-1], tokens[1:]


def _loss(logits, labels, *, choose=_all, logs=_logs, collect=_mean):
    rows, labels = choose(logs(logits), labels)
    # Where a label is none any number does: it is not counted, unless that is the mistake.
    losses = -rows[np.arange(len(labels)), np.maximum(labels, 0)]
    return collect(losses, labels >= 0)


def _text(seed, tokens, vocabulary, size=1.0):
    ids = np.random.default_rng(seed + 1).integers(0, vocabulary, tokens)
    return Case({"logits": size * numbers(seed, tokens, vocabulary), "tokens": ids}, large=size > 10)


def _hidden(seed, tokens, vocabulary, where, size=1.0):
    labels = np.full(tokens, -100)
    labels[list(where)] = np.random.default_rng(seed + 1).integers(0, vocabulary, len(where))
    # Token 0 is one like any other.
    labels[where[0]] = 0
    return Case({"logits": size * numbers(seed, tokens, vocabulary), "labels": labels}, large=size > 10)


# Both losses are got wrong alike, once the positions are chosen.
LOGS = (
    (
        "no softmax",
        "The logits themselves are taken for logarithms of chances: subtract ln Σ exp first.",
        {"logs": lambda logits: logits},
    ),
    (
        "softmax over the positions",
        "The softmax runs over the positions: it must run over the vocabulary, axis=-1.",
        {"logs": lambda logits: _logs(logits, 0)},
    ),
    (
        "bits",
        "It is in bits: take np.log, the natural logarithm, for nats.",
        {"logs": lambda logits: _logs(logits) / np.log(2)},
    ),
    (
        "sign",
        "The sign is missing: logarithms of chances are negative, a loss is not.",
        {"logs": lambda logits: -_logs(logits)},
    ),
    (
        "no logarithm",
        "It is the mean of the chances: take −ln of each first.",
        {"logs": lambda logits: -_chances(logits)},
    ),
    (
        "one minus the chance",
        "It is the mean of 1 minus the chances: take −ln of each chance.",
        {"logs": lambda logits: _chances(logits) - 1},
    ),
    (
        "sum of the exponentials alone",
        "It is the mean of ln Σ exp: the logit of the right token must be subtracted from it.",
        {"logs": lambda logits: _logs(logits) - logits},
    ),
    (
        "unstable",
        "np.exp overflows on large logits, and NaN comes out: subtract each row's largest first.",
        {"logs": _unstable},
    ),
    (
        "logarithm of 0",
        "A chance too small for a float is 0, and its logarithm −inf: compute that logarithm as logit − ln Σ exp.",
        {"logs": _rounded_to_0},
    ),
)
# What becomes of the losses of all positions; the first two are often met with another mistake.
COLLECT = (
    (
        "sum",
        "The losses are added up: take their mean.",
        {"collect": lambda losses, known: losses[known].sum()},
    ),
    (
        "not averaged",
        "There is one loss for each token: take their mean.",
        {"collect": lambda losses, known: losses[known]},
    ),
    (
        "largest",
        "It is the largest of the losses: take their mean.",
        {"collect": lambda losses, known: losses[known].max()},
    ),
    (
        "root of the number",
        "The sum is divided by the root of the number of losses: divide by the number itself.",
        {"collect": lambda losses, known: losses[known].sum() / np.sqrt(known.sum())},
    ),
    (
        "perplexity",
        "It is the perplexity, the exponential of the loss: the loss itself is asked for.",
        {"collect": lambda losses, known: np.exp(losses[known].mean())},
    ),
    (
        "logarithm of the mean",
        "It is −ln of the mean chance: take the mean of the logarithms.",
        {"collect": lambda losses, known: -np.log(np.exp(-losses[known]).mean())},
    ),
)
# Which position predicts which token, in a GPT.
NEXT = (
    (
        "not shifted",
        "Nothing is shifted: the logits at p are compared with the token at p, and predict the one after it.",
        {"choose": _all},
    ),
    (
        "shifted the wrong way",
        "It is shifted the wrong way: logits[:-1] belong to tokens[1:].",
        {"choose": lambda logs, tokens: (logs[1:], tokens[:-1])},
    ),
    (
        "shifted by two",
        "It is shifted by two: the logits at p predict the token at p + 1.",
        {"choose": lambda logs, tokens: (logs[:-2], tokens[2:])},
    ),
    (
        "mean over all tokens",
        "The sum is divided by the number of all tokens: the first one is predicted by nothing, so it is one less.",
        {"collect": lambda losses, known: losses.sum() / (len(losses) + 1)},
    ),
)
_next_loss = partial(_loss, choose=_next)
# Logits of ±1000 give chances that round to 0, of which no logarithm can be taken.
LOSS = Exercise(
    name="next token loss",
    lesson=10,
    statement=(
        "Write the loss of a GPT: the logits at position p predict the token at p + 1. The loss is the mean of −ln of "
        "the chance that the softmax of the logits gives to the right token. The last logits predict nothing that is "
        "there."
    ),
    solution=next_token_loss,
    cases=(
        _text(421, 3, 3),
        _text(423, 5, 5),
        _text(425, 5, 3),
        _text(427, 7, 11),
        _text(429, 5, 3, size=1000.0),
    ),
    variants=(
        *composed(_next_loss, NEXT[:1], COLLECT[:2], LOGS[:4]),
        *composed(_next_loss, NEXT[1:]),
        *composed(_next_loss, COLLECT[2:]),
        *composed(_next_loss, LOGS[4:]),
        *spoilt(next_token_loss, ("negative",), axes=0),
    ),
    hints=(
        "logits[:-1] and tokens[1:] belong together.",
        "ln of a chance is logit − ln Σ exp(logits): no chance is needed, which might round to 0.",
        "logits[np.arange(len(targets)), targets] takes from each row the logit of the right token.",
    ),
    praise="Each position predicts the one after it, and a chance too small for a float does no harm.",
)

# A BERT predicts the token at the position itself, and hidden ones alone.
HIDDEN = (
    (
        "shifted",
        "It is shifted by one, as for a GPT: here the logits at a position are about the token that was hidden there.",
        {"choose": lambda logs, labels: (logs[:-1], labels[1:])},
    ),
    (
        "mean over all tokens",
        "The sum is divided by the number of all tokens: divide by how many were hidden.",
        {"collect": lambda losses, known: losses[known].sum() / len(losses)},
    ),
    (
        "visible as token 0",
        "Where nothing was hidden the label is taken for token 0: leave these positions out, and take"
        " those with labels >= 0.",
        {"collect": lambda losses, known: losses.mean()},
    ),
    (
        "shifted the other way",
        "It is shifted by one: the logits at a position are about the token that was hidden there.",
        {"choose": lambda logs, labels: (logs[1:], labels[:-1])},
    ),
    (
        "first logits",
        "The hidden tokens meet the first logits: take those at their positions, logits[labels >= 0].",
        {"choose": lambda logs, labels: (logs[: (labels >= 0).sum()], labels[labels >= 0])},
    ),
    (
        "token 0 left out",
        "labels > 0 leaves out token 0, which is one like any other: take labels >= 0.",
        {"choose": lambda logs, labels: (logs[labels > 0], labels[labels > 0])},
    ),
    (
        "visible tokens",
        "The positions are chosen the wrong way round: those with labels >= 0 were hidden.",
        {"collect": lambda losses, known: losses[~known].mean()},
    ),
    (
        "zeros for visible tokens",
        "There is one loss for each token, 0 where nothing was hidden: take the mean over the hidden ones.",
        {"collect": lambda losses, known: losses * known},
    ),
    (
        "softmax over the hidden positions",
        "The softmax runs over the hidden positions: it must run over the vocabulary, axis=-1.",
        {
            "logs": lambda logits: logits,
            "choose": lambda x, labels: (_logs(x[labels >= 0], 0), labels[labels >= 0]),
        },
    ),
)
# At either end one is hidden, so that a shift shows.
MASKED = Exercise(
    name="masked loss",
    lesson=10,
    statement=(
        "Write the loss of a BERT: some tokens were hidden, and the logits at each position say which token stood "
        "there. The loss is the mean, over hidden tokens alone, of −ln of the chance that the softmax of the logits "
        "gives to the right one. Labels are -100 where nothing was hidden. Nothing is shifted."
    ),
    solution=masked_loss,
    cases=(
        _hidden(901, 3, 3, (1,)),
        _hidden(903, 5, 3, (1, 2, 4)),
        _hidden(905, 5, 5, (3, 0)),
        _hidden(907, 7, 11, (6, 2, 3)),
        _hidden(909, 13, 7, (11, 0, 5, 6, 8)),
        _hidden(911, 5, 3, (0, 1, 3), size=1000.0),
    ),
    variants=(
        *composed(_loss, HIDDEN[:3], COLLECT[:1], LOGS[:4]),
        *composed(_loss, HIDDEN[3:]),
        *composed(_loss, COLLECT[1:]),
        *composed(_loss, LOGS[4:]),
        *spoilt(masked_loss, ("negative",), axes=0),
    ),
    hints=(
        "hidden = labels >= 0 chooses rows of the logits, and the labels that belong to them.",
        "As for a GPT, ln of a chance is logit − ln Σ exp(logits), and no chance is needed.",
        "logits[np.arange(len(labels)), labels] takes from each row the logit of the right token.",
    ),
    praise="Hidden tokens alone count, each at its position, and a chance too small for a float does no harm.",
)
