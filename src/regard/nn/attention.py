"""Multi-head attention as a layer: fused projections, then `regard.attend` with any mask and any position scheme.

Knows projections and heads; what the weights are is the spec's, and how they are computed the engines'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention import attend
from regard.checks.arguments import checked, sized
from regard.errors import ArgumentError, ShapeError
from regard.masks import Mask, as_mask
from regard.nn.arguments import ScoringArguments
from regard.nn.cache import Cache, Entry
from regard.nn.init import Init, initialize
from regard.nn.positions import HeadPositions
from regard.nn.projections import Head, fuse
from regard.nn.scores import Score
from regard.spec import SpecArguments

EPSILON = 1e-6  # of the norm of queries and keys


class MultiHeadAttention(nn.Module):
    """Attention with several heads, of a sequence to itself or to a memory (Vaswani et al. 2017).

        output = join(attend(x Wq, m Wk, m Wv)) Wo,  where m is the memory, or x itself

    Args:
        embed_dim: embedding size of the queries and of the output.
        num_heads: query heads.
        num_kv_heads: heads of keys and values, each shared by num_heads / num_kv_heads query heads: 1 is multi-query
            (Shazeer 2019), between is grouped (Ainslie et al. 2023). Default: `num_heads`.
        head_dim: of queries and keys, per head. Default: embed_dim / num_heads.
        value_dim: of values, per head. Default: `head_dim`.
        memory_dim: embedding size of the memory, for a layer of cross-attention only. By default the layer does both,
            with memories of `embed_dim`.
        bias: whether the projections have one.
        dropout: probability of dropping each weight, in training.
        output_dropout: the same for each number of the output.
        init: "xavier", "small" or "zero": see `initialize`.
        **scoring: mask, positions, qk_norm, score, scale, softcap, sink: see `ScoringArguments`.

    Example:
        >>> layer = MultiHeadAttention(16, 4, num_kv_heads=2)
        >>> layer(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
        >>> layer(torch.randn(3, 7, 16), memory=torch.randn(3, 5, 16)).shape
        torch.Size([3, 7, 16])

    Its weights are `qkv` (query, key and value under each other: one product for self-attention), or with
    `memory_dim` `query` and `key_value`; and `output`.

    Raises:
        ArgumentError: numbers or parts that do not fit together.
    """

    sink_logit: nn.Parameter | None

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        init: Init = "xavier",
        **scoring: Unpack[ScoringArguments],
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.memory_dim = embed_dim, num_heads, memory_dim
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = _head_dim(embed_dim, num_heads, self.num_kv_heads, head_dim)
        self.value_dim = self.head_dim
        if value_dim is not None:
            self.value_dim = value_dim
        if self.value_dim < 1:
            raise ArgumentError(f"value_dim must be at least 1, got {value_dim}")
        if memory_dim is not None and memory_dim < 1:
            raise ArgumentError(f"memory_dim must be at least 1, got {memory_dim}")
        for name, probability in (("dropout", dropout), ("output_dropout", output_dropout)):
            if not 0.0 <= probability < 1.0:
                raise ArgumentError(f"{name} must be at least 0 and below 1, got {probability}")
        self.dropout = dropout
        self.projected_dims = (
            num_heads * self.head_dim,
            self.num_kv_heads * self.head_dim,
            self.num_kv_heads * self.value_dim,
        )
        # One product for query, key and value is faster than three; a memory of another size needs two.
        if memory_dim is None:
            self.qkv = nn.Linear(embed_dim, sum(self.projected_dims), bias)
        else:
            self.query = nn.Linear(embed_dim, self.projected_dims[0], bias)
            self.key_value = nn.Linear(memory_dim, sum(self.projected_dims[1:]), bias)
        self.output = nn.Linear(num_heads * self.value_dim, embed_dim, bias)
        self.output_dropout = nn.Dropout(output_dropout)
        self._score_with(**scoring)
        self.initialize(init)

    def _score_with(
        self,
        mask: Mask | None = None,
        positions: HeadPositions | None = None,
        qk_norm: Literal["rms", "layer"] | None = None,
        score: Score | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sink: bool = False,
    ) -> None:
        if positions is not None and not isinstance(positions, HeadPositions):
            raise ArgumentError(
                "positions must be Rotary, Alibi or Relative, which act inside attention, "
                f"got {type(positions).__name__}"
            )
        if positions is not None:
            positions.check(self.num_heads, self.head_dim)
        if positions is not None and self.memory_dim is not None:
            raise ArgumentError("positions relate the tokens of one text: a layer with memory_dim has none")
        if qk_norm not in (None, "rms", "layer"):
            raise ArgumentError(f'qk_norm must be "rms", "layer" or None, got {qk_norm!r}')
        if score is not None and scale is not None:
            raise ArgumentError(
                f"a score function has its own scale: give score or scale, got both (scale {scale})"
            )
        self.mask, self.positions, self.score = as_mask(mask), positions, score
        self.scale, self.softcap = scale, softcap
        norms = {"rms": nn.RMSNorm, "layer": nn.LayerNorm}
        self.query_norm, self.key_norm, self.sink_logit = None, None, None
        if qk_norm is not None:
            # One norm for all heads, of the size of a head, as in Qwen3; each head alone has unit variance then.
            self.query_norm = norms[qk_norm](self.head_dim, eps=EPSILON)
            self.key_norm = norms[qk_norm](self.head_dim, eps=EPSILON)
        if sink:
            self.sink_logit = nn.Parameter(torch.zeros(self.num_heads))

    @classmethod
    def from_projections(
        cls,
        heads: Sequence[Head],
        output: Tensor | None = None,
        *,
        learned: bool = True,
        dropout: float = 0.0,
        **scoring: Unpack[ScoringArguments],
    ) -> MultiHeadAttention:
        """A layer of given heads, which may differ in `head_dim` and may be written by hand; no biases.

        Args:
            heads: weights of query `(d, embed_dim)`, key `(d, memory_dim)` and value `(e, memory_dim)`, head by head.
            output: `(outputs, Σ e)`; None: the heads' outputs are joined and stay as they are.
            learned: False holds every weight fixed (`requires_grad=False`).
            **scoring: see `ScoringArguments`; the default scale is 1/√d with each head's own d.

        Raises:
            ShapeError: weights that do not fit together.
            ArgumentError: no heads; heads of unequal `head_dim` together with qk_norm, positions or score.
        """
        fused = fuse(heads, output, scoring.get("scale"))
        # These read head_dim, and the zeros that fill a narrow head up would change what they give.
        dependent = [name for name in ("qk_norm", "positions", "score") if scoring.get(name) is not None]
        if dependent and not fused.equal:
            raise ArgumentError(f"heads must have one head_dim for {' and '.join(dependent)}, got several")
        embed_dim, memory_dim = fused.query.shape[1], fused.key.shape[1]
        module = cls(
            embed_dim,
            len(heads),
            head_dim=fused.head_dim,
            value_dim=fused.value_dim,
            bias=False,
            dropout=dropout,
            memory_dim=None if memory_dim == embed_dim else memory_dim,
            **scoring,
        ).to(fused.query)
        stacks = [[fused.query, fused.key, fused.value]]
        if memory_dim != embed_dim:
            stacks = [[fused.query], [fused.key, fused.value]]
        for projection, stack in zip(module.inputs, stacks, strict=True):
            projection.weight = nn.Parameter(torch.cat(stack).detach(), requires_grad=learned)
        module.output.weight = nn.Parameter(fused.output.detach(), requires_grad=learned)
        # The weight was exchanged for one of another shape; torch prints this number.
        module.output.out_features = fused.output.shape[0]
        return module

    @property
    def inputs(self) -> list[nn.Linear]:
        """The projections that make query, key and value."""
        if self.memory_dim is None:
            return [self.qkv]
        return [self.query, self.key_value]

    def initialize(self, init: Init) -> None:
        """Draw the projections anew: see `regard.nn.initialize`. Query, key and value have each a fan of their own."""
        # A fused weight is drawn in slices: as one matrix, Xavier's bound would count the outputs of all three.
        dims: list[tuple[int, ...]] = [self.projected_dims]
        if self.memory_dim is not None:
            dims = [self.projected_dims[:1], self.projected_dims[1:]]
        inner = [
            part
            for projection, sizes in zip(self.inputs, dims, strict=True)
            for part in projection.weight.detach().split(sizes)
        ]
        biases = [projection.bias for projection in (*self.inputs, self.output)]
        initialize(init, inner, self.output.weight, biases)

    @checked
    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Attention of `x` to itself, or to a memory.

        Args:
            x: `(batch, tokens, embed_dim)`. With a cache, the tokens that follow those it holds.
            memory: `(batch, memory tokens, memory_dim)`; the first token of `x` has position 0 in masks, or with a
                cache the number of tokens before it.
            mask: a further condition, on top of the layer's own: `rg.padding(lengths)`, say, or for a memory
                `rg.prefix(lengths)`, which asks nothing of the queries.
            cache: keys and values of the tokens before, which this call adds to. A memory is projected once only.

        Returns:
            `(batch, tokens, embed_dim)`; where a query may attend no key, the output projection's bias.

        Raises:
            ShapeError: tensors that are not of these shapes, or an empty batch.
            ArgumentError: no memory where one is needed, or one together with positions; a cache of another model.
            MaskError: a mask that does not fit.
        """
        self._check(x, memory)
        entry, first = None, 0
        if cache is not None:
            entry = cache.of(self)
            first = entry.tokens
        if memory is None:
            query, key, value = self._project_self(x, first)
            if entry is not None:
                key, value = entry.append(key, value)
        else:
            query, key, value = self._project_memory(x, memory, entry)
        if entry is not None:
            # In cross-attention as well: masks see the positions of queries, which go on from step to step.
            entry.tokens += x.shape[1]
        query, key, spec = self._spec(query, key, mask, first)
        dropout = self.dropout if self.training else 0.0
        output = attend(query, key, value, dropout=dropout, **spec)
        return self.output_dropout(self.output(output.transpose(1, 2).flatten(2)))

    def _project_self(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of the tokens themselves: one product, and views of it where nothing is rotated."""
        query, key, value = self.qkv(x).split(self.projected_dims, -1)
        query, key, value = self._query(query), self._key(key), self._value(value)
        if self.positions is not None:
            query, key = self.positions.rotate(query, key, first)
        # Under autocast a norm gives float32 beside values of bfloat16; attend wants one type.
        return query.to(value.dtype), key.to(value.dtype), value

    def _project_memory(
        self, x: Tensor, memory: Tensor, entry: Entry | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The tokens' query, and the memory's key and value."""
        weights, biases = self._halves()
        query = self._query(linear(x, weights[0], biases[0]))
        # The memory stays the same while a text is written, so its keys and values are projected by the first call.
        if entry is not None and entry.holds_memory:
            key, value = entry.pair
            if key.shape[2] != memory.shape[1]:
                raise ShapeError(
                    f"the cache holds a memory of {key.shape[2]} tokens, got one of {memory.shape[1]}: "
                    "make a new cache for another memory"
                )
        else:
            key, value = linear(memory, weights[1], biases[1]).split(self.projected_dims[1:], -1)
            key, value = self._key(key), self._value(value)
            key = key.to(value.dtype)
            if entry is not None:
                entry.holds_memory = True
                key, value = entry.append(key, value)
        return query.to(value.dtype), key, value

    def _halves(self) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Weights and biases of the query, and of key and value together."""
        if self.memory_dim is not None:
            both = (self.query, self.key_value)
            return tuple(p.weight for p in both), tuple(p.bias for p in both)
        # A layer without memory_dim attends to memories as well, with the parts of its fused weight as they are.
        sizes = (self.projected_dims[0], sum(self.projected_dims[1:]))
        weights, bias = self.qkv.weight.split(sizes), self.qkv.bias
        if bias is None:
            return weights, (None, None)
        return weights, bias.split(sizes)

    def _query(self, projected: Tensor) -> Tensor:
        query = projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        if self.query_norm is not None:
            query = self.query_norm(query)
        return query

    def _key(self, projected: Tensor) -> Tensor:
        key = projected.unflatten(-1, (self.num_kv_heads, self.head_dim)).transpose(1, 2)
        if self.key_norm is not None:
            key = self.key_norm(key)
        return key

    def _value(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.num_kv_heads, self.value_dim)).transpose(1, 2)

    def _spec(
        self, query: Tensor, key: Tensor, mask: Mask | None, first: int
    ) -> tuple[Tensor, Tensor, SpecArguments]:
        """What turns query and key into weights."""
        mask = as_mask(mask)
        if mask is None:
            mask = self.mask
        elif self.mask is not None:
            mask = self.mask & mask
        spec: SpecArguments = {
            "mask": mask,
            "scale": self.scale,
            "softcap": self.softcap,
            "sink_logit": self.sink_logit,
            # Counted from the start: with a memory there may be more queries than keys, or fewer.
            "align": first,
        }
        bias = None
        if self.positions is not None:
            bias = self.positions.bias()
        if self.score is not None:
            query, key, more = self.score.prepare(query, key)
            if bias is not None and more.get("bias") is not None:
                raise ArgumentError(
                    f"{type(self.score).__name__} and {type(self.positions).__name__} are both added to the scores: "
                    "give one of them"
                )
            spec.update(more)
        if bias is not None:
            spec["bias"] = bias
        return query, key, spec

    def _check(self, x: Tensor, memory: Tensor | None) -> None:
        tensors = [("x", x, self.embed_dim)]
        if memory is not None:
            tensors.append(("memory", memory, self.memory_dim or self.embed_dim))
        for name, tensor, size in tensors:
            if tensor.ndim != 3 or tensor.shape[2] != size:
                raise ShapeError(f"{name} must be (batch, tokens, {size}), got {tuple(tensor.shape)}")
            if 0 in tensor.shape:
                raise ShapeError(
                    f"{name} must hold at least one row and one token, got {tuple(tensor.shape)}"
                )
        if memory is None and self.memory_dim is not None:
            raise ArgumentError(
                f"this layer attends to a memory of embedding size {self.memory_dim}: give memory, got none"
            )
        if memory is not None and memory.shape[0] != x.shape[0]:
            raise ShapeError(f"x and memory must have one batch, got {x.shape[0]} and {memory.shape[0]} rows")
        if memory is not None and self.positions is not None:
            raise ArgumentError(
                f"{type(self.positions).__name__} relates the tokens of one text, got a memory: use a layer without"
            )

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, "
            f"head_dim={self.head_dim}, value_dim={self.value_dim}, dropout={self.dropout}"
        )


def _head_dim(embed_dim: int, num_heads: int, num_kv_heads: int, head_dim: int | None) -> int:
    """Size of a head, once the numbers were checked."""
    if embed_dim < 1 or num_heads < 1:
        raise ArgumentError(f"embed_dim and num_heads must be at least 1, got {embed_dim} and {num_heads}")
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ArgumentError(f"num_kv_heads must divide num_heads, got {num_kv_heads} for {num_heads} heads")
    if head_dim is None and embed_dim % num_heads:
        raise ArgumentError(
            f"num_heads must divide embed_dim, got {num_heads} heads for an embed_dim of {embed_dim}: "
            "give head_dim to choose it freely"
        )
    if head_dim is not None and head_dim < 1:
        raise ArgumentError(f"head_dim must be at least 1, got {head_dim}")
    if head_dim is None:
        return embed_dim // num_heads
    return head_dim
