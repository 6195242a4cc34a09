"""Keys and values of the tokens that a model has read, so that decoding computes only those of the new ones.

Knows tensors and whose they are; it never looks at what they mean.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.checks.arguments import sized
from regard.errors import ArgumentError, ShapeError

MIN_CAPACITY = 64  # tokens that memory is first allocated for


class Entry:
    """Keys and values of one layer.

    Attributes:
        tokens: how many tokens of the text the layer has read: the position of the next one.
        length: how many keys are stored: `tokens`, or in cross-attention the memory's.
        holds_memory: whether the keys are those of cross-attention's memory.
    """

    @sized
    def __init__(self) -> None:
        self.tokens = self.length = 0
        self.holds_memory = False
        self._stored: tuple[Tensor, Tensor] | None = None

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """Key `(batch, kv_heads, length, dim)` and value `(batch, kv_heads, length, value_dim)`: views, not copies."""
        assert self._stored is not None, "nothing was stored yet"
        key, value = self._stored
        return key[:, :, : self.length], value[:, :, : self.length]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of new tokens, and give those of all tokens so far.

        Raises:
            ShapeError: rows, heads, dims or types other than those of the tokens before.
        """
        stored = self._stored
        new = (key, value)
        if stored is not None:
            for name, old, more in zip(("key", "value"), stored, new, strict=True):
                known, got = (*old.shape[:2], old.shape[3]), (*more.shape[:2], more.shape[3])
                if known != got or old.dtype != more.dtype:
                    raise ShapeError(
                        f"the cache holds {name}s of {old.dtype} with (batch, kv_heads, dim) {known}, got "
                        f"{more.dtype} with {got}: crop, reorder or make a new cache"
                    )
        end = self.length + key.shape[2]
        if torch.is_grad_enabled() and any(t.requires_grad for t in (*new, *(stored or ()))):
            # Gradients flow to what was appended before, so its memory may not be written to.
            if stored is None:
                self._stored = new
            else:
                self._stored = _joined(self.pair, new)
        else:
            if stored is None or stored[0].shape[2] < end or stored[0].requires_grad:
                # Memory doubles, so that n steps copy O(n) tokens and not O(n²).
                self._stored = self._enlarged(new, max(MIN_CAPACITY, 2 * end))
            assert self._stored is not None
            for buffer, more in zip(self._stored, new, strict=True):
                buffer[:, :, self.length : end] = more
        self.length = end
        return self.pair

    def _enlarged(self, like: tuple[Tensor, Tensor], room: int) -> tuple[Tensor, Tensor]:
        """Larger memory that holds what the old one held."""
        key, value = (t.new_empty((*t.shape[:2], room, t.shape[3])) for t in like)
        if self._stored is not None:
            for buffer, old in zip((key, value), self.pair, strict=True):
                buffer[:, :, : self.length] = old
        return key, value

    def reorder(self, rows: Tensor) -> None:
        """Take other batch rows."""
        if self._stored is not None:
            key, value = self.pair
            self._stored = key.index_select(0, rows), value.index_select(0, rows)

    def crop(self, tokens: int) -> None:
        """Forget the tokens from position `tokens` on; a memory stays."""
        # Taking tokens of the text back changes nothing of the memory that they attend to.
        if not self.holds_memory:
            self.length = min(self.length, tokens)
        self.tokens = min(self.tokens, tokens)


class Cache:
    """The keys and values of each attention layer of one model, for decoding.

        cache = rg.nn.Cache(model)
        model(prompt, cache=cache)        # reads the prompt
        model(next_token, cache=cache)    # one token: its query against all keys so far

    Queries sit at the end of the keys, and position schemes count on from `len(cache)`. In cross-attention the
    memory is projected once, by the first call. A layer must run once in each step: one whose weights are shared by
    several depths cannot be told apart from itself.

    Args:
        model: the module whose layers may use this cache.

    Example:
        >>> from regard.nn import Decoder
        >>> model = Decoder(2, 16, 4, cross_attention=False).eval()
        >>> cache = Cache(model)
        >>> model(torch.randn(1, 7, 16), cache=cache).shape, len(cache)
        (torch.Size([1, 7, 16]), 7)
        >>> model(torch.randn(1, 1, 16), cache=cache).shape, len(cache)
        (torch.Size([1, 1, 16]), 8)
    """

    @sized
    def __init__(self, model: nn.Module) -> None:
        # By module, not by number: a layer asks with itself, and knows nothing of its place in the stack.
        self._names = {module: name for name, module in model.named_modules()}
        self._entries: dict[nn.Module, Entry] = {}

    def __len__(self) -> int:
        """How many tokens were read."""
        return max((entry.tokens for entry in self._entries.values()), default=0)

    def of(self, layer: nn.Module) -> Entry:
        """What a layer keeps; empty at first.

        Raises:
            ArgumentError: the layer belongs to another model.
        """
        if layer not in self._names:
            raise ArgumentError(
                f"a cache must be used by the model it was made for, got a {type(layer).__name__} that is no part "
                "of that: make one with Cache(model)"
            )
        return self._entries.setdefault(layer, Entry())

    def reorder(self, rows: Tensor) -> None:
        """Go on with other batch rows: those that beam search kept, or one row repeated.

        Args:
            rows: integer `(new batch,)`, the row that each new one continues.

        Raises:
            ShapeError: not a list of integers.
        """
        if rows.ndim != 1 or rows.is_floating_point() or rows.dtype == torch.bool:
            raise ShapeError(f"rows must be integers (batch,), got {rows.dtype} of shape {tuple(rows.shape)}")
        for entry in self._entries.values():
            entry.reorder(rows)

    def crop(self, length: int) -> None:
        """Forget every token from position `length` on, as when a guess is taken back.

        Raises:
            ArgumentError: a negative length, or more tokens than were read.
        """
        if not 0 <= length <= len(self):
            raise ArgumentError(
                f"length must be from 0 to the {len(self)} tokens that were read, got {length}"
            )
        for entry in self._entries.values():
            entry.crop(length)


def _joined(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.cat((old[0], new[0]), 2), torch.cat((old[1], new[1]), 2)
