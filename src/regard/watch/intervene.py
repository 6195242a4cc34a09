"""`intervene(model, heads, …)`: run a model with some of its heads changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn

from regard.checks.arguments import checked
from regard.errors import ArgumentError
from regard.masks import Mask
from regard.watch.intervention import Intervention
from regard.watch.plan import Change, Pair, Plan, of_masks


@checked
@contextmanager
def intervene(
    model: nn.Module,
    heads: Plan | Change | Iterable[Pair] | None = None,
    *,
    kind: Literal["self", "cross"] | None = None,
    mask: Mask | None = None,
    temperature: float | None = None,
    softcap: float | None = None,
    output: Tensor | Mapping[str, Tensor] | Literal["zero"] | None = None,
    top: int | None = None,
    uniform: bool = False,
) -> Iterator[Plan]:
    """Change what heads of a model do, as long as the block lasts.

        with regard.intervene(model, [(0, 1), (1, 3)], output="zero"):
            model(**inputs)

    Works wherever `watch` can read a call, fused kernels included, in this thread. Heads that are not named keep their
    outputs bit for bit (to rounding where torch's fused inference of `nn.MultiheadAttention` shows no heads), and
    where nothing of a call changes, all bits stay. Where every head of a call is given a mask, and one of them changes,
    the model's own attention is not needed: `attend` computes each head once, those that stay full to rounding.

    Gradients flow through what is changed, dropout falls on it as the model has it, and a layer under gradient
    checkpointing is changed again when it runs again. Interventions nest: masks are joined by `&`, temperatures are
    multiplied, the smallest `top` counts. A `watch` inside or outside of the block sees the changed weights. On exit
    everything is as it was.

    What several arguments do to one head happens in this order: `mask`, `softcap`, `temperature`, `uniform`, `top`,
    `output`.

    Args:
        model: any module; not one that `torch.compile` made.
        heads: pairs (layer, head): a layer is the number of a block (the first number in a module's name, as for
            `watch(layers=…)`) or the name of a module, with all inside it; heads count from 0. None: all heads. A
            `Change`, a `Plan` of several, or what `analysis.sparsify` gives, says all of it at once.
        kind: "self" or "cross" attention alone; None: both.
        mask: which keys they may attend, besides what the model itself blocks; a query that is left without a key has
            output 0.
        temperature: what their scores are divided by, the bias and a learned sink's logit included.
        softcap: c in c · tanh(score / c), before the bias, in the place of the model's own.
        output: "zero", or a tensor in the place of their outputs: `(pairs, value_dim)`, one row for each of the pairs;
            `(batch, queries, value_dim)`, the same for each; or `(batch, pairs, queries, value_dim)`. Or a mapping
            from names of modules to tensors `(heads, value_dim)`, as `analysis.mean_outputs` gives. Without pairs, a
            tensor has all heads of a layer.
        top: only so many of the largest weights of each query are left, and add up to 1 again.
        uniform: whether all keys that may be attended have equal weights; a learned sink then has none.

    Yields:
        The `Plan` of what is done.

    Raises:
        ArgumentError: a layer or a head that does not exist, a number out of range, two outputs for one head.
        WatchError: a call that cannot be changed, heads of which no call was seen until the end, a compiled model;
            names the module.

    Example:
        >>> import torch, regard as rg
        >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.randn(1, 5, 8)
        >>> with rg.intervene(layer, output="zero"):
        ...     changed, _ = layer(x, x, x)
        >>> torch.equal(changed, layer.out_proj.bias.expand(1, 5, 8))
        True
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    fields = {
        "kind": kind,
        "mask": mask,
        "temperature": temperature,
        "softcap": softcap,
        "output": output,
        "top": top,
        "uniform": uniform,
    }
    plan = _plan(heads, fields)
    with Intervention(model, plan).changing():
        yield plan


def _plan(heads: Any, fields: dict[str, Any]) -> Plan:
    # Of rows (layer, kind, head, mask), as masks chosen from measurement are.
    chosen = isinstance(heads, Sequence) and bool(heads) and all(map(_is_row, heads))
    if not isinstance(heads, Plan | Change) and not chosen:
        return Plan([Change(heads=heads, **fields)])
    names = [name for name, value in fields.items() if value is not None and value is not False]
    if names:
        raise ArgumentError(f"{names[0]} must be said in the plan itself where one is given")
    if isinstance(heads, Change):
        return Plan([heads])
    if chosen:
        return of_masks(heads)
    plan: Plan = heads
    return plan


def _is_row(row: Any) -> bool:
    return isinstance(row, tuple) and len(row) == 4 and isinstance(row[3], Mask | None)
