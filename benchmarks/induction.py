"""Does it cost the copying loss to take out the heads that are found to be of induction and of the previous token?

Roles are told of the embedded decoder from one short text, and from repeated random tokens, without saying which heads
to look at. The copying loss is the mean loss over the second copy of random tokens that stand twice in a row, less its
first token, which nobody can know. Heads are taken out alone, and several at once beside random sets of their layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard as rg
from benchmarks import common
from regard import embedded
from regard.statistics import TABLE, token_groups
from regard.tasks.language.data import repeated

# Tokens of one copy, texts of each seed, the seeds, and random sets of heads.
SPAN, TEXTS, SEEDS, SETS = 64, 24, (0, 1, 2), 20
# The seed of other texts, on which roles are told, and whose mean outputs stand in for those of a head.
APART = 9
CONFIDENCE = 0.95

Heads = tuple[tuple[int, int], ...]


def told(model: Any, ids: Tensor, tokens: list[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """The heads that are called so on some texts, for both roles, the highest score first."""
    groups = token_groups(ids, [tokens] if tokens else None)
    with rg.watch(model, statistics=[*TABLE, *groups], map=None) as record:
        model(ids)
    table = rg.analysis.roles(record)
    named = {}
    for role in ("previous token", "induction"):
        rows = table[table["role"] == role].sort_values("score", ascending=False)
        named[role] = [
            {"layer": int(row["call"]), "head": int(row["head"])}
            | {name: round(float(row[name]), 4) for name in ("score", "low", "high")}
            for _, row in rows.iterrows()
        ]
    return named


def losses(model: Any, ids: Tensor) -> Tensor:
    """`(texts,)`: the copying loss of each, in nats per token."""
    logits = model(ids).logits[:, :-1].double()
    each = cross_entropy(logits.mT, ids[:, 1:], reduction="none")
    return each[:, SPAN + 1 :].mean(1)


def cost(model: Any, texts: list[Tensor], plain: Tensor, heads: Heads, output: Any) -> Tensor:
    """`(texts,)`: by how much the copying loss of each text rises without these heads."""
    with rg.intervene(model, heads, output=output):
        return torch.cat([losses(model, ids) for ids in texts]) - plain


def interval(differences: Tensor) -> dict[str, Any]:
    """The mean over texts, its interval of 95 %, and the mean of each seed."""
    numbers = differences.numpy()
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1) * stats.sem(numbers)
    by_seed = differences.view(len(SEEDS), -1).mean(1).tolist()
    mean = float(numbers.mean())
    return {
        "mean": round(mean, 4),
        "interval": [round(mean - float(half), 4), round(mean + float(half), 4)],
        "by_seed": [round(value, 4) for value in by_seed],
    }


def summary(costs: dict[Heads, Tensor], chosen: Heads, others: list[Heads]) -> dict[str, Any]:
    """What it costs to take out these heads, beside what it costs to take out others."""
    means = np.array([float(costs[heads].mean()) for heads in others])
    # Text by text, as every head is taken out on the same ones.
    ahead = costs[chosen] - torch.stack([costs[heads] for heads in others]).mean(0)
    return {
        "heads": [list(pair) for pair in chosen],
        "cost": interval(costs[chosen]),
        "others": len(others),
        "cost_of_others": {"mean": _rounded(means.mean()), "median": _rounded(np.median(means))},
        "cost_above_that_of_others": interval(ahead),
        "others_that_cost_more": int((means > float(costs[chosen].mean())).sum()),
        "most_of_others": {"heads": others[int(means.argmax())], "mean": _rounded(means.max())},
    }


def drawn(chosen: Heads, avoid: set[tuple[int, int]], heads: int, count: int) -> list[Heads]:
    """Random sets with as many heads of each layer, without any of `avoid`."""
    generator = np.random.default_rng(0)
    sets = set()
    while len(sets) < count:
        left = [(layer, head) for layer, _ in chosen for head in range(heads)]
        left = sorted(set(left) - avoid)
        picked: list[tuple[int, int]] = []
        for layer in sorted({layer for layer, _ in chosen}):
            own = [pair for pair in left if pair[0] == layer]
            size = sum(one == layer for one, _ in chosen)
            picked += [own[int(index)] for index in generator.choice(len(own), size, replace=False)]
        sets.add(tuple(sorted(picked)))
    return sorted(sets)


def _rounded(value: float) -> float:
    return round(float(value), 4)


@torch.no_grad()
def measure(texts: int = TEXTS, sets: int = SETS) -> dict[str, Any]:
    """All figures, from so many texts of each seed and so many random sets of heads."""
    model = AutoModelForCausalLM.from_pretrained(embedded.folder()).eval()
    tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
    ids = tokenizer(embedded.TEXT, return_tensors="pt")["input_ids"]
    apart = repeated(texts, SPAN, APART)
    roles = {
        "the embedded text": told(model, ids, [tokenizer.decode(i) for i in ids[0]]),
        "repeated random tokens": told(model, apart),
    }
    of_text, of_repeated = (
        {role: tuple((row["layer"], row["head"]) for row in rows) for role, rows in named.items()}
        for named in roles.values()
    )
    previous, induction = of_text["previous token"][0], of_text["induction"][0]
    strongest, together = of_repeated["induction"][0], tuple(sorted(of_repeated["induction"]))
    avoid = {head for named in (of_text, of_repeated) for rows in named.values() for head in rows}
    several = [repeated(texts, SPAN, seed) for seed in SEEDS]
    plain = torch.cat([losses(model, rows) for rows in several])
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    every: list[Heads] = [((layer, head),) for layer in range(layers) for head in range(heads)]
    singles = {
        "previous-token head": (previous,),
        "induction head of the embedded text": (induction,),
        "strongest induction head of repeated tokens": (strongest,),
    }
    several_heads = {
        "previous-token and induction head": (previous, induction),
        "all induction heads of repeated tokens": together,
    }
    random_sets = {name: drawn(chosen, avoid, heads, sets) for name, chosen in several_heads.items()}
    asked = {*every, *several_heads.values()}.union(*random_sets.values())
    means = rg.analysis.mean_outputs(model, [{"input_ids": apart}])
    figures: dict[str, Any] = {"found_on": roles, "copying_loss": interval(plain)}
    for name, output in {"zero": "zero", "mean": means}.items():
        costs = {chosen: cost(model, several, plain, chosen, output) for chosen in sorted(asked)}
        part: dict[str, Any] = {}
        for which, chosen in singles.items():
            rest = [other for other in every if other != chosen]
            own = [other for other in rest if other[0][0] == chosen[0][0]]
            part[which] = {
                "against_each_other_head_of_its_layer": summary(costs, chosen, own),
                "against_each_other_head": summary(costs, chosen, rest),
            }
        for which, chosen in several_heads.items():
            part[which] = {"against_random_sets": summary(costs, chosen, random_sets[which])}
        part["every_head"] = {
            f"{layer}.{head}": interval(costs[((layer, head),)]) for ((layer, head),) in every
        }
        figures[name] = part
    return figures


def main() -> None:
    """Measure and write the result."""
    common.prepare()
    settings = {
        "tokens_of_a_copy": SPAN,
        "texts_of_each_seed": TEXTS,
        "seeds": list(SEEDS),
        "random_sets": SETS,
    }
    common.write(
        "induction", "python -m benchmarks.induction",
        "taking out the previous-token head or the induction head, found without being told, costs the copying "
        "loss, and more than random heads do",
        settings | measure(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
