"""Does Ray lose or repeat any of 10 000 texts when its actors are killed, and does its driver grow with the corpus?

    python -m benchmarks.corpus_ray [TEXTS]

MiniLM reads 128 tokens of each text in two actors, of which three are killed with -9 on the way; then undisturbed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import regard as rg
from benchmarks import common
from benchmarks.cluster import cluster, workers
from benchmarks.corpus import BATCH, STRETCH, TEXTS, TOKENS, reader, twice_or_lost, write_texts
from regard.survey import Corpus, OnRay
from regard.survey.batches import tokenized

KILLS, ACTORS = 3, 2


class Tokens:
    """MiniLM's tokenizer, as the survey asks for it."""

    def __init__(self) -> None:
        self.tokenizer = reader().tokenizer

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        return tokenized(self.tokenizer, texts, TOKENS)[0]


def kill_actors(head: Any, folder: Path, parts: int, killed: list[int]) -> None:
    """Kill an actor after a quarter, a half and three quarters of the parts."""
    for number in range(1, KILLS + 1):
        while len(list(folder.glob("part-*"))) < number * parts // (KILLS + 1) or not workers(head):
            time.sleep(0.05)
        killed.append(workers(head)[0].pid)
        os.kill(killed[-1], signal.SIGKILL)


def surveyed(path: Path, folder: Path, kills: bool) -> dict[str, Any]:
    """The survey on Ray: seconds on the clock, the driver's memory, and what was killed."""
    corpus = Corpus(path, stretch=STRETCH)
    parts, killed = len(list(corpus.stretches())), list[int]()
    with cluster(common.ROOT) as head:
        model = reader().model
        before, start = common.memory_kib("VmRSS"), time.perf_counter()
        if kills:
            arguments = (head, folder, parts, killed)
            threading.Thread(target=kill_actors, args=arguments, daemon=True).start()
        profile = rg.survey(
            model,
            OnRay(corpus, actors=ACTORS),
            tokenizer=Tokens(),
            folder=folder,
            tokens=TOKENS,
            batch_size=BATCH,
        )
        seconds = time.perf_counter() - start
    profile.save(folder.with_suffix(".profile"))
    return {
        "texts": profile.texts,
        "parts": parts,
        "killed": len(set(killed)),
        "seconds": seconds,
        "driver_peak_above_model_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6,
        **twice_or_lost(folder, profile.texts),
    }


def main(count: int = TEXTS) -> None:
    """A tenth of the texts, all of them with kills, all of them undisturbed, each in a process; and the result file."""
    common.prepare()
    few = max(1, count // 10)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {size: folder / f"{size}-texts" for size in (few, count)}
        for size, path in paths.items():
            write_texts(path, size)
        figures: dict[str, Any] = {"tokens": TOKENS, "batch_size": BATCH, "actors": ACTORS}
        for what, size in (("few", few), ("killed", count), ("undisturbed", count)):
            figures[what] = common.fresh(
                "benchmarks.corpus_ray", "part", str(paths[size]), str(folder / what), what,
                environment={"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        both = [folder / f"{what}.profile" for what in ("killed", "undisturbed")]
        figures["equal_to_the_bit"] = both[0].read_bytes() == both[1].read_bytes()
        grown = [figures[what]["driver_peak_above_model_mb"] for what in ("few", "undisturbed")]
        figures["growth_of_the_driver_mb"] = grown[1] - grown[0]
    command = "python -m benchmarks.corpus_ray"
    if count != TEXTS:
        command = f"{command} {count}"
    common.write(
        "corpus_ray",
        command,
        "10 000 texts of 128 tokens, MiniLM, two actors, three killed with -9: equal to the undisturbed run, "
        "nothing twice, nothing lost; the driver's memory independent of the number of texts",
        figures,
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["part", path, target, what]:
            print(json.dumps(surveyed(Path(path), Path(target), what == "killed")))
        case rest:
            main(*map(int, rest))
