"""Linear attention: weights φ(q)·φ(k) / Σ φ(q)·φ(k) without a softmax, so that sums over keys are all it needs.

Knows features and sums. Time and memory are O(tokens) in training, and O(1) a token in decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import weights
from regard.checks.arguments import checked, sized
from regard.errors import ArgumentError, MaskError, ShapeError
from regard.masks import Mask, Padding, Prefix, as_mask
from regard.masks import causal as up_to_here
from regard.nn.features import Elu, Features
from regard.nn.projections import HeadLayer
from regard.nn.state import LinearState, largest_of, scaled
from regard.shapes import Sizes, repeat_heads, sizes_of, statistics_dtype
from regard.spec import SpecArguments
from regard.spec.bias import Logarithm
from regard.watch.hooks.own import Handed, hand_over

CHUNK = 128  # tokens whose weights are computed as such; what came before them is a sum


@dataclass(frozen=True, eq=False)
class _Done:
    """An output, and the features that it was made of."""

    output: Tensor
    query: Tensor
    key: Tensor
    logarithm: Tensor | None
    value: Tensor


@checked
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    features: Features | None = None,
    *,
    causal: bool = False,
    mask: Mask | None = None,
    state: LinearState | None = None,
) -> Tensor:
    """Attention whose weights are φ(q)·φ(k), divided by their sum over the keys (Katharopoulos et al. 2020).

        output = φ(q) · Σ φ(k) valueᵀ / φ(q) · Σ φ(k)

    The causal form computes the weights within chunks of 128 tokens, and adds what the sums before them give. Sums are
    of float32 for float32 and below. A watch sees the weights themselves, in O(tokens) memory.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`; `kv_heads` divides `heads`.
        value: `(batch, kv_heads, keys, value_dim)`.
        features: φ; `Elu()` by default.
        causal: whether a query sees the keys up to its own only; there must be as many queries as keys.
        mask: which tokens are real, `rg.padding(…)` or `rg.prefix(…)`.
        state: the sums over the tokens before these; it takes up these as well.

    Returns:
        `(batch, heads, queries, value_dim)`; 0 where a query sees no key, or only products of 0.

    Raises:
        ShapeError, MaskError, ArgumentError: inputs that do not fit together.

    Example:
        >>> query, key, value = torch.randn(2, 4, 7, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 3)
        >>> linear_attention(query, key, value).shape
        torch.Size([2, 4, 7, 3])
    """
    sizes = sizes_of(query, key, value)
    phi = Elu() if features is None else features
    # The sums take up a key for each query; which keys others see would be a guess.
    if causal and sizes.queries != sizes.keys:
        raise ShapeError(
            f"causal linear attention needs as many queries as keys, got {sizes.queries} and {sizes.keys}"
        )
    if state is not None and not causal:
        raise ArgumentError("a state goes on from token to token: it needs causal=True")
    start = 0
    if state is not None:
        start = state.tokens
    real = _real(mask, sizes, start, query.device)

    def run() -> _Done:
        # Under autocast the sums over all keys would be of bfloat16, and lose small weights.
        with torch.autocast(query.device.type, enabled=False):
            return _run(query, key, value, phi, causal, real, state)

    def describe(done: _Done) -> Handed:
        keys, values = scaled(done.key, done.logarithm, largest_of(done.logarithm)), done.value
        spec = _spec(causal, mask)
        if causal:
            spec["align"] = start
        if state is not None:
            # Keys cannot be read off their sums: for a watch they are kept besides.
            state.remember(start, (done.key, done.logarithm, done.value))
            keys, values = state.recall()
        output = done.output.to(done.query.dtype)
        # Without a causal mask, queries and keys of one text look the same as those of two: the watch decides.
        is_cross = False if causal else None
        return Handed(query=done.query, key=keys, value=values, output=output, spec=spec, is_cross=is_cross)

    return hand_over((query, key, value), run, describe).output


@checked
def linear_weights(
    query: Tensor,
    key: Tensor,
    features: Features | None = None,
    *,
    causal: bool = False,
    mask: Mask | None = None,
    rows: slice = slice(None),
    columns: slice = slice(None),
) -> Tensor:
    """An exact window of the weights that linear attention implies; only the window is stored.

    Args:
        query, key, features, causal, mask: as for `linear_attention`.
        rows: which queries. columns: which keys.

    Returns:
        `(batch, heads, rows, columns)`.

    Example:
        >>> linear_weights(torch.randn(2, 4, 7, 8), torch.randn(2, 4, 5, 8), rows=slice(0, 3)).shape
        torch.Size([2, 4, 3, 5])
    """
    sizes = sizes_of(query, key)
    phi = Elu() if features is None else features
    # For its errors alone: the spec would take any mask, of which linear attention knows two.
    _real(mask, sizes, 0, query.device)
    exact = statistics_dtype(query.dtype)
    query_features, (key_features, logarithm) = phi.split(query.to(exact))[0], phi.split(key.to(exact))
    key_features = scaled(key_features, logarithm, largest_of(logarithm))
    return weights(query_features, key_features, rows=rows, columns=columns, **_spec(causal, mask))


class LinearAttention(HeadLayer):
    """Linear attention as a layer, of a sequence to itself or to a memory.

    Args:
        embed_dim: embedding size of the queries and of the output.
        num_heads: how many.
        features: φ, `Elu()` by default; `PositiveRandom(head_dim, count)` approximates softmax attention.
        causal: whether a token sees those up to itself only.
        head_dim: of query, key and value, per head; embed_dim / num_heads by default.
        memory_dim: embedding size of the memory; `embed_dim` by default.
        bias: whether the projections have one.

    Raises:
        ArgumentError: sizes that do not fit together.

    Example:
        >>> layer = LinearAttention(16, 4, causal=True)
        >>> layer(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        features: Features | None = None,
        causal: bool = False,
        head_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(embed_dim, num_heads, head_dim=head_dim, memory_dim=memory_dim, bias=bias)
        self.features = Elu() if features is None else features
        self.causal = causal

    @checked
    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | None = None,
        state: LinearState | None = None,
    ) -> Tensor:
        """The tokens' new values.

        Args:
            x: `(batch, tokens, embed_dim)`.
            memory: what is attended, `(batch, keys, memory_dim)`; x itself by default.
            mask: which tokens are real, `rg.padding(…)` or `rg.prefix(…)`.
            state: of the tokens before these, for decoding.

        Returns:
            `(batch, tokens, embed_dim)`.

        Raises:
            ShapeError, MaskError, ArgumentError: inputs that do not fit together.
        """
        query, key, value = self.project(x, memory)
        attended = linear_attention(
            query, key, value, self.features, causal=self.causal, mask=mask, state=state
        )
        return self.join(attended)


def _spec(is_causal: bool, mask: Mask | None) -> SpecArguments:
    """The spec whose weights, with features as query and key, are those of linear attention."""
    if is_causal:
        mask = up_to_here() if mask is None else up_to_here() & mask
    # softmax(log φ(q)·φ(k)) divides φ(q)·φ(k) by its sum, so the engines compute linear attention's statistics as well.
    return {"mask": mask, "bias": Logarithm(), "scale": 1.0}


def _real(mask: Mask | None, sizes: Sizes, start: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Which queries and which keys are real, each `(batch or 1, 1, tokens, 1)`; None: all."""
    if mask is None:
        return None
    as_mask(mask)
    if not isinstance(mask, Padding | Prefix):
        raise MaskError(
            "linear attention sums over keys, so its mask can only say which tokens are real, rg.padding(…) or "
            f"rg.prefix(…), and causal=True that none looks ahead; got {mask.name}"
        )
    end = start + sizes.keys
    mask.check(sizes.batch, sizes.heads, sizes.queries, end, end - sizes.queries)
    keys = torch.arange(start, end, device=device)
    real = _diagonal(mask.to(device), keys)
    queries = torch.arange(end - sizes.queries, end, device=device)
    asking = (queries >= start)[None]
    # A prefix is of the keys; which queries are real it does not say.
    if isinstance(mask, Padding):
        asking = _diagonal(mask.to(device), queries)
    return asking[:, None, :, None], real[:, None, :, None]


def _diagonal(mask: Mask, positions: Tensor) -> Tensor:
    """Whether each position may attend itself, `(batch or 1, tokens)`; `allows` leaves out axes that do not matter."""
    rows = torch.arange(mask.shape[0], device=positions.device)[:, None]
    return mask.allows(positions, positions, rows).expand(rows.shape[0], positions.shape[0])


def _run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    features: Features,
    causal: bool,
    real: tuple[Tensor, Tensor] | None,
    state: LinearState | None,
) -> _Done:
    exact, group = statistics_dtype(query.dtype), query.shape[1] // key.shape[1]
    # A query's factor is in the numerator and in the sum that divides it, so its logarithm is dropped.
    query_features = features.split(query.to(exact))[0]
    key_features, logarithm = features.split(repeat_heads(key, group).to(exact))
    values = repeat_heads(value, group).to(exact)
    if real is not None:
        key_features, values = key_features.masked_fill(~real[1], 0.0), values.masked_fill(~real[1], 0.0)
        if logarithm is not None:
            # Padding may not set the common factor: beside a large one, real keys would round to 0.
            logarithm = logarithm.masked_fill(~real[1], -torch.inf)
    largest = largest_of(logarithm)
    before: Tensor | None = None
    if state is not None:
        before, largest = state.before(key_features, values.shape[3], largest)
    keys = scaled(key_features, logarithm, largest)
    # A column of ones beside the values: the same product sums the weights.
    counted = pad(values, (0, 1), value=1.0)
    if causal:
        summed, total = _causal(query_features, keys, counted, before)
        if state is not None:
            state.update(total, largest, keys.shape[2])
    else:
        summed = query_features @ (keys.mT @ counted)
    normalizer = summed[..., -1:]
    # A row that may attend no key has 0 / 1, never NaN.
    output = summed[..., :-1] / torch.where(normalizer > 0, normalizer, 1.0)
    if real is not None:
        output = output.masked_fill(~real[0], 0.0)
    return _Done(output.to(query.dtype), query_features, key_features, logarithm, values)


def _causal(query: Tensor, key: Tensor, value: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Σ over keys up to each query of (query · key) value, and Σ key valueᵀ over all keys, `before` included."""
    tokens = query.shape[2]
    # In decoding, one token is a chunk of one, and is not padded to 128.
    chunk = min(CHUNK, max(1, tokens))
    q, k, v = (
        pad(part, (0, 0, 0, -tokens % chunk)).unflatten(2, (-1, chunk)) for part in (query, key, value)
    )
    # Padded with zeros to whole chunks: a key of zeros adds nothing to any sum.
    # Masked in place, as the backward pass of a product does not need its result.
    inside = (q @ k.mT).tril_() @ v
    sums = k.mT @ v
    if before is None:
        before = sums.new_zeros((*sums.shape[:2], *sums.shape[3:]))
    first = before[:, :, None]
    # Entry i is the sum before chunk i, which its queries see whole; the last is the sum after all of them.
    running = torch.cat((first, sums), 2).cumsum(2)
    summed = inside + q @ running[:, :, :-1]
    return summed.flatten(2, 3)[:, :, :tokens], running[:, :, -1]
