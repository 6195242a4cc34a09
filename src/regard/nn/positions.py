"""Where a token is: schemes that are added to embeddings, and schemes that act inside attention.

Each says how far it reaches. Positions are absolute and start at 0; `first` is that of the first token given.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.checks.arguments import checked, sized
from regard.errors import ArgumentError, ShapeError
from regard.spec.bias import Bias
from regard.spec.bias import alibi as alibi_bias
from regard.spec.bias import relative as relative_bias


class Sinusoidal(nn.Module):
    """Sines and cosines of falling frequencies, added to embeddings (Vaswani et al. 2017, section 3.5).

        P[t, 2i] = sin(t / base^(2i / embed_dim)),  P[t, 2i + 1] = cos(the same)

    Reach: any position has an encoding; a model was trained on some of them only, and gets worse past those.

    Args:
        embed_dim: of the embeddings; even.

    Raises:
        ArgumentError: an odd `embed_dim`.

    Example:
        >>> Sinusoidal(16)(torch.zeros(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(self, embed_dim: int, *, base: float = 10000.0) -> None:
        super().__init__()
        if embed_dim < 2 or embed_dim % 2:
            raise ArgumentError(
                f"embed_dim must be even, as sines and cosines come in pairs, got {embed_dim}"
            )
        self.embed_dim, self.base = embed_dim, base

    def table(self, length: int, first: int = 0) -> Tensor:
        """The encodings `(length, embed_dim)` of positions `first` to `first + length − 1`, float32."""
        return self._at(torch.arange(first, first + length))

    def _at(self, positions: Tensor) -> Tensor:
        return torch.stack(_sines(positions, self.embed_dim, self.base), -1).flatten(-2).float()

    @checked
    def forward(self, x: Tensor, first: int | Tensor = 0) -> Tensor:
        """Embeddings `(batch, tokens, embed_dim)` plus the encoding of their positions.

        Args:
            first: position of the first token: one for all rows, or one for each `(batch,)`, negative where a row
                starts with padding (−padded), so that its first real token is at 0.

        Raises:
            ShapeError: another embedding size, or another number of rows.
        """
        return x + self._at(_positions(x, first, self.embed_dim)).to(x.dtype)


class Learned(nn.Module):
    """A learned vector for each position, added to embeddings (BERT, GPT-2).

    Reach: `max_positions` positions and not one more, as nothing was learned past them.

    Args:
        max_positions: positions in the table.
        embed_dim: of the embeddings.

    Example:
        >>> Learned(512, 16)(torch.zeros(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(self, max_positions: int, embed_dim: int) -> None:
        super().__init__()
        if embed_dim < 1:
            raise ArgumentError(f"embed_dim must be at least 1, got {embed_dim}")
        if max_positions < 1:
            raise ArgumentError(f"max_positions must be at least 1, got {max_positions}")
        self.weight = nn.Parameter(torch.empty(max_positions, embed_dim))
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def forward(self, x: Tensor, first: int | Tensor = 0) -> Tensor:
        """Embeddings `(batch, tokens, embed_dim)` plus the vectors of their positions; `first` as in `Sinusoidal`.

        Raises:
            ArgumentError: a position past the end of the table.
            ShapeError: another embedding size, or another number of rows.
        """
        max_positions, embed_dim = self.weight.shape
        if isinstance(first, int):
            # Known without looking at a tensor, so a compiled graph checks it as well.
            last = first + x.shape[1] - 1
            if x.ndim == 3 and last >= max_positions:
                raise ArgumentError(self._past(last))
        positions = _positions(x, first, embed_dim)
        # Positions row by row are on the device: to look at the largest is to wait, which no graph can.
        if (
            not isinstance(first, int)
            and not torch.compiler.is_compiling()
            and positions.max() >= max_positions
        ):
            raise ArgumentError(self._past(int(positions.max())))
        return x + self.weight[positions].to(x.dtype)

    def _past(self, last: int) -> str:
        length = self.weight.shape[0]
        return (
            f"a learned table of {length} positions ends at position {length - 1}, got a token at position {last}: "
            "learned positions do not extrapolate; Rotary, Alibi and Relative do"
        )


def _positions(x: Tensor, first: int | Tensor, embed_dim: int) -> Tensor:
    """Positions `(tokens,)` or `(batch, tokens)` of embeddings, padding before a text at 0 as nobody sees it."""
    if x.ndim != 3 or x.shape[2] != embed_dim:
        raise ShapeError(f"embeddings must be (batch, tokens, {embed_dim}), got {tuple(x.shape)}")
    if isinstance(first, Tensor):
        if first.shape != x.shape[:1]:
            raise ShapeError(
                f"first must be one position or one for each of {x.shape[0]} rows, got shape {tuple(first.shape)}"
            )
        first = first[:, None]
    return (torch.arange(x.shape[1], device=x.device) + first).clamp(min=0)


def _sines(positions: Tensor, dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Sine and cosine of position · base^(−2i/dim) `(…, dim/2)`, float64: float32 loses the angle of far positions."""
    frequencies = base ** -(torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / dim)
    angles = positions[..., None].to(torch.float64) * frequencies
    return angles.sin(), angles.cos()


class HeadPositions(nn.Module):
    """Base of the schemes inside attention: `rotate` queries and keys, or give a `bias` of the scores, or both.

    They know differences of positions only. So it does not matter where a row's text starts: a batch with padding on
    the left needs nothing but its mask, `rg.padding(lengths, start=n - lengths)`.
    """

    def check(self, num_heads: int, head_dim: int) -> None:
        """Raise ArgumentError where the scheme does not fit an attention layer."""

    def rotate(self, query: Tensor, key: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        """Query and key `(batch, heads or kv_heads, tokens, dim)` of the same tokens, with their positions in them."""
        return query, key

    def bias(self) -> Bias | None:
        """What is added to the scores."""
        return None


class Rotary(HeadPositions):
    """Pairs of numbers in queries and keys are rotated by an angle that grows with the position (Su et al. 2021).

        (a, b) → (a cos θ − b sin θ, b cos θ + a sin θ),  θ = position / scaling_factor · base^(−2i / dim)

    so that q · k depends on the difference of the two positions.

    Reach: any position is computed. A model gets worse past the length that it was trained on, at once and badly: for
    a text `s` times as long, either divide the positions with `scaling_factor=s` (position interpolation, Chen et al.
    2023) or raise `base` by `s^(dim / (dim − 2))` (NTK-aware), and train on a little.

    Args:
        dim: how many numbers of each head are rotated, from its first one; even. The others stay as they are.
        interleaved: pairs are neighbors (2i, 2i + 1), as in the paper and in GPT-J, instead of (i, i + dim/2), as in
            GPT-NeoX and Llama. The two differ by the order of rows in the projections.

    Raises:
        ArgumentError: an odd `dim`, or a base or scaling factor that is not positive.

    Example:
        >>> query, key = Rotary(8).rotate(torch.randn(2, 4, 7, 8), torch.randn(2, 2, 7, 8))
        >>> query.shape, key.shape
        (torch.Size([2, 4, 7, 8]), torch.Size([2, 2, 7, 8]))
    """

    @sized
    def __init__(
        self, dim: int, *, base: float = 10000.0, scaling_factor: float = 1.0, interleaved: bool = False
    ) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ArgumentError(f"dim must be even, as rotary positions rotate pairs, got {dim}")
        if base <= 0 or scaling_factor <= 0:
            raise ArgumentError(f"base and scaling_factor must be positive, got {base} and {scaling_factor}")
        self.dim, self.base, self.scaling_factor, self.interleaved = dim, base, scaling_factor, interleaved

    def check(self, num_heads: int, head_dim: int) -> None:
        if self.dim > head_dim:
            raise ArgumentError(
                f"rotary positions rotate {self.dim} numbers of each head, which has only {head_dim}"
            )

    def rotate(self, query: Tensor, key: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        positions = torch.arange(first, first + query.shape[2], device=query.device, dtype=torch.float64)
        # A bfloat16 holds 8 bits of a sine, and neighbors far away would be rotated alike.
        exact = torch.promote_types(query.dtype, torch.float32)
        sin, cos = (wave.to(exact) for wave in _sines(positions / self.scaling_factor, self.dim, self.base))
        return self._rotated(query, sin, cos), self._rotated(key, sin, cos)

    def _rotated(self, tokens: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        part, rest = tokens[..., : self.dim], tokens[..., self.dim :]
        if self.interleaved:
            a, b = part.unflatten(-1, (-1, 2)).unbind(-1)
            rotated = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        else:
            a, b = part.chunk(2, -1)
            rotated = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        rotated = rotated.to(tokens.dtype)
        if rest.shape[-1] == 0:
            return rotated
        return torch.cat((rotated, rest), -1)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base:g}, scaling_factor={self.scaling_factor:g}, interleaved={self.interleaved}"


class Alibi(HeadPositions):
    """A penalty on distance, −slope · |q − k|, one fixed slope per head (Press et al. 2022).

    The slopes are 2^(−8/h), 2^(−16/h), … for h heads where that is a power of two; for others those of the power below,
    followed by every second one of the power above, as in the paper's code.

    Reach: any length, and it was made for that: a model trained on short texts keeps its perplexity on longer ones.

    Args:
        num_heads: query heads of the layer.

    Example:
        >>> Alibi(4).slopes
        tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """

    slopes: Tensor

    @sized
    def __init__(self, num_heads: int) -> None:
        super().__init__()
        if num_heads < 1:
            raise ArgumentError(f"num_heads must be at least 1, got {num_heads}")
        below = 2 ** int(math.log2(num_heads))
        exponents = [8 * (i + 1) / below for i in range(below)]
        exponents += [4 * (2 * i + 1) / below for i in range(num_heads - below)]
        # Follows from the number of heads, so no file needs to hold it.
        self.register_buffer("slopes", 2.0 ** -torch.tensor(exponents), persistent=False)

    def check(self, num_heads: int, head_dim: int) -> None:
        if num_heads != len(self.slopes):
            raise ArgumentError(
                f"alibi must have a slope for each of {num_heads} heads, got {len(self.slopes)}"
            )

    def bias(self) -> Bias:
        return alibi_bias(self.slopes)


class Relative(HeadPositions):
    """A learned bias for each difference k − q, one table per head.

    With `num_buckets`, differences share entries as in T5 (Raffel et al. 2020): half of them for one difference each,
    the others for ranges that grow as logarithms do up to `max_distance`; without, each difference within ±max_distance
    has its own.

    Reach: any length; all differences past ±max_distance share the last entry of their side, so nothing that was not
    learned is ever looked up.

    Args:
        num_heads: query heads of the layer.
        max_distance: largest difference that is told from larger ones.
        num_buckets: how many entries differences share; None: 2 · max_distance + 1, one for each.
        bidirectional: whether keys after the query have buckets too; False: they all share the first one, as in T5's
            decoder.

    Raises:
        ArgumentError: numbers that make no table.

    Example:
        >>> scheme = Relative(4, max_distance=16, num_buckets=8)
        >>> scheme.weight.shape, scheme.table().shape
        (torch.Size([4, 8]), torch.Size([4, 33]))
    """

    index: Tensor

    @sized
    def __init__(
        self,
        num_heads: int,
        max_distance: int = 128,
        *,
        num_buckets: int | None = 32,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        if num_heads < 1 or max_distance < 1:
            raise ArgumentError(
                f"num_heads and max_distance must be at least 1, got {num_heads} and {max_distance}"
            )
        # T5 halves the buckets for the two directions, and again for exact and logarithmic distances.
        sides = 2 if bidirectional else 1
        if num_buckets is not None and (
            num_buckets % (2 * sides) or not 0 < num_buckets // (2 * sides) < max_distance
        ):
            raise ArgumentError(
                f"num_buckets must be a positive multiple of {2 * sides} below {2 * sides} · max_distance = "
                f"{2 * sides * max_distance}, got {num_buckets}"
            )
        if num_buckets is None and not bidirectional:
            raise ArgumentError("bidirectional=False is about buckets, got num_buckets=None")
        difference = torch.arange(-max_distance, max_distance + 1)
        if num_buckets is None:
            entries, index = 2 * max_distance + 1, difference + max_distance
        else:
            entries, index = num_buckets, _buckets(difference, num_buckets, max_distance, bidirectional)
        # Follows from the arguments, so no file needs to hold it.
        self.register_buffer("index", index, persistent=False)
        self.weight = nn.Parameter(torch.empty(num_heads, entries))
        nn.init.normal_(self.weight, std=0.02)

    def check(self, num_heads: int, head_dim: int) -> None:
        if num_heads != self.weight.shape[0]:
            raise ArgumentError(
                f"a relative table must have a row for each of {num_heads} heads, got {self.weight.shape[0]}"
            )

    def table(self) -> Tensor:
        """The bias `(heads, 2·max_distance + 1)` of each difference k − q from −max_distance to max_distance."""
        return self.weight[:, self.index]

    def bias(self) -> Bias:
        return relative_bias(self.table())


def _buckets(difference: Tensor, num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """T5's bucket of each difference k − q."""
    if bidirectional:
        count, distance = num_buckets // 2, difference.abs()
    else:
        count, distance = num_buckets, -difference.clamp(max=0)
    exact = count // 2
    # Distance 0 is clamped though `where` drops it: the logarithm's −inf is no whole number.
    grcount = torch.log(distance.clamp(min=1) / exact) / math.log(max_distance / exact) * (count - exact)
    # At max_distance itself the formula gives one bucket more than there is.
    bucket = torch.where(distance < exact, distance, (exact + grcount.long()).clamp(max=count - 1))
    if not bidirectional:
        return bucket
    # Keys after the query have the second half of the buckets.
    return bucket + count * (difference > 0)
