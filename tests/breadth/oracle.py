"""The true attention of a forward pass, found below autograd: every product of softmax weights with values.

A dispatch mode sees each operation that torch computes. What a softmax yields is labeled, element by element, with
its row and key; labels follow the data; a matrix product that contracts an axis along which the key changes is
attention, and its operand, as it is at that moment, is the weights. Knows nothing of Regard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from breadth.products import BLOCKED, PRODUCTS, Origin, Products, Truth, plain, rounding_of
from breadth.shadow import NOTHING, Shadow

SOFTMAX = {"_softmax", "_safe_softmax", "_log_softmax"}
# Operations that move data and compute nothing: labels are moved by the same operation.
MOVES = {
    "cat", "stack", "index_select", "index", "gather", "roll", "flip", "repeat", "take_along_dim", "unfold",
    "slice_scatter", "select_scatter", "scatter", "repeat_interleave", "unfold_copy", "index_put",
}  # fmt: skip
# Operations whose result is indexed by nothing that a label could follow.
ENDS = {
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "prod", "norm", "var", "std",
    "linalg_vector_norm", "logsumexp", "empty_like", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_empty", "new_full", "rand_like", "randn_like", "embedding", "one_hot", "eq", "ne", "gt", "lt", "ge", "le",
    "isnan", "isinf", "bernoulli", "multinomial", "nonzero", "topk_indices", "new_empty_strided", "argsort",
    "nll_loss_forward", "searchsorted", "bucketize", "isfinite", "log",
}  # fmt: skip
FUSED = {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_fused_attention_overrideable"}


class Oracle(Products, TorchDispatchMode):
    """Labels the results of softmaxes and follows them."""

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.noise = Shadow(torch.bool, 0)

    # --- which module runs ---------------------------------------------------------------------------------

    def enter(self, module: nn.Module, _args: Any) -> None:
        if module not in self.names:
            return
        if not self.stack:
            self.truth.steps += 1
            self.forget()
        self.stack.append(self.names[module])

    def leave(self, module: nn.Module, _args: Any, _result: Any) -> None:
        if module in self.names and self.stack:
            self.stack.pop()

    def forget(self) -> None:
        self.labels.clear()
        self.clean.clear()
        self.noise.clear()
        self.scored.clear()
        self.multiplied.clear()

    # --- operations ----------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not hasattr(func, "_schema"):
            self.truth.fused.append(str(func))
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled() and func._can_decompose():
            # Without autograd's keys nothing has taken apart what is made of other operations: softmax, matmul.
            with self:
                return func.decompose(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        given = [item for item in tree_flatten((args, kwargs))[0] if isinstance(item, Tensor)]
        inplace = name.endswith("_") and not name.startswith("__")
        base = name.rstrip("_") if inplace else name
        # Read before the operation: it may write over its own input.
        before = [(item, self.labels_of(item)) for item in given] if len(self.labels) else []
        labeled = [(item, own) for item, own in before if own is not None]
        if base in PRODUCTS and labeled:
            self.product(base, args, kwargs)
        if base == "mul" and labeled:
            self.multiply(given, labeled)
        if base == "sum" and labeled:
            self.summed(args, kwargs)
        scores = args[0].detach().clone() if base in SOFTMAX or base == "exp" else None
        clean = self._clean_inputs(func, base, args, kwargs, given, labeled)
        result = func(*args, **kwargs)
        if torch._C._current_graph_task_id() != -1:
            return result
        self.score(base, given, result)
        mixed, self.mixed = self.mixed, None
        if mixed is not None and mixed.shape == result.shape:
            self.labels.write(result, mixed)
        if base in FUSED:
            self.fused(args, kwargs)
        elif "scaled_dot_product" in base or "native_multi_head" in base or "encoder_layer_fwd" in base:
            self.truth.fused.append(base)
        if base in SOFTMAX or (base == "exp" and not labeled and not inplace):
            self._made(base, scores, result, args)
        elif base.startswith("bernoulli") and isinstance(result, Tensor):
            self.noise.write(result, torch.ones((), dtype=torch.bool))
        elif not labeled and inplace and base == "copy":
            self.labels.erase(args[0])
        elif labeled:
            self._follow(func, base, inplace, args, kwargs, result, labeled)
        if not labeled and base in ("mul", "div", "_to_copy") and self.noise.has(args[0]):
            self.noise.write(result, torch.ones((), dtype=torch.bool))
        if clean is not None:
            self._cleaned(clean, result)
        return result

    def _made(self, base: str, scores: Tensor, result: Tensor, args: tuple[Any, ...]) -> None:
        if result.ndim < 2 or not result.is_floating_point() or not self.stack:
            return
        if base == "exp" and result.ndim < 3:
            return
        dim = args[1] % result.ndim if base != "exp" else result.ndim - 1
        last = result.detach().movedim(dim, -1)
        keys = last.shape[-1]
        best = scores.movedim(dim, -1).double().amax(-1) if scores.numel() else torch.zeros(last.shape[:-1])
        empty = ~(best > BLOCKED) if base != "exp" else torch.zeros(last.shape[:-1], dtype=torch.bool)
        rounding = rounding_of(scores)
        scored = self.is_scored(args[0]) and base != "exp"
        self.origins.append(
            Origin(self.next, tuple(last.shape), empty, base != "exp", base, rounding, scored)
        )
        labels = torch.arange(self.next, self.next + last.numel()).view(last.shape)
        self.next += last.numel()
        self.labels.write(result, labels.movedim(-1, dim))
        self.truth.softmaxes += base != "exp"
        assert keys == last.shape[-1]

    def _follow(
        self, func: Any, base: str, inplace: bool, args: Any, kwargs: Any, result: Any, labeled: list[Any]
    ) -> None:
        if base in ENDS or base in PRODUCTS:
            return
        if inplace:
            self._written(base, args, labeled)
            return
        outputs = [item for item in tree_flatten(result)[0] if isinstance(item, Tensor)]
        outputs = [item for item in outputs if not self._shares(item, labeled)]
        if not outputs:
            return
        if base in ("topk", "sort"):
            dim = (
                args[2]
                if base == "topk" and len(args) > 2
                else (args[1] if base == "sort" and len(args) > 1 else -1)
            )
            self.labels.write(result[0], labeled[0][1].gather(dim, result[1]))
            return
        moved = self._moved(func, base, args, kwargs)
        for output in outputs:
            if not output.is_floating_point() or not plain(output):
                continue
            source = moved if moved is not None else _spread([own for _, own in labeled], output.shape)
            if source is not None and source.shape == output.shape:
                self.labels.write(output, source)

    def _moved(self, func: Any, base: str, args: Any, kwargs: Any) -> Tensor | None:
        """Labels moved by the operation that moved the data; None if it is none that moves."""
        if base == "constant_pad_nd":
            own = self.labels_of(args[0])
            return None if own is None else func(own, args[1], NOTHING)
        if base not in MOVES:
            return None

        def swap(item: Any) -> Any:
            if not isinstance(item, Tensor) or not item.is_floating_point():
                return item
            own = self.labels.read(item)
            return torch.full(item.shape, NOTHING) if own is None else own.clone()

        try:
            return func(*tree_map(swap, args), **tree_map(swap, kwargs))
        except (RuntimeError, TypeError):
            return None

    def _written(self, base: str, args: Any, labeled: list[Any]) -> None:
        target = args[0]
        if base == "copy":
            own = [labels for item, labels in labeled if item is args[1]]
            if own:
                self.labels.write(target, own[0].broadcast_to(target.shape))
            else:
                self.labels.erase(target)
            return
        if any(item is target for item, _ in labeled):
            return
        source = _spread([own for _, own in labeled], target.shape)
        if source is not None:
            self.labels.write(target, source)

    def _shares(self, output: Tensor, labeled: list[Any]) -> bool:
        if not plain(output):
            return False
        storage = output.untyped_storage()._cdata
        return any(storage == item.untyped_storage()._cdata for item, _ in labeled)

    # --- dropout: what the weights would be without it -----------------------------------------------------

    def _clean_inputs(
        self, func: Any, base: str, args: Any, kwargs: Any, given: list[Tensor], labeled: list[Any]
    ) -> Callable[[], Any] | None:
        """The same operation on weights before dropout; None where nothing was dropped."""
        if not labeled:
            return None
        weights = labeled[0][0]
        if base in ("native_dropout", "dropout"):
            value = self.undropped(weights).clone()
            return lambda: value
        if base == "mul" and any(self.noise.has(item) for item in given if item is not weights):
            value = self.undropped(weights).clone()
            return lambda: value
        if not any(self.clean.has(item) for item, _ in labeled) or base in PRODUCTS:
            return None
        if base in ("view", "_unsafe_view", "detach", "alias"):
            return None
        swapped = [tree_map(self._copied, part) for part in (args, kwargs)]
        return lambda: func(*swapped[0], **swapped[1])

    def _copied(self, item: Any) -> Any:
        if not isinstance(item, Tensor):
            return item
        return self.undropped(item).clone() if self.clean.has(item) else item

    def _cleaned(self, clean: Callable[[], Any], result: Any) -> None:
        try:
            values = clean()
        except RuntimeError:
            return
        values = values if isinstance(values, list | tuple) else [values]
        results = result if isinstance(result, list | tuple) else [result]
        for output, value in zip(results, values, strict=False):
            if not isinstance(output, Tensor) or not isinstance(value, Tensor) or output.shape != value.shape:
                continue
            if output.is_floating_point():
                self.clean.write(output, value)


def _spread(sources: list[Tensor], shape: torch.Size) -> Tensor | None:
    """The labels of an elementwise operation's result: those of the operand that has its shape, or broadcasts."""
    for source in sorted(sources, key=lambda own: -own.numel()):
        try:
            return source.broadcast_to(shape)
        except RuntimeError:
            continue
    return None


@contextmanager
def truth_of(model: nn.Module, plain: bool = False) -> Iterator[Truth]:
    """What the oracle sees of a model inside the block.

    With `plain`, torch's fused kernels take their plain path; else their weights are computed from their inputs.
    """
    oracle = Oracle(model)
    hooks = nn.modules.module
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    handles = [
        hooks.register_module_forward_pre_hook(oracle.enter),
        hooks.register_module_forward_hook(oracle.leave, always_call=True),
    ]
    try:
        with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext(), oracle:
            yield oracle.truth
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()
        oracle.forget()
