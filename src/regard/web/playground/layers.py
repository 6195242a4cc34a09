"""The layer of a playground state: made, run, watched. Knows `regard.nn`; it does not know words."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from regard.masks import Mask, causal, global_tokens, near, random_blocks, strided
from regard.nn import (
    Additive,
    Alibi,
    HeadPositions,
    Learned,
    LinearAttention,
    MultiHeadAttention,
    ProjectedAttention,
    Rotary,
    Sinusoidal,
)
from regard.record.call import Call
from regard.statistics import TABLE, token_groups
from regard.watch.watch import watch
from regard.web.playground.state import PlaygroundState
from regard.web.playground.tokens import Tokens, tokens

# Keys of a random block.
BLOCK = 16
# Units of the additive score: few, as each is computed for all pairs.
HIDDEN = 8
# Runs of which the fastest is told, unless the first one takes long.
RUNS = 3
# Seconds.
LONG = 0.01


@dataclass(frozen=True, eq=False)
class Played:
    """A layer that was run.

    Attributes:
        layer: with its weights. queries, keys: the tokens; those of "low rank" are its slots.
        call: what a watch saw. seconds: of one forward pass, unwatched.
    """

    layer: nn.Module
    queries: Tokens
    keys: list[str]
    call: Call
    seconds: float


def mask_of(state: PlaygroundState) -> Mask | None:
    """Which keys a query may attend; None: all."""
    match state.kind:
        case "causal":
            return causal()
        case "window":
            return near(state.window - 1)
        case "strided":
            return strided(state.step) & causal()
        case "random":
            return random_blocks(state.blocks, BLOCK, state.seed)
        case "global":
            return global_tokens(range(state.global_tokens))
    return None


@torch.no_grad()
def play(state: PlaygroundState) -> Played:
    """Make the layer and its tokens, run and watch it.

    Tokens and weights come from the seed alone; torch's own generator is as it was.
    """
    generator = torch.Generator().manual_seed(state.seed)
    queries = tokens(state, generator, state.length)
    inputs = _positioned(state, queries.vectors, generator)
    arguments: dict[str, Any] = {}
    keys = queries.names
    if state.kind == "cross":
        memory = tokens(state, generator, state.memory_length)
        arguments["memory"], keys = _positioned(state, memory.vectors, generator), memory.names
    # Layers draw weights as they are made, which are drawn once more below.
    with torch.random.fork_rng(devices=[]):
        layer = _layer(state, inputs.shape[1]).eval()
    _draw(layer, state, generator)
    # Before it is watched, as a watch takes time of its own.
    seconds = _timed(layer, inputs, arguments)
    statistics: tuple[Any, ...] = tuple(TABLE)
    if state.kind not in ("cross", "low rank"):
        # Where queries look both ways, keys after them are groups of their own.
        ahead = mask_of(state) is None or state.kind == "global"
        statistics += token_groups(queries.ids, [queries.names], causal=not ahead)
    with watch(layer, keep="vectors", map=None, statistics=statistics) as record:
        layer(inputs, **arguments)
    if state.kind == "low rank":
        keys = [f"slot {index + 1}" for index in range(state.rank)]
    return Played(layer, queries, keys, record[0], seconds)


def _positioned(state: PlaygroundState, vectors: Tensor, generator: torch.Generator) -> Tensor:
    """The vectors with what is added for their positions."""
    if state.positions == "sinusoidal":
        return Sinusoidal(state.embed_dim)(vectors)
    if state.positions == "learned":
        table = Learned(vectors.shape[1], state.embed_dim)
        # As it begins: small, and random until something is learned.
        nn.init.normal_(table.weight, std=0.02, generator=generator)
        return table(vectors)
    return vectors


def _layer(state: PlaygroundState, length: int) -> nn.Module:
    size, heads = state.embed_dim, state.num_heads
    if state.kind == "linear":
        return LinearAttention(size, heads)
    if state.kind == "low rank":
        return ProjectedAttention(size, heads, length, state.rank)
    score = None
    if state.kind == "additive":
        score = Additive(state.head_dim, state.head_dim, HIDDEN)
    positions: HeadPositions | None = None
    if state.positions == "rotary":
        positions = Rotary(state.head_dim)
    elif state.positions == "alibi":
        positions = Alibi(heads)
    return MultiHeadAttention(size, heads, mask=mask_of(state), positions=positions, score=score)


def _draw(layer: nn.Module, state: PlaygroundState, generator: torch.Generator) -> None:
    """Draw all weights once more, from a generator of our own: that of torch is shared by all threads."""
    for name, weight in layer.named_parameters():
        # Biases are 0, as layers begin.
        if weight.ndim < 2:
            nn.init.zeros_(weight)
        elif state.init == "small":
            nn.init.normal_(weight, std=0.02, generator=generator)
        elif name.startswith("project_"):
            # Slots of the size of tokens: a mixture of n numbers of variance 1/n.
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)
        else:
            for part in _parts(name, weight):
                nn.init.xavier_uniform_(part, generator=generator)
    weights = dict(layer.named_parameters())
    if state.init == "zero":
        nn.init.zeros_(weights["output.weight"])
    query, key = _query_and_key(weights)
    if state.init == "matched":
        key.copy_(query)
    # softmax(q · k / T) is that of queries divided by T; weights without a softmax have no temperature.
    if state.kind == "additive":
        weights["score.combine.weight"].div_(state.temperature)
    elif state.kind != "linear":
        query.div_(state.temperature)


def _parts(name: str, weight: Tensor) -> tuple[Tensor, ...]:
    """Query, key and value of a fused weight, each with a fan of its own."""
    if name == "qkv.weight":
        return weight.chunk(3)
    return (weight,)


def _query_and_key(weights: dict[str, nn.Parameter]) -> tuple[Tensor, Tensor]:
    if "qkv.weight" in weights:
        query, key, _ = weights["qkv.weight"].chunk(3)
        return query, key
    return weights["query.weight"], weights["key.weight"]


def _timed(layer: nn.Module, inputs: Tensor, arguments: dict[str, Any]) -> float:
    """Seconds of the fastest of a few forward passes."""
    times = []
    for _ in range(RUNS):
        start = perf_counter()
        layer(inputs, **arguments)
        times.append(perf_counter() - start)
        if times[0] > LONG:
            break
    return min(times)
