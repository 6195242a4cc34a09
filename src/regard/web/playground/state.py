"""What can be set in the playground, with its ranges. Knows numbers and names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regard.checks.arguments import check_fields
from regard.errors import ArgumentError

Kind = Literal[
    "self", "cross", "causal", "window", "strided", "random", "global", "linear", "low rank", "additive"
]
KINDS: tuple[Kind, ...] = (
    *("self", "cross", "causal", "window", "strided"),
    *("random", "global", "linear", "low rank", "additive"),
)
Positions = Literal["none", "sinusoidal", "learned", "rotary", "alibi"]
Init = Literal["xavier", "small", "zero", "matched"]
Pattern = Literal["random", "repeated", "clusters", "smooth"]

# Least and most of each number.
RANGES = {
    "length": (1, 256),
    "memory_length": (1, 256),
    "embed_dim": (1, 1024),
    "num_heads": (1, 16),
    "seed": (0, 2**31 - 1),
    "window": (1, 256),
    "step": (1, 256),
    "blocks": (1, 16),
    "global_tokens": (1, 256),
    "rank": (1, 256),
}
TEMPERATURES = 0.01, 100.0
# Characters of a text of one's own.
MOST_TEXT = 10_000
# Attention to the tokens of the same text, by scores that are products.
WITH_POSITIONS = ("self", "causal", "window", "strided", "random", "global")


@dataclass(frozen=True)
class PlaygroundState:
    """One layer and its input; the defaults make a good first picture.

    Attributes:
        kind: of attention; "window", "strided" and "random" are causal.
        length: tokens of the queries, and of the keys but for "cross", whose keys are `memory_length` tokens.
        embed_dim: numbers of a token, which `num_heads` heads share.
        temperature: that scores are divided by.
        positions: "rotary" and "alibi" are part of attention, for kinds of self-attention with products as scores; the
            others are added to the tokens.
        init: "xavier", "small" (normal, 0.02), "zero" (the last projection is 0), or "matched": Xavier's, with one
            projection for queries and keys, so that a token looks for tokens like itself.
        seed: of tokens and weights.
        text: tokens of one's own, in place of made ones: its words and signs; equal words are equal tokens.
        pattern: tokens without a text: "random"; "repeated", the second half is the first once more; "clusters" of
            tokens that are alike; "smooth", each token close to the one before.
        window: of "window", keys up to the query's own. step: of "strided". blocks: of "random", of 16 keys.
        global_tokens: of "global". rank: of "low rank", slots that stand for all keys.
    """

    kind: Kind = "causal"
    length: int = 48
    memory_length: int = 32
    embed_dim: int = 64
    num_heads: int = 4
    temperature: float = 1.0
    positions: Positions = "none"
    init: Init = "matched"
    seed: int = 0
    text: str = ""
    pattern: Pattern = "repeated"
    window: int = 8
    step: int = 4
    blocks: int = 2
    global_tokens: int = 2
    rank: int = 16

    def __post_init__(self) -> None:
        check_fields(self)
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ArgumentError(f"{name} must be from {least} to {most}, got {value}")
        least_t, most_t = TEMPERATURES
        if not (math.isfinite(self.temperature) and least_t <= self.temperature <= most_t):
            raise ArgumentError(f"temperature must be from {least_t} to {most_t}, got {self.temperature}")
        if len(self.text) > MOST_TEXT:
            raise ArgumentError(f"text must have at most {MOST_TEXT} characters, got {len(self.text)}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ArgumentError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.embed_dim % self.num_heads:
            raise ArgumentError(
                f"num_heads must divide embed_dim, got {self.num_heads} heads and {self.embed_dim} numbers"
            )
        self._check_positions()

    def _check_positions(self) -> None:
        if self.positions in ("rotary", "alibi") and self.kind not in WITH_POSITIONS:
            raise ArgumentError(
                f"{self.positions} positions must be of a kind with scores of its own tokens "
                f"({', '.join(WITH_POSITIONS)}), got {self.kind!r}: take sinusoidal or learned ones"
            )
        if self.positions == "rotary" and self.head_dim % 2:
            raise ArgumentError(f"rotary positions need heads of an even size, got {self.head_dim}")
        if self.positions == "sinusoidal" and self.embed_dim % 2:
            raise ArgumentError(f"sinusoidal positions need an even embed_dim, got {self.embed_dim}")

    @property
    def head_dim(self) -> int:
        """Numbers of a token for each head."""
        return self.embed_dim // self.num_heads


_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "positions": ("none", "sinusoidal", "learned", "rotary", "alibi"),
    "init": ("xavier", "small", "zero", "matched"),
    "pattern": ("random", "repeated", "clusters", "smooth"),
}
