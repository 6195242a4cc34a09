"""What do initial weights, warm-up and clipping do? Entropy of heads, gradients and loss in 200 steps of a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import regard as rg
from benchmarks import common
from regard import draw
from regard.analysis import gradient_norms

STEPS, SEEDS, BATCH, HALF, SYMBOLS = 200, 3, 32, 16, 32
DEPTH, WIDTH, HEADS = 4, 64, 4
WARM_UP, CLIP, EVERY = 40, 1.0, 10  # steps, norm, and steps from one point of the figure to the next


@dataclass(frozen=True)
class Start:
    """One way to begin: initial weights, where norms stand, and what holds the first steps back."""

    init: Literal["xavier", "small", "zero"] = "xavier"
    norm_first: bool = True
    rate: float = 3e-3
    warms: bool = True
    clips: bool = True


INITS = {init: Start(init) for init in ("xavier", "small", "zero")}
HOLDS = {
    "neither": Start(norm_first=False, rate=5e-3, warms=False, clips=False),
    "clipping": Start(norm_first=False, rate=5e-3, warms=False),
    "warm-up": Start(norm_first=False, rate=5e-3, clips=False),
    "both": Start(norm_first=False, rate=5e-3),
}


class Copier(nn.Module):
    """A decoder that says the next symbol: embeddings with sinusoidal positions, blocks, and a projection."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, SYMBOLS)
        self.positions = rg.nn.Sinusoidal(WIDTH)
        self.blocks = rg.nn.Decoder(
            DEPTH, WIDTH, HEADS, cross_attention=False, norm_first=start.norm_first, init=start.init
        )

    def forward(self, symbols: Tensor) -> Tensor:
        return self.head(self.blocks(self.positions(self.embed(symbols))))


def batch(generator: torch.Generator) -> Tensor:
    """Random symbols and then the same again, `(batch, 2 · HALF)`: the second half can be known."""
    half = torch.randint(SYMBOLS, (BATCH, HALF), generator=generator)
    return torch.cat((half, half), 1)


def loss_of(model: Copier, symbols: Tensor) -> Tensor:
    """Cross-entropy of the second half, in nats; ln SYMBOLS where nothing is known."""
    logits = model(symbols[:, :-1])[:, HALF - 1 :]
    return nn.functional.cross_entropy(logits.flatten(0, 1), symbols[:, HALF:].flatten())


def entropies(model: Copier, symbols: Tensor) -> list[float]:
    """Entropy of every head as a fraction of its largest."""
    with torch.no_grad(), rg.watch(model, statistics=("entropy", "allowed")) as record:
        model(symbols[:, :-1])
    return record.heads["entropy_fraction"].tolist()


def looked(model: Copier, symbols: Tensor) -> dict[str, Any]:
    """Entropy of every head as a fraction of its largest, and gradient norms of layers and of kinds of projections."""
    model.zero_grad()
    loss_of(model, symbols).backward()
    layers = list(model.blocks.layers)
    parts: dict[str, nn.Module] = {f"layer {index}": layer for index, layer in enumerate(layers)}
    parts["inner projections"] = nn.ModuleList(
        p for l in layers for p in (l.attention.qkv, l.feedforward.inner)
    )
    parts["last projections"] = nn.ModuleList(
        p for l in layers for p in (l.attention.output, l.feedforward.outer)
    )
    norms = gradient_norms(model, parts)
    model.zero_grad()
    return {"entropy_fraction": entropies(model, symbols), "gradient_norm": norms}


def history(start: Start, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """Train once: what a look sees at both ends, and loss and gradient norm at every step."""
    torch.manual_seed(seed)
    model, generator = Copier(start), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=start.rate)
    first, losses, norms, heads = looked(model, batch(generator)), [], [], []
    for step in range(steps):
        if step % EVERY == 0:
            heads.append(float(np.mean(entropies(model, batch(generator)))))
        for group in optimizer.param_groups:
            group["lr"] = start.rate * (min(1.0, (step + 1) / WARM_UP) if start.warms else 1.0)
        loss = loss_of(model, batch(generator))
        optimizer.zero_grad()
        loss.backward()
        limit = CLIP if start.clips else float("inf")
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), limit)))  # the norm before clipping
        losses.append(loss.item())
        optimizer.step()
    last = looked(model, batch(generator))
    heads.append(float(np.mean(last["entropy_fraction"])))
    return {"first": first, "last": last, "losses": losses, "norms": norms, "entropies": heads}


def told(histories: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds; for entropies, those of the lowest and the highest head as well."""

    def entropies(end: str) -> dict[str, float]:
        heads = np.array([each[end]["entropy_fraction"] for each in histories])
        means = {
            "mean": heads.mean(),
            "lowest_head": heads.min(1).mean(),
            "highest_head": heads.max(1).mean(),
        }
        return {name: float(value) for name, value in means.items()}

    def gradients(end: str) -> dict[str, float]:
        each = [history[end]["gradient_norm"] for history in histories]
        return {name: float(np.mean([norms[name] for norms in each])) for name in each[0]}

    ends = {"step 0": "first", f"step {len(histories[0]['losses'])}": "last"}
    return {
        "entropy_fraction": {name: entropies(end) for name, end in ends.items()},
        "gradient_norm": {name: gradients(end) for name, end in ends.items()},
        "loss": {
            "first": float(np.mean([each["losses"][0] for each in histories])),
            "last_ten_steps": float(np.mean([each["losses"][-10:] for each in histories])),
            "by_seed": [float(np.mean(each["losses"][-10:])) for each in histories],
        },
        "largest_gradient_norm": float(np.mean([max(each["norms"]) for each in histories])),
    }


def panels(name: str, groups: dict[str, list[dict[str, Any]]]) -> list[draw.Panel]:
    """Means of loss and gradient norm over some steps, and entropy of the heads, of each start."""

    def lines(field: str) -> dict[str, tuple[Any, Any]]:
        found = {key: np.array([each[field] for each in histories]) for key, histories in groups.items()}
        if field == "entropies":
            return {key: (EVERY * np.arange(values.shape[1]), values) for key, values in found.items()}
        means = {key: values.reshape(len(values), -1, EVERY).mean(2) for key, values in found.items()}
        return {key: (EVERY * (np.arange(each.shape[1]) + 0.5), each) for key, each in means.items()}

    return [
        draw.Panel(f"{name}: loss", "step", "cross-entropy, nats", lines("losses")),
        draw.Panel(f"{name}: gradient", "step", "norm before clipping", lines("norms"), "y"),
        draw.Panel(f"{name}: heads", "step", "mean entropy, fraction of the largest", lines("entropies")),
    ]


def main() -> None:
    """Train every start with three seeds, draw, and write the result."""
    common.prepare()
    torch.set_num_threads(1)  # tensors as small as these take longer on two
    starts = {"initial weights": INITS, "first steps": HOLDS}
    found = {
        question: {name: [history(start, seed) for seed in range(SEEDS)] for name, start in each.items()}
        for question, each in starts.items()
    }
    note = (
        f"{DEPTH} layers of width {WIDTH}, {HEADS} heads; copying {HALF} of {SYMBOLS} random symbols; AdamW. Means of "
        f"{EVERY} steps, and ranges of {SEEDS} seeds. Initial weights: norms before the blocks, learning rate 0.003, "
        f"warm-up of {WARM_UP} steps, clipping at {CLIP:g}. First steps: norms after the blocks, Xavier's weights, "
        "learning rate 0.005."
    )
    every = [panel for question, each in found.items() for panel in panels(question, each)]
    common.picture("initialization", draw.series(every, title="How a decoder begins", note=note))
    setting = {"steps": STEPS, "seeds": SEEDS, "warm_up_steps": WARM_UP, "clips_at": CLIP}
    common.write(
        "initialization", "python -m benchmarks.initialization",
        "step 0: small weights give entropy ≥ 0.99 of the largest, zero ones gradients in last projections alone; "
        "norms after the blocks: with warm-up the loss of the last ten steps is at most a tenth of that without",
        {"setting": setting} | {
            question: {name: told(histories) for name, histories in each.items()}
            for question, each in found.items()
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
