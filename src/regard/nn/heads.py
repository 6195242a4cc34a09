"""The projections around a mechanism of attention: tokens to heads, and heads back to tokens. Knows no weights."""

from __future__ import annotations

from torch import Tensor, nn

from regard.checks.arguments import sized
from regard.errors import ArgumentError, ShapeError


class HeadLayer(nn.Module):
    """Base of layers with heads: projections `query`, `key`, `value` and `output`.

    Args:
        width: of the tokens that ask, and of the output.
        heads: how many.
        head_dim: of query, key and value, per head; width / heads by default.
        source_width: of the tokens that are asked; `width` by default.
        bias: whether the projections have one.

    Raises:
        ArgumentError: sizes below 1, or a width that is no multiple of `heads` where `head_dim` is left out.
    """

    @sized
    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_dim: int | None = None,
        source_width: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if head_dim is None and heads > 0 and width % heads:
            raise ArgumentError(
                f"width must be a multiple of heads where head_dim is not said, got {width} and {heads}"
            )
        self.width, self.heads = width, heads
        self.source_width = width if source_width is None else source_width
        self.head_dim = width // max(1, heads) if head_dim is None else head_dim
        for name in ("width", "heads", "head_dim", "source_width"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, got {getattr(self, name)}")
        inner = heads * self.head_dim
        self.query = nn.Linear(width, inner, bias)
        self.key = nn.Linear(self.source_width, inner, bias)
        self.value = nn.Linear(self.source_width, inner, bias)
        self.output = nn.Linear(inner, width, bias)
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    def project(self, x: Tensor, source: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value `(batch, heads, tokens, head_dim)` of tokens `(batch, tokens, width)`.

        Raises:
            ShapeError: other axes or another width.
        """
        asked, name = (x, "x") if source is None else (source, "source")
        for given, called, width in ((x, "x", self.width), (asked, name, self.source_width)):
            if given.ndim != 3 or given.shape[2] != width:
                raise ShapeError(f"{called} must be (batch, tokens, {width}), got {tuple(given.shape)}")
        pairs = (self.query, x), (self.key, asked), (self.value, asked)
        query, key, value = (
            linear(tokens).unflatten(2, (self.heads, self.head_dim)).transpose(1, 2)
            for linear, tokens in pairs
        )
        return query, key, value

    def join(self, output: Tensor) -> Tensor:
        """`(batch, heads, tokens, head_dim)` back to `(batch, tokens, width)`."""
        joined: Tensor = self.output(output.transpose(1, 2).flatten(2))
        return joined
