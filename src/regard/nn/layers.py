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

SELF_ONLY = ("mask", "positions")  # of self-attention alone


class Layer(nn.Module):
    """What encoder and decoder layers share: self-attention and feed-forward, each with a norm and a residual."""

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int | None,
        attention: AttentionArguments,
        options: Options,
    ) -> None:
        super().__init__()
        self.norm_first, self.checkpoint = options.norm_first, options.checkpoint
        self.attention = MultiHeadAttention(embed_dim, num_heads, **options.attention, **attention)
        self.attention_norm = options.new_norm(embed_dim)
        self.feedforward = FeedForward(embed_dim, dim_feedforward, **options.feedforward)
        self.feedforward_norm = options.new_norm(embed_dim)

    def _added(self, x: Tensor, norm: nn.Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        """A block with its residual: x + block(norm(x)), or norm(x + block(x))."""
        if self.norm_first:
            return x + block(norm(x))
        return norm(x + block(x))

    def _checkpointed(self, run: Callable[..., Tensor], cache: Cache | None, *inputs: Any) -> Tensor:
        """Run the blocks, or have autograd run them once more when it needs what lies between."""
        # The second run would append its keys to the cache once more.
        if self.checkpoint and cache is None and torch.is_grad_enabled():
            # Reentrant checkpoints give no gradients where no input wants one, as behind frozen embeddings.
            return checkpoint(run, *inputs, use_reentrant=False)
        return run(*inputs, cache)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward (Vaswani et al. 2017); bidirectional unless a mask says otherwise.

        norm_first=True:   x = x + attention(norm(x));  x = x + feedforward(norm(x))    (Xiong et al. 2020)
        norm_first=False:  x = norm(x + attention(x));  x = norm(x + feedforward(x))    (the original)

    Args:
        embed_dim: embedding size of the tokens. num_heads: query heads.
        dim_feedforward: hidden size of the feed-forward block, default 4 · embed_dim.
        attention: further keywords of `MultiHeadAttention`: positions, mask, num_kv_heads, score, ….
        **layer: norm_first, norm_type, activation, dropout, inner_dropout, bias, init, layer_norm_eps, checkpoint: see
            `LayerArguments`.

    Raises:
        ArgumentError: numbers, names or parts that do not fit together.

    Example:
        >>> layer = EncoderLayer(16, 4, dim_feedforward=40)
        >>> layer(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int | None = None,
        *,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        super().__init__(embed_dim, num_heads, dim_feedforward, attention or {}, Options(**layer))

    @checked
    def forward(self, x: Tensor, *, mask: Mask | None = None, cache: Cache | None = None) -> Tensor:
        """Tokens `(batch, tokens, embed_dim)` to the same; `mask`, `cache` and errors as in `MultiHeadAttention`."""
        return self._checkpointed(self._run, cache, x, mask)

    def _run(self, x: Tensor, mask: Mask | None, cache: Cache | None = None) -> Tensor:
        x = self._added(x, self.attention_norm, lambda t: self.attention(t, mask=mask, cache=cache))
        return self._added(x, self.feedforward_norm, self.feedforward)


class DecoderLayer(Layer):
    """Causal self-attention, cross-attention to a memory, then feed-forward (Vaswani et al. 2017).

    Args:
        embed_dim, num_heads, dim_feedforward: as in `EncoderLayer`.
        cross_attention: False leaves cross-attention out, as in GPT.
        memory_dim: embedding size of the memory; default `embed_dim`.
        attention: further keywords of both attention blocks; mask and positions are of self-attention alone.
        **layer: as in `EncoderLayer`.

    Raises:
        ArgumentError: numbers, names or parts that do not fit together.

    Example:
        >>> layer = DecoderLayer(16, 4, memory_dim=24)
        >>> layer(torch.randn(3, 7, 16), memory=torch.randn(3, 5, 24)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int | None = None,
        *,
        cross_attention: bool = True,
        memory_dim: int | None = None,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        attention = attention or {}
        options = Options(**layer)
        super().__init__(embed_dim, num_heads, dim_feedforward, _causal(attention), options)
        if memory_dim is not None and not cross_attention:
            raise ArgumentError(f"a layer without cross-attention has no memory, got memory_dim {memory_dim}")
        # None rather than missing: `forward` and `to_torch` ask whether a layer has cross-attention.
        self.crossing, self.crossing_norm = None, None
        if cross_attention:
            # Rotary and relative positions compare tokens of one text; a causal mask would hide most of the memory.
            shared: Any = {name: value for name, value in attention.items() if name not in SELF_ONLY}
            self.crossing = MultiHeadAttention(
                embed_dim,
                num_heads,
                memory_dim=None if memory_dim == embed_dim else memory_dim,
                **options.attention,
                **shared,
            )
            self.crossing_norm = options.new_norm(embed_dim)

    @checked
    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Tokens `(batch, tokens, embed_dim)` to the same, given a memory `(batch, memory tokens, memory_dim)`.

        Args:
            mask: of self-attention, on top of the causal one.
            memory_mask: of cross-attention, `rg.prefix(lengths)` say.
            cache: as in `MultiHeadAttention`.

        Raises:
            ArgumentError: a memory where none can be attended, or none where one is needed.
            ShapeError, MaskError: as in `MultiHeadAttention`.
        """
        if memory is None and self.crossing is not None:
            raise ArgumentError("a decoder layer must be given a memory, got none")
        if memory is not None and self.crossing is None:
            raise ArgumentError("a decoder layer without cross-attention must get no memory, got one")
        # A mask without a memory is a memory that was forgotten in the call.
        if memory is None and memory_mask is not None:
            raise ArgumentError("memory_mask must come with a memory, got a mask alone")
        return self._checkpointed(self._run, cache, x, memory, mask, memory_mask)

    def _run(
        self,
        x: Tensor,
        memory: Tensor | None,
        mask: Mask | None,
        memory_mask: Mask | None,
        cache: Cache | None = None,
    ) -> Tensor:
        x = self._added(x, self.attention_norm, lambda t: self.attention(t, mask=mask, cache=cache))
        if self.crossing is not None and self.crossing_norm is not None:
            # A name of its own: within a lambda, mypy forgets that the attribute is not None.
            cross = self.crossing
            x = self._added(x, self.crossing_norm, lambda t: cross(t, memory, mask=memory_mask, cache=cache))
        return self._added(x, self.feedforward_norm, self.feedforward)


class Encoder(nn.Module):
    """A stack of encoder layers, and where norms come first one more norm at the end.

    A module in `attention`, such as positions or a score function, is shared by all layers, as T5 shares its bias.

    Args:
        num_layers: how many. Everything else as in `EncoderLayer`.

    Example:
        >>> encoder = Encoder(2, 16, 4, norm_type="rms")
        >>> encoder(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int | None = None,
        *,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        super().__init__()
        _check_num_layers(num_layers)
        self.layers = nn.ModuleList(
            EncoderLayer(embed_dim, num_heads, dim_feedforward, attention=attention, **layer)
            for _ in range(num_layers)
        )
        self.norm = Options(**layer).last_norm(embed_dim)

    @checked
    def forward(
        self, x: Tensor, *, mask: Mask | Sequence[Mask | None] | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Tokens `(batch, tokens, embed_dim)` to the same, layer after layer; one mask for all layers, or one for each.

        Raises:
            ArgumentError: another number of masks than of layers.
        """
        if isinstance(mask, Sequence):
            masks = list(mask)
        else:
            masks = [mask] * len(self.layers)
        if len(masks) != len(self.layers):
            raise ArgumentError(
                f"mask must be one, or one for each of {len(self.layers)} layers, got {len(masks)}"
            )
        for layer, layer_mask in zip(self.layers, masks, strict=True):
            x = layer(x, mask=layer_mask, cache=cache)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers, and where norms come first one more norm at the end; modules shared as in `Encoder`.

    Args:
        num_layers: how many. Everything else as in `DecoderLayer`.

    Example:
        >>> decoder = Decoder(2, 16, 4, cross_attention=False)
        >>> decoder(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int | None = None,
        *,
        cross_attention: bool = True,
        memory_dim: int | None = None,
        attention: AttentionArguments | None = None,
        **layer: Unpack[LayerArguments],
    ) -> None:
        super().__init__()
        _check_num_layers(num_layers)
        self.layers = nn.ModuleList(
            DecoderLayer(
                embed_dim,
                num_heads,
                dim_feedforward,
                cross_attention=cross_attention,
                memory_dim=memory_dim,
                attention=attention,
                **layer,
            )
            for _ in range(num_layers)
        )
        self.norm = Options(**layer).last_norm(embed_dim)

    @checked
    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Tokens `(batch, tokens, embed_dim)` to the same, layer after layer; arguments as in `DecoderLayer`."""
        for layer in self.layers:
            x = layer(x, memory, mask=mask, memory_mask=memory_mask, cache=cache)
        return self.norm(x)


def _causal(attention: AttentionArguments) -> AttentionArguments:
    """The same keywords with a causal mask among them."""
    mask = as_mask(attention.get("mask"))
    if mask is None:
        return {**attention, "mask": causal()}
    # Joined with the causal one, so that a mask can only hide more: no decoder layer looks ahead.
    return {**attention, "mask": causal() & mask}


def _check_num_layers(num_layers: int) -> None:
    if num_layers < 1:
        raise ArgumentError(f"num_layers must be at least 1, got {num_layers}")
