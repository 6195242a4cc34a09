"""Attention of low rank: over a few learned slots (Linformer), or through a few landmarks (Nyström).

Knows how many keys are left; the softmax over them is `attend`'s. Time and memory are O(tokens · rank).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.attention import attend, weights
from regard.checks.arguments import checked, shown, sized
from regard.errors import ArgumentError, ShapeError
from regard.nn.projections import HeadLayer
from regard.shapes import FLOATS, repeat_heads, sizes_of, statistics_dtype
from regard.spec import SpecArguments
from regard.watch.hooks.own import Handed, hand_over

ITERATIONS = 6  # of the pseudo-inverse, as in the paper
MOST_ITERATIONS = 1000  # each converges by the third power


@checked
def projected_attention(
    query: Tensor, key: Tensor, value: Tensor, project_key: Tensor, project_value: Tensor
) -> Tensor:
    """Attention to `rank` slots, mixtures of keys and of values (Wang et al. 2020, arXiv 2006.04768).

        output = softmax(query · (E key)ᵀ / √dim) · F value

    A watch sees it as attention from the tokens to the slots.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`. value: `(batch, kv_heads, keys, value_dim)`.
        project_key: E, `(rank, keys)` or `(kv_heads, rank, keys)`. project_value: F, likewise.

    Returns:
        `(batch, heads, queries, value_dim)`.

    Raises:
        ShapeError: inputs that do not fit together.
    """
    sizes_of(query, key, value)
    _check_projections(project_key, project_value, key)
    # Under autocast the products are of bfloat16, whatever the queries are, and attention takes one type.
    slots, slot_values = (project_key @ key).to(query.dtype), (project_value @ value).to(query.dtype)
    return hand_over(
        (query, slots, slot_values),
        lambda: attend(query, slots, slot_values),
        lambda output: Handed(query=query, key=slots, value=slot_values, output=output, is_cross=True),
    )


@checked
def projected_weights(
    query: Tensor,
    key: Tensor,
    project_key: Tensor,
    project_value: Tensor,
    *,
    rows: slice = slice(None),
    columns: slice = slice(None),
) -> Tensor:
    """What `projected_attention` multiplies values by, a window of softmax(query · (E key)ᵀ / √dim) · F.

    No distribution: its numbers may be negative, and its rows sum to anything.

    Args:
        query, key, project_key, project_value: as for `projected_attention`.
        rows: which queries. columns: which keys.

    Returns:
        `(batch, heads, rows, columns)`.
    """
    sizes_of(query, key)
    _check_projections(project_key, project_value, key)
    if not isinstance(columns, slice):
        raise ArgumentError(f"columns must be a slice, got {shown(columns)}")
    over_slots = weights(query, (project_key @ key).to(query.dtype), rows=rows)
    spread = project_value[..., columns].to(over_slots.dtype)
    # A projection for each key-value head is shared by the queries of its group.
    if spread.ndim == 3:
        spread = repeat_heads(spread[None], query.shape[1] // spread.shape[0])
    return over_slots @ spread


@checked
def landmark_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_landmarks: int,
    *,
    iterations: int | None = ITERATIONS,
    scale: float | None = None,
) -> Tensor:
    """Nyström's approximation of softmax attention (Xiong et al. 2021, arXiv 2102.03902).

        output = softmax(query · K̃ᵀ) · pinv(softmax(Q̃ · K̃ᵀ)) · softmax(Q̃ · keyᵀ) · value

    Landmarks Q̃ and K̃ are means of segments of queries and keys as even as can be. With as many as tokens it is exact.
    A watch sees its first softmax, attention from the tokens to the landmarks.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`. value: `(batch, kv_heads, keys, value_dim)`.
        num_landmarks: how many; no more than there are queries and keys are used.
        iterations: of the pseudo-inverse; None computes it by singular values.
        scale: factor of q·k, 1/√dim by default.

    Returns:
        `(batch, heads, queries, value_dim)`.

    Raises:
        ShapeError, ArgumentError: inputs that do not fit together.
    """
    sizes = sizes_of(query, key, value)
    _check_landmarks(num_landmarks, iterations)
    # As many landmarks as tokens are the tokens: exact, with no pseudo-inverse to lose digits in.
    if num_landmarks >= max(sizes.queries, sizes.keys):
        return attend(query, key, value, scale=scale)
    exact = statistics_dtype(query.dtype)
    queries, keys, values = (tensor.to(exact) for tensor in (query, key, value))
    spec = _scaled(sizes.dim, scale)

    def run() -> tuple[Tensor, Tensor, Tensor]:
        # Autocast would take the products to bfloat16 again, whatever type the inputs were brought to.
        with torch.autocast(query.device.type, enabled=False):
            near, middle, far = _landmarks(queries, keys, num_landmarks, iterations, spec)
            # From right to left, so that no product has a row and a column for each token.
            slots = middle @ attend(near, keys, values, **spec)
            return attend(queries, far, slots, **spec), far, slots

    return hand_over(
        (query, key, value),
        run,
        lambda did: Handed(query=queries, key=did[1], value=did[2], output=did[0], spec=spec, is_cross=True),
    )[0].to(query.dtype)


@checked
def landmark_weights(
    query: Tensor,
    key: Tensor,
    num_landmarks: int,
    *,
    iterations: int | None = ITERATIONS,
    scale: float | None = None,
    rows: slice = slice(None),
    columns: slice = slice(None),
) -> Tensor:
    """What `landmark_attention` multiplies values by: a window of its three factors' product.

    No distribution: its numbers may be negative. Its rows sum to 1 as far as the pseudo-inverse has converged.

    Args:
        query, key, num_landmarks, iterations, scale: as for `landmark_attention`.
        rows: which queries. columns: which keys.

    Returns:
        `(batch, heads, rows, columns)`.
    """
    sizes = sizes_of(query, key)
    _check_landmarks(num_landmarks, iterations)
    if num_landmarks >= max(sizes.queries, sizes.keys):
        return weights(query, key, rows=rows, columns=columns, scale=scale)
    exact = statistics_dtype(query.dtype)
    queries, keys = query.to(exact), key.to(exact)
    spec = _scaled(sizes.dim, scale)
    near, middle, far = _landmarks(queries, keys, num_landmarks, iterations, spec)
    # Landmarks are means over all tokens: a window may cut the outer factors only.
    return weights(queries, far, rows=rows, **spec) @ (middle @ weights(near, keys, columns=columns, **spec))


def _check_landmarks(num_landmarks: int, iterations: int | None) -> None:
    if num_landmarks < 1:
        raise ArgumentError(f"num_landmarks must be at least 1, got {num_landmarks}")
    if iterations is None:
        return
    if iterations < 1:
        raise ArgumentError(f"iterations must be at least 1, or None, got {iterations}")
    if iterations > MOST_ITERATIONS:
        raise ArgumentError(f"iterations must be at most {MOST_ITERATIONS}, or None, got {iterations}")


def _check_projections(project_key: Tensor, project_value: Tensor, key: Tensor) -> None:
    for name, matrix in (("project_key", project_key), ("project_value", project_value)):
        _check_projection(name, matrix, key, key.shape[2])
    if project_key.shape[-2] != project_value.shape[-2]:
        raise ShapeError(
            "project_key and project_value must have one rank, got "
            f"{project_key.shape[-2]} and {project_value.shape[-2]}"
        )


def _check_projection(name: str, matrix: Tensor, like: Tensor, keys: int) -> None:
    """Raise ShapeError unless a projection mixes so many keys, for the heads of `like` or for all alike."""
    shape = tuple(matrix.shape)
    if matrix.ndim not in (2, 3) or shape[-1] != keys or (matrix.ndim == 3 and shape[0] != like.shape[1]):
        raise ShapeError(
            f"{name} must be (rank, keys) or (kv_heads, rank, keys) with {keys} keys, got {shape}"
        )
    if matrix.dtype not in FLOATS or matrix.device != like.device:
        raise ShapeError(
            f"{name} must be floating point and where the keys are, got {matrix.dtype} on {matrix.device}"
        )


def _landmarks(
    query: Tensor, key: Tensor, num_landmarks: int, iterations: int | None, spec: SpecArguments
) -> tuple[Tensor, Tensor, Tensor]:
    """Landmarks of the queries, the pseudo-inverse of the weights between landmarks, landmarks of the keys."""
    count = min(num_landmarks, query.shape[2], key.shape[2])
    near, far = _means(query, count), _means(repeat_heads(key, query.shape[1] // key.shape[1]), count)
    scale = spec["scale"]
    assert scale is not None
    # Between landmarks alone the weights are few enough to be stored.
    core = torch.softmax(scale * near @ far.mT, -1)
    middle = torch.linalg.pinv(core) if iterations is None else _pseudo_inverse(core, iterations)
    return near, middle, far


def _scaled(dim: int, scale: float | None) -> SpecArguments:
    if scale is None:
        # Without dims all products are 0, and any scale will do.
        scale = 1 / math.sqrt(max(1, dim))
    return {"scale": scale}


def _means(tensor: Tensor, count: int) -> Tensor:
    """Means of `count` segments of the tokens."""
    # Segments differ by one token at most, so no token is left out where their number does not divide the length.
    tokens = tensor.shape[2]
    segment = torch.arange(tokens, device=tensor.device) * count // tokens
    sums = tensor.new_zeros(*tensor.shape[:2], count, tensor.shape[3]).index_add(2, segment, tensor)
    return sums / torch.bincount(segment, minlength=count).to(tensor.dtype)[:, None]


def _pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Moore–Penrose inverse by an iteration of third order (Razavi et al. 2014), from Aᵀ / (‖A‖₁ ‖A‖∞)."""
    # ‖A‖₁ ‖A‖∞ bounds the largest singular value's square, without which the iteration would not converge.
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    columns, rows = matrix.abs().sum(-2).amax(-1), matrix.abs().sum(-1).amax(-1)
    inverse = matrix.mT / (columns * rows)[..., None, None]
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * one - product @ (15 * one - product @ (7 * one - product))) / 4
    return inverse


class ProjectedAttention(HeadLayer):
    """Linformer's attention as a layer: every token attends `rank` slots, learned mixtures of the keys' positions.

    Args:
        embed_dim: embedding size of the queries and of the output.
        num_heads: how many.
        max_keys: the most keys that there may be; a shorter text uses the first columns of the projections.
        rank: how many slots.
        share_kv: whether keys and values are mixed alike.
        head_dim, memory_dim, bias: as for `LinearAttention`.

    Its weights are `project_key` and `project_value`, `(rank, max_keys)`, the same for all heads. It looks ahead, and
    takes no mask: a slot mixes all positions.

    Raises:
        ArgumentError: sizes that do not fit together.

    Example:
        >>> layer = ProjectedAttention(16, 4, max_keys=32, rank=5)
        >>> layer(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        max_keys: int,
        rank: int,
        *,
        share_kv: bool = False,
        head_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(embed_dim, num_heads, head_dim=head_dim, memory_dim=memory_dim, bias=bias)
        for name, size in (("max_keys", max_keys), ("rank", rank)):
            if size < 1:
                raise ArgumentError(f"{name} must be at least 1, got {size}")
        # Slots of the size of tokens: a mixture of n numbers of variance 1/n.
        self.project_key = nn.Parameter(torch.randn(rank, max_keys) / math.sqrt(max_keys))
        if share_kv:
            # One parameter under two names, which an optimizer sees once.
            self.project_value = self.project_key
        else:
            self.project_value = nn.Parameter(torch.randn(rank, max_keys) / math.sqrt(max_keys))

    @checked
    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """The tokens' new values.

        Args:
            x: `(batch, tokens, embed_dim)`.
            memory: what is attended, `(batch, keys, memory_dim)`; x itself by default.

        Returns:
            `(batch, tokens, embed_dim)`.

        Raises:
            ShapeError: other axes, or more keys than the projections have columns.
        """
        query, key, value = self.project(x, memory)
        keys, most = key.shape[2], self.project_key.shape[1]
        if keys > most:
            raise ShapeError(f"there may be at most {most} keys, the columns of the projections, got {keys}")
        projections = self.project_key[:, :keys], self.project_value[:, :keys]
        return self.join(projected_attention(query, key, value, *projections))


class LandmarkAttention(HeadLayer):
    """Nyström's attention as a layer: see `landmark_attention`. It looks ahead, and takes no mask.

    Args:
        embed_dim: embedding size of the queries and of the output.
        num_heads: how many.
        num_landmarks: how many.
        iterations: of the pseudo-inverse; None computes it by singular values.
        head_dim, memory_dim, bias: as for `LinearAttention`.

    Raises:
        ArgumentError: sizes that do not fit together.

    Example:
        >>> layer = LandmarkAttention(16, 4, num_landmarks=5)
        >>> layer(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_landmarks: int,
        *,
        iterations: int | None = ITERATIONS,
        head_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(embed_dim, num_heads, head_dim=head_dim, memory_dim=memory_dim, bias=bias)
        _check_landmarks(num_landmarks, iterations)
        self.num_landmarks, self.iterations = num_landmarks, iterations

    @checked
    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """The tokens' new values.

        Args:
            x: `(batch, tokens, embed_dim)`.
            memory: what is attended, `(batch, keys, memory_dim)`; x itself by default.

        Returns:
            `(batch, tokens, embed_dim)`.

        Raises:
            ShapeError: other axes or another embedding size.
        """
        query, key, value = self.project(x, memory)
        return self.join(
            landmark_attention(query, key, value, self.num_landmarks, iterations=self.iterations)
        )
