"""`train`: a model, a recipe and data become a trained model, its curves and the history of its heads.

Knows the order of things; the loop is Trainer's, and what it lacks is in the modules beside this one.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import distributed, nn

from regard import files
from regard.errors import ArgumentError, TrainingError, require
from regard.files import sealing
from regard.record.history import History
from regard.training import checkpoints
from regard.training.guard import Guard
from regard.training.monitor import FILE, Monitor, MonitorCallback
from regard.training.order import InOrder, Shuffled, seeded
from regard.training.recipe import Recipe
from regard.training.trainer import bar, callback, counted, guarded

RECIPE, STATE, SECONDS = "recipe.json", "trainer_state.json", "seconds.json"
CURVES = ("loss", "eval_loss", "learning_rate", "grad_norm")  # as Trainer calls them


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Run:
    """What came of a training.

    Attributes:
        recipe: how it was done.
        folder: where its checkpoints are.
        resumed: the step that it went on from, 0 for a new run.
        losses: step → training loss, the mean over the steps since the entry before (since the step that it went on
            from, for the first entry after).
        evaluations: step → loss on the data for evaluation, the mean over batches, each by its number of examples.
            Several devices fill their last batch up with the first examples.
        rates: step → learning rate of that update. norms: step → L2 norm of all gradients before clipping.
        history: what each head did from step 0 on; None without a monitor.
        seconds: that the training took, those before it was resumed among them. What a killed run had done since its
            last checkpoint is done again, and counts once.
    """

    recipe: Recipe
    folder: Path
    resumed: int
    losses: dict[int, float]
    evaluations: dict[int, float]
    rates: dict[int, float]
    norms: dict[int, float]
    history: History | None
    seconds: float

    def __repr__(self) -> str:
        last = f"loss {list(self.losses.values())[-1]:.4f}" if self.losses else "no loss logged"
        held = f", evaluation {list(self.evaluations.values())[-1]:.4f}" if self.evaluations else ""
        return f"Run of {self.recipe.max_steps} steps: {last}{held}, {self.seconds:.1f} s"


def train(
    model: nn.Module,
    recipe: Recipe,
    data: Any,
    *,
    folder: str | PathLike[str],
    evaluation: Any = None,
    collate: Callable[[list[Any]], dict[str, Any]] | None = None,
    monitor: Monitor | None = None,
    resume: str | PathLike[str] = "auto",
    tensorboard: bool = False,
    progress: bool = True,
) -> Run:
    """Train a model in place.

    The same call resumes a run that was killed: bit for bit on the CPU, when as many processes go on as began.
    Started by `accelerate launch`, it runs on many devices; the batch of the recipe is shared among them.

    Every update sees a full batch: the data are gone through in one random order after another.

    Args:
        model: a module that takes the examples as keyword arguments and returns a loss, as all of transformers do
            that are given `labels`. It is left in evaluation mode, on the device that it was trained on.
        recipe: how.
        data: examples by number, each a dict of tensors: a `torch.utils.data.Dataset` or a list.
        folder: where recipe, checkpoints and history go.
        evaluation: examples that are not trained on.
        collate: makes a batch of a list of examples; None: tensors are stacked. It may draw from torch's random
            numbers, to mask tokens for instance: they follow from the recipe's seed and the place in the run.
        monitor: what to look at while the model trains. Given to a run that goes on and had none, its history begins
            there.
        resume: "auto", from the latest whole checkpoint of the folder, if there is one; "never"; or a checkpoint.
        tensorboard: write curves for TensorBoard into `folder/runs`.
        progress: show a progress bar.

    Raises:
        TrainingError: a loss, gradient or activation that is not finite (names the step and the tensor), a damaged
            checkpoint (names the file), a folder that holds another run, or that another process trains into.
        ArgumentError: values that do not fit together.
        MissingPackageError: transformers or accelerate is not installed.
    """
    started, folder = time.perf_counter(), Path(folder)
    _check(recipe, data, evaluation)
    checkpoint = _begun(folder, recipe, resume)
    resumed = 0 if checkpoint is None else _step(checkpoint)
    if checkpoint is not None:
        # As though it had begun that much earlier, so that checkpoints to come hold the sum.
        started -= _seconds(checkpoint)
    guard = Guard()
    listeners: list[object] = [guard]
    monitor_callback: MonitorCallback | None = None
    if monitor is not None:
        history = History()
        if checkpoint and (checkpoint / FILE).exists():
            # The checkpoint's, not the folder's: looks that came after it will be made again.
            history = History.load(checkpoint / FILE)
        monitor_callback = MonitorCallback(monitor, recipe.monitored_steps, history)
        listeners.append(monitor_callback)

    def complete(unfinished: Path) -> None:
        if monitor_callback is not None:
            monitor_callback.save(unfinished)
        seconds = json.dumps(time.perf_counter() - started)
        files.write(unfinished / SECONDS, seconds, error=TrainingError, what="seconds")

    listeners.append(checkpoints.Sealer(folder, complete))
    arguments = recipe.arguments(folder, evaluate=evaluation is not None, tensorboard=tensorboard)
    collate = collate or require("transformers", extra="train").default_data_collator
    with _as_before(model, recipe), counted(model), ExitStack() as stack:
        if monitor is not None:
            # A run that fails may leave a look open.
            stack.callback(monitor.abandon)
        trainer = guarded(guard)(
            model=model,
            args=arguments,
            train_dataset=Shuffled(data, recipe.max_steps * recipe.batch_size, recipe.seed),
            eval_dataset=None if evaluation is None else InOrder(evaluation),
            data_collator=seeded(collate, recipe.seed),
            callbacks=[callback(listener) for listener in listeners],
        )
        # It prints every log as a dict; the plain bar shows the loss instead.
        trainer.remove_callback(require("transformers", extra="train").PrinterCallback)
        if progress:
            trainer.add_callback(bar())
        # Once, however many runs there are, and last, as functions run in the opposite order.
        atexit.unregister(_end_group)
        atexit.register(_end_group)
        first = trainer.is_world_process_zero()
        # Of the processes of one run the first alone takes the lock, or they would shut each other out.
        with checkpoints.alone(folder) if first else nullcontext():
            if first:
                # Before the first step, so that a run which dies leaves what it must go on with.
                recipe.save(folder / RECIPE)
            _run(trainer, checkpoint, done=resumed >= recipe.max_steps)
    if monitor_callback and trainer.is_world_process_zero():
        monitor_callback.save(folder)
    # Saved with each checkpoint, so the steps before a resumed run are among them.
    logs = trainer.state.log_history
    losses, evaluations, rates, norms = (
        {entry["step"]: entry[name] for entry in logs if name in entry} for name in CURVES
    )
    return Run(
        recipe=recipe,
        folder=folder,
        resumed=resumed,
        losses=losses,
        evaluations=evaluations,
        rates=rates,
        norms=norms,
        history=None if monitor_callback is None else monitor_callback.history,
        seconds=time.perf_counter() - started,
    )


def _check(recipe: Recipe, data: Any, evaluation: Any) -> None:
    for name, examples in (("data", data), ("evaluation", evaluation)):
        if not isinstance(examples, Sized) and (name == "data" or examples is not None):
            raise ArgumentError(f"{name} must have a length, got {type(examples).__name__}")
        if examples is not None and not len(examples):
            raise ArgumentError(f"{name} must have at least one example, got none")
    if recipe.eval_steps and evaluation is None:
        raise ArgumentError(
            f"evaluation must be given when eval_steps is set, got eval_steps={recipe.eval_steps}"
        )


def _begun(folder: Path, recipe: Recipe, resume: str | PathLike[str]) -> Path | None:
    """The checkpoint to go on from; None for a new run."""
    if resume not in ("auto", "never"):
        checkpoint = Path(resume)
        if not checkpoint.is_dir():
            raise TrainingError(
                f'resume must be "auto", "never" or the folder of a checkpoint, got {str(resume)!r}'
            )
        if reason := sealing.broken(checkpoint):
            raise TrainingError(reason)
        _check_same(checkpoint.parent / RECIPE, recipe)
        return checkpoint
    if not checkpoints.steps(folder):
        return None
    if resume == "never":
        raise TrainingError(
            f'{folder}: holds the checkpoints of a run: take another folder, or resume="auto"'
        )
    # Checked before a damaged checkpoint is: a folder of another run should say so first.
    _check_same(folder / RECIPE, recipe)
    return checkpoints.latest(folder)


def _check_same(path: Path, recipe: Recipe) -> None:
    """A run goes on with the recipe that it began with."""
    before, now = asdict(Recipe.load(path)), asdict(recipe)
    for name, value in before.items():
        if now[name] != value:
            raise TrainingError(
                f"{path}: the run must go on with {name}={value!r}, as it began, got {now[name]!r}: "
                f"take another folder for another run"
            )


def _end_group() -> None:
    """End the group of processes, if there is one, before the interpreter ends.

    A thread of the group that lets go of a Python object while the interpreter ends aborts the process, now and then.
    """
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _step(checkpoint: Path) -> int:
    return int(json.loads((checkpoint / STATE).read_bytes())["global_step"])


def _seconds(checkpoint: Path) -> float:
    """What the training had taken when it wrote this checkpoint."""
    return float(json.loads((checkpoint / SECONDS).read_bytes()))


def _run(trainer: Any, checkpoint: Path | None, *, done: bool) -> None:
    """Train, or where that is done already, load what came of it."""
    if checkpoint is None or not done:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return
    # `Trainer.train` would make one update more.
    trainer._load_from_checkpoint(str(checkpoint))
    trainer.state = type(trainer.state).load_from_json(str(checkpoint / STATE))


@contextmanager
def _as_before(model: nn.Module, recipe: Recipe) -> Iterator[None]:
    """On exit, what Trainer sets on a model is as it was, and the model is in evaluation mode."""
    config = getattr(model, "config", None)
    cache = getattr(config, "use_cache", None)
    forward = {"forward": vars(model)["forward"]} if "forward" in vars(model) else {}
    logging = require("transformers.utils.logging", extra="train")
    bars = logging.is_progress_bar_enabled()
    # transformers shows a bar whenever a checkpoint's weights are read or written.
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()
        # Trainer turns the cache off in the config, and a trained model would then generate without one.
        if config is not None and cache is not None:
            config.use_cache = cache
        if recipe.gradient_checkpointing:
            model.activation_checkpointing_disable()  # type: ignore[operator]
        # Mixed precision wraps `forward` on the instance, and would wrap it again in the next run.
        for name in ("forward", "_original_forward"):
            vars(model).pop(name, None)
        vars(model).update(forward)
        model.eval()
