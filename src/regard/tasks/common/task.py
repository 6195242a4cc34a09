"""What a task is: data, a model, how it is trained, and how it is scored; and how a trained one is kept.

Knows no particular task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard import embedded, files
from regard.bench.machine import processor
from regard.errors import ModelError, RecordError, require
from regard.files import sealing
from regard.tasks.common.tokenizer import Vocabulary
from regard.training.monitor import Monitor
from regard.training.recipe import Recipe
from regard.training.run import Run, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODEL, WORDS, CARD = "model", "words.json", "card.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
CARD_FORM = sealing.Form("regard-card", 1, "card")
QUICK_SAVES = 20  # checkpoints of a quick training of two minutes
PROBED = 4  # held-out examples that the history of the heads is seen on

Card = dict[str, Any]
"""Scores by name, as JSON: numbers, lists of them, and dicts of `score` with the `interval` that holds it."""


@dataclass(frozen=True)
class Data:
    """What a model of a task is trained and scored on.

    Attributes:
        train: makes the examples to train on; they are not needed to score a model.
        held: held-out examples, all of which are scored.
        collate: makes a batch of examples.
        words: what tokens are: a `Vocabulary`, or a tokenizer of transformers.
    """

    train: Callable[[], Any]
    held: Any
    collate: Callable[[list[Any]], dict[str, Any]]
    words: Any


@dataclass(frozen=True)
class Task:
    """One model on one task.

    Attributes:
        name: of the task. model: what kind of model, as the command line calls it. kind: its class.
        recipe: how it is trained. quick: how a worse one is trained in two minutes.
        build: a new model, for so many words (`len(data.words)`).
        data: the data, `data(quick, words)`; less of it where `quick`; with other words than its own, where they were
            kept with a model.
        score: the card's numbers, of a model on `data`.
        attends: whether it has attention, whose history is then kept.
    """

    name: str
    model: str
    kind: type[PreTrainedModel]
    recipe: Recipe
    quick: Recipe
    build: Callable[[int], Any]
    data: Callable[[bool, Any], Data]
    score: Callable[[Any, Data], Card]
    attends: bool = True

    def run(self, folder: Path, *, quick: bool = False, seed: int = 0, progress: bool = True) -> Card:
        """Train a model, score it, and keep it with its words, its history and its card; a run that was killed goes on.

        Args:
            folder: where everything goes. quick: train a worse one. seed: of the weights, the order and dropout.
            progress: show a bar.

        Raises:
            TrainingError: the folder holds another run.
        """
        recipe = self.settings(quick=quick, seed=seed)
        data = self.data(quick, None)
        model = self.new(len(data.words), seed)
        inputs = data.collate([data.held[place] for place in range(min(PROBED, len(data.held)))])
        run = train(
            model, recipe, data.train(), folder=folder, evaluation=data.held, collate=data.collate,
            monitor=Monitor(inputs) if self.attends else None, progress=progress,
        )  # fmt: skip
        self.save(model, data.words, folder)
        model.to("cpu")
        card = self._card(model, data, run=_run_summary(run) | {"quick": quick})
        write_card(folder, card)
        return card

    def settings(self, *, quick: bool, seed: int) -> Recipe:
        """The recipe of a run."""
        if not quick:
            return replace(self.recipe, seed=seed)
        # A checkpoint every few seconds: whenever it is killed, it goes on.
        return replace(self.quick, seed=seed, save_steps=max(1, self.quick.max_steps // QUICK_SAVES))

    def evaluate(self, folder: Path, *, quick: bool = False) -> Card:
        """Score the model that is kept in a folder anew; its card there stays as it is.

        Args:
            folder: of a finished run. quick: on fewer examples.

        Raises:
            ModelError: there is none, or not of this task, or a file of it is not what was written.
            RecordError: its card is damaged.
        """
        model, words = self.load(folder)
        before = read_card(folder) if (folder / CARD).exists() else {}
        return self._card(model, self.data(quick, words), run=before.get("training", {}))

    def new(self, words: int, seed: int) -> Any:
        """A new model with the weights of a seed; torch's random state stays as it is."""
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return self.build(words)

    def save(self, model: Any, words: Any, folder: Path) -> None:
        """Write weights in half precision, configuration and words into a folder, and seal them.

        Raises:
            ModelError: the folder cannot be written to.
        """
        dtype = next(model.parameters()).dtype
        with files.replacing_all(folder / MODEL, last=sealing.SEAL, error=ModelError, what="model") as place:
            model.half().save_pretrained(place)
            model.to(dtype)  # what is scored is what was kept: its numbers went through half precision
            if isinstance(words, Vocabulary):
                words.save(place / WORDS)
            else:
                words.save_pretrained(place)
            sealing.seal(place)

    def load(self, folder: Path) -> tuple[Any, Any]:
        """The model of a folder, in single precision, and its words.

        Raises:
            ModelError: there is none, or a file of it is not what was written.
        """
        transformers = require("transformers", extra="train")
        where = folder / MODEL
        if not (where / "config.json").exists():
            raise ModelError(
                f"the folder must hold a model of {self.name!r}, trained before, and there is no "
                f"{str(where / 'config.json')!r}: regard train {self.name}"
            )
        if reason := sealing.broken(where):
            raise ModelError(reason)
        config = transformers.AutoConfig.from_pretrained(where)
        if not isinstance(config, self.kind.config_class):
            raise ModelError(
                f"the model in {str(folder)!r} must be a {self.kind.__name__}, got one of {type(config).__name__}"
            )
        return self.kind.from_pretrained(where, dtype=torch.float32).eval(), _words(where)

    def _card(self, model: Any, data: Data, *, run: Card) -> Card:
        options = " --quick" * run.get("quick", False)
        if seed := run.get("recipe", {}).get("seed", 0):
            options += f" --seed {seed}"
        begun = time.perf_counter()
        return {
            "task": self.name,
            "model": self.model,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "held_out_examples": len(data.held),
            "scores": self.score(model, data),
            "training": run,
            "scored_in_seconds": round(time.perf_counter() - begun, 1),
            "command": f"regard train {self.name} --only {self.model}{options}",
        }


def _words(where: Path) -> Any:
    """The vocabulary or the tokenizer of a model's folder; without either, it is the embedded model's tokenizer."""
    if (where / WORDS).exists():
        return Vocabulary.load(where / WORDS)
    # The folder's seal was checked before: a tokenizer that it once had and lost does not come this far.
    place = where if (where / TOKENIZER[0]).exists() else embedded.folder()
    return require("transformers", extra="train").AutoTokenizer.from_pretrained(place)


def write_card(folder: Path, card: Card) -> None:
    """Write the card of a model, which carries its own seal, into the model's folder.

    Raises:
        RecordError: it cannot be written there.
    """
    content = sealing.document(CARD_FORM, card, indent=1)
    files.write(folder / CARD, content, error=RecordError, what="card")


def read_card(folder: Path) -> Card:
    """The card of a model.

    Raises:
        FileNotFoundError: there is none.
        RecordError: it is damaged or altered; names the file.
    """
    return sealing.read(folder / CARD, CARD_FORM, RecordError)


def _run_summary(run: Run) -> Card:
    """What a card says of a run."""
    return {
        "recipe": asdict(run.recipe),
        "seconds": round(run.seconds, 1),
        "machine": f"{processor()}, torch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "device": str(torch.accelerator.current_accelerator() or "cpu"),
        "loss": list(run.losses.values())[-1] if run.losses else None,
        "losses": {str(step): round(loss, 4) for step, loss in run.losses.items()},
        "held_out_loss": list(run.evaluations.values())[-1] if run.evaluations else None,
    }
