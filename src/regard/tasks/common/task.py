"""What a task is: data, a model, how it is trained and scored; how a trained model is saved and loaded.

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
MONITORED = 4  # held-out examples on which the monitor sees the heads during training

Card = dict[str, Any]
"""Scores by name, as JSON: numbers, lists of numbers, and dicts of a `score` and its 95 % `interval`."""


@dataclass(frozen=True)
class Data:
    """What a model of a task is trained and scored on.

    Attributes:
        train: makes the examples to train on; a function, as they are not needed to score a model.
        held_out: held-out examples, all of which are scored; a map-style dataset, as `train()` is.
        collate: list of examples → batch, a dict of tensors.
        tokenizer: ids ↔ text: a `Vocabulary`, or a tokenizer of transformers.
    """

    train: Callable[[], Any]
    held_out: Any
    collate: Callable[[list[Any]], dict[str, Any]]
    tokenizer: Any


@dataclass(frozen=True)
class Task:
    """One model on one task.

    Attributes:
        name: of the task. model: what kind of model, as the command line calls it. kind: its class.
        recipe: how it is trained. quick: how a worse one is trained in two minutes.
        build: `build(vocab_size)` → a new model with random weights; `vocab_size` is `len(data.tokenizer)`.
        data: `data(quick, tokenizer)` → the data, less of it where `quick`; `tokenizer` is that of a saved model, or
            None for a new one.
        score: `score(model, data)` → the card's numbers.
        attends: whether the model has attention, whose history is then recorded in training.
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
        """Train a model, score it, and save it with its tokenizer, its history and its card.

        A run that was killed resumes from its last checkpoint.

        Args:
            folder: where everything goes. quick: train a worse one in two minutes.
            seed: of the weights, the order of examples and dropout. progress: show a bar.

        Returns:
            the card, as it is written to `folder`.

        Raises:
            TrainingError: the folder holds another run.
        """
        recipe = self.settings(quick=quick, seed=seed)
        data = self.data(quick, None)
        model = self.new(len(data.tokenizer), seed)
        inputs = data.collate([data.held_out[i] for i in range(min(MONITORED, len(data.held_out)))])
        run = train(
            model,
            recipe,
            data.train(),
            folder=folder,
            evaluation=data.held_out,
            collate=data.collate,
            monitor=Monitor(inputs) if self.attends else None,
            progress=progress,
        )
        # Before scoring, as saving rounds the weights: the card is to be that of the saved model.
        self.save(model, data.tokenizer, folder)
        model.to("cpu")
        card = self._card(model, data, run=_run_summary(run) | {"quick": quick})
        write_card(folder, card)
        return card

    def settings(self, *, quick: bool, seed: int) -> Recipe:
        """The recipe of a run: `recipe` or `quick`, with its seed."""
        if not quick:
            return replace(self.recipe, seed=seed)
        # A checkpoint every few seconds: whenever it is killed, it goes on.
        return replace(self.quick, seed=seed, save_steps=max(1, self.quick.max_steps // QUICK_SAVES))

    def evaluate(self, folder: Path, *, quick: bool = False) -> Card:
        """Score a saved model anew; its card in the folder stays as it is.

        Args:
            folder: of a finished run. quick: on fewer examples.

        Returns:
            the new card, with the old one's facts about the training.

        Raises:
            ModelError: there is none, or not of this task, or a file of it is not what was written.
            RecordError: its card is damaged.
        """
        model, tokenizer = self.load(folder)
        # A model that was copied without its card is scored all the same.
        training = read_card(folder).get("training", {}) if (folder / CARD).exists() else {}
        return self._card(model, self.data(quick, tokenizer), run=training)

    def new(self, vocab_size: int, seed: int) -> Any:
        """A new model with the random weights of a seed; torch's random state stays as it is."""
        with torch.random.fork_rng([]):
            # On the CPU alone, as nothing else is restored here.
            torch.default_generator.manual_seed(seed)
            return self.build(vocab_size)

    def save(self, model: Any, tokenizer: Any, folder: Path) -> None:
        """Write weights in half precision, configuration and tokenizer into `folder/model`, and seal them.

        The model itself is left with the rounded weights, in the precision that it had.

        Raises:
            ModelError: the folder cannot be written to.
        """
        dtype = next(model.parameters()).dtype
        where = folder / MODEL
        with files.replacing_all(where, last=sealing.SEAL, error=ModelError, what="model") as unfinished:
            model.half().save_pretrained(unfinished)
            # What is scored is what was saved: its weights went through half precision.
            model.to(dtype)
            if isinstance(tokenizer, Vocabulary):
                tokenizer.save(unfinished / WORDS)
            else:
                tokenizer.save_pretrained(unfinished)
            sealing.seal(unfinished)

    def load(self, folder: Path) -> tuple[Any, Any]:
        """The model that `save` wrote, in single precision and evaluation mode, and its tokenizer.

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
        return self.kind.from_pretrained(where, dtype=torch.float32).eval(), _tokenizer(where)

    def _card(self, model: Any, data: Data, *, run: Card) -> Card:
        """What is written of a model: `run` are the facts about its training."""
        options = " --quick" * run.get("quick", False)
        if seed := run.get("recipe", {}).get("seed", 0):
            options += f" --seed {seed}"
        start = time.perf_counter()
        return {
            "task": self.name,
            "model": self.model,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "held_out_examples": len(data.held_out),
            "scores": self.score(model, data),
            "training": run,
            "scored_in_seconds": round(time.perf_counter() - start, 1),
            "command": f"regard train {self.name} --only {self.model}{options}",
        }


def _tokenizer(where: Path) -> Any:
    """The vocabulary or the tokenizer of a model's folder; without either, it is the embedded model's tokenizer."""
    if (where / WORDS).exists():
        return Vocabulary.load(where / WORDS)
    # The folder's seal was checked before: a tokenizer that it once had and lost does not come this far.
    folder = where if (where / TOKENIZER[0]).exists() else embedded.folder()
    return require("transformers", extra="train").AutoTokenizer.from_pretrained(folder)


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
    losses, evaluations = list(run.losses.values()), list(run.evaluations.values())
    return {
        "recipe": asdict(run.recipe),
        "seconds": round(run.seconds, 1),
        "machine": f"{processor()}, torch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "device": str(torch.accelerator.current_accelerator() or "cpu"),
        "loss": losses[-1] if losses else None,
        "losses": {str(step): round(loss, 4) for step, loss in run.losses.items()},
        "held_out_loss": evaluations[-1] if evaluations else None,
    }
