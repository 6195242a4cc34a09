"""Encoder and decoder layers and their stacks: attention and feed-forward blocks with residuals and norms.

Knows in which order blocks, norms and residuals come; what happens in a block is its own business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.checks.arguments import checked, sized
from regard.errors import ArgumentError
from regard.masks import Mask, as_mask, causal
from regard.nn.arguments import AttentionArguments, LayerArguments, Options
from regard.nn.attention import MultiHeadAttention
from regard.nn.cache import Cache
from regard.nn.feedforward import FeedForward

OWN = ("mask", "positions")  # of self-attention alone


class Layer(nn.Module):
    """What encoder and decoder layers share: self-attention and feed-forward, each with a norm and a residual."""

    @sized
    def __init__(
        self, width: int, heads: int, hidden: int | None, attention: AttentionArguments, options: Options
    ) -> None:
        super().__init__()
        self.order, self.checkpoint = options.norm, options.checkpoint
        self.attention = MultiHeadAttention(width, heads, **options.attention, **attention)
        self.attention_norm = options.new_norm(width)
        self.feedforward = FeedForward(width, hidden, **options.feedforward)
        self.feedforward_norm = options.new_norm(width)

    def _added(self, x: Tensor, norm: nn.Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        """A block with its residual: x + block(norm(x)), or norm(x + block(x))."""
        if self.order == "pre":
            return x + block(norm(x))
        return norm(x + block(x))

    def _kept(self, run: Callable[..., Tensor], cache: Cache | None, *inputs: Any) -> Tensor:
        """Run the blocks, or have autograd run them once more when it needs what lies between."""
        if self.checkpoint and cache is None and torch.is_grad_enabled():
            return checkpoint(run, *inputs, use_reentrant=False)
        return run(*inputs, cache)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward (Vaswani et al. 2017); bidirectional unless a mask says otherwise.

        norm="pre":   x = x + attention(norm(x));  x = x + feedforward(norm(x))    (Xiong et al. 2020)
        norm="post":  x = norm(x + attention(x));  x = norm(x + feedforward(x))    (the original)

    Args:
        width: of the tokens. heads: query heads. hidden: of the feed-forward block, default 4 · width.
        attention: further keywords of `MultiHeadAttention`: positions, mask, kv_heads, score, ….
        **layer: norm, kind, activation, dropout, inner_dropout, bias, init, epsilon, checkpoint: see `LayerArguments`.

    Raises:
        ArgumentError: numbers, names or parts that do not fit together.
    """

    @sized
    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        super().__init__(width, heads, hidden, attention or {}, Options(**layer))

    @checked
    def forward(self, x: Tensor, *, mask: Mask | None = None, cache: Cache | None = None) -> Tensor:
        """Tokens `(batch, tokens, width)` to the same; `mask`, `cache` and errors as in `MultiHeadAttention`."""
        return self._kept(self._run, cache, x, mask)

    def _run(self, x: Tensor, mask: Mask | None, cache: Cache | None = None) -> Tensor:
        x = self._added(x, self.attention_norm, lambda t: self.attention(t, mask=mask, cache=cache))
        return self._added(x, self.feedforward_norm, self.feedforward)


class DecoderLayer(Layer):
    """Causal self-attention, cross-attention to a source, then feed-forward (Vaswani et al. 2017).

    Args:
        width, heads, hidden: as in `EncoderLayer`.
        crosses: False leaves cross-attention out, as in GPT.
        source_width: of the source's tokens; default `width`.
        attention: further keywords of both attention blocks; mask and positions are of self-attention alone.
        **layer: as in `EncoderLayer`.

    Raises:
        ArgumentError: numbers, names or parts that do not fit together.
    """

    @sized
    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        crosses: bool = True,
        source_width: int | None = None,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        given = attention or {}
        options = Options(**layer)
        super().__init__(width, heads, hidden, _causal(given), options)
        if source_width is not None and not crosses:
            raise ArgumentError(
                f"a layer without cross-attention has no source, got source_width {source_width}"
            )
        self.crossing, self.crossing_norm = None, None
        if crosses:
            shared: Any = {name: value for name, value in given.items() if name not in OWN}
            self.crossing = MultiHeadAttention(
                width, heads, source_width=None if source_width == width else source_width,
                **options.attention, **shared,
            )  # fmt: skip
            self.crossing_norm = options.new_norm(width)

    @checked
    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Mask | None = None,
        source_mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Tokens `(batch, tokens, width)` to the same, given a source `(batch, source tokens, source width)`.

        Args:
            mask: of self-attention, on top of the causal one.
            source_mask: of cross-attention, `rg.prefix(lengths)` say.
            cache: as in `MultiHeadAttention`.

        Raises:
            ArgumentError: a source where none can be attended, or none where one is needed.
            ShapeError, MaskError: as in `MultiHeadAttention`.
        """
        if (source is None) != (self.crossing is None):
            wants = (
                "must be given a source" if source is None else "without cross-attention must get no source"
            )
            raise ArgumentError(f"a decoder layer {wants}, got {'none' if source is None else 'one'}")
        if source is None and source_mask is not None:
            raise ArgumentError("source_mask must come with a source, got a mask alone")
        return self._kept(self._run, cache, x, source, mask, source_mask)

    def _run(
        self,
        x: Tensor,
        source: Tensor | None,
        mask: Mask | None,
        source_mask: Mask | None,
        cache: Cache | None = None,
    ) -> Tensor:
        x = self._added(x, self.attention_norm, lambda t: self.attention(t, mask=mask, cache=cache))
        if self.crossing is not None and self.crossing_norm is not None:
            cross = self.crossing
            x = self._added(x, self.crossing_norm, lambda t: cross(t, source, mask=source_mask, cache=cache))
        return self._added(x, self.feedforward_norm, self.feedforward)


class Encoder(nn.Module):
    """A stack of encoder layers, and where norms come first one more norm at the end.

    A module in `attention`, such as positions or a score function, is shared by all layers, as T5 shares its bias.

    Args:
        depth: number of layers. Everything else as in `EncoderLayer`.
    """

    @sized
    def __init__(
        self,
        depth: int,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        super().__init__()
        _check_depth(depth)
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, hidden, attention=attention, **layer) for _ in range(depth)
        )
        self.norm = Options(**layer).last_norm(width)

    @checked
    def forward(
        self, x: Tensor, *, mask: Mask | Sequence[Mask | None] | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Tokens `(batch, tokens, width)` to the same, layer after layer; one mask for all layers, or one for each.

        Raises:
            ArgumentError: another number of masks than of layers.
        """
        masks = list(mask) if isinstance(mask, Sequence) else [mask] * len(self.layers)
        if len(masks) != len(self.layers):
            raise ArgumentError(
                f"mask must be one, or one for each of {len(self.layers)} layers, got {len(masks)}"
            )
        for layer, own in zip(self.layers, masks, strict=True):
            x = layer(x, mask=own, cache=cache)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers, and where norms come first one more norm at the end; modules shared as in `Encoder`.

    Args:
        depth: number of layers. Everything else as in `DecoderLayer`.
    """

    @sized
    def __init__(
        self,
        depth: int,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        crosses: bool = True,
        source_width: int | None = None,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        super().__init__()
        _check_depth(depth)
        self.layers = nn.ModuleList(
            DecoderLayer(
                width, heads, hidden, crosses=crosses, source_width=source_width, attention=attention, **layer
            )
            for _ in range(depth)
        )
        self.norm = Options(**layer).last_norm(width)

    @checked
    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Mask | None = None,
        source_mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Tokens `(batch, tokens, width)` to the same, layer after layer; arguments as in `DecoderLayer`."""
        for layer in self.layers:
            x = layer(x, source, mask=mask, source_mask=source_mask, cache=cache)
        return self.norm(x)


def _causal(attention: AttentionArguments) -> AttentionArguments:
    """The same keywords with a causal mask among them."""
    mask = as_mask(attention.get("mask"))
    return {**attention, "mask": causal() if mask is None else causal() & mask}


def _check_depth(depth: int) -> None:
    if depth < 1:
        raise ArgumentError(f"depth must be at least 1 layer, got {depth}")
