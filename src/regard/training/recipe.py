"""How a model is trained, as one frozen value that is checked, saved as JSON and handed to Trainer.

Knows the settings and what they are called in `transformers.TrainingArguments`; it does not know models or data.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard import files
from regard.checks.arguments import text
from regard.errors import ArgumentError, require
from regard.files import sealing
from regard.statistics.observation import close_to

if TYPE_CHECKING:
    from transformers import TrainingArguments

FORM = sealing.Form("regard-recipe", 1, "recipe")
SCHEDULES = ("cosine", "linear", "inverse_sqrt", "constant_with_warmup")
PRECISIONS = ("float32", "bfloat16")
PER_DOUBLING = 4  # looks of the "log" grid while the steps double


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train. AdamW (Loshchilov and Hutter 2019), without decay on biases and the parameters of norms.

    Dropout and initial weights belong to the model, not to the recipe.

    The settings are named as in `transformers.TrainingArguments`; where they differ, it is said below.

    Attributes:
        max_steps: updates of the weights.
        batch_size: sequences in each update, over all devices and all accumulated parts together.
        learning_rate: the largest, at the end of the warm-up.
        lr_scheduler_type: what follows it: "cosine" or "linear" down to 0, "inverse_sqrt" of the step (Vaswani et al.
            2017, section 5.3), or "constant_with_warmup".
        warmup_ratio: part of the steps in which the learning rate rises from 0 in a line.
        weight_decay: of AdamW. adam_beta1, adam_beta2: of its two running means.
        max_grad_norm: the largest L2 norm of all gradients together; None: no clipping.
        label_smoothing_factor: the probability taken from the right label and spread over all.
        gradient_accumulation_steps: parts that a batch is split into, one after the other, to save memory.
        precision: "float32", or "bfloat16" for matrix products, with weights kept in float32.
        gradient_checkpointing: compute activations again in the backward pass, to save memory.
        seed: of the order of the data, of dropout, and of what puts batches together.
        logging_steps, save_steps, eval_steps: steps between logs, checkpoints, evaluations. The last step is always
            saved, and evaluated where there is data for it; None: nothing before it.
        monitor_steps: steps between looks, or "log": four while the steps double, so that the early steps, when most
            happens, are seen well.
        save_total_limit: how many checkpoints to keep, 2 at least: the last whole one stays until the next is
            complete.

    Raises:
        ArgumentError: a value of another type, or out of its range.
    """

    max_steps: int
    batch_size: int = 32
    learning_rate: float = 1e-3
    lr_scheduler_type: str = "cosine"
    warmup_ratio: float = 0.05
    weight_decay: float = 0.1
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    max_grad_norm: float | None = 1.0
    label_smoothing_factor: float = 0.0
    gradient_accumulation_steps: int = 1
    precision: str = "float32"
    gradient_checkpointing: bool = False
    seed: int = 0
    logging_steps: int = 10
    save_steps: int | None = None
    eval_steps: int | None = None
    monitor_steps: int | str = "log"
    save_total_limit: int = 2

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "gradient_accumulation_steps", "logging_steps"):
            _whole(name, getattr(self, name), 1)
        for name in ("save_steps", "eval_steps"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1, " or None")
        if self.monitor_steps != "log":
            _whole("monitor_steps", self.monitor_steps, 1, ' or "log"')
        _whole("seed", self.seed, 0)
        _whole("save_total_limit", self.save_total_limit, 2)
        for name in ("warmup_ratio", "adam_beta1", "adam_beta2", "label_smoothing_factor", "weight_decay"):
            # Only the decay is no share of anything, and may be 1 or more.
            below = math.inf if name == "weight_decay" else 1
            _number(
                name, getattr(self, name), 0 <= _float(getattr(self, name)) < below, f"0 ≤ {name} < {below}"
            )
        _number("learning_rate", self.learning_rate, 0 < _float(self.learning_rate) < math.inf, "positive")
        if self.max_grad_norm is not None:
            _number(
                "max_grad_norm",
                self.max_grad_norm,
                0 < _float(self.max_grad_norm) < math.inf,
                "positive or None",
            )
        for name, known in (("lr_scheduler_type", SCHEDULES), ("precision", PRECISIONS)):
            if text(name, value := getattr(self, name)) not in known:
                raise ArgumentError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
        if not isinstance(self.gradient_checkpointing, bool):
            raise ArgumentError(
                f"gradient_checkpointing must be True or False, got {self.gradient_checkpointing!r}"
            )
        if self.batch_size % self.gradient_accumulation_steps:
            raise ArgumentError(
                f"batch_size must be a multiple of gradient_accumulation_steps, got {self.batch_size} "
                f"in {self.gradient_accumulation_steps} parts"
            )

    @property
    def monitored_steps(self) -> tuple[int, ...]:
        """The steps after which the model is monitored, 0 (before the first update) and the last one among them."""
        if isinstance(self.monitor_steps, int):
            return tuple(sorted({*range(0, self.max_steps, self.monitor_steps), self.max_steps}))
        exponents = range(math.ceil(PER_DOUBLING * math.log2(self.max_steps)) + 1)
        grid = {round(2 ** (exponent / PER_DOUBLING)) for exponent in exponents}
        return tuple(sorted({0, self.max_steps} | {step for step in grid if step < self.max_steps}))

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
        checkpointing = None
        if self.gradient_checkpointing:
            # The form that torch recommends; the other one needs an input that wants a gradient.
            checkpointing = {"use_reentrant": False}
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=self.max_steps,
            learning_rate=self.learning_rate,
            lr_scheduler_type=self.lr_scheduler_type,
            warmup_steps=round(self.warmup_ratio * self.max_steps),
            weight_decay=self.weight_decay,
            adam_beta1=self.adam_beta1,
            adam_beta2=self.adam_beta2,
            # 0 is Trainer's word for no clipping.
            max_grad_norm=self.max_grad_norm or 0.0,
            label_smoothing_factor=self.label_smoothing_factor,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            bf16=self.precision == "bfloat16",
            use_cpu=not torch.accelerator.is_available(),
            activation_checkpointing=self.gradient_checkpointing,
            activation_checkpointing_kwargs=checkpointing,
            seed=self.seed,
            # The data come shuffled, in an order that a resumed run finds again without reading what came before.
            train_sampling_strategy="sequential",
            logging_steps=self.logging_steps,
            # A curve begins where training does, at the loss of the untrained model.
            logging_first_step=True,
            # The filter would show the last loss in place of NaN; the guard stops the run instead.
            logging_nan_inf_filter=False,
            # Trainer has no word for "the last step alone".
            save_steps=self.save_steps or self.max_steps,
            save_total_limit=self.save_total_limit,
            eval_strategy="steps" if evaluate else "no",
            eval_steps=self.eval_steps or self.max_steps,
            # Logits of a whole evaluation would be gathered in memory, and nobody reads them.
            prediction_loss_only=True,
            # Examples are pairs of a place and the example, of which Trainer knows no columns.
            remove_unused_columns=False,
            report_to=["tensorboard"] if tensorboard else [],
            # Trainer's bar writes a line for every log; a plain one is added to the callbacks.
            disable_tqdm=True,
        )
        devices = arguments.world_size * max(arguments.n_gpu, 1)
        if self.batch_size % (devices * self.gradient_accumulation_steps):
            raise ArgumentError(
                f"batch_size must be a multiple of devices × gradient_accumulation_steps, got {self.batch_size} "
                f"for {devices} × {self.gradient_accumulation_steps}"
            )
        per_device = self.batch_size // (devices * self.gradient_accumulation_steps)
        # Set afterwards, as the arguments alone know how many devices there are.
        arguments.per_device_train_batch_size = arguments.per_device_eval_batch_size = per_device
        return arguments

    def save(self, path: str | PathLike[str]) -> None:
        """Write the recipe as JSON, which carries its own seal.

        To change the file by hand, take the line `"sha256"` out of it.

        Raises:
            ArgumentError: it cannot be written there.
        """
        content = sealing.document(FORM, asdict(self), indent=2)
        files.write(path, content, error=ArgumentError, what="recipe")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Recipe:
        """Read a recipe that `save` wrote, or one that was written by hand and has no seal.

        Raises:
            ArgumentError: no recipe, one that is altered or of another version, or values that make none; names the
                file.
        """
        try:
            content = Path(path).read_bytes()
            body = sealing.strict(content)
            if isinstance(body, dict) and "sha256" in body:
                sealing.opened(content, FORM)
                del body["sha256"]
        except FileNotFoundError:
            raise ArgumentError(f"{path}: there is no such file") from None
        except OSError as error:
            raise ArgumentError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise ArgumentError(f"{path}: is no recipe that can be read: {error}") from error
        if not isinstance(body, dict) or body.pop("format", None) != FORM.format:
            raise ArgumentError(f"{path}: is no recipe of Regard")
        if (version := body.pop("version", None)) != FORM.version:
            raise ArgumentError(f"{path}: has format version {version!r}, this Regard reads {FORM.version}")
        names = [item.name for item in fields(cls)]
        for name in body:
            if name not in names:
                raise ArgumentError(f"{path}: no setting {name!r}; {close_to(name, names)}")
        if "max_steps" not in body:
            raise ArgumentError(f"{path}: max_steps must be there, got {', '.join(body) or 'nothing'}")
        try:
            return cls(**body)
        except ArgumentError as error:
            raise ArgumentError(f"{path}: {error}") from None


def _whole(name: str, value: Any, least: int, otherwise: str = "") -> None:
    # Python's True is an integer, and would be one step.
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{name} must be a whole number of at least {least}{otherwise}, got {value!r}")


def _float(value: Any) -> float:
    """The number, or NaN, which no range holds."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _number(name: str, value: Any, holds: bool, wanted: str) -> None:
    if not holds:
        raise ArgumentError(f"{name} must be a number, {wanted}, got {value!r}")
