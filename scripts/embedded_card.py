"""What is written when the embedded model is saved: weights in half precision, tokenizer, measured card.

Knows the state of a run and the folder's layout; knows nothing of how a step is taken.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import embedded_measure as measure
import torch
from embedded_data import PACKAGES, Source
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from regard import embedded, files
from regard.files import sealing

INDUCTION_SEED = 20_000
"""Far from the seeds that training draws its random spans from."""


@dataclass
class Progress:
    """How far a run has come: steps, tokens, seconds, and the training loss smoothed over fifty steps."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    done: float = 0.0

    def took_step(self, tokens: int, loss: float, seconds: float, done: float) -> None:
        """Count one more step of `tokens` tokens; `seconds` and `done` are those of the run so far."""
        self.loss = loss if self.steps == 0 else 0.98 * self.loss + 0.02 * loss
        self.steps += 1
        self.tokens += tokens
        self.seconds = seconds
        self.done = done

    def line(self) -> str:
        """One line for the log."""
        return (
            f"{self.done:6.1%}  step {self.steps:5d}  {self.tokens / 1e6:.2f} M tokens"
            f"  {self.seconds / 60:.1f} min  {self.tokens / self.seconds:6.0f} tokens/s  loss {self.loss:.3f}"
        )


@dataclass
class Training:
    """What stays the same during a run, and the curve that grows with every save."""

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    files: Mapping[str, Sequence[Source]]
    streams: Mapping[str, Tensor]
    test_rows: Tensor
    baselines: dict[str, float]
    settings: dict[str, Any]
    curve: list[dict[str, float]] = field(default_factory=list)


def in_half(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """A float32 copy of the model whose weights went through float16, as a user will load them."""
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict({name: value.half().float() for name, value in model.state_dict().items()})
    return copy.eval()


def card(training: Training, progress: Progress, model: LlamaForCausalLM) -> dict[str, Any]:
    """Every number of the model card, measured on `model`; adds this moment to the curve."""
    files = training.files
    loss = measure.loss(model, training.test_rows)
    scores = measure.induction(model, INDUCTION_SEED)
    layer, head, score = measure.best_head(scores)
    training.curve.append(
        {
            "tokens": progress.tokens,
            "minutes": round(progress.seconds / 60, 2),
            "training_loss": round(progress.loss, 4),
            "held_out_loss": round(loss, 4),
            "induction": round(score, 4),
        }
    )
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out": {
            "loss": round(loss, 4),
            **{f"{name}_loss": round(value, 4) for name, value in training.baselines.items()},
            "tokens": training.test_rows[:, 1:].numel(),
            "unit": "nats per token",
        },
        "induction": {
            "score": round(score, 4),
            "layer": layer,
            "head": head,
            "all_heads": [[round(s, 4) for s in row] for row in scores.tolist()],
            "sequences": "64 of 96 random tokens twice",
            "seed": INDUCTION_SEED,
        },
        "training": {
            **training.settings,
            "steps": progress.steps,
            "tokens": progress.tokens,
            "minutes": round(progress.seconds / 60, 1),
            "tokens_per_second": round(progress.tokens / progress.seconds),
            "fraction_of_schedule": round(min(progress.done, 1.0), 4),
        },
        "data": {
            "python": platform.python_version(),
            "packages": {name: version(name) for name in PACKAGES},
            "files": {kind: len(found) for kind, found in files.items()},
            "bytes": {kind: sum(len(f.text.encode()) for f in found) for kind, found in files.items()},
            "tokens": {kind: len(tokens) for kind, tokens in training.streams.items()},
            "held_out_files": [f.path for f in files["held_out"]],
        },
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__},
        "curve": training.curve,
    }


def describe(facts: dict[str, Any]) -> str:
    """The model card as Markdown."""
    held, heads, run = facts["held_out"], facts["induction"], facts["training"]
    text, machine = facts["data"], facts["machine"]
    further = ", ".join(f"{name} {number}" for name, number in text["packages"].items())
    table = "\n".join(
        f"| {layer} | " + " | ".join(f"{score:.2f}" for score in row) + " |"
        for layer, row in enumerate(heads["all_heads"])
    )
    columns = range(len(heads["all_heads"][0]))

    def cells(kind: str) -> str:
        return f"{text['files'][kind]} | {text['bytes'][kind]:,}"

    mix = ", ".join(f"{count} {kind}" for kind, count in run["rows_per_batch"].items())
    return f"""# The embedded model

A small decoder for Python source text, so that `regard look` has something real to look at on a machine without
network. It shows what attention learns. It is no coding assistant.

## Measured

| on {text["files"]["held_out"]} held-out files, {held["tokens"]:,} tokens | nats per token |
|---|---|
| uniform over the vocabulary | {held["uniform_loss"]:.3f} |
| unigram (add one) | {held["unigram_loss"]:.3f} |
| bigram (Witten-Bell interpolated) | {held["bigram_loss"]:.3f} |
| **this model** | **{held["loss"]:.3f}** |

Best induction head: layer {heads["layer"]}, head {heads["head"]} (counted from 0), score **{heads["score"]:.3f}**.
The score is the mean attention weight from each token of the second copy of a random sequence to the token that
followed its first occurrence ({heads["sequences"]}, seed {heads["seed"]}: drawn apart from training). All heads:

| layer | {" | ".join(f"head {column}" for column in columns)} |
|---|{"---|" * len(columns)}
{table}

The weights are stored in float16. All these numbers are of the stored weights, computed in float32.

## Architecture

Llama architecture (rotary positions, gated MLP, RMS norm, tied embeddings): 4 layers, 8 heads, hidden size 256,
context 512, {facts["parameters"]:,} parameters. Byte-level BPE of 2,048 subwords; a line break and the indentation after
it are one subword. `<|file|>` stands before every text.

## Data

| text | files | bytes | tokens |
|---|---|---|---|
| Python {text["python"]}'s standard library, to train on | {cells("library")} | {text["tokens"]["library"]:,} |
| the same with names changed | {text["files"]["library"]} | | {text["tokens"]["renamed"]:,} |
| {further}, to train on | {cells("packages")} | {text["tokens"]["packages"]:,} |
| standard library, held out | {cells("held_out")} | {held["tokens"]:,} |

Tests, codec tables, manual pages, lib2to3 and repeated files are left out. Held-out files are chosen by a hash of
their path, one in twenty. The tokenizer saw the library's training files only.

Rows of 512 tokens in each batch: {mix}.
*Renamed* are library files in which half of the repeated identifiers have other, random names, the same throughout
a file. *Repeated* are 16 to 255 random tokens over and over; the first copy is not counted in the loss. Both reward
looking back, which so small a model learns late from plain text. So the induction score says that the model copies,
not that plain source text alone has taught it.

## Training

| | |
|---|---|
| length | {run["steps"]:,} steps, {run["tokens"]:,} tokens |
| time | {run["minutes"]} minutes, {run["tokens_per_second"]:,} tokens a second, other work of the machine included |
| machine | {run["threads"]} threads on {machine["cores"]} cores ({machine["processor"]}), torch {machine["torch"]} |
| precision | {run["precision"]} |
| optimizer | {run["optimizer"]} |
| learning rate | {run["schedule"]} |
| seed | {run["seed"]} |

The loss curve and all settings are in `card.json`.

To train it again, from the root of the repository: `python scripts/train_embedded.py`, or `make embedded`. The run is
measured in minutes unless `--steps` is given, so another machine gives other weights.

## License

Apache-2.0, as the rest of Regard. The text it was trained on is under the licenses of Python (PSF) and of the named
packages (BSD).
"""  # noqa: E501


def save(training: Training, progress: Progress, folder: Path) -> str:
    """Measure, then replace the files of `folder`, each whole or not at all; returns one line for the log."""
    model = in_half(training.model)
    facts = card(training, progress, model)
    folder.mkdir(parents=True, exist_ok=True)
    with files.replacing_all(folder, last=sealing.SEAL, what="embedded model") as fresh:
        model.config.dtype = torch.float32  # what users compute in; the file is smaller than that
        model.config.architectures = ["LlamaForCausalLM"]
        model.config.save_pretrained(fresh)
        training.tokenizer.save_pretrained(fresh)
        weights = {n: p.detach().half().contiguous() for n, p in model.named_parameters()}
        save_file(weights, fresh / "model.safetensors", metadata={"format": "pt"})
        (fresh / "card.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (fresh / "CARD.md").write_text(describe(facts), encoding="utf-8")
        sealing.seal(fresh, [path for path in fresh.iterdir() if path.name in embedded.SEALED])
    held, heads = facts["held_out"], facts["induction"]
    return (
        f"saved: held-out loss {held['loss']:.3f} (bigram {held['bigram_loss']:.3f}),"
        f" induction {heads['score']:.3f} at layer {heads['layer']} head {heads['head']}"
    )
