"""One built model through the modes of the sweep: what the oracle sees, what the watch says, and the verdict.

Knows `regard.watch` and the oracle; not how models are built.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from breadth.compare import Faults, compare, truths
from breadth.oracle import truth_of
from breadth.products import Truth
from breadth.steps import compare_steps, joined

SEED = 5
MODES = ("eval", "eager", "train", "generate")


@dataclass
class Subject:
    """A model to be watched.

    Attributes:
        build: a fresh model with the same weights every time, given the name of an implementation of attention.
        run: what to do with the model, once; its result is compared bit for bit.
        padding: masks that the caller gives, True where a token is real.
        generate: what `generate` is called with; None where the model does not.
        eager: whether there is another implementation called eager.
    """

    name: str
    build: Callable[[str | None], nn.Module]
    run: Callable[[nn.Module], Any]
    padding: list[Tensor] = field(default_factory=list)
    generate: Callable[[nn.Module], Any] | None = None
    eager: bool = False
    note: str = ""


def tensors(result: Any) -> list[Tensor]:
    """Every tensor of a result, caches and other objects aside."""
    if hasattr(result, "to_tuple"):
        result = result.to_tuple()
    found = []
    for item in tree_flatten(result)[0]:
        if isinstance(item, Tensor):
            found.append(item.detach())
        elif hasattr(item, "to_tuple"):
            found += tensors(item)
    return found


def same_bits(a: list[Tensor], b: list[Tensor]) -> bool:
    """Whether two results are the same bit for bit, NaN included."""
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and bool(((x == y) | ((x != x) & (y != y))).all())
        for x, y in zip(a, b, strict=True)
    )


def examine(subject: Subject, mode: str) -> dict[str, Any]:
    """The verdict of one model in one mode."""
    import regard as rg
    from regard.errors import WatchError

    # A generation is padded on the left; how its rows are placed is compared, its masks are those of the flipped rows.
    padding = list(subject.padding)
    if mode == "generate":
        padding += [mask.flip(1) for mask in subject.padding]
    implementation = "eager" if mode == "eager" else None
    run = subject.generate if mode == "generate" else subject.run
    assert run is not None
    try:
        plain, grads = _once(subject, implementation, run, mode)
    except Exception as error:  # the model's own, with nobody watching
        return {"verdict": "not run", "reason": f"{type(error).__name__}: {error}"[:300]}
    oracle = "eager" if subject.eager and mode in ("eval", "eager", "generate") else implementation
    try:
        try:
            truth = _truth(subject, oracle, run, mode)
        except TypeError:  # an implementation that the model itself cannot run in this mode
            oracle = implementation
            truth = _truth(subject, oracle, run, mode)
    except (NotImplementedError, RuntimeError) as error:
        # Graphs that torch compiles run under no dispatch mode, nested tensors only where they are contiguous.
        return {"verdict": "unchecked", "reason": f"the oracle cannot run: {error}"[:200]}
    calls = _calls(truth, mode)
    found: dict[str, Any] = {
        "true_calls": len(calls) - len(truth.sums) * (mode != "generate"),
        "softmaxes": truth.softmaxes,
        "sums": sorted({product.module for product in truth.sums if product.named_attention}),
        "finite": all(bool(part.isfinite().all()) for part in plain if part.is_floating_point()),
    }
    model = _prepared(subject, implementation, mode)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with rg.watch(model, keep="vectors") as record:
                result = _run(model, run, mode)
        except WatchError as error:
            # What is multiplied one by one and then summed, with no product, is a gate or a pooling, not attention.
            return found | {"verdict": "error" if truth.products else "no weights", "reason": str(error)}
        except Exception as error:
            return found | {"verdict": "crash", "reason": f"{type(error).__name__}: {error}"[:400]}
    found["calls"] = len(record.calls)
    unseen = [str(item) for item in getattr(record, "unseen", [])]
    found["unseen"] = unseen
    watched = tensors(result)
    watched_grads = [part.grad for part in model.parameters() if part.grad is not None]
    if not same_bits(plain, watched) or not same_bits(grads, watched_grads):
        return found | {"verdict": "changed", "reason": "the outputs or gradients are not the same bits"}
    faults = _compared(record, calls, padding, mode)
    if faults.any and oracle != implementation:
        # Two implementations may round, and mask what nobody said, in two ways: the one that was watched decides.
        own = _truth(subject, implementation, run, mode)
        own_calls = _calls(own, mode)
        own_faults = _compared(record, own_calls, padding, mode)
        if own_faults.count() < faults.count():
            faults, calls, truth = own_faults, own_calls, own
            found["true_calls"] = len(calls) - len(truth.sums) * (mode != "generate")
    found["matched"], found["aside"] = faults.matched, faults.aside[:4]
    spoken = [str(item.message) for item in heard if issubclass(item.category, UserWarning)]
    if unseen and faults.missing and not faults.wrong and not faults.dropped and not faults.extra:
        told = [line for line in faults.missing if any(name in line for name in unseen)]
        if len(told) == len(faults.missing):
            return found | {"verdict": "unseen", "reason": "; ".join([*faults.missing[:2], *spoken[:1]])}
    if faults.any:
        return found | {"verdict": "WRONG", "reason": " | ".join(faults.lines())[:2000]}
    if not calls and not record.calls:
        return found | {"verdict": "no weights", "reason": ""}
    return found | {"verdict": "exact", "reason": ""}


def _calls(truth: Truth, mode: str) -> list[Any]:
    products = [*truth.products, *truth.sums]
    return joined(products) if mode == "generate" else truths(products)


def _compared(record: Any, calls: list[Any], padding: list[Tensor], mode: str) -> Faults:
    if mode == "generate":
        return compare_steps(record, calls, padding)
    return compare(record, calls, padding)


def _prepared(subject: Subject, implementation: str | None, mode: str) -> nn.Module:
    model = subject.build(implementation)
    model.train(mode == "train")
    return model


def _seed() -> None:
    """The same chance again: spans that speech models hide in training are drawn by numpy."""
    random.seed(SEED)
    numpy.random.seed(SEED)
    torch.manual_seed(SEED)


def _run(model: nn.Module, run: Callable[[nn.Module], Any], mode: str) -> Any:
    _seed()
    if mode != "train":
        with torch.no_grad():
            return run(model)
    result = run(model)
    parts = [part for part in _with_gradient(result) if part.is_floating_point() and part.requires_grad]
    if parts:
        sum(part.float().mean() for part in parts).backward()
    return result


def _with_gradient(result: Any) -> list[Tensor]:
    if hasattr(result, "to_tuple"):
        result = result.to_tuple()
    return [item for item in tree_flatten(result)[0] if isinstance(item, Tensor)]


def _once(
    subject: Subject, implementation: str | None, run: Callable[[nn.Module], Any], mode: str
) -> tuple[list[Tensor], list[Tensor]]:
    model = _prepared(subject, implementation, mode)
    result = tensors(_run(model, run, mode))
    return result, [part.grad for part in model.parameters() if part.grad is not None]


def _truth(subject: Subject, implementation: str | None, run: Callable[[nn.Module], Any], mode: str) -> Truth:
    model = _prepared(subject, implementation, mode)
    with truth_of(model) as truth:
        _seed()
        if mode == "train":
            run(model)
        else:
            with torch.no_grad():
                run(model)
    return truth
