"""How soon does the explorer's server answer: a long record, many tiles while a model runs, the playground?"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks import common
from benchmarks.explorer_tiles import HEADS, TOKENS
from regard import files
from regard.web.playground import KINDS

# Tiles that are asked for at once.
AT_ONCE = 50
# Requests of which percentiles are told.
MANY = 20
HEAD = "/api/records/r1/calls/0/heads/{}"
# Tokens that a model reads while tiles are asked for: it takes longer than they do.
READ = 8000


def start(*names: Path) -> tuple[subprocess.Popen[str], str, float]:
    """The server of saved records and models, its address, and the seconds until it said so."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "explore", *map(str, names), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if address := re.search(r"http://\S+", line):
            return process, address.group(), time.perf_counter() - begun
    raise RuntimeError("the server did not start")


def save_model(folder: Path) -> None:
    """A model of random weights that takes a long text, as wide as GPT-2 small."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=READ, n_layer=4, bos_token_id=0, eos_token_id=0)
    )
    words = Tokenizer(WordLevel({f"w{index}": index for index in range(63)} | {"?": 63}, unk_token="?"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    with files.temporary(folder.parent) as unfinished:
        for part in (model, tokenizer):
            part.save_pretrained(unfinished / "model")
        files.publish_folder(unfinished / "model", folder)


def memory(process: subprocess.Popen[str], name: str) -> float:
    """Megabytes of a process, as Linux counts them."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(name)


def processor(process: subprocess.Popen[str]) -> float:
    """Seconds of the processor that a process has taken, which other work changes less than those by the clock."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and 95th percentile, in milliseconds."""
    return {f"p{share}_ms": round(1e3 * float(np.percentile(seconds, share)), 1) for share in (50, 95)}


def timed(ask: Callable[[], httpx.Response]) -> float:
    """Seconds until an answer is there, which must be one."""
    begun = time.perf_counter()
    ask().raise_for_status()
    return time.perf_counter() - begun


@contextmanager
def connected(address: str) -> Iterator[httpx.Client]:
    """Somebody whom the server lets in."""
    limits = httpx.Limits(max_connections=AT_ONCE)
    base = address.partition("/?")[0]
    with httpx.Client(base_url=base, follow_redirects=True, timeout=300, limits=limits) as client:
        client.get(address)
        yield client


def first_picture(client: httpx.Client) -> dict[str, float]:
    """What a page asks for before it shows a record and one of its heads, one after the other."""
    paths = {
        "state": "/api/state",
        "description": "/api/records/r1",
        "overview": "/api/records/r1/overview",
        "tile of the whole map": HEAD.format(0) + "/tiles/1024/0/0",
        "series": "/api/records/r1/calls/0/series/entropy",
    }
    seconds = {f"{name}_s": timed(lambda path=path: client.get(path)) for name, path in paths.items()}
    return seconds | {"together_s": sum(seconds.values())}


def at_once(client: httpx.Client, cell: int) -> dict[str, float]:
    """Cold tiles that are asked for together, while a model runs."""
    random, many = np.random.default_rng(cell), TOKENS // (256 * cell)
    paths = []
    for index in range(AT_ONCE):
        row = int(random.integers(many))
        column = int(random.integers(row + 1))
        paths.append(HEAD.format(1 + index % (HEADS - 1)) + f"/tiles/{cell}/{row}/{column}")
    text = " ".join(f"w{index}" for index in random.integers(63, size=READ))
    job = client.post("/api/runs", json={"model": "m1", "text": text}).json()["job"]
    while not (state := client.get(f"/api/jobs/{job}").json())["message"].startswith("reading"):
        if state["state"] not in ("waiting", "running"):
            raise RuntimeError(f"the model must run, got {state}")
        time.sleep(0.05)
    begun = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seconds = list(pool.map(lambda path: timed(lambda: client.get(path)), paths))
    together = time.perf_counter() - begun
    if (state := client.get(f"/api/jobs/{job}").json())["state"] != "running":
        raise RuntimeError(f"the model must run all the while, got {state}")
    client.delete(f"/api/jobs/{job}")
    return spread(seconds) | {"all_s": round(together, 3)}


def playground(client: httpx.Client, process: subprocess.Popen[str], length: int) -> dict[str, Any]:
    """Answers while a slider moves: each seed is another layer."""
    figures = {}
    for kind in KINDS:
        state = {"kind": kind, "length": length, "memory_length": length, "num_heads": 4}
        busy = processor(process)
        seconds = [
            timed(lambda seed=seed, state=state: client.post("/api/playground", json=state | {"seed": seed}))
            for seed in range(MANY)
        ]
        each = (processor(process) - busy) / MANY
        figures[kind] = spread(seconds) | {"processor_ms": round(1e3 * each, 1)}
    return figures


def main() -> None:
    """Save a record, serve it, ask, and write the result."""
    common.prepare()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        record, model = Path(folder) / "record", Path(folder) / "model"
        common.fresh("benchmarks.explorer_tiles", "save", str(record))
        save_model(model)
        process, address, figures["address after_s"] = start(record)
        try:
            with connected(address) as client:
                figures["first picture"] = first_picture(client)
                figures["first picture again"] = first_picture(client)
                for length in (48, 256):
                    figures[f"playground, {length} tokens"] = playground(client, process, length)
                figures["anonymous_mb"] = memory(process, "RssAnon")
                figures["resident_mb"] = memory(process, "VmRSS")
            begun = time.perf_counter()
            process.send_signal(signal.SIGINT)
            figures["status after Ctrl-C"] = process.wait(timeout=60)
            figures["end after_s"] = time.perf_counter() - begun
        finally:
            process.kill()
        process, address, _ = start(record, model)
        try:
            with connected(address) as client:
                for cell in (1, 4, 16):
                    figures[f"{AT_ONCE} tiles while a model runs, cells of {cell}"] = at_once(client, cell)
        finally:
            process.kill()
    figures["load"] = os.getloadavg()[1]
    common.write(
        "explorer_server",
        "OMP_WAIT_POLICY=passive python -m benchmarks explorer_server",
        "131 072 tokens, 12 heads, 2 cores: first picture ≤ 1 s after the page is open; 50 tiles at once while a model "
        "runs, 95 of 100 ≤ 1 s; the playground ≤ 100 ms",
        figures,
    )


if __name__ == "__main__":
    main()
