"""A penalty on heads whose entropy leaves its bounds, to be added to a loss. Knows entropies, and no optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.checks.arguments import checked, module, number
from regard.errors import ArgumentError, WatchError
from regard.record import Record
from regard.record.table import entropy_fraction
from regard.statistics.observation import Observation
from regard.watch.modules import CallSite
from regard.watch.recorder import Recorder
from regard.watch.resolved import ResolvedCall
from regard.watch.selection import layers_of, refuse_compiled, selected_modules
from regard.watch.settings import Settings


@checked
@contextmanager
def entropy_regularization(
    model: nn.Module,
    *,
    low: float = 0.1,
    high: float = 1.0,
    weight: float = 1.0,
    layers: str | int | Iterable[str | int] | None = None,
) -> Iterator[EntropyPenalty]:
    """A penalty on heads that are too sharp or too flat, as long as the block lasts.

        with remedies.entropy_regularization(model, low=0.2) as penalty:
            for batch in batches:
                loss = model(**batch).loss + penalty()
                loss.backward()
                …

        penalty = weight · mean over heads of  max(0, low − f)² + max(0, f − high)²

    where f is a head's mean entropy fraction over the queries of a forward pass, exact and differentiable (a penalty on
    entropy that leaves a tolerance is that of Jha and Reagen 2025, arXiv 2501.03489; that a training fails as entropy
    falls, of Zhai et al. 2023, arXiv 2303.06296). Works wherever `watch` can read a call, in O(n) memory. Passes
    without gradients are left alone, and outputs stay what they are, bit for bit.

    It must begin in time: the entropy of a head that is wholly on one key has no gradient any more. Not for models
    under gradient checkpointing.

    Args:
        model: any module; not one that `torch.compile` made.
        low: entropy fraction below which a head is penalized, at least 0; 0: never.
        high: entropy fraction above which it is, at most 1; 1: never.
        weight: of the penalty, in units of the loss.
        layers: which modules, as for `watch`; None: all.

    Yields:
        The `EntropyPenalty`: calling it gives the penalty of the passes since the last time.

    Raises:
        ArgumentError: bounds out of range, a layer that does not exist.
        WatchError: a call that cannot be read exactly, or whose weights show no gradient; names the module.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> with entropy_regularization(layer, low=0.999) as penalty:
        ...     loss = layer(torch.randn(2, 11, 16)).square().mean() + penalty()
        >>> loss.backward()
        >>> layer.qkv.weight.grad.shape
        torch.Size([48, 16])
    """
    model, weight = module("model", model), number("weight", weight, least=0)
    low, high = number("low", low, least=0), number("high", high, above=0)
    if not low < high <= 1:
        raise ArgumentError(f"low and high must be such that 0 ≤ low < high ≤ 1, got {low:g} and {high:g}")
    penalty = EntropyPenalty(low, high, weight)
    settings = Settings(False, ("entropy", "allowed"), None, 0, False)
    recorder = _Entropies(model, settings, selected_modules(model, layers_of(layers)), penalty)
    refuse_compiled(recorder.modules)
    with recorder.watching():
        yield penalty


class EntropyPenalty:
    """What `entropy_regularization` adds to a loss.

    Attributes:
        low, high: the bounds of the entropy fraction. weight: of the penalty.
    """

    def __init__(self, low: float, high: float, weight: float) -> None:
        self.low, self.high, self.weight = low, high, weight
        self._heads: list[Tensor] = []

    def __call__(self) -> Tensor:
        """The penalty of all forward passes with gradients since the last call, one number with a gradient.

        Raises:
            WatchError: there was none in which attention was seen.
        """
        if not self._heads:
            raise WatchError(
                "a penalty needs a forward pass of the model with gradients since the last one, in this thread and "
                "not through torch.compile, got none in which attention was seen"
            )
        heads, self._heads = torch.cat([part.to(self._heads[0]) for part in self._heads]), []
        return self.weight * heads.mean()

    def add(self, seen: Observation) -> None:
        """Take in what was observed of one attention call."""
        values, known = entropy_fraction(seen)
        # In float64 a mean over many queries of float32; a head without choice is at its bound, and no fault.
        count = known.sum((0, 2))
        mean = torch.where(known, values, 0.0).double().sum((0, 2)) / count.clamp(min=1)
        outside = (self.low - mean).clamp(min=0).square() + (mean - self.high).clamp(min=0).square()
        self._heads.append(torch.where(count > 0, outside, 0.0).float())


class _Entropies(Recorder):
    """A watch that keeps entropies with their gradients, and no record."""

    differentiates = True

    def __init__(
        self, model: nn.Module, settings: Settings, selected: set[str] | None, penalty: EntropyPenalty
    ) -> None:
        super().__init__(model, settings, Record(), selected)
        self._penalty = penalty

    def site(self, child: str | None = None) -> CallSite | None:
        """The module that a call made now belongs to, where its gradient is wanted."""
        if not torch.is_grad_enabled():
            return None
        return super().site(child)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        # Unlike a watch's own, with gradients: what is observed here becomes a part of the loss.
        with self._muting(), torch._C.DisableTorchFunction():
            yield

    def _add(self, site: CallSite, resolved: ResolvedCall, observation: Observation) -> None:
        entropy = observation.entropy
        learned = any(parameter.requires_grad for parameter in site.module.parameters())
        if learned and (entropy is None or not entropy.requires_grad):
            raise WatchError(
                f"{site.layer} ({type(site.module).__name__}): the entropy of its weights has no gradient, as they are "
                f"made in a way that shows them alone. Way out: leave it out with layers=…"
            )
        self._penalty.add(observation)
