"""What does each remedy do about each illness? Small models are made ill, and trained with each remedy and without.

- *Entropy collapse*: `benchmarks.collapse`, at its rate that rises far too high.
- *Vanishing*: a decoder learns to say a sequence of random symbols once more; its scores are 64 times too small.
- *Saturation*: the same with scores that are not divided by √d, of queries and keys that are 8 times as long.
- *Long sequences*: a healthy one is to go on with sequences of 32 symbols that begin again at a random symbol, so that
  no fixed distance helps: it has to look for what followed the last symbol when that was there before.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import regard as rg
import regard.models
from benchmarks import collapse, common
from benchmarks.collapse import Penalty, no_penalty
from regard import draw
from regard.analysis import remedies
from regard.nn import MultiHeadAttention

SEEDS, WARM_UP, BATCH, TEST, SYMBOLS = 3, 40, 16, 64, 32
# Of copying, and of long sequences: steps, learning rate, and half a sequence.
COPY, LONG = (300, 2e-3, 16), (500, 3e-3, 32)
FLAT, LARGE = 1 / 64, 8.0
# Numbers that remedies take here: targets are what a healthy model has at step 0, or near it.
TARGET, MOST, LOW, WEIGHT, DROPOUT, SHORTEST, UNTIL = 0.8, 0.9, 0.3, 10.0, 0.2, 4, 400
ILLNESSES = {
    "entropy collapse": ("query_key_norm", "entropy_regularization", "dropout", "initialization"),
    "vanishing": ("sharpening", "initialization"),
    "saturation": ("temperature", "query_key_norm", "initialization"),
    "long sequences": ("length_curriculum",),
}
NONE, HEALTHY = "none", "healthy"


@contextmanager
def treated(model: nn.Module, remedy: str, inputs: dict[str, Tensor]) -> Iterator[Penalty]:
    """The model with a remedy, and what it adds to the loss."""
    if remedy == "query_key_norm":
        remedies.query_key_norm(model)
    elif remedy == "initialization":
        remedies.initialization(model)
    elif remedy == "dropout":
        remedies.dropout(model, DROPOUT)
    elif remedy == "entropy_regularization":
        with remedies.entropy_regularization(model, low=LOW, weight=WEIGHT) as penalty:
            yield penalty
        return
    elif remedy in ("temperature", "sharpening"):
        if remedy == "temperature":
            plan = remedies.temperature(model, [inputs], TARGET)
        else:
            plan = remedies.sharpening(model, [inputs], MOST)
        with rg.intervene(model, plan):
            yield no_penalty
        return
    yield no_penalty


def batch(
    generator: torch.Generator, half: int, *, rolled: bool = False, count: int = BATCH
) -> dict[str, Tensor]:
    """Random symbols and then the same again, `(count, 2 · half)`, all of which can be known but its first symbol.

    Rolled, the second half begins anywhere in the first one and goes round in it.
    """
    symbols = torch.randint(SYMBOLS, (count, half), generator=generator)
    places = torch.arange(half).expand(count, half)
    if rolled:
        places = (places + torch.randint(half, (count, 1), generator=generator)) % half
    tokens = torch.cat((symbols, symbols.gather(1, places)), 1)
    return {"input_ids": tokens, "labels": tokens.clone().index_fill(1, torch.arange(half + 1), -100)}


def decoder(illness: str) -> rg.models.DecoderForCausalLM:
    """A model with the illness."""
    config = rg.models.DecoderConfig(
        vocab_size=SYMBOLS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, dropout=0.0,
        position_embedding_type="sinusoidal", init="xavier",
    )  # fmt: skip
    model = rg.models.DecoderForCausalLM(config).train()
    layers = [layer for layer in model.modules() if isinstance(layer, MultiHeadAttention)]
    for layer in layers:
        if illness == "vanishing":
            layer.scale = FLAT / math.sqrt(layer.head_dim)
        elif illness == "saturation":
            layer.scale = 1.0
            with torch.no_grad():
                layer.qkv.weight[: sum(layer.projected_dims[:2])] *= LARGE
    return model


def entropies(model: nn.Module, inputs: dict[str, Tensor]) -> list[float]:
    """Entropy of every head as a fraction of its largest."""
    with torch.no_grad(), rg.watch(model, statistics=("entropy", "allowed"), map=None) as record:
        model(**inputs)
    return [round(fraction, 4) for fraction in record.heads["entropy_fraction"].tolist()]


def copied(illness: str, remedy: str, seed: int) -> dict[str, Any]:
    """One training to copy: entropy of the heads at both ends, and loss and symbols that are right at the end."""
    rolled = illness == "long sequences"
    steps, rate, half = COPY
    if rolled:
        steps, rate, half = LONG
    torch.manual_seed(seed)
    generator, test = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(1000 + seed)
    model, tokens, losses = decoder(illness), 0, []
    held_out = batch(test, half, rolled=rolled, count=TEST)
    with treated(model, remedy, batch(generator, half, rolled=rolled)) as penalty:
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
        first = entropies(model, held_out)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / WARM_UP)
            length = half
            if remedy == "length_curriculum":
                length = remedies.length_curriculum(step, shortest=SHORTEST, longest=half, steps=UNTIL)
            loss = model(**batch(generator, length, rolled=rolled)).loss
            optimizer.zero_grad()
            (loss + penalty()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            tokens += 2 * length * BATCH
        with torch.no_grad():
            output = model(**held_out)
        right = output.logits[:, half:-1].argmax(-1) == held_out["input_ids"][:, half + 1 :]
        last = entropies(model, held_out)
    return {
        "seed": seed, "entropy_fraction_first": first, "entropy_fraction_last": last, "loss": output.loss.item(),
        "right": right.double().mean().item(), "tokens": tokens,
        "losses": [round(sum(losses[at : at + 10]) / 10, 3) for at in range(0, steps, 10)],
    }  # fmt: skip


def trained(illness: str, remedy: str, seed: int) -> dict[str, Any]:
    """One training of an ill model with a remedy."""
    if illness != "entropy collapse":
        return copied(illness, remedy, seed)
    return collapse.trained(lambda model: treated(model, remedy, {}), collapse.PEAK, seed)


def drawn(figures: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, dict[str, list[float]]]:
    """A number of each run, by illness and remedy: the loss, and of collapses how many heads did."""
    outcomes = {}
    for illness, by_remedy in figures.items():
        # After a collapse the loss is that of wherever the weights happened to go.
        name, field = f"{illness}: loss at the end", "loss"
        if illness == "entropy collapse":
            name, field = f"{illness}: heads that collapsed, of 16", "heads_alarmed"
        if illness != HEALTHY:
            outcomes[name] = {remedy: [run[field] for run in runs] for remedy, runs in by_remedy.items()}
    return outcomes


def main() -> None:
    """Every illness with every remedy over three seeds, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remedies")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument(
        "--one", nargs=3, metavar=("ILLNESS", "REMEDY", "SEED"), help="print one run, as JSON"
    )
    arguments, _ = parser.parse_known_args()
    if arguments.one:
        torch.set_num_threads(1)
        illness, remedy, seed = arguments.one
        print(json.dumps(trained(illness, remedy, int(seed))))
        return
    runs = [(illness, remedy) for illness, several in ILLNESSES.items() for remedy in (NONE, *several)]
    runs.append((HEALTHY, NONE))
    tasks = [(*run, str(seed)) for run in runs for seed in range(SEEDS)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda task: common.fresh("benchmarks.remedies", "--one", *task), tasks))
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for (illness, remedy, _), result in zip(tasks, results, strict=True):
        figures.setdefault(illness, {}).setdefault(remedy, []).append(result)
    common.picture("remedies", draw.remedies(drawn(figures), name="less is better", title="What remedies do"))
    common.write(
        "remedies", "python -m benchmarks.remedies",
        "each illness shows without a remedy, and what each remedy does about it is said, a harm too", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
