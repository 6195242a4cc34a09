"""`python -m tests.breadth`: the sweep over everything that makes attention."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import sys

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the tests' own packages are
if importlib.util.find_spec("torchvision") is None:
    sys.path.append(str(Path(__file__).parent / "standin"))

import torch

from breadth import hf, libraries, reasons, wholes
from breadth.modes import MODES, examine
from breadth.sweep import Children
from breadth.table import page

PRELOADED = {
    "timm": "timm", "diffusers": "diffusers.models.unets.unet_2d_condition", "x-transformers": "x_transformers",
    "vit-pytorch": "vit_pytorch", "peft": "peft", "open_clip": "open_clip", "transformer_lens": "transformer_lens",
    "torchao": "torchao.quantization",
}  # fmt: skip
OUT = Path("build/breadth.json")


def one(library: str, name: str, modes: list[str]) -> dict[str, Any]:
    """All modes of one subject."""
    modes = [mode for mode in modes if mode in MODES]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    within = ""
    try:
        subject = hf.subject(name) if library == "transformers" else libraries.subject(library, name)
    except hf.NotBuilt as error:
        try:
            subject, within = wholes.whole(name)
        except hf.NotBuilt:
            return {"verdict": "not built", "reason": reasons.plain(name, str(error))[:1500]}
    except Exception as error:
        if library == "transformers":
            raise
        return {"verdict": "not built", "reason": f"{type(error).__name__}: {error}"[:600]}
    found = _examined(subject, modes)
    if library == "transformers" and not within and _attends_not(found):
        for other in hf.others(name, subject.note):
            more = _examined(other, modes)
            if not _attends_not(more):
                found = more
                break
    if within:
        found["within"] = within
    return found


def _examined(subject: Any, modes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"note": subject.note, "modes": {}}
    for mode in modes:
        if mode == "generate" and subject.generate is None:
            continue
        if mode == "eager" and not subject.eager:
            continue
        found["modes"][mode] = examine(subject, mode)
    return found


def _attends_not(found: dict[str, Any]) -> bool:
    verdicts = {part["verdict"] for part in found["modes"].values()}
    return "no weights" in verdicts and verdicts <= {"no weights", "not run"}


def _chosen(chosen: argparse.Namespace) -> list[str]:
    """Names of subjects: a type of transformers, or `library/name`."""
    if chosen.only:
        return chosen.only.split(",")
    names = []
    for library in chosen.libraries.split(","):
        if library == "transformers":
            names += hf.types()
        elif importlib.util.find_spec(library.replace("-", "_")) is not None:
            names += [f"{library}/{name}" for name in libraries.LIBRARIES[library][0]()]
        else:
            print(f"{library} is not installed: left out")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.breadth", description=__doc__)
    parser.add_argument("--only", default="", help="names, with commas between")
    every = ",".join(["transformers", *libraries.LIBRARIES])
    parser.add_argument("--libraries", default=every, help=f"of {every}")
    parser.add_argument("--modes", default="eval", help=f"of {', '.join(MODES)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--page", type=Path, help="write the table there, such as docs/breadth.md")
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    names = _chosen(chosen)
    results: dict[str, Any] = {}
    if chosen.resume and chosen.out.exists():
        results = json.loads(chosen.out.read_text())
    names = [name for name in names if name not in results]

    import regard  # noqa: F401

    # What many children need is imported once, here.
    for library in {name.rpartition("/")[0] for name in names if "/" in name}:
        with contextlib.suppress(ImportError, KeyError):
            importlib.import_module(PRELOADED[library])
    if any("/" not in name for name in names):
        import transformers.generation.utils
        import transformers.modeling_utils
        import transformers.models.auto.modeling_auto  # noqa: F401
    children, started = Children(chosen.jobs), time.monotonic()
    waiting = list(names)
    while waiting or children.running:
        while waiting and len(children.running) < children.count:
            name = waiting.pop(0)
            library, _, own = name.rpartition("/")
            children.start(name, lambda: one(library or "transformers", own, chosen.modes.split(",")))  # noqa: B023
        for name, found in children.wait():
            results[name] = found
            verdicts = {mode: part["verdict"] for mode, part in found.get("modes", {}).items()} or found[
                "verdict"
            ]
            print(
                f"{len(results):4} {time.monotonic() - started:6.0f} s  {name:32} {found['seconds']:5} s  {verdicts}",
                flush=True,
            )
            if chosen.verbose:
                print(json.dumps(found, indent=1, ensure_ascii=False))
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(results, indent=1, ensure_ascii=False))
    if chosen.page:
        spent = sum(found.get("seconds", 0) for found in results.values()) / chosen.jobs
        chosen.page.write_text(page(results, spent, "make breadth"))


if __name__ == "__main__":
    main()
