"""`prune`: a model without some of its heads, smaller and faster; or without as many as a budget of loss allows.

Knows losses, sizes and times; how heads are taken is `surgery.py`'s, and how they are looked for `search.py`'s.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from regard.analysis.importance import Loss, Texts
from regard.analysis.pruning.loading import note
from regard.analysis.pruning.proof import prove
from regard.analysis.pruning.search import grown, searched
from regard.analysis.pruning.surgery import attentions, remove
from regard.bench.timing import interleaved
from regard.checks.arguments import checked, number
from regard.errors import ArgumentError
from regard.watch.plan import Change, Pair
from regard.watch.selection import selected_modules
from regard.watch.undisturbed import undisturbed

# Of the interval that `Pruned.growth` reports, whatever the search asked for.
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Pruned:
    """A smaller model, and what it cost and gained.

    Attributes:
        model: a copy of the model without these heads; the model itself is as it was.
        heads: pairs (name of the layer, head), by the numbers of the model that was given.
        parameters: of the model before, and of the smaller one.
        loss: mean over texts before and after, of texts that no head was chosen by; None where no texts were given.
        growth: by which part that loss grew, and the ends of Student's t interval of 95 %, text by text: with few texts
            a budget that the mean keeps may well be broken on others; None likewise. Where a search went on because
            the first choice broke the budget, the same texts were looked at several times, and the interval is too
            narrow by as much.
        seconds: of all those texts before and after, the least of several runs; None likewise.
    """

    model: Any
    heads: tuple[tuple[str, int], ...]
    parameters: tuple[int, int]
    loss: tuple[float, float] | None = None
    growth: tuple[float, float, float] | None = None
    seconds: tuple[float, float] | None = None

    def __repr__(self) -> str:
        facts = [f"{len(self.heads)} heads fewer", f"parameters {self.parameters[0]} → {self.parameters[1]}"]
        if self.loss is not None:
            facts.append(f"loss {self.loss[0]:.4g} → {self.loss[1]:.4g}")
        if self.growth is not None:
            mean, low, high = self.growth
            facts.append(f"growth {mean:+.2%} ({low:+.2%} to {high:+.2%})")
        if self.seconds is not None:
            facts.append(f"seconds {self.seconds[0]:.3g} → {self.seconds[1]:.3g}")
        return f"Pruned({', '.join(facts)})"


@checked
def prune(
    model: nn.Module,
    heads: Iterable[Pair] | None = None,
    *,
    budget: float | None = None,
    batches: Iterable[Mapping[str, Any]] | None = None,
    loss: Loss | None = None,
    method: Literal["gradient", "zero"] = "gradient",
    confidence: float | None = None,
) -> Pruned:
    """Take heads out of a model for good: what is left has fewer parameters and gives what zeroed heads would give.

    Heads of `regard.nn.MultiHeadAttention` and all models of it, and in transformers of BERT, GPT-2, Llama and models
    built like them can be taken; of heads that share keys, whole groups. A model of transformers is saved by
    `save_pretrained` and loaded by `load_pruned`, or by `from_pretrained` where its own config can say what is missing
    (Llama's, if every layer loses as many).

    With a budget the heads are looked for on every second batch: the least important ones go one after the other, as
    long as the loss grows by at most the budget; a group that costs more stays. The other batches prove it: if their
    loss grows by more, the half of these heads that matters least is tried, then the half of that, and so on. On few
    texts a mean may keep a budget by chance: with a confidence the whole interval of the growth must keep it.

    With batches, the smaller model must give for the first of them what the model gives with these heads zeroed.

    Args:
        model: it stays as it is.
        heads: pairs (layer, head) as for `rg.intervene`; None: they are looked for.
        budget: by which part of itself the loss may grow, such as 0.01.
        batches: the model's keyword arguments, in dicts, to measure loss and speed on; a search needs two or more.
        loss: as for `importance`.
        method: how the importance of heads is measured for the search, as for `importance`.
        confidence: of Student's t interval, text by text, whose upper end must keep the budget on the batches that
            choose and on those that prove, above 0 and below 1; None: the mean must.

    Returns:
        The smaller model, with loss, parameters and speed before and after.

    Raises:
        ArgumentError: heads that cannot be taken, neither heads nor a budget, or both; a budget that cannot be met; a
            confidence without a budget; a smaller model that does not give what zeroed heads give.

    Example:
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 4)
        >>> smaller = rg.analysis.prune(layer, [("MultiHeadAttention", 1)])
        >>> smaller
        Pruned(1 heads fewer, parameters 1088 → 820)
        >>> smaller.model(torch.randn(1, 3, 16)).shape
        torch.Size([1, 3, 16])
    """
    if (heads is None) == (budget is None):
        raise ArgumentError("heads or a budget must be given, and not both")
    if confidence is not None:
        confidence = number("confidence", confidence, above=0, below=1)
        if budget is None:
            raise ArgumentError("confidence needs a budget, which the interval must keep; got heads alone")
    texts = None
    if batches is not None:
        texts = Texts.of(batches, loss)
    if heads is not None:
        gone = _named(model, heads)
    else:
        share = number("budget", budget, above=0)
        if texts is None or len(texts.inputs) < 2:
            raise ArgumentError(
                "batches must have two texts or more, to choose by one half and prove by the other"
            )
        with undisturbed(model):
            gone = searched(model, texts, share, method, confidence)
        texts = texts.halves()[1]
    smaller, known = copy.deepcopy(model), attentions(model)
    remove(smaller, gone)
    note(smaller, gone, known)
    if texts is not None:
        prove(model, smaller, gone, texts.inputs[0])
    losses, growth, times = None, None, None
    if texts is not None:
        with undisturbed(model), undisturbed(smaller), torch.no_grad():
            before, after = texts.losses(model), texts.losses(smaller)
            losses = (float(before.mean()), float(after.mean()))
            growth = grown(before, after, CONFIDENCE)
            times = _seconds(texts, model, smaller)
    pairs = tuple((layer, head) for layer, numbers in gone.items() for head in numbers)
    return Pruned(smaller, pairs, (_size(model), _size(smaller)), losses, growth, times)


def _named(model: nn.Module, heads: Iterable[Pair]) -> dict[str, list[int]]:
    """The heads that are meant, by the names of their modules."""
    known, gone = attentions(model), dict[str, list[int]]()
    # A change checks what pairs of layers and heads must be.
    for layer, head in Change(heads=tuple(heads), top=1).heads or ():
        if layer in known:
            names = [str(layer)]
        else:
            chosen = selected_modules(model, [layer]) or set()
            names = [name for name in known if name in chosen]
        if not names:
            listed = ", ".join(known) or "none"
            raise ArgumentError(
                f"heads can be pruned of Regard's layers, BERT, GPT-2 and Llama and their like, got {layer!r}; this "
                f"model has: {listed:.300}"
            )
        for name in names:
            gone.setdefault(name, []).append(head)
    return {name: sorted(set(numbers)) for name, numbers in gone.items()}


def _seconds(texts: Texts, before: nn.Module, after: nn.Module) -> tuple[float, float]:
    """The time that both models need for all texts, the least of several runs."""

    def run(model: nn.Module) -> None:
        for arguments in texts.inputs:
            model(**arguments)

    device = next((parameter.device.type for parameter in before.parameters()), "cpu")
    times = interleaved({"before": lambda: run(before), "after": lambda: run(after)}, device=device)
    return times["before"]["min_s"], times["after"]["min_s"]


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
