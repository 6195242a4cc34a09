"""What a survey of 10⁹ tokens on 64 GPUs would cost, on paper: prints the table of docs/scale.md.

    python -m benchmarks.paper

Nothing is measured here: constants are those of our result files, and numbers that others published, with the source.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks import common

TOKENS, LENGTH, PROCESSES = 10**9, 2048, 64
# A stretch of `regard.survey.Corpus`, bytes of text that become one part of the ledger.
STRETCH = 1 << 20

# Llama 3 8B: Grattafiori et al. (2024), The Llama 3 Herd of Models, arXiv 2407.21783, tables 3 and section 3.2.
PARAMETERS, LAYERS, HEADS, WIDTH = 8.0e9, 32, 32, 4096
CHARACTERS_PER_TOKEN = 3.94
# The same, table 4: what 16 384 H100 reached in training, in bfloat16.
FLOP_PER_S = 400e12
# PCI Express 5.0, 16 lanes of 32 GT/s with 128 of 130 bits for data, in one direction.
BUS = 16 * 32e9 * 128 / 130 / 8
# The same paper, section 3.3.1: the link of each GPU, 400 Gbit/s.
NETWORK = 400e9 / 8


def result(name: str) -> dict[str, Any]:
    """The figures of one of our result files."""
    figures: dict[str, Any] = json.loads((common.RESULTS / f"{name}.json").read_text())["figures"]
    return figures


def estimate(ledger: dict[str, Any]) -> dict[str, float]:
    """Seconds of each process, unless said otherwise, and bytes; by the names of the table's rows.

    A forward pass takes 2 FLOP for each parameter and token, and its causal attention 2 · layers · width · length
    more (Kaplan et al., 2020).
    """
    sums = ledger["sums"][f"1 × {LENGTH}"]
    heads, texts = LAYERS * HEADS, TOKENS / LENGTH
    text_bytes = TOKENS * CHARACTERS_PER_TOKEN
    parts = text_bytes / STRETCH
    ledger_bytes = parts * heads * ledger["bytes_of_a_part_per_head"]
    record = heads * sums["record_bytes_per_head_of_a_text"]
    passes = TOKENS * (2 * PARAMETERS + 2 * LAYERS * WIDTH * LENGTH) / FLOP_PER_S / PROCESSES
    added = texts * heads * sums["sums_s_per_head_of_a_text"] / PROCESSES
    moved = texts * record / PROCESSES / BUS
    written = parts * heads * ledger["write_s_per_head_of_a_part"] / PROCESSES
    joined = parts * heads * ledger["join_s_per_head_of_a_part"]
    read = ledger_bytes / NETWORK
    return {
        "passes_s": passes,
        "moved_s": moved,
        "sums_s": added,
        "written_s": written,
        "read_s": read,
        "joined_s": joined,
        "hours": (passes + moved + added + written + read + joined) / 3600,
        "sums_over_passes": added / passes,
        "text_gb": text_bytes / 1e9,
        "parts": parts,
        "ledger_gb": ledger_bytes / 1e9,
        "read_by_all_gb": ledger_bytes * PROCESSES / 1e9,
        "record_mb": record / 1e6,
        "profile_mb": heads * ledger["profile_bytes_per_head"] / 1e6,
        "weights_gb": 2 * PARAMETERS / 1e9,
    }


def table(figures: dict[str, float]) -> str:
    """The rows of the page."""
    f = figures
    of_head = "`ledger.json`: seconds for each head of a text"
    of_part = "`ledger.json`: seconds for each head of a part"
    rows = (
        ("passes of the model, on the GPU", f"{f['passes_s']:.0f} s", "cited: parameters, FLOP/s reached"),
        ("records to the processor's memory", f"{f['moved_s']:.0f} s", "`ledger.json`: bytes; cited: the bus"),
        ("exact sums, one core for each GPU", f"{f['sums_s']:.0f} s", of_head),
        (f"writing {f['parts']:.0f} parts", f"{f['written_s']:.0f} s", of_part),
        ("reading all parts at the end", f"{f['read_s']:.0f} s", "`ledger.json`: bytes; cited: the network"),
        ("joining them, in each process the same", f"{f['joined_s']:.0f} s", of_part),
        ("together", f"{f['hours']:.1f} h", ""),
        ("storage: texts", f"{f['text_gb']:.1f} GB", "cited: characters of a token"),
        ("storage: the ledger", f"{f['ledger_gb']:.0f} GB", "`ledger.json`: bytes of a part"),
        ("network: texts to the processes", f"{f['text_gb']:.1f} GB", "each is read once"),
        ("network: parts from the processes", f"{f['ledger_gb']:.0f} GB", "each is written once"),
        ("network: parts to the processes, at the end", f"{f['read_by_all_gb']:.0f} GB", "all of them to each"),
        ("memory of a GPU: weights in bfloat16", f"{f['weights_gb']:.0f} GB", "cited: parameters"),
        ("memory of a process: the record of one text", f"{f['record_mb']:.0f} MB", "`ledger.json`"),
        ("memory of a process: one profile, of which there are two", f"{f['profile_mb']:.0f} MB", "`ledger.json`"),
    )  # fmt: skip
    lines = ["| what | how much | from |", "|---|---|---|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows])


if __name__ == "__main__":
    sys.stdout.write(table(estimate(result("ledger"))) + "\n")
