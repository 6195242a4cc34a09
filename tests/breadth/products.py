"""Products of weights with values: which softmax a factor came from, and what it was at that moment.

Knows labels and products; how labels follow the data is in `oracle.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from breadth.shadow import NOTHING, Shadow

PRODUCTS = {"bmm", "mm", "baddbmm", "addmm", "addbmm", "matmul", "mv", "dot"}
LEARNED = {"convolution", "embedding"}
BLOCKED = -5e3  # half of the smallest value by which models block


@dataclass
class Origin:
    """One softmax: the shape of its result with the keys last, and which rows could attend nothing.

    Attributes:
        scored: whether what it was given came of a product of two tensors that are not learned, as queries and keys.
    """

    first: int
    shape: tuple[int, ...]
    empty: Tensor
    normalized: bool
    kind: str
    rounding: float = 0.0
    scored: bool = False


@dataclass
class Product:
    """Weights at the moment when they met values.

    Attributes:
        module: the innermost module that ran.
        weights: `(…, keys)`, float64, in the layout of the softmax; 0 where no product took an element.
        empty: `(…)`: rows whose every score was blocked.
        used: `(…)`: rows that a product took.
        columns: which keys a product took.
        how: "product", or "sum" where they were multiplied and then summed.
        step: which forward pass of the model.
        scored: whether the weights are of scores, as of queries and keys: attention, whatever its module is called.
        gathered: weights and empty rows in the operand's own layout, where it holds some rows more than once.
    """

    module: str
    origin: int
    weights: Tensor
    taken: Tensor
    empty: Tensor
    how: str
    step: int
    kind: str = "softmax"
    named_attention: bool = False
    rounding: float = 0.0
    scored: bool = False
    gathered: tuple[Tensor, Tensor] | None = None

    @property
    def used(self) -> Tensor:
        return self.taken.any(-1)

    @property
    def columns(self) -> Tensor:
        return self.taken.flatten(0, -2).any(0)


@dataclass
class Truth:
    """What the oracle saw."""

    products: list[Product] = field(default_factory=list)
    softmaxes: int = 0
    steps: int = 0
    fused: list[str] = field(default_factory=list)
    sums: list[Product] = field(default_factory=list)


class Products:
    """Finds the products of a model.

    Attributes:
        truth: what was found.
        stack: names of the modules that run, innermost last.
        labels: for each element that came of a softmax, which one it is.
        clean: what weights would be without dropout, beside those that were dropped.
        mixed: labels of the result of a product that mixes heads, until it is there.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.truth = Truth()
        self.names = {module: name for name, module in model.named_modules()}
        self.stack: list[str] = []
        self.labels = Shadow(torch.int64, NOTHING)
        self.clean = Shadow(None, 0)
        self.learned = {
            part.untyped_storage()._cdata for part in [*model.parameters(), *model.buffers()] if plain(part)
        }
        self.origins: list[Origin] = []
        self.next = 0
        self.mixed: Tensor | None = None
        self.multiplied: dict[int, tuple[Tensor, Tensor]] = {}
        self.scored: dict[int, Any] = {}  # memory that came of products of two tensors that are not learned

    def is_scored(self, tensor: Any) -> bool:
        """Whether a tensor came of a product of two tensors that are not learned."""
        return isinstance(tensor, Tensor) and plain(tensor) and tensor.untyped_storage()._cdata in self.scored

    def score(self, base: str, given: list[Tensor], result: Any) -> None:
        """Note what came of products of two tensors that are not learned, until a learned one multiplies it."""
        if base in PRODUCTS | LEARNED:
            came = len(given) > 1 and not any(self._is_learned(item) for item in given)
        else:
            came = any(self.is_scored(item) for item in given)
        for item in tree_flatten(result)[0]:
            if isinstance(item, Tensor) and plain(item):
                storage = item.untyped_storage()
                if came:
                    self.scored[storage._cdata] = storage
                elif not any(own is item for own in given):
                    self.scored.pop(storage._cdata, None)

    def labels_of(self, tensor: Tensor) -> Tensor | None:
        """The labels of a tensor's elements; None where it has none."""
        own = self.labels.read(tensor)
        if own is None or not bool((own != NOTHING).any()):
            return None
        return own.clone()

    def undropped(self, tensor: Tensor) -> Tensor:
        """The tensor as it would be without dropout."""
        own = self.clean.read(tensor)
        return tensor.detach() if own is None else own

    # --- fused attention -----------------------------------------------------------------------------------

    def fused(self, args: Any, kwargs: Any) -> None:
        """The weights of torch's fused kernel, by the formula, from what it was given."""
        query, key = args[0].double(), args[1].double()
        given = dict(zip(("dropout_p", "is_causal"), args[3:], strict=False)) | kwargs
        scale = given.get("scale")
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        if key.shape[1] != query.shape[1]:
            key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        scores = query @ key.mT * scale
        if given.get("attn_mask") is not None:
            scores = scores + given["attn_mask"].double()
        if given.get("is_causal"):
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
        empty = ~(scores.amax(-1) > BLOCKED)
        weights = scores.softmax(-1).nan_to_num(0.0)
        module = self.stack[-1] if self.stack else ""
        self.origins.append(Origin(self.next, tuple(weights.shape), empty, True, "fused"))
        self.next += weights.numel()
        taken = torch.ones(weights.shape, dtype=torch.bool)
        self.truth.softmaxes += 1
        self.truth.products.append(
            Product(
                module,
                len(self.origins) - 1,
                weights,
                taken,
                empty,
                "product",
                self.truth.steps,
                "fused",
                True,
                rounding_of(scores),
            )
        )

    # --- products ------------------------------------------------------------------------------------------

    def product(self, base: str, args: Any, kwargs: Any) -> None:
        if torch._C._current_graph_task_id() != -1 or base in ("matmul", "mv", "dot"):
            return
        left, right = args[1:3] if base in ("baddbmm", "addmm", "addbmm") else args[:2]
        for weights, value, axis in ((left, right, -1), (right, left, -2)):
            own = self.labels_of(weights)
            if own is None:
                continue
            labels, values = own.movedim(axis, -1), self.undropped(weights).movedim(axis, -1)
            origin, along = self._read(labels)
            if origin is None:
                continue
            if along == "keys":
                if not self._is_learned(value):
                    self._found(origin, labels, values, "product")
                return
            own_queries = along == "rows" and self._over_queries(self.origins[origin], labels)
            if own_queries and self.origins[origin].normalized and not self._is_learned(value):
                # A softmax over the queries, as where tokens compete for groups: the operand's own layout tells.
                self._transposed(origin, values)
                return
            # A mix over heads: the result is labeled as its operand, where it has as many heads.
            if along == "rows":
                self.mixed = own
                return

    def _over_queries(self, origin: Origin, labels: Tensor) -> bool:
        """Whether it is the softmax's last axis of rows that changes along the last axis, and not that of heads."""
        if len(origin.shape) < 2:
            return False
        row = (labels - origin.first) // origin.shape[-1] // origin.shape[-2]
        pair = (labels[..., 1:] != NOTHING) & (labels[..., :-1] != NOTHING)
        return bool((row[..., 1:] == row[..., :-1])[pair].all())

    def _transposed(self, index: int, values: Tensor) -> None:
        """Weights whose keys are not those over which the softmax went."""
        own, weights = self.origins[index], values.detach().double().clone()
        taken = torch.ones(weights.shape, dtype=torch.bool)
        empty = torch.zeros(weights.shape[:-1], dtype=torch.bool)
        module = self.stack[-1] if self.stack else ""
        self.truth.products.append(
            Product(
                module, index, weights, taken, empty, "product", self.truth.steps, "transposed",
                self._attends(module), own.rounding,
            )
        )  # fmt: skip

    def _is_learned(self, tensor: Tensor) -> bool:
        return plain(tensor) and tensor.untyped_storage()._cdata in self.learned

    def _read(self, labels: Tensor) -> tuple[int | None, str]:
        """Which softmax labels belong to, and what changes along the last axis: "keys", "rows" or nothing."""
        some = labels[labels != NOTHING]
        index = self._origin_of(int(some[0]))
        origin = self.origins[index]
        size, keys = count_of(origin.shape), origin.shape[-1]
        inside = (labels >= origin.first) & (labels < origin.first + size)
        if not bool((inside | (labels == NOTHING)).all()):
            return None, ""
        local = labels - origin.first
        row, key = local // keys, local % keys
        if labels.shape[-1] == 1:
            return index, "keys" if keys == 1 else "one"
        pair = inside[..., 1:] & inside[..., :-1]
        if not bool(pair.any()):
            return index, "keys"
        same_row = bool((row[..., 1:] == row[..., :-1])[pair].all())
        new_key = bool((key[..., 1:] != key[..., :-1])[pair].all())
        if same_row and new_key:
            return index, "keys"
        same_key = bool((key[..., 1:] == key[..., :-1])[pair].all())
        return index, "rows" if same_key else "else"

    def _origin_of(self, label: int) -> int:
        low, high = 0, len(self.origins) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.origins[middle].first <= label:
                low = middle
            else:
                high = middle - 1
        return low

    def _found(self, index: int, labels: Tensor, values: Tensor, how: str) -> None:
        origin = self.origins[index]
        inside = labels != NOTHING
        local = (labels - origin.first)[inside]
        weights = torch.zeros(count_of(origin.shape), dtype=torch.float64)
        taken = torch.zeros(count_of(origin.shape), dtype=torch.bool)
        weights[local] = values[inside].double()
        taken[local] = True
        weights, taken = weights.view(origin.shape), taken.view(origin.shape)
        if not origin.normalized and not _normalized(weights, taken):
            return
        module = self.stack[-1] if self.stack else ""
        for product in self.truth.products:
            apart = product.kind == "transposed" or product.step != self.truth.steps
            if product.origin != index or apart:
                continue
            both = product.taken & taken
            if bool(((product.weights - weights)[both].abs() <= 1e-6).all()):
                # Another part of the same weights, or the same weights with other values.
                product.weights = torch.where(taken, weights, product.weights)
                product.taken = product.taken | taken
                return
        self.truth.products.append(
            Product(
                module, index, weights, taken, origin.empty, how, self.truth.steps, origin.kind,
                self._attends(module), origin.rounding, origin.scored, _gathered(origin, labels, values),
            )
        )  # fmt: skip

    def _attends(self, module: str) -> bool:
        """Whether a module, or one around it, is called attention by its class or its name."""
        parts = module.split(".")
        around = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        names = [type(own).__name__ for own, name in self.names.items() if name in around]
        return any(re.search("attn|attention", name, re.IGNORECASE) for name in [*parts, *names])

    def summed(self, args: Any, kwargs: Any) -> None:
        """Weights that were multiplied with values one by one, and are summed over the keys now."""
        labels = self.labels_of(args[0])
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        if labels is None or not dims or len(dims) != 1 or labels.ndim < 3:
            return
        labels = labels.movedim(dims[0], -1)
        origin, along = self._read(labels)
        if origin is None or along != "keys":
            return
        some = labels[labels != NOTHING]
        if len(torch.unique(some)) == len(some):
            return
        kept = self.multiplied.get(origin)
        if kept is not None:
            self._summed(origin, *kept)

    def multiply(self, given: list[Tensor], labeled: list[Any]) -> None:
        """Keep weights that are multiplied with values one by one."""
        weights, own = min(labeled, key=lambda pair: pair[0].numel())
        if not any(item.numel() > weights.numel() for item in given) and weights.shape[-1] != 1:
            return
        some = own[own != NOTHING]
        index, values = self._origin_of(int(some[0])), self.undropped(weights).clone()
        self.multiplied[index] = own, values
        # A sum over one key is that key's product: torch's einsum makes no other.
        if self.origins[index].shape[-1] == 1 and self.origins[index].kind != "exp":
            self._summed(index, own, values)

    def _summed(self, index: int, labels: Tensor, values: Tensor) -> None:
        """Note weights that multiplied values without a matrix product."""
        before = len(self.truth.products)
        self._found(index, labels, values, "sum")
        self.truth.sums += self.truth.products[before:]
        del self.truth.products[before:]


def _gathered(origin: Origin, labels: Tensor, values: Tensor) -> tuple[Tensor, Tensor] | None:
    """An operand that holds rows more than once, as it is, and which of its rows are empty."""
    whole = labels.shape[-1] == origin.shape[-1] and bool((labels != NOTHING).all())
    if not whole or len(torch.unique(labels[..., 0])) == labels[..., 0].numel():
        return None
    row = (labels[..., 0] - origin.first) // origin.shape[-1]
    return values.detach().double().clone(), origin.empty.flatten()[row]


def plain(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and type(tensor) in (Tensor, nn.Parameter)
        and tensor.device.type == "cpu"
    )


def rounding_of(scores: Tensor) -> float:
    """How far float32 may move a score of this size."""
    real = scores[(scores > BLOCKED * 100) & scores.isfinite()]
    return float(real.abs().max()) * torch.finfo(torch.float32).eps if real.numel() else 0.0


def count_of(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _normalized(weights: Tensor, taken: Tensor) -> bool:
    """Whether the rows that a product took are weights: not negative, and 1 in all, or nothing."""
    rows = taken.any(-1)
    sums = weights.sum(-1)[rows]
    good = ((sums - 1).abs() < 1e-3) | (sums == 0)
    return bool(good.all()) and bool((weights >= 0).all()) and weights.shape[-1] > 1
