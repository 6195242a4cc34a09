"""Heads that are made to have a role: scores of known patterns, with noise, over a text with repetitions.

Built from positions and tokens alone, in dense arrays: nothing here knows how roles are measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

WORDS = [f"w{i}" for i in range(400)]
MARKS = [".", ",", ";", "\n"]
PAIRS = ["(", ")", "[", "]"]
VOCABULARY = [*MARKS, *PAIRS, *WORDS]

NAMES = (
    "previous token",
    "self",
    "first token",
    "induction",
    "duplicate token",
    "bracket",
    "separator",
    "diagonal",
    "broadcast",
    "local",
    "uniform",
    "global",
)


@dataclass(frozen=True)
class Text:
    """A text of `ids`, and its `tokens`."""

    ids: Tensor
    tokens: list[str]


def draw_text(length: int, generator: torch.Generator) -> Text:
    """A text in which words come again, brackets close and marks separate; it begins with a word."""
    words = max(6, min(len(WORDS), length // 4))
    ids, owed = [len(MARKS) + len(PAIRS)], []
    for _ in range(length - 1):
        chance = _uniform(generator)
        if chance < 0.06:
            ids.append(int(_uniform(generator) * len(MARKS)))
        elif chance < 0.16 or (owed and chance < 0.34):
            opens = not owed or _uniform(generator) < 0.4
            if opens:
                owed.append(int(_uniform(generator) * 2))
                ids.append(len(MARKS) + 2 * owed[-1])
            else:
                ids.append(len(MARKS) + 2 * owed.pop() + 1)
        else:
            ids.append(len(MARKS) + len(PAIRS) + int(_uniform(generator) * words))
    return Text(torch.tensor(ids), [VOCABULARY[i] for i in ids])


def partner(text: Text) -> Tensor:
    """`(tokens,)`: where the bracket stands that each closing one closes; −1 for every other token."""
    found, stack = torch.full((len(text.tokens),), -1), []
    for index, token in enumerate(text.tokens):
        if token in "([":
            stack.append(index)
        elif token in ")]" and stack:
            found[index] = stack.pop()
    return found


def pattern(name: str, text: Text, causal: bool, generator: torch.Generator) -> Tensor:
    """`(queries, keys)`, bool: the keys that each query of such a head attends to."""
    n = len(text.tokens)
    q, k = torch.arange(n)[:, None], torch.arange(n)[None, :]
    same = text.ids[:, None] == text.ids[None, :]
    if name == "previous token":
        return k == q - 1
    if name == "self":
        return k == q
    if name == "first token":
        return (k == 0).expand(n, n)
    if name == "duplicate token":
        return same & (k != q) if not causal else same & (k < q)
    if name == "induction":
        before = torch.cat((torch.full((n, 1), False), same[:, :-1]), 1)
        return before & (k <= q) if causal else before & (k != q + 1)
    if name == "bracket":
        pairs = partner(text)[:, None] == k
        return pairs if causal else pairs | pairs.T
    if name == "separator":
        return torch.tensor([token in MARKS + PAIRS for token in text.tokens]).expand(n, n)
    if name == "diagonal":
        d = 2 + int(_uniform(generator) * (n // 4 - 2))
        return k == q - d
    if name == "broadcast":
        count = 1 + int(_uniform(generator) * max(1, min(16, n // 64)))
        # Not the first token, and early enough that most queries of a causal text can see them.
        # No separators: a head that attends to a separator has two roles.
        names = torch.tensor([token not in MARKS + PAIRS for token in text.tokens[1 : n // 8 + 4]])
        columns = 1 + names.nonzero()[:, 0]
        columns = columns[torch.randperm(len(columns), generator=generator)[:count]]
        return torch.isin(k, columns).expand(n, n)
    if name == "local":
        radius = 3 + int(_uniform(generator) * 6)
        return (q - k).abs() <= radius
    if name == "uniform":
        return torch.ones(n, n, dtype=torch.bool)
    # Some keys anywhere, other ones for each query.
    return torch.rand(n, n, generator=generator) < 0.1


def mixture(
    parts: list[tuple[float, Tensor]], allowed: Tensor, noise: float, generator: torch.Generator
) -> Tensor:
    """`(queries, keys)` weights: each pattern with its mass, the rest even, all with noise; even where no key fits.

    Args:
        parts: mass and pattern.
        allowed: the mask.
        noise: standard deviation of what is added to the logarithm of each weight.
    """
    base = allowed.double()
    weights = base / base.sum(-1, keepdim=True) * (1 - sum(mass for mass, _ in parts))
    for mass, keys in parts:
        fits = (keys & allowed).double()
        count = fits.sum(-1, keepdim=True)
        weights += mass * torch.where(count > 0, fits / count.clamp(min=1), base / base.sum(-1, keepdim=True))
    weights *= (noise * torch.randn(weights.shape, generator=generator, dtype=torch.float64)).exp()
    return weights / weights.sum(-1, keepdim=True)


def head(name: str, text: Text, causal: bool, generator: torch.Generator) -> Tensor:
    """`(queries, keys)`: the scores of a head that has this role, or of one that is "mixed"."""
    n = len(text.tokens)
    allowed = torch.ones(n, n, dtype=torch.bool)
    if causal:
        allowed = allowed.tril()
    if name == "mixed":
        parts = _mixed(text, causal, generator)
        weights = mixture(parts, allowed, 0.5 * _uniform(generator), generator)
    elif name == "uniform":
        weights = mixture([], allowed, 0.4 * _uniform(generator), generator)
    else:
        mass = 0.65 + 0.3 * _uniform(generator)
        weights = mixture(
            [(mass, pattern(name, text, causal, generator))], allowed, 0.5 * _uniform(generator), generator
        )
    return weights.log()


def _mixed(text: Text, causal: bool, generator: torch.Generator) -> list[tuple[float, Tensor]]:
    """Three patterns, of near keys, of one column and of keys by content, none with most of the mass."""
    chosen = []
    for names in (
        ("previous token", "self", "local"),
        ("first token",),
        ("induction", "separator", "duplicate token"),
    ):
        chosen.append(names[int(_uniform(generator) * len(names))])
    masses = [0.2 + 0.15 * _uniform(generator) for _ in chosen]
    return [(mass, pattern(name, text, causal, generator)) for mass, name in zip(masses, chosen, strict=True)]


def _uniform(generator: torch.Generator) -> float:
    value = float(torch.rand((), generator=generator))
    return min(value, math.nextafter(1.0, 0.0))
