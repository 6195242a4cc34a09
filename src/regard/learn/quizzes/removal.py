"""What breaks if a head is off: the model is run without it, and its outputs are compared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from regard import html
from regard.errors import RegardError
from regard.learn.quizzes.picture import Picture
from regard.learn.quizzes.question import Choice, Question, card_id
from regard.learn.quizzes.source import Source
from regard.watch import intervene

CHOICES = 4
# The most costly head is ahead of the others by so many times, and changes so much at all.
TIMES, LEAST = 1.5, 0.01


class Removal:
    """A model and its inputs, run again without single heads.

    Args:
        model: in the mode in which it is to be run. inputs: keyword arguments of its call.
    """

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any]) -> None:
        self.model, self.inputs = model, dict(inputs)
        # A head may be in many questions, and each run costs a pass.
        self.change = lru_cache(maxsize=None)(self._change)
        self.whole, self.predicts = self._run()

    def question(self, source: Source, rng: Random) -> Question | None:
        """Which of some heads changes the output most; None where none is clearly ahead."""
        heads = source.heads()
        if len(heads) < 2:
            return None
        chosen = rng.sample(heads, min(CHOICES, len(heads)))
        changes = [self.change(source.call(head).layer, head.head) for head in chosen]
        numbers = [value for value in changes if value is not None]
        if len(numbers) < len(changes):
            return None
        # Compared with the second, as that is the strongest of the wrong ones.
        order = sorted(range(len(chosen)), key=numbers.__getitem__, reverse=True)
        right, best, second = order[0], numbers[order[0]], numbers[order[1]]
        if best < LEAST or best < TIMES * second:
            return None
        measured, unit, axis = (
            "length of the change, as a part of the output's length,",
            "of it",
            "relative change",
        )
        if self.predicts:
            measured, unit, axis = "mean Kullback–Leibler divergence of its predictions", "nats", "nats"
        return Question(
            card_id("removal", source.identity, sorted((head.call, head.head) for head in chosen)),
            "removal",
            14,
            "One of these heads is switched off: its output is 0. Without which one do the model's outputs change "
            "most?",
            f'Each was switched off in turn, by rg.intervene(model, [(layer, head)], output="zero"). The {measured} '
            f"is {html.number(best)} {unit} without {source.name(chosen[right])}, and at most {html.number(second)} "
            "without another. What a map looks like does not say it: one has to try.",
            tuple(
                Choice(source.name(head), value, source.picture(head))
                for head, value in zip(chosen, numbers, strict=True)
            ),
            right,
            shown=Picture.of_bars(
                numbers, [source.name(head) for head in chosen], "Change of the outputs without a head", axis
            ),
            subject=source.subject(*chosen),
        )

    def _change(self, layer: str, head: int) -> float | None:
        """How far outputs are from those of the whole model; None where the head cannot be switched off."""
        try:
            with intervene(self.model, [(layer, head)], output="zero"):
                without, _ = self._run()
        except RegardError:
            return None
        # Predictions are compared as distributions: a shift of all logits is no change.
        if self.predicts:
            right, other = (values.double().log_softmax(-1) for values in (self.whole, without))
            return float((right.exp() * (right - other)).sum(-1).mean())
        return float((without - self.whole).double().norm() / self.whole.double().norm())

    def _run(self) -> tuple[Tensor, bool]:
        """The output, and whether it is logits."""
        with torch.no_grad():
            output = self.model(**self.inputs)
        logits = getattr(output, "logits", None)
        if isinstance(logits, Tensor):
            return logits, True
        # Of a tuple or an output of transformers the first is what the next module gets.
        while not isinstance(output, Tensor):
            output = output[0]
        return output, False
