"""The tasks on an input of one's own: what a trained model answers, and where its attention was."""

from __future__ import annotations

from pathlib import Path

import torch

from regard import embedded
from regard.errors import ArgumentError
from regard.record import Record
from regard.statistics import TABLE, token_groups
from regard.tasks.common import pretrained
from regard.tasks.common.result import Result
from regard.watch import watch

__all__ = ["LOOKS", "Result", "look", "record_of"]

LOOKS = ("translate", "bottleneck", "answer", "summarize", "caption")
"""The tasks that have an answer to show; `language` is what `regard look` shows of any model."""


def look(
    task: str, text: str | Path | None = None, *, model: str | None = None, into: str | None = None
) -> Result:
    """Run a trained model of a task on an input.

    Args:
        task: one of `LOOKS`.
        text: what to read; a picture's file for "caption"; None: an example.
        model: one of the task's; None: the one whose attention reads best.
        into: for translations, "fr" (which None is) or "de".

    Raises:
        ArgumentError: an input that is not of the task; says what is.
        ModelError: the package does not bring the model.
    """
    if task not in LOOKS:
        raise ArgumentError(f"the task must be one of {', '.join(LOOKS)}, got {task!r}")
    translates = task in ("translate", "bottleneck")
    if into is not None and not translates:
        raise ArgumentError(f"into (--to) must be left out, as {task} has no other language, got {into!r}")
    # Models need transformers, which takes seconds to import: a task is imported where it is asked for.
    if task == "caption":
        from regard.tasks.caption import look as caption

        return caption.look(None if text is None else Path(text), model=model)
    if isinstance(text, Path):
        raise ArgumentError(f"{task} must be given its text, got the path {str(text)!r}")
    if translates:
        from regard.tasks.translate import look as translate

        return translate.look(text, task=task, model=model, into="fr" if into is None else into)
    if task == "answer":
        from regard.tasks.answer import look as answer

        return answer.look(text, model=model)
    from regard.tasks.summarize import look as summarize

    return summarize.look(text, model=model)


@torch.no_grad()
def record_of(task: str, model: str) -> Record:
    """All attention of a trained model of a task while it reads the task's example.

    Raises:
        ArgumentError: there is no such task or model.
        ModelError: the package does not bring the model.
    """
    if task in LOOKS:
        return look(task, model=model).record
    network, tokenizer = pretrained.load(task, model)
    ids = tokenizer(embedded.TEXT, return_tensors="pt")["input_ids"]
    tokens = [tokenizer.decode(number) for number in ids[0].tolist()]
    groups = token_groups(ids, [tokens], causal=network.can_generate())
    with watch(network, tokens=tokens, statistics=(*TABLE, *groups)) as record:
        network(input_ids=ids)
    return record
