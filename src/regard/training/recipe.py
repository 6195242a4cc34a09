"""How a model is trained, as one frozen value that is checked, saved as JSON and handed to Trainer.

Knows the settings and what they are called in `transformers.TrainingArguments`; it does not know models or data.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.errors import ArgumentError, require
from regard.observation import close_to

if TYPE_CHECKING:
    from transformers import TrainingArguments

FORMAT, VERSION = "regard-recipe", 1
SCHEDULES = {
    "cosine": "cosine",
    "linear": "linear",
    "inverse square root": "inverse_sqrt",
    "constant": "constant_with_warmup",
}
PRECISIONS = ("float32", "bfloat16")
PER_DOUBLING = 4  # probes of the "log" grid while the steps double


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train. AdamW (Loshchilov and Hutter 2019), without decay on biases and the parameters of norms.

    Dropout and initial weights belong to the model, not to the recipe.

    Attributes:
        steps: updates of the weights.
        batch: sequences in each update, over all devices and all accumulated parts together.
        learning_rate: the largest, at the end of the warm-up.
        schedule: what follows it: "cosine" or "linear" down to 0, "inverse square root" of the step (Vaswani et al.
            2017, section 5.3), or "constant".
        warmup: part of the steps in which the learning rate rises from 0 in a line.
        decay: weight decay. beta1, beta2: of AdamW's two running means.
        clipping: the largest L2 norm of all gradients together; None: no clipping.
        smoothing: label smoothing, the mass taken from the right label and spread over all.
        accumulation: parts that a batch is split into, one after the other, to save memory.
        precision: "float32", or "bfloat16" for matrix products, with weights kept in float32.
        gradient_checkpointing: compute activations again in the backward pass, to save memory.
        seed: of the order of the data, of dropout, and of what puts batches together.
        log_every, save_every, evaluate_every: steps between logs, checkpoints, evaluations. The last step is always
            saved, and evaluated where there is data for it; None: nothing before it.
        probe_every: steps between probes, or "log": four while the steps double, so that the early steps, when most
            happens, are seen well.
        keep: how many checkpoints to keep, 2 at least: the last whole one stays until the next is complete.

    Raises:
        ArgumentError: a value of another type, or out of its range.
    """

    steps: int
    batch: int = 32
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup: float = 0.05
    decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    clipping: float | None = 1.0
    smoothing: float = 0.0
    accumulation: int = 1
    precision: str = "float32"
    gradient_checkpointing: bool = False
    seed: int = 0
    log_every: int = 10
    save_every: int | None = None
    evaluate_every: int | None = None
    probe_every: int | str = "log"
    keep: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulation", "log_every"):
            _whole(name, getattr(self, name), 1)
        for name in ("save_every", "evaluate_every"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1, " or None")
        if self.probe_every != "log":
            _whole("probe_every", self.probe_every, 1, ' or "log"')
        _whole("seed", self.seed, 0)
        _whole("keep", self.keep, 2)
        for name, below in (("warmup", 1), ("beta1", 1), ("beta2", 1), ("smoothing", 1), ("decay", math.inf)):
            _number(
                name, getattr(self, name), 0 <= _float(getattr(self, name)) < below, f"0 ≤ {name} < {below}"
            )
        _number("learning_rate", self.learning_rate, 0 < _float(self.learning_rate) < math.inf, "positive")
        if self.clipping is not None:
            _number("clipping", self.clipping, 0 < _float(self.clipping) < math.inf, "positive or None")
        for name, known in (("schedule", SCHEDULES), ("precision", PRECISIONS)):
            if (given := getattr(self, name)) not in known:
                raise ArgumentError(f"{name} must be one of {', '.join(map(repr, known))}, got {given!r}")
        if not isinstance(self.gradient_checkpointing, bool):
            raise ArgumentError(
                f"gradient_checkpointing must be True or False, got {self.gradient_checkpointing!r}"
            )
        if self.batch % self.accumulation:
            raise ArgumentError(
                f"batch must be a multiple of accumulation, got batch {self.batch} in {self.accumulation} parts"
            )

    @property
    def probes(self) -> tuple[int, ...]:
        """The steps after which the model is probed, 0 (before the first update) and the last one among them."""
        if isinstance(self.probe_every, int):
            return tuple(sorted({*range(0, self.steps, self.probe_every), self.steps}))
        exponents = range(math.ceil(PER_DOUBLING * math.log2(self.steps)) + 1)
        grid = {round(2 ** (exponent / PER_DOUBLING)) for exponent in exponents}
        return tuple(sorted({0, self.steps} | {step for step in grid if step < self.steps}))

    def arguments(
        self,
        folder: str | PathLike[str],
        *,
        evaluate: bool = False,
        tensorboard: bool = False,
    ) -> TrainingArguments:
        """The same for Trainer, on the devices that this process and those launched with it have.

        Args:
            folder: where checkpoints go.
            evaluate: whether there is data for evaluation.
            tensorboard: write curves for TensorBoard.

        Raises:
            ArgumentError: the batch cannot be shared equally among the devices.
            MissingPackageError: transformers, accelerate or tensorboard is not installed.
        """
        transformers = require("transformers", extra="train")
        require("accelerate", extra="train")
        if tensorboard:
            require("tensorboard", extra="train")
        made = transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=self.steps,
            learning_rate=self.learning_rate,
            lr_scheduler_type=SCHEDULES[self.schedule],
            warmup_steps=round(self.warmup * self.steps),
            weight_decay=self.decay,
            adam_beta1=self.beta1,
            adam_beta2=self.beta2,
            max_grad_norm=self.clipping or 0.0,
            label_smoothing_factor=self.smoothing,
            gradient_accumulation_steps=self.accumulation,
            bf16=self.precision == "bfloat16",
            use_cpu=not torch.accelerator.is_available(),
            activation_checkpointing=self.gradient_checkpointing,
            activation_checkpointing_kwargs={"use_reentrant": False} if self.gradient_checkpointing else None,
            seed=self.seed,
            train_sampling_strategy="sequential",  # the data come shuffled
            logging_steps=self.log_every,
            logging_first_step=True,
            logging_nan_inf_filter=False,  # the guard stops the run instead
            save_steps=self.save_every or self.steps,
            save_total_limit=self.keep,
            eval_strategy="steps" if evaluate else "no",
            eval_steps=self.evaluate_every or self.steps,
            prediction_loss_only=True,
            remove_unused_columns=False,
            report_to=["tensorboard"] if tensorboard else [],
            disable_tqdm=True,  # one plain bar is shown instead
        )
        devices = made.world_size * max(made.n_gpu, 1)
        if self.batch % (devices * self.accumulation):
            raise ArgumentError(
                f"batch must be a multiple of devices × accumulation, got batch {self.batch} "
                f"for {devices} × {self.accumulation}"
            )
        share = self.batch // (devices * self.accumulation)
        made.per_device_train_batch_size = made.per_device_eval_batch_size = share
        return made

    def save(self, path: str | PathLike[str]) -> None:
        """Write the recipe as JSON."""
        body = {"format": FORMAT, "version": VERSION} | asdict(self)
        Path(path).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Recipe:
        """Read a recipe that `save` wrote.

        Raises:
            ArgumentError: no recipe, one of a newer version, or values that make none; names the file.
        """
        try:
            body = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ArgumentError(f"{path}: there is no such file") from None
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(f"{path}: is no recipe that can be read: {error}") from error
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise ArgumentError(f"{path}: is no recipe of Regard")
        if (version := body.pop("version", None)) != VERSION:
            raise ArgumentError(f"{path}: has format version {version!r}, this Regard reads {VERSION}")
        names = [item.name for item in fields(cls)]
        for name in body:
            if name not in names:
                raise ArgumentError(f"{path}: no setting {name!r}; {close_to(name, names)}")
        if "steps" not in body:
            raise ArgumentError(f"{path}: steps must be there, got {', '.join(body) or 'nothing'}")
        try:
            return cls(**body)
        except ArgumentError as error:
            raise ArgumentError(f"{path}: {error}") from None


def _whole(name: str, value: Any, least: int, otherwise: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{name} must be a whole number of at least {least}{otherwise}, got {value!r}")


def _float(value: Any) -> float:
    """The number, or NaN, which no range holds."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _number(name: str, value: Any, holds: bool, wanted: str) -> None:
    if not holds:
        raise ArgumentError(f"{name} must be a number, {wanted}, got {value!r}")
