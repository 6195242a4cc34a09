"""Query and key projections drawn anew, so that scores begin neither huge nor alike. Knows weights, and no inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.analysis.pruning.surgery import attentions
from regard.checks.arguments import checked, flag, module, number
from regard.errors import ArgumentError
from regard.nn.attention import MultiHeadAttention
from regard.nn.feedforward import FeedForward


@dataclass(frozen=True, eq=False)
class Projections:
    """The query and key projections of a layer.

    Attributes:
        weights: of queries and of keys, `(outputs, inputs)` each: views of the parameters.
        biases: likewise, as far as there are any.
        head_dim: size of a head.
        scale: of its scores.
    """

    weights: tuple[Tensor, Tensor]
    biases: tuple[Tensor, ...]
    head_dim: int
    scale: float


@checked
def initialization(model: nn.Module, *, variance: float = 1.0, depth: bool = False) -> tuple[str, ...]:
    """Draw query and key projections anew so that scores have a given variance, in place; their biases become 0.

        var(score) = scale² · head_dim · (inputs · σ²)²,  so  σ² = √(variance / head_dim) / (scale · inputs)

    for weights of variance σ² and inputs of variance 1, as they come out of a norm. With the scale 1/√head_dim and a
    variance of 1 this is LeCun's initialization, 1/inputs, and where queries are as wide as inputs Xavier's (Glorot and
    Bengio 2010); with any other scale it makes up for it. Each weight's distribution is normal.

    Args:
        model: a module with layers of `regard.nn.MultiHeadAttention` or `torch.nn.MultiheadAttention`, or a model of
            transformers like BERT, GPT-2 and Llama.
        variance: of the scores of one query.
        depth: whether the last projections of attention and feed-forward are drawn anew too, by Xavier divided by the
            square root of how many there are, so that the sum along the residual does not grow with depth (Radford et
            al. 2019, section 2.3). Regard's layers only.

    Returns:
        Names of the layers.

    Raises:
        ArgumentError: no such layer, a layer with a score function of its own or a scale of 0, a variance that is not
            positive, or depth for other layers than Regard's.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(512, 8, scale=1.0)
        >>> initialization(layer)
        ('MultiHeadAttention',)
        >>> query, key, _ = layer.qkv(torch.randn(1, 100, 512)).unflatten(-1, (3, 8, 64)).unbind(2)
        >>> 0.7 < torch.einsum("bqhd, bkhd -> bhqk", query, key).var().item() < 1.4
        True
    """
    model, variance, depth = (
        module("model", model),
        number("variance", variance, above=0),
        flag("depth", depth),
    )
    # All of it is looked at before anything is drawn: a model is changed as a whole or not at all.
    layers = _layers(model)
    last = []
    if depth:
        last = _last(model)
    with torch.no_grad():
        for layer in layers.values():
            for weight in layer.weights:
                spread = math.sqrt(variance / layer.head_dim) / (layer.scale * weight.shape[1])
                weight.normal_(std=math.sqrt(spread))
            for bias in layer.biases:
                bias.zero_()
        for weight in last:
            nn.init.xavier_uniform_(weight, gain=1 / math.sqrt(len(last)))
    return tuple(layers)


def _layers(model: nn.Module) -> dict[str, Projections]:
    """The layers whose query and key projections are known."""
    layers = {}
    for name, attention in attentions(model).items():
        layer: Any = attention.module
        if isinstance(layer, MultiHeadAttention):
            layers[name] = _of_regard(name, layer)
        elif hasattr(layer, "c_attn"):
            layers[name] = _of_gpt2(layer)
        elif hasattr(layer, "q_proj"):
            layers[name] = _of_linears(layer, layer.q_proj, layer.k_proj, layer.head_dim)
        else:
            layers[name] = _of_linears(layer, layer.query, layer.key, layer.attention_head_size)
    for name, module_ in model.named_modules():
        if isinstance(module_, nn.MultiheadAttention):
            layers[name or type(model).__name__] = _of_torch(module_)
    if not layers:
        raise ArgumentError(
            f"model must have layers of Regard, of torch or like BERT's, GPT-2's or Llama's, got "
            f"{type(model).__name__} without one"
        )
    for name, projections in layers.items():
        if projections.scale == 0:
            raise ArgumentError(f"{name} must have a scale above 0, got 0, whose scores are all alike")
    return layers


def _of_regard(name: str, layer: MultiHeadAttention) -> Projections:
    if layer.score is not None:
        raise ArgumentError(
            f"{name} must score by q·k, got {type(layer.score).__name__}, which has weights of its own"
        )
    query, key, _ = layer.projected_dims
    scale = layer.scale
    if scale is None:
        scale = 1 / math.sqrt(layer.head_dim)
    if layer.memory_dim is None:
        weights = layer.qkv.weight.detach()[:query], layer.qkv.weight.detach()[query : query + key]
        biases = _sliced(layer.qkv.bias, slice(0, query + key))
    else:
        weights = layer.query.weight.detach(), layer.key_value.weight.detach()[:key]
        biases = _sliced(layer.query.bias, slice(None)) + _sliced(layer.key_value.bias, slice(0, key))
    return Projections(weights, biases, layer.head_dim, scale)


def _of_torch(layer: nn.MultiheadAttention) -> Projections:
    size = layer.embed_dim
    if layer.in_proj_weight is not None:
        joint = layer.in_proj_weight.detach()
        weights = joint[:size], joint[size : 2 * size]
    else:
        weights = layer.q_proj_weight.detach(), layer.k_proj_weight.detach()
    biases = _sliced(layer.in_proj_bias, slice(0, 2 * size))
    return Projections(weights, biases, layer.head_dim, 1 / math.sqrt(layer.head_dim))


def _of_linears(layer: Any, query: nn.Linear, key: nn.Linear, head_dim: int) -> Projections:
    biases = _sliced(query.bias, slice(None)) + _sliced(key.bias, slice(None))
    scale = float(getattr(layer, "scaling", 1 / math.sqrt(head_dim)))
    return Projections((query.weight.detach(), key.weight.detach()), biases, head_dim, scale)


def _of_gpt2(layer: Any) -> Projections:
    size, scale = layer.split_size, float(getattr(layer, "scaling", 1 / math.sqrt(layer.head_dim)))
    # Its projections have their inputs first, and those of cross-attention stand apart.
    joint, bias = layer.c_attn.weight.detach().mT, layer.c_attn.bias
    if joint.shape[0] == 2 * size:
        query = layer.q_attn.weight.detach().mT
        biases = _sliced(layer.q_attn.bias, slice(None)) + _sliced(bias, slice(0, size))
        return Projections((query, joint[:size]), biases, layer.head_dim, scale)
    return Projections(
        (joint[:size], joint[size : 2 * size]), _sliced(bias, slice(0, 2 * size)), layer.head_dim, scale
    )


def _sliced(bias: Tensor | None, part: slice) -> tuple[Tensor, ...]:
    if bias is None:
        return ()
    return (bias.detach()[part],)


def _last(model: nn.Module) -> list[Tensor]:
    """The last projections of the residual branches of Regard's layers."""
    weights = []
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            weights.append(layer.output.weight)
        elif isinstance(layer, FeedForward):
            weights.append(layer.outer.weight)
    others = [
        name
        for name, attention in attentions(model).items()
        if not isinstance(attention.module, MultiHeadAttention)
    ]
    if others or not weights:
        raise ArgumentError(
            f"depth must be of Regard's own layers, whose last projections are known, got {type(model).__name__}"
        )
    return weights
