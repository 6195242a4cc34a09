"""The results of a sweep as `docs/breadth.md`."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import Any

LIBRARIES = (
    "torch", "transformers", "timm", "diffusers", "vit-pytorch", "x-transformers", "open_clip_torch", "peft", "torchao",
    "transformer_lens",
)  # fmt: skip
# What a type is said to be, worst first: its verdict is the worst of its modes.
ORDER = (
    "WRONG",
    "changed",
    "crash",
    "died",
    "harness",
    "error",
    "unseen",
    "unchecked",
    "exact",
    "within",
    "no weights",
    "not run",
    "not built",
)
WITHOUT = (
    "died",
    "harness",
    "within",
    "no weights",
    "not run",
    "not built",
)  # types of which nobody knows that they attend
SHOWN = {"no weights": "no attention weights", "died": "out of time or memory", "harness": "the sweep failed"}


def verdict(found: dict[str, Any]) -> str:
    """The worst verdict of a type's modes; one that the model itself does not run is not judged."""
    verdicts = [part["verdict"] for part in found.get("modes", {}).values()] or [found["verdict"]]
    worst = min(verdicts, key=ORDER.index)
    return "within" if found.get("within") and worst in ("exact", "no weights") else worst


def page(results: dict[str, Any], seconds: float, command: str) -> str:
    """The whole page, as Markdown."""
    kinds = {name: verdict(found) for name, found in results.items()}
    counts = Counter(kinds.values())
    attends = sum(counts[kind] for kind in ORDER if kind not in WITHOUT)
    lines = [
        "# Breadth",
        "",
        "Every model type that transformers knows, and families of other libraries, built tiny with random weights, run"
        " and watched. What the record says is compared with an oracle of its own, a dispatch mode below autograd that"
        " sees each product of softmax weights with values (`tests/breadth`). Modes: "
        f"{_modes(results)}. A type's verdict is the worst of its modes.",
        "",
        f"Measured on {datetime.date.today().isoformat()} with {_versions()}; {len(results)} types in"
        f" {seconds / 60:.0f} minutes. torchvision and torchaudio have no build for this machine: where a library"
        " imports torchvision, a module that computes next to nothing stands in for it. `" + command + "`",
        "",
        "| verdict | types | |",
        "|---|---|---|",
    ]
    meaning = {
        "exact": "every call is in the record, with its numbers; the outputs are the same bits",
        "error": "an error that names the module and the way out",
        "unseen": "the record and a warning name the modules whose products are not in it",
        "unchecked": "the oracle cannot run (compiled FlexAttention, nested tensors)",
        "WRONG": "numbers differ, calls are missing, or rows are left out, without a word",
        "changed": "the outputs are other bits while watched",
        "crash": "an error that is not Regard's",
        "within": "a part that ran, and was judged, inside the whole that its row names",
        "no weights": "no softmax ever multiplies values in a product",
        "not run": "the model itself runs in none of the modes",
        "not built": "no tiny model of the type runs here",
        "died": "the child ran out of its time or memory",
        "harness": "the sweep itself failed",
    }
    for kind in sorted(counts, key=ORDER.index):
        lines.append(f"| {SHOWN.get(kind, kind)} | {counts[kind]} | {meaning[kind]} |")
    share = 100 * counts["exact"] / max(1, attends)
    lines += [
        "",
        f"Of the {attends} types that make attention weights, {counts['exact']} are exact: {share:.1f} %.",
        "",
    ]
    for library in dict.fromkeys(_library(name) for name in results):
        lines += _section(
            library, {name: found for name, found in results.items() if _library(name) == library}
        )
    return "\n".join(lines) + "\n"


def _section(library: str, results: dict[str, Any]) -> list[str]:
    lines = [f"## {library}", "", "| type | model | verdict | why |", "|---|---|---|---|"]
    for name, found in sorted(results.items()):
        kind = verdict(found)
        own = name.rpartition("/")[2]
        model = found.get("note", "").split(",")[0].rpartition(":")[2]
        lines.append(f"| {own} | {model} | {SHOWN.get(kind, kind)} | {_why(found, kind)} |")
    return [*lines, ""]


def _why(found: dict[str, Any], kind: str) -> str:
    """The reason, in one line, with the modes that have it, and the modes that the model itself does not run."""
    parts = found.get("modes", {})
    if kind == "within":
        return str(found["within"])
    if kind in ("exact", "no weights"):
        apart = {mode: part for mode, part in parts.items() if part["verdict"] == "not run"}
        said = [f"{mode} does not run: {_line(part)}" for mode, part in apart.items()]
        summed = sorted({module for part in parts.values() for module in part.get("sums", [])})
        if kind == "no weights" and summed:
            said.append(f"a softmax is multiplied one by one and summed: {summed[0]}")
        return "; ".join(said)
    modes = [mode for mode, part in parts.items() if part["verdict"] == kind]
    reason = _line(parts[modes[0]] if modes else found)
    some = ", ".join(modes) if len(modes) < len(parts) else ""
    return f"{some}: {reason}" if some else reason


def _line(part: dict[str, Any]) -> str:
    """A reason in one line."""
    reason = re.sub(r"\s+", " ", part.get("reason", "").split(" Ways out:")[0])
    reason = re.sub(r"(?<![\w.])/\S*/(?=[\w.-]*)", "", reason)  # files without the folders of one machine
    reason = reason.replace("|", "/").replace("profile 0 ", "")
    return re.split(" ¦ | ‖ ", reason)[0][:180]


MEANT = {
    "eval": "evaluation with padding, by the default implementation",
    "eager": "the same by the eager one",
    "train": "training with dropout and gradients",
    "generate": "three generated tokens from a batch that is padded on the left",
}


def _modes(results: dict[str, Any]) -> str:
    """The modes that were run, in words."""
    ran = {mode for found in results.values() for mode in found.get("modes", {})}
    return "; ".join(meaning for mode, meaning in MEANT.items() if mode in ran)


def _library(name: str) -> str:
    return name.rpartition("/")[0] or "transformers"


def _versions() -> str:
    found = []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
