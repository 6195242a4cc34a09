"""A GPT-2 shape whose heads were given roles by hand, as no trained GPT-2 is at hand: 12 layers, 12 heads of width 64.

Positions are pairs of sines and cosines, so that a head whose query and key are these pairs has a score that falls with
the logarithm of the distance: weights ∝ distance^(−sharpness), a power law. What such heads save says what masks save
where heads are local or look at the first token; it says nothing of how many heads of a trained model do.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from benchmarks import gpt2

DIM, PAIRS = 64, 32
# The feature that only the first position has, and its size.
SINK, FIRST = 2 * PAIRS, 12.0
# Of each head of a layer: how sharp it is, the offset that it looks at, the score of the first token, and how much
# equal tokens count.
HEADS = (
    (1.6, 0, 0.0, 0.0),
    (1.8, 0, 0.0, 0.0),
    (2.0, 0, 0.0, 0.0),
    (2.4, 0, 0.0, 0.0),
    (4.0, 1, 0.0, 0.0),
    (0.0, 0, 16.0, 0.0),
    (2.0, 0, 15.0, 0.0),
    (2.4, 0, 20.0, 0.0),
    (0.0, 0, 12.0, 1.5),
    (0.0, 0, 0.0, 1.5),
    (0.3, 0, 0.0, 0.0),
    (0.6, 0, 0.0, 0.0),
)


def model(length: int) -> Any:
    """The model, with a position table of `length`; all that is not said here has its random weights."""
    network = gpt2.model(length)
    frequency = length ** -torch.linspace(0, 1, PAIRS)
    angle = torch.arange(length)[:, None] * frequency
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        place, words = network.transformer.wpe.weight, network.transformer.wte.weight
        place.zero_()
        place[:, :PAIRS], place[:, PAIRS : 2 * PAIRS] = 2**0.5 * angle.cos(), 2**0.5 * angle.sin()
        place[0, SINK] = FIRST
        # All features of size 1, so that layer normalization leaves them nearly as they are.
        words.normal_(generator=generator)
        words[:, : SINK + 1] = 0.0
        # Embeddings of this size as the last layer would be sure of the token that is there already.
        network.lm_head.weight = torch.nn.Parameter(
            torch.empty_like(words).normal_(0, 0.02, generator=generator)
        )
        for block in network.transformer.h:
            # Not the same in all layers: sharper by up to a fifth, or less sharp.
            factor = 0.8 + 0.4 * torch.rand(len(HEADS), generator=generator)
            for head, role in enumerate(HEADS):
                _write(block.attn.c_attn, head, role, float(factor[head]), frequency, generator)
    return network


def _write(
    joint: Any,
    head: int,
    role: tuple[float, int, float, float],
    factor: float,
    frequency: torch.Tensor,
    generator: torch.Generator,
) -> None:
    """One head's query and key weights, and their biases."""
    sharpness, offset, first, equal = role
    width = joint.weight.shape[0]
    query = joint.weight[:, head * DIM : (head + 1) * DIM]
    key = joint.weight[:, width + head * DIM : width + (head + 1) * DIM]
    query.zero_()
    key.zero_()
    # Products of queries and keys are divided by 8, and a pair of sine and cosine has length √2.
    size = math.sqrt(sharpness * factor)
    turn = offset * frequency
    index = torch.arange(PAIRS)
    # The last pair, of the slowest frequency, gives its two places to the first token and to equal ones.
    part = index[:-1]
    query[part, part] = query[PAIRS + part, PAIRS + part] = size
    key[part, part] = key[PAIRS + part, PAIRS + part] = size * turn[part].cos()
    key[part, PAIRS + part] = size * turn[part].sin()
    key[PAIRS + part, part] = -size * turn[part].sin()
    bias = joint.bias
    bias[head * DIM : (head + 1) * DIM] = 0.0
    bias[width + head * DIM : width + (head + 1) * DIM] = 0.0
    if first:
        # A query of 1, whatever the token, and a key that only the first position has.
        bias[head * DIM + PAIRS - 1] = 1.0
        key[SINK, PAIRS - 1] = 8 * first / FIRST
    if equal and not sharpness:
        # As many random products of the tokens' features as there is room for; equal tokens have equal ones.
        mixing = torch.randn(width - SINK - 1, PAIRS - 1, generator=generator) / math.sqrt(width)
        query[SINK + 1 :, : PAIRS - 1] = key[SINK + 1 :, : PAIRS - 1] = equal * mixing
