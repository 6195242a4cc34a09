"""What interventions do to the heads of a call, in a form in which several of them are one.

Knows specs and outputs of heads; where calls are caught and changed is in `intervention.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError
from regard.masks import Mask
from regard.shapes import Sizes
from regard.spec import SpecArguments
from regard.spec.bias import Alibi, Bias, Dense, Relative, ScoreMod
from regard.watch import hub
from regard.watch.head_masks import of_heads


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadOutput:
    """The output of some heads of a call, as it is about to be replaced.

    Attributes:
        layer: name of the module.
        kind: "self" or "cross".
        numbers: which pair of the change each head is; where the change says no pairs, the heads themselves.
        shape: `(batch, heads, queries, value_dim)` of these heads.
        like: a tensor of the type and on the device that the result has.
        rows: which queries these are, of all `queries` of the call.
        output: `(batch, heads, queries, value_dim)`; None where nobody needs it.
        padded: `(batch, queries)`, True for queries that are known to be padding.
    """

    layer: str
    kind: str
    numbers: Sequence[int]
    shape: tuple[int, int, int, int]
    like: Tensor
    queries: int
    rows: slice
    output: Tensor | None = None
    padded: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Output(ABC):
    """What stands in the place of the outputs of heads.

    Attributes:
        needs: whether it is made of the heads' own outputs.
        alters: whether anything is replaced at all; else it only looks.
    """

    needs = False
    alters = True

    @abstractmethod
    def of(self, heads: HeadOutput) -> Tensor:
        """The output `(batch, heads, queries, value_dim)` in its place."""


@dataclass(frozen=True, eq=False)
class Zero(Output):
    """Zeros."""

    def of(self, heads: HeadOutput) -> Tensor:
        """Zeros."""
        return heads.like.new_zeros(heads.shape)


@dataclass(frozen=True, eq=False)
class Fixed(Output):
    """Tensors: `(heads, value_dim)`, `(batch, queries, value_dim)` or `(batch, heads, queries, value_dim)`."""

    values: Tensor

    def of(self, heads: HeadOutput) -> Tensor:
        """The tensor, where it fits."""
        batch, _, _, dim = heads.shape
        values = self.values.to(heads.like.device, heads.like.dtype)
        many = max(heads.numbers) + 1
        # More heads than needed are no error: a call may concern only some pairs of the change.
        if values.ndim == 2 and values.shape[1] == dim and values.shape[0] >= many:
            return values[list(heads.numbers)][None, :, None].expand(heads.shape)
        if values.shape == (batch, heads.queries, dim):
            return values[:, None, heads.rows].expand(heads.shape)
        if values.ndim == 4 and values.shape[1] >= many:
            values = values[:, list(heads.numbers)]
            if values.shape[0] in (1, batch) and values.shape[2:] == (heads.queries, dim):
                return values[:, :, heads.rows].expand(heads.shape)
        raise ShapeError(
            f"output must be (heads, {dim}), ({batch}, {heads.queries}, {dim}) or ({batch}, heads, "
            f"{heads.queries}, {dim}) with at least {many} heads, got {tuple(self.values.shape)}"
        )


@dataclass(frozen=True, eq=False)
class ByLayer(Output):
    """A tensor `(heads, value_dim)` for each layer, all heads of the layer in it: means of outputs, say."""

    values: Mapping[str, Tensor]
    heads: tuple[int, ...] = ()

    def of(self, heads: HeadOutput) -> Tensor:
        """Those of the layer."""
        if heads.layer not in self.values:
            known = ", ".join(self.values)
            raise ArgumentError(f"output must have an entry for {heads.layer!r}, it has: {known:.300}")
        numbers = tuple(heads.numbers)
        if self.heads:
            numbers = tuple(self.heads[number] for number in heads.numbers)
        return Fixed(self.values[heads.layer]).of(replace(heads, numbers=numbers))


@dataclass(frozen=True, eq=False)
class Mapped(Output):
    """What a function makes of the heads' own outputs: a gate, say."""

    function: Callable[[HeadOutput], Tensor]
    needs = True

    def of(self, heads: HeadOutput) -> Tensor:
        """What the function says."""
        return self.function(heads)


@dataclass(frozen=True, eq=False)
class Seen(Mapped):
    """A function that looks at outputs and leaves them as they are."""

    alters = False


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadChange:
    """What is done to some heads, by all interventions together.

    The order is fixed, so it does not matter which came first: mask, softcap, temperature, uniform, top, output.
    """

    mask: Mask | None = None
    temperature: float = 1.0
    softcap: float | None = None
    top: int | None = None
    uniform: bool = False
    output: Output | None = None

    def weighs(self, sizes: Sizes, offset: int, model_mask: Mask | None) -> bool:
        """Whether the weights of a call of these sizes, with this mask of its own, may become others."""
        others = self.temperature != 1 or self.softcap is not None or self.uniform
        if others or (self.top is not None and self.top < sizes.keys):
            return True
        if self.mask is None or not sizes.queries or not sizes.keys:
            return False
        return not _implied(self.mask, model_mask, sizes, offset)

    def joined(self, other: HeadChange, where: str) -> HeadChange:
        """Both at once.

        Raises:
            ArgumentError: both give the head an output, or a softcap.
        """
        for name in ("output", "softcap"):
            if getattr(self, name) is not None and getattr(other, name) is not None:
                raise ArgumentError(f"{where} must have one {name}, got two")
        mask = self.mask
        if mask is None:
            mask = other.mask
        elif other.mask is not None:
            mask = mask & other.mask
        # The smaller count decides, in whichever order the two are applied.
        tops = [top for top in (self.top, other.top) if top is not None]
        return HeadChange(
            mask=mask,
            temperature=self.temperature * other.temperature,
            softcap=self.softcap or other.softcap,
            top=min(tops, default=None),
            uniform=self.uniform or other.uniform,
            output=self.output or other.output,
        )

    def spec(self, arguments: SpecArguments) -> SpecArguments:
        """The spec with the change, but for `top`, which needs the weights."""
        mask, model_mask = self.mask, arguments["mask"]
        if mask is None:
            mask = model_mask
        elif model_mask is not None:
            mask = model_mask & mask
        bias, scale, sink = arguments["bias"], arguments["scale"], arguments["sink_logit"]
        softcap = self.softcap or arguments["softcap"]
        assert bias is None or isinstance(bias, Bias)
        if self.uniform:
            # Equal scores, but where the bias blocks; a learned sink is no key.
            scale, softcap, sink, bias = 0.0, None, None, _blocking(bias)
        elif self.temperature != 1:
            # (softcap · tanh(x / softcap) + bias) / t, whose factor within the tangent stays the same.
            if isinstance(bias, ScoreMod):
                # It is given the scores as they are, and may be any function of them.
                bias = _over(bias, self.temperature)
            else:
                assert scale is not None
                scale = scale / self.temperature
                if softcap is not None:
                    softcap = softcap / self.temperature
                if bias is not None:
                    bias = _divided(bias, self.temperature)
            if sink is not None:
                sink = sink / self.temperature
        return SpecArguments(
            {**arguments, "mask": mask, "bias": bias, "scale": scale, "softcap": softcap, "sink_logit": sink}
        )


@dataclass(frozen=True, eq=False)
class Group:
    """Heads of one call to which the same is done, and which pair of the change each of them is."""

    heads: tuple[int, ...]
    change: HeadChange
    numbers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """One change as it concerns one module.

    Attributes:
        numbers: which pair of the change each head is; None where all heads are meant.
        called: pairs of which a call was seen.
        kind: "self" or "cross", where only one of the two is meant.
    """

    change: HeadChange
    numbers: dict[int, int] | None
    called: set[int]
    kind: str | None = None

    def note(self, kind: str, all_heads: int) -> None:
        """A call of this kind was seen."""
        if self.kind in (None, kind):
            self.called.update({all_heads} if self.numbers is None else self.numbers.values())


def changes_at(module: nn.Module) -> list[Part]:
    """What the interventions of this thread do to the calls of a module."""
    parts: list[Part] = []
    for session in hub.watching():
        if session.intervenes:
            parts += session.parts.get(module, ())
    return parts


def groups_at(module: nn.Module, layer: str, heads: int, kind: str) -> tuple[Group, ...]:
    """The heads of a call of a module to which something is done, those together to which the same is done.

    Raises:
        ArgumentError: a head that the call does not have, two outputs for one head.
    """
    parts = [part for part in changes_at(module) if part.kind in (None, kind)]
    for part in parts:
        wrong = [head for head in part.numbers or () if head >= heads]
        if wrong:
            raise ArgumentError(f"{layer} must have the head {wrong[0]}, it has {heads} heads, from 0 on")
    groups: dict[tuple[int, ...], list[int]] = {}
    for head in range(heads):
        # Heads with the same changes are one group, and a group is one fold.
        indices = tuple(i for i, part in enumerate(parts) if part.numbers is None or head in part.numbers)
        if indices:
            groups.setdefault(indices, []).append(head)
    return tuple(_group([parts[i] for i in indices], layer, members) for indices, members in groups.items())


def _group(parts: list[Part], layer: str, heads: list[int]) -> Group:
    change, numbers = HeadChange(), tuple(heads)
    for part in parts:
        change = change.joined(part.change, f"head {heads[0]} of {layer}")
        if part.change.output is not None and part.numbers is not None:
            numbers = tuple(part.numbers[head] for head in heads)
    return Group(tuple(heads), change, numbers)


def bias_of_heads(bias: Bias | None, heads: Sequence[int]) -> Bias | None:
    """A bias as some heads of the call have it."""
    index = list(heads)
    if isinstance(bias, Dense) and bias.values.shape[1] > 1:
        return bias.with_values(bias.values[:, index])
    if isinstance(bias, Alibi) or (isinstance(bias, Relative) and bias.values.shape[0] > 1):
        return bias.with_values(bias.values[index])
    if isinstance(bias, ScoreMod):
        function, numbers = bias.function, torch.tensor(index)

        def of_heads_alone(score: Any, batch: Any, head: Any, q: Any, k: Any) -> Any:
            # The function counts the heads of the call, and the fold only those of the group.
            return function(score, batch, numbers.to(head.device)[head], q, k)

        return replace(bias, function=of_heads_alone)
    return bias


def spec_of_heads(arguments: SpecArguments, heads: Sequence[int]) -> SpecArguments:
    """A spec as some heads of the call have it."""
    mask, bias, sink = arguments["mask"], arguments["bias"], arguments["sink_logit"]
    assert bias is None or isinstance(bias, Bias)
    if mask is not None:
        mask = of_heads(mask, tuple(heads))
    if sink is not None:
        sink = sink[list(heads)]
    return SpecArguments({**arguments, "mask": mask, "bias": bias_of_heads(bias, heads), "sink_logit": sink})


def _implied(mask: Mask, model_mask: Mask | None, sizes: Sizes, offset: int) -> bool:
    """Whether a mask blocks nothing that the call's own mask does not block, as far as both say so at once."""
    from regard.masks.algebra import And
    from regard.masks.tile import ALL

    mask.check(sizes.batch, sizes.heads, sizes.queries, sizes.keys, offset)
    if mask.tile(offset, offset + sizes.queries, 0, sizes.keys) is ALL:
        return True
    # Compared as values and not pair by pair: a miss costs time, but never exactness.
    if isinstance(model_mask, And):
        return mask in model_mask.masks
    return mask == model_mask


def _divided(bias: Bias, temperature: float) -> Bias:
    if isinstance(bias, Dense | Alibi | Relative):
        return bias.with_values(bias.values / temperature)
    raise ArgumentError(f"temperature must be of scores that a number can divide, got {type(bias).__name__}")


def _over(bias: ScoreMod, temperature: float) -> ScoreMod:
    function = bias.function
    return replace(bias, function=lambda *arguments: function(*arguments) / temperature)


def _blocking(bias: Bias | None) -> Bias | None:
    """What blocks of a bias; None where nothing can."""
    if bias is None or not bias.may_block:
        return None
    if isinstance(bias, Dense | Relative):
        values = bias.values.detach()
        return bias.with_values(torch.zeros_like(values).masked_fill(values == -torch.inf, -torch.inf))
    if isinstance(bias, ScoreMod):
        function = bias.function

        def blocked(*arguments: Any) -> Any:
            score = function(*arguments)
            return torch.where(score == -torch.inf, -torch.inf, torch.zeros_like(score))

        return replace(bias, function=blocked)
    raise ArgumentError(f"uniform must be of scores with a bias that is numbers, got {type(bias).__name__}")
