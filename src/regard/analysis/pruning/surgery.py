"""Taking heads out of a module: rows of its query, key and value projections, columns of its output projection.

Knows how Regard's layers and the attention modules of transformers hold their heads; which heads go is said by others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.analysis.output_projection import output_projection
from regard.errors import ArgumentError
from regard.nn.attention import MultiHeadAttention
from regard.nn.positions import Alibi, Relative, Rotary


@dataclass(frozen=True, eq=False)
class Attention:
    """An attention module of which heads can be taken.

    Attributes:
        layer: its name.
        module: it.
        heads: how many heads it has, and `group`, how many of them share one head of keys.
        cut: takes a module down to these heads and these heads of keys.
    """

    layer: str
    module: nn.Module
    heads: int
    group: int
    cut: Callable[[list[int], list[int]], None]


def attentions(model: nn.Module) -> dict[str, Attention]:
    """The modules of a model of which heads can be taken, by name."""
    known: dict[str, Attention] = {}
    for name, module in model.named_modules():
        layer = name or type(model).__name__
        if isinstance(module, MultiHeadAttention):
            known[layer] = _of_regard(layer, module)
        elif _is_llama(module):
            known[layer] = _of_llama(layer, module)
        elif type(module).__name__ == "GPT2Attention":
            known[layer] = _of_gpt2(layer, module)
        elif _is_bert(module):
            output = None
            if name.rpartition(".")[2] == "self":
                output = output_projection(model, name, module.query.out_features)
            if isinstance(output, nn.Linear):
                known[layer] = _of_bert(layer, module, output)
    return known


def remove(model: nn.Module, heads: Mapping[str, Sequence[int]]) -> None:
    """Take heads out of a model, in place.

    Args:
        model: any module in which `attentions` finds these layers.
        heads: name of the layer → heads of it, by their present numbers.

    Raises:
        ArgumentError: a layer of which no heads can be taken, a head that it lacks, a part of a group of heads that
            share keys, all heads of a layer.
    """
    known = attentions(model)
    # All of it is checked before anything is cut: a model is cut as a whole or not at all.
    plans = [_plan(known, layer, sorted(set(gone))) for layer, gone in heads.items()]
    with torch.no_grad():
        for attention, queries, keys in plans:
            attention.cut(queries, keys)


def _plan(
    known: Mapping[str, Attention], layer: str, gone: list[int]
) -> tuple[Attention, list[int], list[int]]:
    """The heads, and the heads of keys, that a layer is left with."""
    if layer not in known:
        names = ", ".join(known) or "none"
        raise ArgumentError(
            f"heads can be pruned of Regard's layers, BERT, GPT-2 and Llama and their like, got {layer!r}; this model "
            f"has: {names:.300}"
        )
    attention = known[layer]
    wrong = [head for head in gone if not 0 <= head < attention.heads]
    if wrong:
        raise ArgumentError(
            f"{layer} must have the head {wrong[0]}, it has {attention.heads} heads, from 0 on"
        )
    left = [head for head in range(attention.heads) if head not in gone]
    if not left:
        raise ArgumentError(f"at least one head of {layer} must be left, got all {attention.heads}")
    group = attention.group
    keys = sorted({head // group for head in left})
    if len(left) != len(keys) * group:
        torn = next(head for head in gone if head // group in keys)
        first = torn // group * group
        raise ArgumentError(
            f"heads {first} to {first + group - 1} of {layer} share one head of keys and must go together, got "
            f"{torn} without the others"
        )
    return attention, left, keys


# --- families ------------------------------------------------------------------------------------------------


def _of_regard(layer: str, module: MultiHeadAttention) -> Attention:
    group = module.num_heads // module.num_kv_heads
    if module.score is not None or not isinstance(module.positions, None | Alibi | Relative | Rotary):
        part = type(module.score or module.positions).__name__

        def refuse(_queries: list[int], _keys: list[int]) -> None:
            raise ArgumentError(f"{layer} has {part}, whose heads cannot be taken")

        return Attention(layer, module, module.num_heads, group, refuse)

    def cut(queries: list[int], keys: list[int]) -> None:
        dim, value_dim = module.head_dim, module.value_dim
        rows_of = (_rows(queries, dim), _rows(keys, dim), _rows(keys, value_dim))
        sizes = module.projected_dims
        if module.memory_dim is None:
            starts = (0, sizes[0], sizes[0] + sizes[1])
            joint = torch.cat([rows + start for rows, start in zip(rows_of, starts, strict=True)])
            _keep_outputs(module.qkv, joint)
        else:
            _keep_outputs(module.query, rows_of[0])
            _keep_outputs(module.key_value, torch.cat((rows_of[1], rows_of[2] + sizes[1])))
        _keep_inputs(module.output, _rows(queries, value_dim))
        module.num_heads, module.num_kv_heads = len(queries), len(keys)
        module.projected_dims = (len(queries) * dim, len(keys) * dim, len(keys) * value_dim)
        if module.sink_logit is not None:
            module.sink_logit = _taken(module.sink_logit, torch.tensor(queries))
        if isinstance(module.positions, Alibi):
            module.positions.slopes = module.positions.slopes[queries]
        elif isinstance(module.positions, Relative):
            module.positions.weight = _taken(module.positions.weight, torch.tensor(queries))

    return Attention(layer, module, module.num_heads, group, cut)


def _is_llama(module: Any) -> bool:
    """Whether this is attention as Llama has it, in which nothing but the four projections counts heads."""
    if not _linears(module, "q_proj", "k_proj", "v_proj", "o_proj") or not hasattr(
        module, "num_key_value_groups"
    ):
        return False
    dim, group = getattr(module, "head_dim", 0), module.num_key_value_groups
    queries, keys = module.q_proj.out_features, module.k_proj.out_features
    # A gate within the queries' projection, as Qwen3-Next has, would be cut at the wrong rows.
    sizes = (
        dim > 0
        and queries == keys * group == module.o_proj.in_features
        and keys == module.v_proj.out_features
    )
    # Keys that other layers read, as Gemma 3n has, must stay whole.
    shared = getattr(module, "is_kv_shared_layer", False) or getattr(module, "store_full_length_kv", False)
    heads = queries // max(dim, 1)
    return sizes and not shared and _counts_no_heads(module, {"sinks"}, dim, heads, queries)


def _is_bert(module: Any) -> bool:
    """Whether this is attention as BERT has it, in which nothing but the three projections counts heads."""
    if not _linears(module, "query", "key", "value") or not hasattr(module, "all_head_size"):
        return False
    dim, size = getattr(module, "attention_head_size", 0), module.query.out_features
    if dim < 1 or not size == module.all_head_size == module.key.out_features == module.value.out_features:
        return False
    return _counts_no_heads(module, set(), dim, size // dim, size)


def _counts_no_heads(module: nn.Module, cut: set[str], dim: int, heads: int, size: int) -> bool:
    """Whether no tensor of a module, but for its projections and what else is cut, has an axis of heads."""
    direct = {name for name, _ in module.named_parameters(recurse=False)}
    direct |= {name for name, _ in module.named_buffers(recurse=False)}
    if direct - cut:
        return False
    projections = {"q_proj", "k_proj", "v_proj", "o_proj", "query", "key", "value"}
    for name, part in module.named_children():
        if name in projections:
            continue
        shapes = [parameter.shape for parameter in part.parameters()]
        # A norm of one head alone, or embeddings of distances, have an axis of the head's size and none of heads.
        if any(axis in (heads, size) and axis != dim for shape in shapes for axis in shape):
            return False
    return True


def _of_llama(layer: str, module: Any) -> Attention:
    dim, group = module.head_dim, module.num_key_value_groups

    def cut(queries: list[int], keys: list[int]) -> None:
        _keep_outputs(module.q_proj, _rows(queries, dim))
        _keep_outputs(module.k_proj, _rows(keys, dim))
        _keep_outputs(module.v_proj, _rows(keys, dim))
        _keep_inputs(module.o_proj, _rows(queries, dim))
        # A learned logit for each head, as GPT-OSS has.
        if isinstance(getattr(module, "sinks", None), nn.Parameter):
            module.sinks = _taken(module.sinks, torch.tensor(queries))
        for name, size in (("num_heads", len(queries)), ("num_key_value_heads", len(keys))):
            if hasattr(module, name):
                setattr(module, name, size)

    return Attention(layer, module, module.q_proj.out_features // dim, group, cut)


def _of_bert(layer: str, module: Any, output: nn.Linear) -> Attention:
    dim = module.attention_head_size

    def cut(queries: list[int], _keys: list[int]) -> None:
        for name in ("query", "key", "value"):
            _keep_outputs(getattr(module, name), _rows(queries, dim))
        _keep_inputs(output, _rows(queries, dim))
        module.num_attention_heads, module.all_head_size = len(queries), len(queries) * dim

    return Attention(layer, module, module.query.out_features // dim, 1, cut)


def _of_gpt2(layer: str, module: Any) -> Attention:
    dim, size = module.head_dim, module.split_size

    def cut(queries: list[int], _keys: list[int]) -> None:
        rows = _rows(queries, dim)
        parts = module.c_attn.weight.shape[1] // size
        joint = torch.cat([rows + part * size for part in range(parts)])
        # Its projections have their inputs first.
        module.c_attn.weight = _taken(module.c_attn.weight, joint, 1)
        module.c_attn.bias = _taken(module.c_attn.bias, joint)
        module.c_attn.nf = len(joint)
        if parts == 2:
            module.q_attn.weight = _taken(module.q_attn.weight, rows, 1)
            module.q_attn.bias, module.q_attn.nf = _taken(module.q_attn.bias, rows), len(rows)
        module.c_proj.weight = _taken(module.c_proj.weight, rows)
        module.c_proj.nx = len(rows)
        module.num_heads, module.split_size = len(queries), len(rows)

    return Attention(layer, module, size // dim, 1, cut)


def _linears(module: nn.Module, *names: str) -> bool:
    return all(isinstance(getattr(module, name, None), nn.Linear) for name in names)


# --- tensors -------------------------------------------------------------------------------------------------


def _rows(heads: Sequence[int], dim: int) -> Tensor:
    """The rows of a projection that belong to some heads."""
    return (torch.tensor(heads)[:, None] * dim + torch.arange(dim)).flatten()


def _taken(parameter: Tensor, rows: Tensor, axis: int = 0) -> nn.Parameter:
    """A parameter with some of its rows alone."""
    part = parameter.detach().index_select(axis, rows.to(parameter.device)).clone()
    return nn.Parameter(part, requires_grad=parameter.requires_grad)


def _keep_outputs(linear: nn.Linear, rows: Tensor) -> None:
    linear.weight = _taken(linear.weight, rows)
    if linear.bias is not None:
        linear.bias = _taken(linear.bias, rows)
    linear.out_features = len(rows)


def _keep_inputs(linear: nn.Linear, columns: Tensor) -> None:
    linear.weight = _taken(linear.weight, columns, 1)
    linear.in_features = len(columns)
