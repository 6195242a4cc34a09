"""How much each head matters to a model's loss: by the gradient of a gate on it, and by taking it out.

Knows losses of texts and heads; how a head is gated or taken out is `rg.intervene`'s work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.analysis.head_outputs import mean_outputs
from regard.checks.arguments import checked, number
from regard.errors import ArgumentError, require
from regard.survey.batches import Batch, batches_of
from regard.watch import Change, Plan, intervene
from regard.watch.changes import HeadOutput, Mapped, Seen
from regard.watch.undisturbed import undisturbed

if TYPE_CHECKING:
    from pandas import DataFrame

Loss = Callable[[Any, Mapping[str, Any]], Tensor]


@dataclass(frozen=True, order=True)
class Head:
    """A head of a model: the name of its module, "self" or "cross", and its number."""

    layer: str
    kind: Literal["self", "cross"]
    head: int


@checked
def importance(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    loss: Loss | None = None,
    *,
    method: Literal["gradient", "zero", "mean"] = "gradient",
    confidence: float = 0.95,
) -> DataFrame:
    """How much each head matters to the loss.

    "gradient" puts a gate of 1 on each head's output and gives the mean over texts of |∂ loss / ∂ gate| (Michel et al.
    2019, arXiv 1905.10650), from one backward pass for each batch. "zero" and "mean" take each head out in turn, with
    zeros or its mean output over these texts in its place, and give by how much the loss of a text grows; that is one
    run over all batches for each head. The model runs in evaluation mode; its modes, its gradients and all random
    states are as before afterwards.

    Args:
        model: any module whose heads `rg.intervene` can change.
        batches: the model's keyword arguments, in dicts.
        loss: from what the model returns and the batch to the loss of each text, `(rows,)`, or one number, where the
            whole batch counts as one text. None: the `loss` that the model returns, of each row alone.
        method: how it is measured.
        confidence: of the interval, above 0 and below 1.

    Returns:
        A row per head: `layer`, `kind`, `head`, `importance`, `low`, `high`: the mean over texts in units of the loss,
        and Student's t interval of it, NaN for fewer than two texts.

    Raises:
        ArgumentError: no text, a loss that is no such tensor, an unknown method.
        WatchError: a call whose heads cannot be changed.
        MissingPackageError: pandas or scipy is not installed.
    """
    if method not in ("gradient", "zero", "mean"):
        raise ArgumentError(f'method must be "gradient", "zero" or "mean", got {method!r}')
    confidence = number("confidence", confidence, above=0, below=1)
    pandas, texts = require("pandas", extra="table"), Texts.of(batches, loss)
    with undisturbed(model):
        samples = measured(model, texts, method)
    rows = [
        (head.layer, head.kind, head.head, *mean_interval(sample, confidence))
        for head, sample in samples.items()
    ]
    return pandas.DataFrame(rows, columns=["layer", "kind", "head", "importance", "low", "high"])


def measured(model: nn.Module, texts: Texts, method: str) -> dict[Head, Tensor]:
    """The importance of each head for each text, as `importance` measures it; the model is in evaluation mode."""
    if method == "gradient":
        return _gradients(model, texts)
    means = None
    if method == "mean":
        means = mean_outputs(model, texts.inputs)
    # The same texts with and without the head: differences between texts cancel, and the interval is narrow.
    before = texts.losses(model)
    heads = heads_of(model, texts.inputs[:1])
    return {head: texts.losses(model, without(model, [head], means)) - before for head in heads}


@dataclass(frozen=True)
class Texts:
    """Texts to measure a loss on.

    Attributes:
        inputs: the model's keyword arguments. loss: of each text.
    """

    inputs: Sequence[Mapping[str, Any]]
    loss: Loss

    @classmethod
    def of(cls, batches: Iterable[Mapping[str, Any]], loss: Loss | None) -> Texts:
        """The texts of these batches; one by one where the model's own loss is taken, which is a mean.

        Raises:
            ArgumentError: there are none.
        """
        every: list[Batch] = list(batches_of(batches, 1, texts=False))
        if loss is None:
            every = [one for batch in every for one in batch.each()]
        if not every:
            raise ArgumentError("batches must have at least one text, got none")
        inputs = [batch.given for batch in every if isinstance(batch.given, Mapping)]
        return cls(inputs, loss or _own_loss)

    def halves(self) -> tuple[Texts, Texts]:
        """Every second batch, and the others."""
        # Alternating, as texts are often sorted by source or by length.
        return Texts(self.inputs[::2], self.loss), Texts(self.inputs[1::2], self.loss)

    def each(self, model: nn.Module) -> Iterator[Tensor]:
        """The losses of the texts of each batch, `(rows,)` or `(1,)`."""
        for arguments in self.inputs:
            value = self.loss(model(**arguments), arguments)
            if not isinstance(value, Tensor) or value.ndim > 1 or not value.is_floating_point():
                got = type(value).__name__
                if isinstance(value, Tensor):
                    got = f"{value.dtype} {tuple(value.shape)}"
                raise ArgumentError(f"loss must give a floating tensor (rows,) or one number, got {got}")
            yield value.reshape(-1)

    def losses(self, model: nn.Module, changed: AbstractContextManager[Any] | None = None) -> Tensor:
        """The loss of each text, float64, with the model's heads changed."""
        with torch.no_grad(), changed or nullcontext():
            values = [value.double().cpu() for value in self.each(model)]
        return torch.cat(values)


def without(
    model: nn.Module, heads: Sequence[Head], means: Mapping[str, Tensor] | None = None
) -> AbstractContextManager[Any]:
    """The model without some heads, or with their mean outputs in their place."""
    plan = [
        Change(heads=((head.layer, head.head),), kind=head.kind, output="zero" if means is None else means)
        for head in heads
    ]
    if not plan:
        return nullcontext()
    return intervene(model, Plan(plan))


def heads_of(model: nn.Module, inputs: Iterable[Mapping[str, Any]]) -> list[Head]:
    """The heads that run when the model is given this, in the order in which they do."""
    heads: dict[Head, None] = {}

    def look(outputs: HeadOutput) -> Tensor:
        kind: Any = outputs.kind
        heads.update({Head(outputs.layer, kind, head): None for head in outputs.numbers})
        assert outputs.output is not None
        return outputs.output

    with torch.no_grad(), intervene(model, Change(output=Seen(look))):
        for arguments in inputs:
            model(**arguments)
    return list(heads)


def _own_loss(result: Any, _batch: Mapping[str, Any]) -> Tensor:
    """The loss that a model returns, such as those of transformers with labels."""
    loss = getattr(result, "loss", None)
    if not isinstance(loss, Tensor):
        raise ArgumentError(
            f"loss must be given where the model returns none, got {type(result).__name__} without a loss: models of "
            f"transformers return one if the batch has labels"
        )
    return loss


def _gradients(model: nn.Module, texts: Texts) -> dict[Head, Tensor]:
    """|∂ loss / ∂ gate| of each head and text."""
    gates: dict[tuple[str, str], Tensor] = {}

    def gate(outputs: HeadOutput) -> Tensor:
        assert outputs.output is not None
        batch, heads = outputs.shape[:2]
        # A gate for each row: texts in one batch have their gradients apart.
        key = (outputs.layer, outputs.kind)
        if key not in gates:
            gates[key] = outputs.output.new_ones(batch, heads, requires_grad=True)
        return outputs.output * gates[key][:, :, None, None]

    gradients: dict[Head, list[Tensor]] = {}
    with torch.enable_grad(), intervene(model, Change(output=Mapped(gate))):
        for losses in texts.each(model):
            names, leaves = list(gates), list(gates.values())
            if not losses.requires_grad:
                raise ArgumentError(
                    "loss must be made of what the model returns, by functions with a gradient"
                )
            grads = torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
            for (layer, kind), leaf, grad in zip(names, leaves, grads, strict=True):
                # No gradient at all is that of a head on which the loss does not depend.
                rows = torch.zeros_like(leaf) if grad is None else grad
                # One number for all rows: the batch is one text, with one gate.
                if len(losses) != len(rows):
                    rows = rows.sum(0, keepdim=True)
                for head, column in enumerate(rows.detach().double().cpu().abs().unbind(1)):
                    this_kind: Any = kind
                    gradients.setdefault(Head(layer, this_kind, head), []).append(column)
            # The next batch has other texts, perhaps another number of them, and needs new gates.
            gates.clear()
    return {head: torch.cat(columns) for head, columns in gradients.items()}


def mean_interval(sample: Tensor, confidence: float) -> tuple[float, float, float]:
    """The mean of a sample `(texts,)`, and the ends of Student's t interval of it, NaN for fewer than two texts."""
    special = require("scipy.special", extra="analysis")
    mean, count = float(sample.mean()), len(sample)
    # A single text has no variance, so an interval would claim what nobody knows.
    if count < 2:
        return mean, np.nan, np.nan
    margin = special.stdtrit(count - 1, 0.5 + confidence / 2) * float(sample.std()) / count**0.5
    return mean, mean - margin, mean + margin
