"""How near does every approximation come in a given time? Error against exact attention at equal time, n = 8192."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import regard as rg
from benchmarks import common
from regard import draw
from regard.analysis import least_within
from regard.nn.approximation import Approximation

LENGTH, HEADS, DIM = 8192, 2, 64
RANKS = (16, 32, 64, 128, 256, 512, 1024)
LARGEST = {"landmarks": 512}  # its pseudo-inverse costs rank³
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)  # of the time of exact attention
SMALL = 0.5  # standard deviation of queries and keys where scores are small; else 1
MEMORY = 0.98  # how much of a token its neighbor shares, where texts are smooth


def by_window(rank: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As many keys around the query as the rank."""
    return rg.attend(query, key, value, mask=rg.near(rank // 2, (rank - 1) // 2))


def by_blocks(rank: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Random blocks of 16 keys, as many keys as the rank."""
    return rg.attend(query, key, value, mask=rg.random_blocks(rank // 16, 16, keys=key.shape[2]))


APPROXIMATIONS: dict[str, Approximation] = {
    "features": rg.nn.by_features(),
    "slots": rg.nn.by_slots(),
    "landmarks": rg.nn.by_landmarks(),
    "window": by_window,
    "random blocks": by_blocks,
}


def texts(length: int) -> dict[str, list[Tensor]]:
    """Query, key and value: every token by itself, the same with small queries and keys, and tokens like neighbors."""
    generator = torch.Generator().manual_seed(0)

    def drawn() -> Tensor:
        return torch.randn(1, HEADS, length, DIM, generator=generator)

    def smooth() -> Tensor:
        steps, walk = drawn() * (1 - MEMORY**2) ** 0.5, torch.empty(1, HEADS, length, DIM)
        walk[:, :, 0] = torch.randn(1, HEADS, DIM, generator=generator)
        for token in range(1, length):
            walk[:, :, token] = MEMORY * walk[:, :, token - 1] + steps[:, :, token]
        return walk

    hidden = smooth()  # queries and keys of one text share what they are made of
    near = [(hidden + smooth()) / 2**0.5 for _ in range(2)]
    return {
        "independent tokens": [drawn() for _ in range(3)],
        "independent tokens, small scores": [drawn() * SMALL, drawn() * SMALL, drawn()],
        "smooth text": [*near, smooth()],
    }


@torch.inference_mode()
def measured(given: list[Tensor], ranks: Sequence[int], repetitions: int) -> dict[str, Any]:
    """Seconds and error of every approximation at every rank, and the least error within shares of exact's time."""
    chosen = {
        name: [rank for rank in ranks if rank <= LARGEST.get(name, ranks[-1])] for name in APPROXIMATIONS
    }
    candidates = {"exact": lambda: rg.attend(*given)} | {
        f"{name} {rank}": lambda run=run, rank=rank: run(rank, *given)
        for name, run in APPROXIMATIONS.items()
        for rank in chosen[name]
    }
    times = common.interleaved(candidates, repetitions)
    exact = times["exact"]["median_s"]
    figures: dict[str, Any] = {"exact_seconds": exact}
    for name, run in APPROXIMATIONS.items():
        errors = rg.nn.errors_by_rank(*given, chosen[name], run).mean((1, 2)).tolist()
        taken = [times[f"{name} {rank}"]["median_s"] for rank in chosen[name]]
        points = list(zip(taken, errors, strict=True))
        figures[name] = {
            "least_error_within_share_of_exact": {
                f"{share:g}": least_within(share * exact, points) for share in SHARES
            },
            "ranks": [
                {"rank": rank, "seconds": seconds, "error": error}
                for rank, (seconds, error) in zip(chosen[name], points, strict=True)
            ],
        }
    return figures


def picture(figures: dict[str, Any], length: int) -> None:
    """A panel for each text: error against time as a share of exact attention's, rank after rank."""

    def lines(found: dict[str, Any]) -> dict[str, tuple[list[float], list[float]]]:
        drawn = {}
        for name in APPROXIMATIONS:
            rows = sorted(found[name]["ranks"], key=lambda row: row["seconds"])
            drawn[name] = (
                [row["seconds"] / found["exact_seconds"] for row in rows],
                [row["error"] for row in rows],
            )
        return drawn

    panels = [
        draw.Panel(
            text, "time, share of exact attention's", "relative error of the output", lines(found), "xy"
        )
        for text, found in figures.items()
    ]
    note = (
        f"{length} tokens, {HEADS} heads of {DIM}, float32, all pairs. Each dot is a rank: features, slots, landmarks "
        "or keys. Error: ‖approximate − exact‖ / ‖exact‖, mean of heads; 1 is what an output of 0 has."
    )
    common.picture(
        "approximations", draw.series(panels, title="Error of approximations at equal time", note=note)
    )


def main(length: int = LENGTH, ranks: Sequence[int] = RANKS, repetitions: int = 5) -> None:
    """Measure on both texts, draw, and write the result."""
    common.prepare()
    figures = {text: measured(given, ranks, repetitions) for text, given in texts(length).items()}
    picture(figures, length)
    common.write(
        "approximations", "python -m benchmarks.approximations",
        "least_error_within_share_of_exact; null: no rank was that fast", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
