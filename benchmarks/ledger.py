"""What does a survey do besides the model's passes, for each head of each text, and what does it write down?

    python -m benchmarks.ledger

Exact sums of what was seen, the table that is written for each stretch of texts, and joining such tables: the parts
of a survey that stay on the processor, whatever runs the model. `benchmarks.paper` adds them up for 10⁹ tokens.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard as rg
from benchmarks import common
from regard.record import Profile, Record
from regard.record.parts import Part, Parts, TextRow
from regard.statistics.observation import Map
from regard.survey.survey import STATISTICS

HEADS, HEAD_DIM, LENGTHS, TEXTS_OF_A_PART, PARTS = 32, 64, (128, 512, 2048), 128, 8
BATCHES = (1, 16)
# What a survey asks for where nobody says otherwise.
CELLS = 64


def watched(tokens: int, batch: int = 1, seed: int = 0) -> Record:
    """A causal layer that has read a batch of texts, with what a survey asks for."""
    torch.manual_seed(seed)
    width = HEADS * HEAD_DIM
    layer = rg.nn.MultiHeadAttention(width, HEADS, mask=rg.causal())
    with torch.no_grad(), rg.watch(layer, statistics=STATISTICS, map=CELLS, fused=True) as record:
        layer(torch.randn(batch, tokens, width))
    return record


def held(record: Record) -> int:
    """Bytes of the tensors of a record."""
    seen = 0
    for call in record:
        values = [getattr(call, field.name) for field in fields(call)] + list(call.groups.values())
        maps = [value for value in values if isinstance(value, Map)]
        values += [part for picture in maps for part in (picture.total, picture.peak, picture.rows)]
        seen += sum(value.numel() * value.element_size() for value in values if isinstance(value, Tensor))
    return seen


def profile_bytes(profile: Profile) -> int:
    """Bytes of the tensors of a profile."""
    seen = 0
    for layer in profile.layers.values():
        tensors = [value for value in vars(layer).values() if isinstance(value, Tensor)]
        seen += sum(tensor.numel() * tensor.element_size() for tensor in [*tensors, *layer.pieces.values()])
    return seen


def seconds(run: Callable[[], object], repetitions: int = 9) -> float:
    """The median of the processor's seconds, after two runs that are not counted."""
    taken = []
    for _ in range(repetitions + 2):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return statistics.median(taken[2:])


def written(profile: Profile, folder: Path) -> dict[str, float]:
    """Bytes and seconds of parts, and of joining them, for each head of each part."""
    ledger = Parts.start(folder, {})
    rows = [TextRow(number, f"{number:032x}") for number in range(TEXTS_OF_A_PART)]
    start = time.process_time()
    for number in range(PARTS):
        ledger.write(Part("texts", number, number + 1, f"{number:032x}", TEXTS_OF_A_PART), profile, rows)
    wrote = time.process_time() - start
    size = sum(path.stat().st_size for path in folder.glob("part-*"))
    join = seconds(ledger.profile, 3)
    return {
        "bytes_of_a_part_per_head": size / PARTS / HEADS,
        "write_s_per_head_of_a_part": wrote / PARTS / HEADS,
        "join_s_per_head_of_a_part": join / PARTS / HEADS,
    }


def main() -> None:
    """Every length, one part of a ledger, and the result file."""
    common.prepare()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"heads": HEADS, "threads": 1, "sums": {}}
    for tokens in LENGTHS:
        for batch in BATCHES:
            record = watched(tokens, batch)
            figures["sums"][f"{batch} × {tokens}"] = {
                "sums_s_per_head_of_a_text": seconds(partial(Profile().add, record)) / HEADS / batch,
                "record_bytes_per_head_of_a_text": held(record) / HEADS / batch,
            }
    with tempfile.TemporaryDirectory() as folder:
        several = Profile.of(watched(LENGTHS[0], seed=seed) for seed in range(TEXTS_OF_A_PART))
        figures["profile_bytes_per_head"] = profile_bytes(several) / HEADS
        figures |= written(several, Path(folder) / "ledger")
    common.write(
        "ledger",
        "python -m benchmarks.ledger",
        "none: constants of docs/scale.md, what a survey does on the processor for each head",
        figures,
    )


if __name__ == "__main__":
    main()
