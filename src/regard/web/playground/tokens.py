"""Tokens to attend to: words of a text, or made ones with structure, and their vectors."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.web.playground.state import RANGES, PlaygroundState

# Words, and every sign alone.
PIECES = re.compile(r"\w+|[^\w\s]")
CLUSTERS = "ABCD"
# Of a token of a cluster, what is its own; of a smooth row, what is new with each token.
NOISE, NEW = 0.5, 0.35


@dataclass(frozen=True)
class Tokens:
    """Tokens with their vectors.

    Attributes:
        names: of each. ids: `(tokens,)`, the same where tokens are. vectors: `(1, tokens, embed_dim)`.
    """

    names: list[str]
    ids: Tensor
    vectors: Tensor


def tokens(state: PlaygroundState, generator: torch.Generator, length: int) -> Tokens:
    """The tokens of a state: those of its text, or as many as `length` made ones.

    Args:
        generator: what is random is drawn from it; numbers of variance 1.
    """
    if words := PIECES.findall(state.text)[: RANGES["length"][1]]:
        return _of_words(words, state.embed_dim, generator)
    # Each of them has a structure that some kind of head can find.
    if state.pattern == "repeated":
        half = -(-length // 2)
        words = [f"t{index % half + 1}" for index in range(length)]
        return _of_words(words, state.embed_dim, generator)
    if state.pattern == "clusters":
        return _clusters(length, state.embed_dim, generator)
    vectors = torch.randn(length, state.embed_dim, generator=generator)
    if state.pattern == "smooth":
        vectors = _smooth(vectors)
    return Tokens([f"t{index + 1}" for index in range(length)], torch.arange(length), vectors[None])


def _of_words(words: list[str], embed_dim: int, generator: torch.Generator) -> Tokens:
    """Equal words have equal vectors."""
    numbers = {word: index for index, word in enumerate(dict.fromkeys(words))}
    table = torch.randn(len(numbers), embed_dim, generator=generator)
    ids = torch.tensor([numbers[word] for word in words])
    return Tokens(words, ids, table[ids][None])


def _clusters(length: int, embed_dim: int, generator: torch.Generator) -> Tokens:
    members = torch.randint(len(CLUSTERS), (length,), generator=generator)
    middles = torch.randn(len(CLUSTERS), embed_dim, generator=generator)
    noise = torch.randn(length, embed_dim, generator=generator)
    # Variances add, so that all tokens have the size of random ones.
    vectors = (1 - NOISE**2) ** 0.5 * middles[members] + NOISE * noise
    names = [f"{CLUSTERS[member]}{index + 1}" for index, member in enumerate(members.tolist())]
    return Tokens(names, torch.arange(length), vectors[None])


def _smooth(noise: Tensor) -> Tensor:
    """A row of vectors in which each is close to the one before, all of variance 1."""
    rows = [noise[0]]
    for new in noise[1:]:
        rows.append((1 - NEW**2) ** 0.5 * rows[-1] + NEW * new)
    return torch.stack(rows)
