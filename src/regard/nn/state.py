"""What linear attention keeps of the tokens that it has read: sums over keys, the same size however many they were.

Knows sums and their common factor; it never looks at queries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ShapeError, WatchError

Read = tuple[Tensor, Tensor | None, Tensor]  # features of keys, their logarithm, values


def scaled(features: Tensor, logarithm: Tensor | None, largest: Tensor | None) -> Tensor:
    """Features `(batch, heads, keys, features)` with each token's logarithm put back, less a common `largest`."""
    if logarithm is None or largest is None:
        return features
    return features * (logarithm - largest).exp()


def largest_of(logarithm: Tensor | None) -> Tensor | None:
    """The largest logarithm of all keys, `(batch, heads, 1, 1)`: a factor of all weights of a row, which cancels."""
    if logarithm is None:
        return None
    if logarithm.shape[2] == 0:  # of no key there is no largest
        return logarithm.new_zeros((*logarithm.shape[:2], 1, 1))
    # The factor cancels, so its true gradient is 0: through the maximum only rounding would flow.
    top = logarithm.detach().amax(2, keepdim=True)
    # A row of padding alone has no finite logarithm, and −inf − (−inf) is NaN.
    return top.masked_fill(top == -torch.inf, 0.0)


class LinearState:
    """The sums Σ φ(k) and Σ φ(k) valueᵀ over the tokens read so far, for decoding.

        state = rg.nn.LinearState()
        layer(prompt, state=state)       # reads the prompt
        layer(next_token, state=state)   # one token, in time that does not depend on how many were read

    Each layer needs a state of its own.

    Attributes:
        tokens: how many tokens were read: the position of the next one.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._sums: Tensor | None = None  # (batch, heads, features, value_dim + 1)
        self._largest: Tensor | None = None
        self._read: dict[int, Read] = {}  # while somebody watches: what was read at a position

    def before(self, like: Tensor, value_dim: int, largest: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The sums over earlier tokens, and the largest logarithm so far, by which they are divided.

        Args:
            like: the features of the next keys, `(batch, heads, keys, features)`.
            largest: their own largest logarithm.

        Raises:
            ShapeError: a batch, heads, features or values of other sizes than those read before.
        """
        shape = (*like.shape[:2], like.shape[3], value_dim + 1)
        if self._sums is None:
            return like.new_zeros(shape), largest
        if tuple(self._sums.shape) != shape:
            raise ShapeError(
                f"the state holds sums of (batch, heads, features, value_dim + 1) {tuple(self._sums.shape)}, "
                f"got {shape}"
            )
        if largest is None or self._largest is None:
            return self._sums.to(like.dtype), largest
        # Sums carry e^(−largest): those from before are scaled down where a larger feature comes.
        both = torch.maximum(largest, self._largest)
        return self._sums.to(like.dtype) * (self._largest - both).exp(), both

    def update(self, sums: Tensor, largest: Tensor | None, tokens: int) -> None:
        """Take the sums over everything read up to now, `tokens` more than before."""
        self._sums, self._largest, self.tokens = sums, largest, self.tokens + tokens

    def reorder(self, rows: Tensor) -> None:
        """Take other batch rows, as beam search does."""
        if self._sums is not None:
            self._sums = self._sums.index_select(0, rows)
        if self._largest is not None:
            self._largest = self._largest.index_select(0, rows)
        # Beams move between rows, and what a watch remembers of a row moves with them.
        for position, (key, logarithm, value) in self._read.items():
            if logarithm is not None:
                logarithm = logarithm.index_select(0, rows)
            self._read[position] = key.index_select(0, rows), logarithm, value.index_select(0, rows)

    def remember(self, position: int, read: Read) -> None:
        """Keep what was read at a position as well, for whoever watches."""
        self._read[position] = read

    def recall(self) -> tuple[Tensor, Tensor]:
        """Features of keys `(batch, heads, tokens, features)` and values of all tokens.

        Raises:
            WatchError: some were read while nobody watched, and only their sums are left.
        """
        # No position is −1, so one gap fails the comparison with all that was read.
        expected, parts = 0, [self._read[position] for position in sorted(self._read)]
        for position, part in zip(sorted(self._read), parts, strict=True):
            expected = expected + part[0].shape[2] if position == expected else -1
        if expected != self.tokens:
            raise WatchError(
                "its LinearState holds sums of tokens that were read while nobody watched, not the tokens: "
                "watch from the first token of a state on"
            )
        logarithms = [part[1] for part in parts if part[1] is not None]
        logarithm = None
        if logarithms:
            logarithm = torch.cat(logarithms, 2)
        # One factor for the keys of all calls: a factor of each call would not cancel between them.
        keys = scaled(torch.cat([part[0] for part in parts], 2), logarithm, largest_of(logarithm))
        return keys, torch.cat([part[2] for part in parts], 2)
