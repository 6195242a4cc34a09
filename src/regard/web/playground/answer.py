"""What the playground shows of a state: weights, entropy, roles, sentences, parameters, costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.analysis.complexity import Setting, predicted
from regard.analysis.roles import of_call
from regard.record.segments import window
from regard.web.describe import RoleDescription, number
from regard.web.playground.layers import BLOCK, HIDDEN, Played, play
from regard.web.playground.sentences import sentences
from regard.web.playground.state import PlaygroundState

# Tokens for which costs are told beside the state's own.
LENGTHS = (256, 1024, 4096, 16384, 65536)
MECHANISMS = {
    "self": "exact",
    "cross": "exact",
    "causal": "causal",
    "window": "window",
    "strided": "strided",
    "random": "random",
    "global": "global",
    "linear": "linear",
    "low rank": "slots",
    "additive": "additive",
}


@dataclass(frozen=True)
class Answer:
    """What is shown.

    Attributes:
        arrays: `weights` `(heads, queries, keys)`, `entropy` `(heads, queries)` in nats, `bound` `(queries,)`, the most
            that it could be: float32; `allowed` `(queries, keys)`, 1 where the mask allows a pair, uint8.
        info: names of the tokens, roles, sentences, parameters, cost and bounds: what JSON can hold.
    """

    arrays: dict[str, Tensor]
    info: dict[str, Any]


def answer(state: PlaygroundState) -> Answer:
    """Run the layer of a state and say what it does.

    Raises:
        ArgumentError: parts that do not fit together.
    """
    played = play(state)
    call = played.call
    assert call.query is not None and call.key is not None and call.entropy is not None
    # At most 256 × 256 for each head: few enough to be had as they are.
    weights = window(call.query, call.key, call.spec_parts, slice(None), slice(None))[0].float()
    allowed = _allowed(played)
    # ln of the number of keys: what equal weights would give.
    bound = allowed.sum(-1).clamp(min=1).log()
    roles = _roles(played)
    arrays = {
        "weights": weights,
        "entropy": call.entropy[0].float(),
        "bound": bound.float(),
        "allowed": allowed.to(torch.uint8),
    }
    info = {
        "tokens": played.queries.names,
        "memory_tokens": played.keys,
        "roles": [vars(role) for role in roles],
        "sentences": sentences(state, arrays, roles),
        "parameters": parameters(state, played.layer),
        "cost": cost(state, played),
        "bounds": {"entropy_max": number(float(bound.mean()))},
    }
    return Answer(arrays, info)


def prepare() -> None:
    """Load what the first answers of some kinds load, 100 to 200 ms each, so that no reader waits for it."""
    for kind in ("self", "linear"):
        answer(PlaygroundState(kind=kind))


def _allowed(played: Played) -> Tensor:
    """`(queries, keys)`, bool."""
    sizes, spec = played.call.sizes, played.call.spec
    if spec is None or spec.mask is None:
        return torch.ones(sizes.queries, sizes.keys, dtype=torch.bool)
    return spec.mask.dense(sizes.queries, sizes.keys, offset=spec.offset)[0, 0]


def _roles(played: Played) -> list[RoleDescription]:
    judged = of_call(played.call)
    columns = zip(*(judged[name].tolist() for name in ("role", "score", "low", "high")), strict=True)
    return [RoleDescription(str(name), *map(number, numbers)) for name, *numbers in columns]


def parameters(state: PlaygroundState, layer: nn.Module) -> dict[str, Any]:
    """How many parameters the layer has, and the formula with its numbers."""
    count = sum(parameter.numel() for parameter in layer.parameters())
    size = state.embed_dim
    terms, numbers = ["4 · d² + 4 · d"], [f"4 · {size}² + 4 · {size}"]
    meaning = [f"d = {size} numbers a token; query, key, value and output have d² weights and d biases each"]
    if state.kind == "additive":
        head = state.head_dim
        terms.append("u · (2 · d/h + 2)")
        numbers.append(f"{HIDDEN} · (2 · {head} + 2)")
        meaning.append(
            f"the score has u = {HIDDEN} units, which read a query and a key of d/h = {head} numbers"
        )
    if state.kind == "low rank":
        keys = dict(layer.named_parameters())["project_key"].shape[1]
        terms.append("2 · r · n")
        numbers.append(f"2 · {state.rank} · {keys}")
        meaning.append(f"r = {state.rank} slots mix the n = {keys} keys, and so the values")
    return {
        "count": count,
        "formula": f"{' + '.join(terms)} = {' + '.join(numbers)} = {count:,}",
        "meaning": "; ".join(meaning) + ".",
    }


def cost(state: PlaygroundState, played: Played) -> dict[str, Any]:
    """Operations and bytes of attention by their formulas, seconds as measured, and how they grow with the text."""
    sizes = played.call.sizes
    mechanism = MECHANISMS[state.kind]

    def of(tokens: int) -> dict[str, int]:
        one = predicted(mechanism, tokens, _setting(state))
        return {"tokens": tokens, "flops": one.operations, "bytes": one.bytes}

    # By the formulas of the mechanism, which count pairs and not what this machine did.
    here = of(sizes.queries)
    if state.kind == "cross":
        # One pair, as often as there are pairs; one row of the output, as often as there are queries.
        pair = of(1)
        here["flops"] = pair["flops"] * sizes.queries * sizes.keys
        here["bytes"] = pair["bytes"] * sizes.queries
    return here | {"seconds": played.seconds, "growth": [of(length) for length in LENGTHS]}


def _setting(state: PlaygroundState) -> Setting:
    within = {"window": state.window, "strided": state.step, "random": state.blocks * BLOCK}
    rank = {"global": state.global_tokens, "low rank": state.rank}
    return Setting(
        heads=state.num_heads,
        dim=state.head_dim,
        window=within.get(state.kind, 1),
        rank=rank.get(state.kind, 1),
        hidden=HIDDEN,
    )
