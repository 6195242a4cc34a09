"""Questions on one query of one head: where it looks, and what temperature and masks make of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from regard import html
from regard.learn.quizzes.picture import Picture
from regard.learn.quizzes.question import Choice, Question, card_id
from regard.learn.quizzes.source import Head, Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

CHOICES = 4
# Of the right entropy from each wrong one, in nats, and of weights.
ENTROPIES_APART, WEIGHTS_APART = 0.15, 0.06
# A largest weight is clear that is so much ahead of the next one.
AHEAD, TIMES = 0.05, 1.3
FEWEST = 4  # keys that a query may attend, for a question on its weights
WINDOW = 4  # keys
SHOWN = 3  # decimals of a weight that is written


def softmax(weights: Numbers, temperature: float) -> Numbers:
    """The weights that the same scores give at another temperature: scores are log w and a constant."""
    with np.errstate(divide="ignore"):
        scores = np.log(weights) / temperature
    terms = np.exp(scores - scores.max())
    return np.asarray(terms / terms.sum())


def entropy(weights: Numbers) -> float:
    """−Σ w ln w, in nats."""
    positive = weights[weights > 0]
    return float(-(positive * np.log(positive)).sum())


def rest(source: Source, rng: Random) -> Question | None:
    """On which token a query rests; wrong ones are where other heads of the call look."""
    row = _row(source, rng)
    if row is None:
        return None
    head, query, weights, _ = row
    order = np.argsort(-weights, kind="stable").astype(np.int64)
    right = int(order[0])
    # Clear among all keys: a wrong choice may be any of them.
    if weights[right] - weights[order[1]] < AHEAD or weights[right] < TIMES * weights[order[1]]:
        return None
    keys = [right]
    for other in _others(source, head, query, order):
        if other not in keys and len(keys) < CHOICES:
            keys.append(other)
    rng.shuffle(keys)
    labels, token = source.tokens(head, 1), source.tokens(head, 0)[query]
    choices = tuple(Choice(labels[key], float(weights[key])) for key in keys)
    return _question(
        source,
        "rest",
        13,
        f"On which token does the query {token} rest in {source.name(head)}?",
        f"{labels[right]} gets {weights[right]:.0%} of its weight, more than any other: "
        f"the next, {labels[order[1]]}, has {weights[order[1]]:.0%}.",
        (head, query),
        choices=choices,
        right=keys.index(right),
        shown=source.row_picture(head, query),
        subject={"keys": keys},
    )


def temperature(source: Source, rng: Random) -> Question | None:
    """What the entropy becomes if the temperature doubles, or halves."""
    row = _row(source, rng)
    if row is None:
        return None
    head, query, weights, allowed = row
    # Either way, so that nobody learns that it always grows.
    now, word, degree = entropy(weights), *rng.choice((("doubles", 2.0), ("is halved", 0.5)))
    changed = softmax(weights, degree)
    right = entropy(changed)
    # What a learner may think: nothing changes, it goes in proportion, the wrong way, or all the way.
    wrong = [
        now,
        now * degree,
        entropy(softmax(weights, 1 / degree)),
        float(np.log(allowed)),
        0.0,
        now / degree,
    ]
    values = _spread(rng, right, wrong, ENTROPIES_APART)
    if values is None:
        return None
    token = source.tokens(head, 0)[query]
    flatter = "flatter" if degree > 1 else "sharper"
    return _question(
        source,
        "temperature",
        2,
        f"In {source.name(head)} the query {token} may attend {allowed} tokens, and its weights have an entropy of "
        f"{now:.2f} nats. What will the entropy be if the temperature {word}?",
        f"Dividing the scores by {degree:g} makes the weights {flatter}: the entropy goes from {now:.2f} to "
        f"{right:.2f} nats, and the largest weight from {weights.max():.0%} to {changed.max():.0%}. It cannot exceed "
        f"ln {allowed} = {np.log(allowed):.2f}.",
        (head, query),
        choices=tuple(Choice(f"{value:.2f} nats", value) for value in values),
        right=values.index(right),
        picture=source.row_picture(head, query),
        shown=_two(source, head, query, weights, changed, f"T = {degree:g}"),
        subject={"temperature": degree},
    )


def sharpen(source: Source, rng: Random) -> Question | None:
    """What the largest weight becomes if all scores are doubled."""
    row = _row(source, rng)
    if row is None:
        return None
    head, query, weights, allowed = row
    # Doubled scores are a temperature of one half.
    largest, changed = float(weights.max()), softmax(weights, 0.5)
    right = float(changed.max())
    wrong = [
        largest,
        min(2 * largest, 1.0),
        largest**2,
        1 / allowed,
        float(softmax(weights, 2.0).max()),
        largest / 2,
    ]
    values = _spread(rng, right, wrong, WEIGHTS_APART)
    if values is None:
        return None
    token = source.tokens(head, 0)[query]
    return _question(
        source,
        "sharpen",
        2,
        f"In {source.name(head)} the largest weight of the query {token} is {largest:.2f}. What will it be if all "
        "scores of this query are doubled?",
        f"Doubled scores square the terms e^s: each weight becomes w² / Σ w², here {largest:.2f}² / "
        f"{(weights**2).sum():.3f} = {right:.2f}.",
        (head, query),
        choices=tuple(Choice(f"{value:.2f}", value) for value in values),
        right=values.index(right),
        picture=source.row_picture(head, query),
        shown=_two(source, head, query, weights, changed, "doubled scores"),
    )


def window(source: Source, rng: Random) -> Question | None:
    """What a weight becomes if only the last few keys may be attended: a number."""
    row = _row(source, rng, kind="self")
    if row is None:
        return None
    head, query, weights, _ = row
    last = query + source.call(head).offset
    # Keys after the query would be masked as well; without any the mask is one that a learner knows.
    if not source.call(head).placed or last < WINDOW or (weights[last + 1 :] > 0).any():
        return None
    keys = list(range(last - WINDOW + 1, last + 1))
    # Where one key has nearly all, there is nothing to compute.
    inside = weights[keys]
    if inside.sum() < 0.2 or inside.max() > 0.9 * inside.sum():
        return None
    key = keys[int(inside.argmax())]
    right = float(weights[key] / inside.sum())
    labels, token = source.tokens(head, 1), source.tokens(head, 0)[query]
    listed = ", ".join(f"{labels[key]} {weights[key]:.{SHOWN}f}" for key in keys)
    return _question(
        source,
        "window",
        4,
        f"In {source.name(head)} the query {token} gives these weights to itself and the {WINDOW - 1} tokens before "
        f"it: {listed}. If a mask lets it attend these {WINDOW} alone, what will be the weight of {labels[key]}, from "
        f"0 to 1?",
        f"A mask takes keys away before the softmax, so those that are left share all of the weight: "
        f"{weights[key]:.{SHOWN}f} / {inside.sum():.{SHOWN}f} = {right:.3f}.",
        (head, query),
        number=right,
        tolerance=0.02,
        shown=source.row_picture(head, query),
        subject={"keys": keys, "key": key},
    )


def ceiling(source: Source, rng: Random) -> Question | None:
    """The most that an entropy can be: a number."""
    row = _row(source, rng)
    if row is None:
        return None
    head, query, weights, allowed = row
    token = source.tokens(head, 0)[query]
    return _question(
        source,
        "ceiling",
        13,
        f"In {source.name(head)} the query {token} may attend {allowed} tokens. What is the most that the entropy of "
        "its weights can be?",
        f"Entropy is largest when all {allowed} weights are equal, and is then ln {allowed} = {np.log(allowed):.3f} "
        f"nats. Here it is {entropy(weights):.2f}.",
        (head, query),
        number=float(np.log(allowed)),
        tolerance=0.02,
        unit="nats",
        shown=source.row_picture(head, query),
    )


def effective(source: Source, rng: Random) -> Question | None:
    """Over how many keys a row is spread, from its entropy: a number."""
    row = _row(source, rng)
    if row is None:
        return None
    head, query, weights, allowed = row
    # Near either end the number says nothing, and rounding of the entropy says much.
    value = entropy(weights)
    if value < 0.3 or value > np.log(allowed) - 0.1:
        return None
    right = float(np.exp(value))
    token = source.tokens(head, 0)[query]
    return _question(
        source,
        "effective keys",
        13,
        f"In {source.name(head)} the weights of the query {token}, which may attend {allowed} tokens, have an entropy "
        f"of {value:.2f} nats. Over how many tokens, as if all had equal weights, is its attention spread?",
        f"Equal weights on m tokens have the entropy ln m, so m = e^{value:.2f} = {html.number(right)}.",
        (head, query),
        number=right,
        # Of two digits of the entropy, and of those who round to a tenth.
        tolerance=max(0.06, 0.02 * right),
        unit="tokens",
        shown=source.row_picture(head, query),
    )


def allowed_keys(source: Source, rng: Random) -> Question | None:
    """How many keys a query may attend: a number."""
    row = _row(source, rng)
    if row is None:
        return None
    head, query, weights, allowed = row
    keys, token = len(weights), source.tokens(head, 0)[query]
    sizes = source.call(head).sizes
    return _question(
        source,
        "allowed keys",
        4,
        f"In {source.name(head)} there are {sizes.queries} queries and {keys} keys. How many of the keys may the query "
        f"{token} attend? Positions are counted from 0.",
        f"{allowed} of {keys}: the mask leaves it no other. Their weights add up to 1, and all others are exactly 0.",
        (head, query),
        number=float(allowed),
        tolerance=0.0,
        unit="keys",
        picture=source.picture(head),
        shown=source.row_picture(head, query),
    )


def _row(source: Source, rng: Random, kind: str | None = None) -> tuple[Head, int, Numbers, int] | None:
    """A query by chance, with its weights and the number of keys that it may attend."""
    heads = source.heads(kind)
    if not heads:
        return None
    # By chance among heads first: a layer of many heads has not more to ask of.
    head = rng.choice(heads)
    weights, allowed = source.weights(head), source.rows("allowed", head)
    queries = np.flatnonzero(source.rows_valid(head))
    if weights is None or allowed is None or not len(queries):
        return None
    query = int(rng.choice(queries.tolist()))
    count = int(allowed[query])
    # Where weights underflow, the scores cannot be read from them.
    if count < FEWEST or int((weights[query] > 0).sum()) != count:
        return None
    return head, query, weights[query], count


def _others(source: Source, head: Head, query: int, order: NDArray[np.int64]) -> Iterator[int]:
    """Keys for wrong answers: where the other heads of the call look, then the next largest weights."""
    for other in range(source.call(head).sizes.heads):
        weights = source.weights(Head(head.call, other))
        if weights is not None:
            yield int(weights[query].argmax())
    weights = source.weights(head)
    assert weights is not None
    yield from (int(key) for key in order[1:] if weights[query, int(key)] > 0)


def _spread(rng: Random, right: float, wrong: list[float], apart: float) -> list[float] | None:
    """The right value and wrong ones in order, no two closer than `apart`; None where fewer than three are."""
    values = [right]
    for value in rng.sample(wrong, len(wrong)):
        if len(values) < CHOICES and all(abs(value - other) >= apart for other in values):
            values.append(value)
    return sorted(values) if len(values) >= 3 else None


def _two(source: Source, head: Head, query: int, before: Numbers, after: Numbers, name: str) -> Picture:
    # The same keys in both rows, chosen by what was there before.
    keys = np.sort(np.argsort(-before, kind="stable")[:8])
    labels, token = source.tokens(head, 1), source.tokens(head, 0)[query]
    return Picture.of_weights(
        np.stack([before[keys], after[keys]]),
        ("as it is", name),
        [labels[key] for key in keys],
        f"{source.name(head)}: weights of {token}",
    )


def _question(
    source: Source,
    template: str,
    lesson: int,
    text: str,
    explanation: str,
    row: tuple[Head, int],
    *,
    subject: dict[str, Any] | None = None,
    **fields: Any,
) -> Question:
    head, query = row
    more = subject or {}
    # Which wrong answers stand beside the right one is no part of the card.
    parts = {name: value for name, value in more.items() if name != "keys"}
    return Question(
        card_id(template, source.identity, head.call, head.head, query, parts),
        template,
        lesson,
        source.where() + text,
        explanation,
        subject=source.subject(head, query=query, **more),
        **fields,
    )
