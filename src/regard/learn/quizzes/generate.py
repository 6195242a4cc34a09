"""Questions from a record, a profile or a model, with the answer measured in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import torch
from torch import nn

from regard.checks.arguments import checked, whole
from regard.errors import ArgumentError, FewQuestionsWarning
from regard.learn.quizzes import averages, rows, structure
from regard.learn.quizzes.compare import COMPARISONS, compare
from regard.learn.quizzes.question import Question
from regard.learn.quizzes.removal import Removal
from regard.learn.quizzes.source import Source
from regard.record import Profile, Record
from regard.watch import watch

Template = Callable[[Source, Random], "Question | None"]

TEMPLATES: dict[str, Template] = {
    **{rule.template: compare(rule) for rule in COMPARISONS},
    "rest": rows.rest,
    "temperature": rows.temperature,
    "sharpen": rows.sharpen,
    "window": rows.window,
    "ceiling": rows.ceiling,
    "effective keys": rows.effective,
    "allowed keys": rows.allowed_keys,
    "most received": structure.most_received,
    "shared keys": structure.shared_keys,
}
# Tries of a template in a row before it is given up: chance may meet unclear cases many times.
TRIES = 40


@checked
def quiz(
    source: Record | Profile | nn.Module,
    inputs: Mapping[str, Any] | None = None,
    *,
    model: nn.Module | None = None,
    tokens: list[str] | None = None,
    count: int = 10,
    seed: int = 0,
) -> tuple[Question, ...]:
    """Questions about a model that was watched, each with one right answer that was measured in it.

    A question is asked only where the right answer is clearly apart from every wrong one. A record with
    `keep="vectors"` has the most to ask of: without them, questions on single queries and their weights are left out.

    Args:
        source: a record; a profile; or a model, which is then run on `inputs`, watched.
        inputs: keyword arguments of the model's call.
        model: the model that a record is of: with its `inputs`, questions on heads that are switched off are asked
            too, for which the model is run.
        tokens: of the first text, where `source` is a model.
        count: how many questions at most.
        seed: the same seed gives the same questions of the same source.

    Returns:
        The questions. A source that cannot give so many clear ones gives fewer, and a `FewQuestionsWarning` says so.

    Raises:
        ArgumentError: a model without inputs, or another source.
        WatchError: a call of the model that cannot be read.

    Example:
        >>> import torch, regard as rg
        >>> from regard.embedded import llama
        >>> model = llama.load()
        >>> with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        ...     _ = model(torch.arange(3, 30)[None])
        >>> questions = rg.learn.quiz(record, count=5)
        >>> len(questions), sorted({question.lesson for question in questions})
        (5, [2, 4, 8, 13, 16])
    """
    count, rng = whole("count", count, 0), Random(whole("seed", seed, 0))
    if isinstance(source, nn.Module):
        if inputs is None:
            raise ArgumentError(
                "inputs must be given with a model, got None: the keyword arguments of its call"
            )
        model, source = source, _watched(source, inputs, tokens)
    if isinstance(source, Profile):
        questions = _drawn(averages.templates(source), [None], rng, count)
    elif isinstance(source, Record):
        templates = dict(TEMPLATES)
        if model is not None:
            if inputs is None:
                raise ArgumentError(
                    "inputs must be given with a model, got None: the keyword arguments of its call"
                )
            templates["removal"] = Removal(model, inputs).question
        questions = _drawn(templates, _texts(source), rng, count)
    else:
        raise ArgumentError(f"source must be a record, a profile or a model, got {type(source).__name__}")
    result = tuple(questions)
    if len(result) < count:
        text = f"{len(result)} of {count} questions: no other has an answer that is clearly apart from the wrong ones"
        warnings.warn(text, FewQuestionsWarning, stacklevel=2)
    return result


def draw(record: Record, count: int, seed: int = 0) -> tuple[Question, ...]:
    """Questions from a record, as `quiz` gives them; where they are fewer than `count`, nobody is warned."""
    return tuple(_drawn(TEMPLATES, _texts(record), Random(seed), count))


def _texts(record: Record) -> list[Source]:
    texts = max((call.sizes.batch for call in record), default=0)
    return [Source(record, batch) for batch in range(texts)]


def _drawn(
    templates: Mapping[str, Callable[[Any, Random], Question | None]],
    sources: list[Any],
    rng: Random,
    count: int,
) -> Iterator[Question]:
    """Questions of all templates in turn, none twice, until there are enough or no template has any left."""
    # The order of kinds is by the seed too: a short quiz is not always of the same ones.
    names, asked_before, given_up = list(templates), set[int](), set[str]()
    rng.shuffle(names)
    number = 0
    while sources and number < count and len(given_up) < len(names):
        # One of each in turn, so that ten questions are of ten kinds.
        for name in names:
            if name in given_up or number == count:
                continue
            for _ in range(TRIES):
                question = templates[name](rng.choice(sources), rng)
                if question is not None and question.card_id not in asked_before:
                    asked_before.add(question.card_id)
                    number += 1
                    yield question
                    break
            else:
                given_up.add(name)


def _watched(model: nn.Module, inputs: Mapping[str, Any], tokens: list[str] | None) -> Record:
    with torch.no_grad(), watch(model, keep="vectors", tokens=tokens) as record:
        model(**inputs)
    return record
