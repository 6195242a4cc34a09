"""What is added to the scores after scale and softcap, as frozen values that are evaluated tile by tile.

Knows how to write itself onto a tile; never n × n unless the user hands over a dense tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.checks.arguments import listed, number, shown, tensor
from regard.errors import ArgumentError, ShapeError
from regard.masks.window import Window
from regard.shapes import Sizes

Index = tuple[slice, ...]


@dataclass(frozen=True, eq=False)
class Bias:
    """Base of the biases. A new one has `apply` and, if it holds a tensor that can be learned, names it `values`."""

    @property
    def may_block(self) -> bool:
        """Whether it can write −inf, which blocks a key as a mask does."""
        return False

    @property
    def parameter(self) -> Tensor | None:
        """The tensor that gradients flow to, if any."""
        return getattr(self, "values", None)

    def apply(self, scores: Tensor, window: Window) -> Tensor:
        """Scores of one tile `(batch, heads, q, k)` with the bias added."""
        raise NotImplementedError

    def blocks(self, scores: Tensor, result: Tensor, window: Window) -> Tensor:
        """Which keys it blocks as a mask does, given what `apply` made of `scores`; broadcasts to both.

        A score that was −inf before blocks nothing: the key is allowed, and gets no weight.
        """
        return (result == -torch.inf) & (scores != -torch.inf)

    def vjp(
        self, scores: Tensor, grad: Tensor, window: Window, learned: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of `scores` and, where it is `learned`, of `parameter`, given that of what `apply` gives.

        By autograd, unless the bias knows better, as those must that a graph may hold: below an operator of torch
        autograd records nothing.
        """
        # Leaves of a graph of their own, so that a backward pass of one tile stops here.
        leaves = [scores.detach().requires_grad_()]
        bias = self
        if learned and self.parameter is not None:
            leaves.append(self.parameter.detach().requires_grad_())
            bias = self.with_values(leaves[1])
        # Within a backward pass gradients are off, and nothing of `apply` would be recorded.
        with torch.enable_grad():
            biased = bias.apply(leaves[0], window)
        # A score_mod may look at neither the score nor a parameter: then there is nothing to differentiate.
        if not biased.requires_grad:
            return torch.zeros_like(grad), None
        scores_grad, *rest = torch.autograd.grad(biased, leaves, grad, allow_unused=True)
        if scores_grad is None:
            scores_grad = torch.zeros_like(grad)
        return scores_grad, next(iter(rest), None)

    def check(self, sizes: Sizes) -> None:
        """Raise ShapeError where the bias does not fit a call of these sizes."""

    def at(self, offset: int) -> Bias:
        """The same bias for a call whose first query has this position."""
        return self

    def part(self, window: Window) -> tuple[Bias, Index]:
        """The bias of one tile alone, and where its tensor lies in `parameter`: what the backward pass needs."""
        return self, ()

    def with_values(self, values: Tensor) -> Bias:
        """The same bias holding another tensor."""
        return replace(self, values=values)  # type: ignore[call-arg]


@dataclass(frozen=True, eq=False)
class Dense(Bias):
    """A tensor `(1|batch, 1|heads, 1|queries, 1|keys)` added to the scores.

    `row` is the position of its first row and `column` that of its first column.
    """

    values: Tensor
    row: int = 0
    column: int = 0

    def __post_init__(self) -> None:
        if self.values.ndim not in (2, 4) or not self.values.is_floating_point():
            raise ShapeError(
                "a dense bias must be a floating tensor (queries, keys) or (batch, heads, queries, keys), "
                f"got {self.values.dtype} {tuple(self.values.shape)}"
            )
        # (queries, keys) alone can be read in one way; of three axes there is no telling which is missing.
        if self.values.ndim == 2:
            object.__setattr__(self, "values", self.values[None, None])

    @property
    def may_block(self) -> bool:
        return True

    def check(self, sizes: Sizes) -> None:
        """Every axis is 1 or that of the call."""
        want = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
        if any(have not in (1, size) for have, size in zip(self.values.shape, want, strict=True)):
            raise ShapeError(
                f"bias must broadcast to (batch, heads, queries, keys) = {want}, got {tuple(self.values.shape)}"
            )

    def at(self, offset: int) -> Dense:
        """Rows are the call's queries, so they move with the first one."""
        return replace(self, row=offset)

    def _index(self, window: Window) -> Index:
        # An axis of size 1 is the same for every query, or every key.
        rows = columns = slice(None)
        if self.values.shape[2] > 1:
            rows = slice(window.q0 - self.row, window.q1 - self.row, window.step)
        if self.values.shape[3] > 1:
            columns = slice(window.k0 - self.column, window.k1 - self.column)
        return slice(None), slice(None), rows, columns

    def apply(self, scores: Tensor, window: Window) -> Tensor:
        """Add the tile's slice."""
        return _sum(scores, self.values[self._index(window)].to(scores.dtype))

    def blocks(self, scores: Tensor, result: Tensor, window: Window) -> Tensor:
        """Those at −inf."""
        return self.values[self._index(window)] == -torch.inf

    def vjp(
        self, scores: Tensor, grad: Tensor, window: Window, learned: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Each entry collects the gradients of the scores that it was added to."""
        if not learned:
            return grad, None
        return grad, grad.sum_to_size(self.values[self._index(window)].shape)

    def part(self, window: Window) -> tuple[Bias, Index]:
        """The tile's slice as a bias of its own."""
        index = self._index(window)
        return Dense(self.values[index], window.q0, window.k0), index


@dataclass(frozen=True, eq=False)
class Alibi(Bias):
    """−slope · |q − k|, one slope per head, `(heads,)` (Press et al. 2022, arXiv 2108.12409)."""

    values: Tensor

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or not self.values.is_floating_point():
            raise ShapeError(f"alibi slopes must be floating, (heads,), got {shown(self.values)}")

    def check(self, sizes: Sizes) -> None:
        """One slope per head."""
        if self.values.shape != (sizes.heads,):
            raise ShapeError(
                f"alibi needs one slope per head, ({sizes.heads},), got {tuple(self.values.shape)}"
            )

    def apply(self, scores: Tensor, window: Window) -> Tensor:
        """Subtract slope times distance."""
        return scores - self.values.to(scores.dtype).view(1, -1, 1, 1) * self._distance(scores, window)

    def vjp(
        self, scores: Tensor, grad: Tensor, window: Window, learned: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Each head's slope collects −|q − k| times the gradients of its scores."""
        if not learned:
            return grad, None
        return grad, -(grad * self._distance(scores, window)).sum((0, 2, 3))

    @staticmethod
    def _distance(scores: Tensor, window: Window) -> Tensor:
        return (window.q(scores.device) - window.k(scores.device)).abs().to(scores.dtype)


@dataclass(frozen=True, eq=False)
class Relative(Bias):
    """A table `(heads, 2·reach + 1)` looked up by k − q, which is held within ±reach (Raffel et al. 2020, T5)."""

    values: Tensor

    def __post_init__(self) -> None:
        if not self.values.is_floating_point():
            raise ShapeError(f"a relative table must be floating point, got {self.values.dtype}")
        if self.values.ndim != 2 or self.values.shape[1] % 2 == 0:
            raise ShapeError(f"a relative table must be (heads, 2·reach + 1), got {tuple(self.values.shape)}")

    @property
    def may_block(self) -> bool:
        return bool(self.values.isneginf().any())

    def check(self, sizes: Sizes) -> None:
        """One row per head, or one for all."""
        if self.values.shape[0] not in (1, sizes.heads):
            raise ShapeError(
                f"a relative table needs {sizes.heads} rows (heads) or 1, got {self.values.shape[0]}"
            )

    def apply(self, scores: Tensor, window: Window) -> Tensor:
        """Add the table's entries."""
        entries = self.values.to(scores.dtype)[:, self._entry(scores, window)]
        # Filling costs a pass over the tile: only where the table holds −inf.
        if self.may_block:
            return _sum(scores, entries)
        return scores + entries

    def blocks(self, scores: Tensor, result: Tensor, window: Window) -> Tensor:
        """Those at −inf."""
        return (self.values == -torch.inf)[:, self._entry(scores, window)]

    def vjp(
        self, scores: Tensor, grad: Tensor, window: Window, learned: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Each entry of the table collects the gradients of the scores that looked it up."""
        if not learned:
            return grad, None
        steps = grad.sum(0).sum_to_size(self.values.shape[0], *grad.shape[2:]).flatten(1)
        # Many scores look up one entry: index_add_ adds them all, where an assignment would keep the last.
        blank = steps.new_zeros(self.values.shape)
        return grad, blank.index_add_(1, self._entry(scores, window).flatten(), steps)

    def _entry(self, scores: Tensor, window: Window) -> Tensor:
        """Columns of the table, `(q, k)`."""
        reach = self.values.shape[1] // 2
        return (window.k(scores.device) - window.q(scores.device)).clamp(-reach, reach) + reach


@dataclass(frozen=True, eq=False)
class ScoreMod(Bias):
    """FlexAttention's `score_mod(score, batch, head, q_index, kv_index)`, evaluated per tile.

    `q_index` counts the call's queries from 0, as FlexAttention does; `row` is the position of the first one.
    """

    function: Callable[..., Any]
    row: int = 0

    @property
    def may_block(self) -> bool:
        return True

    def at(self, offset: int) -> ScoreMod:
        """Rows are the call's queries, so they move with the first one."""
        return replace(self, row=offset)

    def apply(self, scores: Tensor, window: Window) -> Tensor:
        """Map the function over the tile."""
        device = scores.device
        batch = torch.arange(scores.shape[0], device=device)
        head = torch.arange(scores.shape[1], device=device)
        q = window.q(device)[:, 0] - self.row
        k = window.k(device)[0]
        # One axis at a time, from the innermost: the function sees numbers, as FlexAttention's does.
        mapped = self.function
        for axes in (
            (0, None, None, None, 0),
            (0, None, None, 0, None),
            (0, None, 0, None, None),
            (0, 0, None, None, None),
        ):
            mapped = torch.vmap(mapped, in_dims=axes)
        result = mapped(scores, batch, head, q, k).to(scores.dtype)
        # Vmap returns a view where the function ignores an axis.
        return result.contiguous()


@dataclass(frozen=True, eq=False)
class Logarithm(Bias):
    """The score's own logarithm in its place: softmax(log(φ(q)·φ(k))) is φ(q)·φ(k) / Σ φ(q)·φ(k).

    So the weights that linear attention implies (Katharopoulos et al. 2020, arXiv 2006.16236) are those of a spec, with
    the features φ(q) ≥ 0 and φ(k) ≥ 0 as query and key and a scale of 1. A product of 0 blocks its key.
    """

    @property
    def may_block(self) -> bool:
        return True

    def apply(self, scores: Tensor, window: Window) -> Tensor:
        """Take the logarithm."""
        # Set aside before the logarithm, whose derivative there is infinite.
        nothing = scores == 0
        return scores.masked_fill(nothing, 1.0).log().masked_fill(nothing, -torch.inf)

    def vjp(
        self, scores: Tensor, grad: Tensor, window: Window, learned: bool
    ) -> tuple[Tensor, Tensor | None]:
        """grad / score, and 0 for a product of 0, which is blocked."""
        nothing = scores == 0
        return grad.masked_fill(nothing, 0.0) / scores.masked_fill(nothing, 1.0), None


def _sum(scores: Tensor, bias: Tensor) -> Tensor:
    """The sum, where a bias of −inf blocks whatever the score: NaN − inf would be NaN."""
    return (scores + bias).masked_fill(bias == -torch.inf, -torch.inf)


def alibi(slopes: Tensor | Sequence[float]) -> Bias:
    """ALiBi: −slope · |q − k| with one slope per head. See `Alibi`.

    Args:
        slopes: `(heads,)`, floating point; learned where it requires a gradient.

    Raises:
        ShapeError: a tensor of another rank or type.

    Example:
        >>> alibi([0.5, 0.25]).apply(torch.zeros(1, 2, 2, 3), Window(1, 3, 0, 3, 1))[0, 0]
        tensor([[-0.5000,  0.0000, -0.5000],
                [-1.0000, -0.5000,  0.0000]])
    """
    if not isinstance(slopes, Tensor):
        numbers = listed("slopes", slopes, number)
        slopes = torch.tensor(numbers, dtype=torch.get_default_dtype())
    return Alibi(slopes)


def relative(table: Tensor) -> Bias:
    """A relative position bias: `table[head, clamp(k − q, ±reach) + reach]`. See `Relative`.

    Args:
        table: `(heads or 1, 2·reach + 1)`, floating point; learned where it requires a gradient.

    Raises:
        ShapeError: a tensor of another rank or type, or with an even number of columns.

    Example:
        >>> relative(torch.tensor([[3.0, 0.0, 5.0]])).apply(torch.zeros(1, 1, 2, 3), Window(1, 3, 0, 3, 1))[0, 0]
        tensor([[3., 0., 5.],
                [3., 3., 0.]])
    """
    return Relative(tensor("table", table))


def as_bias(bias: Bias | Tensor | None) -> Bias | None:
    """A tensor becomes a dense bias; values and None pass.

    Raises:
        ArgumentError: anything else.
    """
    if bias is None or isinstance(bias, Bias):
        return bias
    if isinstance(bias, Tensor):
        return Dense(bias)
    raise ArgumentError(
        f"bias must be a tensor, rg.alibi(…), rg.relative(…) or None, got {type(bias).__name__}"
    )
