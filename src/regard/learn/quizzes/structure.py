"""Questions on keys and on groups of heads: which token is looked at most, which heads share their keys and values."""

from __future__ import annotations

from random import Random

import numpy as np

from regard import html
from regard.learn.quizzes.question import Choice, Question, card_id
from regard.learn.quizzes.source import Head, Source

CHOICES = 4
# A token receives clearly most that is so much ahead, in queries' worth of attention, and so many times.
AHEAD, TIMES = 0.5, 1.25
FEWEST = 5  # keys


def most_received(source: Source, rng: Random) -> Question | None:
    """Which token receives the most attention of one head."""
    heads = [head for head in source.heads() if source.call(head).received is not None]
    if not heads:
        return None
    # Cross-attention too: there the keys are of the other text.
    head = rng.choice(heads)
    received = source.call(head).received
    assert received is not None
    values = np.asarray(received[source.batch, head.head].detach().cpu().double())
    if len(values) < FEWEST or not np.isfinite(values).all():
        return None
    # Stable, so that equal ones keep the order of the text on every machine.
    order = np.argsort(-values, kind="stable")
    first, second = float(values[order[0]]), float(values[order[1]])
    if first - second < AHEAD or first < TIMES * second:
        return None
    right = int(order[0])
    keys = [right, *rng.sample(order[1:].tolist(), CHOICES - 1)]
    rng.shuffle(keys)
    labels, queries = source.tokens(head, 1), int(source.rows_valid(head).sum())
    return Question(
        card_id("most received", source.identity, head.call, head.head),
        "most received",
        13,
        f"{source.where()}Which token receives the most attention of all queries together in {source.name(head)}?",
        f"{labels[right]} receives {html.number(first)} of {queries}, as each query has 1 to give; the next, "
        f"{labels[order[1]]}, receives {html.number(second)}. In the map it is the darkest column.",
        tuple(Choice(labels[key], float(values[key])) for key in keys),
        keys.index(right),
        shown=source.picture(head),
        subject=source.subject(head, keys=keys),
    )


def shared_keys(source: Source, rng: Random) -> Question | None:
    """Which heads of a call with grouped heads share keys and values."""
    grouped = [head for head in source.heads() if source.call(head).sizes.group > 1]
    if not grouped:
        return None
    head = rng.choice(grouped)
    sizes = source.call(head).sizes
    heads, group = sizes.heads, sizes.group
    within = [other for other in range(heads) if other // group == head.head // group and other != head.head]
    outside = [other for other in range(heads) if other // group != head.head // group]
    # With one group all heads share, and there is nothing to choose.
    if not outside:
        return None
    right = rng.choice(within)
    # One that shares, and others that do not: exactly one is right.
    chosen = [right, *rng.sample(outside, min(CHOICES - 1, len(outside)))]
    rng.shuffle(chosen)
    first = head.head // group * group
    return Question(
        card_id("shared keys", source.identity, head.call, head.head),
        "shared keys",
        16,
        f"{source.names[head.call].capitalize()} has {heads} query heads and {heads // group} heads of keys and "
        f"values. Which of these query heads has the same keys and values as head {head.head}?",
        f"{group} query heads in a row share one: {first} to {first + group - 1}. They differ in their queries alone.",
        tuple(Choice(f"head {other}") for other in chosen),
        chosen.index(right),
        shown=source.picture(Head(head.call, right)),
        subject=source.subject(head, chosen=chosen),
    )
