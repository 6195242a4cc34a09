"""Score functions: how well a key answers a query, as modules that hold what they have learned.

Knows single scores; what becomes of them, softmax and all, is the business of `attend`, for which each prepares a call.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.checks.arguments import checked, sized
from regard.errors import ArgumentError, ShapeError
from regard.shapes import repeat_heads
from regard.spec import SpecArguments

Prepared = tuple[Tensor, Tensor, SpecArguments]


class Score(nn.Module):
    """Base of the score functions. A new one has `compare`, and `project` if keys are worth preparing once.

    Called with query `(batch, heads, queries, query_dim)` and key `(batch, kv_heads, keys, key_dim)`, where `kv_heads`
    divides `heads`, it gives the scores `(batch, heads, queries, keys)`. `attend` and `observe` never store those:

        query, key, spec = score.prepare(query, key)
        output = rg.attend(query, key, value, **spec)
    """

    def project(self, key: Tensor) -> Tensor:
        """What every query is compared with: computed once, where queries come one after another."""
        return key

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """Query, key and keywords of `attend` whose scores are these, for keys that `project` gave."""
        raise NotImplementedError

    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        """Query, key and keywords of `attend` whose scores, `scale · q·k + bias`, are these.

        Raises:
            ShapeError: a dim other than that of the weights.
        """
        return self.compare(query, self.project(key))

    @checked
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores `(batch, heads, queries, keys)`."""
        query, key, spec = self.prepare(query, key)
        product = query @ repeat_heads(key, query.shape[1] // key.shape[1]).mT
        scale, bias = spec.get("scale"), spec.get("bias")
        if scale is None:
            scale = 1 / math.sqrt(query.shape[3])
        scores = product * scale
        if isinstance(bias, Tensor):
            return scores + bias
        return scores


class Dot(Score):
    """q · k (Luong et al. 2015, arXiv 1508.04025, "dot").

    Example:
        >>> Dot()(torch.randn(2, 4, 7, 8), torch.randn(2, 4, 5, 8)).shape
        torch.Size([2, 4, 7, 5])
    """

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """As they are."""
        _same_dim(query, projected)
        return query, projected, {"scale": 1.0}


class ScaledDot(Score):
    """q · k / √dim (Vaswani et al. 2017, arXiv 1706.03762): of variance 1 where q and k have it.

    Example:
        >>> ScaledDot()(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4)).item()
        2.0
    """

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """As they are."""
        _same_dim(query, projected)
        return query, projected, {"scale": 1 / math.sqrt(max(1, query.shape[3]))}


class Cosine(Score):
    """q · k / (|q| |k|), from −1 to 1 (Graves et al. 2014, arXiv 1410.5401): a temperature makes it sharp.

    A vector of length 0 has a cosine of 0 with all.

    Example:
        >>> Cosine()(torch.ones(1, 1, 1, 8), torch.ones(1, 1, 2, 8))
        tensor([[[[1.0000, 1.0000]]]])
    """

    def project(self, key: Tensor) -> Tensor:
        """Keys of length 1."""
        # torch divides by at least 1e-12, so a vector of length 0 stays 0 and is never NaN.
        return nn.functional.normalize(key, dim=-1)

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """Queries of length 1."""
        _same_dim(query, projected)
        return nn.functional.normalize(query, dim=-1), projected, {"scale": 1.0}


class General(Score):
    """qᵀ W k with a learned W (Luong et al. 2015, "general"), so that query and key may differ in dim.

    Args:
        query_dim: of the queries. key_dim: of the keys; `query_dim` by default.
        num_heads: how many matrices: one for all heads, or one for each head of the keys.

    Example:
        >>> General(8, 6)(torch.randn(2, 4, 7, 8), torch.randn(2, 4, 5, 6)).shape
        torch.Size([2, 4, 7, 5])
    """

    @sized
    def __init__(self, query_dim: int, key_dim: int | None = None, *, num_heads: int = 1) -> None:
        super().__init__()
        if key_dim is None:
            key_dim = query_dim
        _check_positive(query_dim=query_dim, key_dim=key_dim, num_heads=num_heads)
        self.weight = nn.Parameter(torch.empty(num_heads, query_dim, key_dim))
        # Head by head: torch takes a third axis for the kernel of a convolution, and counts it in the fan.
        for head in self.weight:
            nn.init.xavier_uniform_(head)

    def project(self, key: Tensor) -> Tensor:
        """W k, of the dim of queries."""
        if key.shape[3] != self.weight.shape[2] or self.weight.shape[0] not in (1, key.shape[1]):
            raise ShapeError(
                f"keys must be (batch, {_heads(self.weight)}, keys, {self.weight.shape[2]}), got {tuple(key.shape)}"
            )
        return key @ self.weight.mT

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """The queries as they are."""
        _same_dim(query, projected)
        return query, projected, {"scale": 1.0}


class Additive(Score):
    """vᵀ tanh(Wq q + Wk k + b), a small network (Bahdanau et al. 2015, arXiv 1409.0473).

    Its scores are no product, so they are computed for all pairs: training stores queries · keys · hidden_size numbers.

    Args:
        query_dim: of the queries. key_dim: of the keys. hidden_size: units of the network.
        bias: whether it has b.

    Example:
        >>> Additive(8, 6, 10)(torch.randn(2, 4, 7, 8), torch.randn(2, 4, 5, 6)).shape
        torch.Size([2, 4, 7, 5])
    """

    @sized
    def __init__(self, query_dim: int, key_dim: int, hidden_size: int, *, bias: bool = True) -> None:
        super().__init__()
        _check_positive(query_dim=query_dim, key_dim=key_dim, hidden_size=hidden_size)
        # One bias is enough for the sum of both, and with the keys it is added once for all queries.
        self.query = nn.Linear(query_dim, hidden_size, bias=False)
        self.key = nn.Linear(key_dim, hidden_size, bias=bias)
        self.combine = nn.Linear(hidden_size, 1, bias=False)

    def project(self, key: Tensor) -> Tensor:
        """Wk k + b, `(batch, kv_heads, keys, hidden_size)`."""
        _check_dim("key", key, self.key.in_features)
        return self.key(key)

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """A call whose scores are all bias."""
        _check_dim("query", query, self.query.in_features)
        return _added(self.query(query), projected, self.combine)


class Concat(Score):
    """vᵀ tanh(W [q; k]), one matrix for query and key together (Luong et al. 2015, "concat").

    W [q; k] is computed as the sum of its two halves, each once for its token.

    Args:
        query_dim: of the queries. key_dim: of the keys. hidden_size: rows of W.

    Example:
        >>> Concat(8, 6, 10)(torch.randn(2, 4, 7, 8), torch.randn(2, 4, 5, 6)).shape
        torch.Size([2, 4, 7, 5])
    """

    @sized
    def __init__(self, query_dim: int, key_dim: int, hidden_size: int) -> None:
        super().__init__()
        _check_positive(query_dim=query_dim, key_dim=key_dim, hidden_size=hidden_size)
        self.query_dim = query_dim
        self.join = nn.Linear(query_dim + key_dim, hidden_size, bias=False)
        self.combine = nn.Linear(hidden_size, 1, bias=False)

    def project(self, key: Tensor) -> Tensor:
        """The right half of W, times k."""
        _check_dim("key", key, self.join.in_features - self.query_dim)
        return nn.functional.linear(key, self.join.weight[:, self.query_dim :])

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """A call whose scores are all bias."""
        _check_dim("query", query, self.query_dim)
        query = nn.functional.linear(query, self.join.weight[:, : self.query_dim])
        return _added(query, projected, self.combine)


class Tempered(Score):
    """Another score divided by a temperature: below 1 the weights are sharper, above 1 flatter (Hinton et al. 2015).

    Args:
        score: the other score.
        temperature: above 0.
        learned: whether its logarithm is a parameter, so that it stays above 0.

    Example:
        >>> Tempered(Dot(), 0.5)(torch.ones(1, 1, 1, 3), torch.ones(1, 1, 1, 3)).item()
        6.0
    """

    @sized
    def __init__(self, score: Score, temperature: float, *, learned: bool = False) -> None:
        super().__init__()
        if not (math.isfinite(temperature) and temperature > 0):
            raise ArgumentError(f"temperature must be a finite number above 0, got {temperature}")
        self.score = score
        start = torch.tensor(math.log(temperature))
        self.log_temperature: Tensor
        if learned:
            self.log_temperature = nn.Parameter(start)
        else:
            # A buffer moves between devices, and is saved under the name that a learned one has.
            self.register_buffer("log_temperature", start)

    @property
    def temperature(self) -> Tensor:
        """The temperature, a scalar."""
        return self.log_temperature.exp()

    def project(self, key: Tensor) -> Tensor:
        """As the other score does."""
        return self.score.project(key)

    def compare(self, query: Tensor, projected: Tensor) -> Prepared:
        """The other score's call, its queries and its bias divided."""
        query, key, spec = self.score.compare(query, projected)
        # Scores that are products are divided in the query, so that no engine needs to know a temperature.
        cooler = (-self.log_temperature).exp().to(query.dtype)
        bias = spec.get("bias")
        if isinstance(bias, Tensor):
            return query, key, {**spec, "bias": bias * cooler}
        return query * cooler, key, spec


def _added(query: Tensor, key: Tensor, combine: nn.Linear) -> Prepared:
    """vᵀ tanh(q + k) for all pairs, as the bias of a call whose queries and keys are 0."""
    key_each = repeat_heads(key, query.shape[1] // key.shape[1])
    bias = combine(torch.tanh(query[:, :, :, None] + key_each[:, :, None])).squeeze(-1)
    # One number, expanded: queries and keys of zeros take no memory, and q · k adds 0 to the bias.
    zero = bias.new_zeros(())
    return (
        zero.expand(*query.shape[:3], 1),
        zero.expand(*key.shape[:3], 1),
        {"scale": 1.0, "bias": bias},
    )


def _same_dim(query: Tensor, key: Tensor) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(f"query and key must have one dim, got {query.shape[-1]} and {key.shape[-1]}")


def _check_dim(name: str, tensor: Tensor, dim: int) -> None:
    if tensor.ndim != 4 or tensor.shape[3] != dim:
        raise ShapeError(f"{name} must be (batch, heads, tokens, {dim}), got {tuple(tensor.shape)}")


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentError(f"{name} must be at least 1, got {size}")


def _heads(weight: Tensor) -> str:
    if weight.shape[0] == 1:
        return "any heads"
    return f"{weight.shape[0]} heads"
