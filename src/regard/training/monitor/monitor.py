"""The monitor: when a model that trains is looked at, what is kept of it, and what is done about alarms.

Knows steps, rules and writers; how a look is taken is in `batch.py` and `regard.watch.passes`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, distributed, nn

from regard.checks.arguments import check_fields, listed, module, shown, whole
from regard.errors import AlarmWarning, ArgumentError, TrainingError, WatchError
from regard.record.history import History
from regard.record.layers import short_names
from regard.record.table import ROLE
from regard.statistics.roles import ROLES
from regard.statistics.table import Choice, wanted
from regard.training.monitor import callbacks
from regard.training.monitor.batch import batch_record
from regard.training.monitor.numbers import NEEDED, Numbers
from regard.training.monitor.rules import RULES, Alarm, Rule
from regard.training.monitor.writers import Writer
from regard.watch.passes import training_passes

OF_BATCH = (
    "entropy",
    "effective_keys",
    "max_weight",
    "distance",
    "first",
    "self_mass",
    "previous",
    "local",
    "received",
)
"""What is kept of a fixed batch."""
OF_PASSES = ("entropy", "max_weight", "first", "sink", "received")
"""What is kept of the passes of the training itself: what is cheap, and what alarms are about."""
ACTIONS = ("record", "warn", "raise")


@dataclass(eq=False)
class Monitor:
    """Looks at every head of a model while it trains, and raises alarms.

        monitor = Monitor(every=50)
        for batch in batches:
            monitor.step(model)             # at the head of each step
            model(**batch).loss.backward()
            …
        monitor.close()

    Without `inputs`, it watches the forward passes of every so many steps of the training itself: all of one step where
    gradients are accumulated, and of all processes together under distributed data parallel, which costs one exchange
    for each look. With `inputs` it runs this fixed batch instead, in evaluation mode: there are maps too, and numbers
    are of the same text at every step. Either way the training is, bit for bit, what it would be without.

    Attributes:
        inputs: keyword arguments of the model's forward: one fixed batch, a few texts being enough. None: what the
            training itself runs.
        statistics: what to keep of each head: names, and choices such as `regard.statistics.local(2)`. None:
            `OF_BATCH`, or without inputs `OF_PASSES`. Besides, `entropy_fraction`, `largest_score` (of all queries) and
            `nonfinite` (the share of the queries with a number that is not finite) are always there.
        cells: maps of the fixed batch have at most so many cells a side; 0: no maps.
        pictures: at most so many of the looks of `train` have maps, spread evenly over them, the first and the last
            included. 32 cells, 16 pictures and 100 looks of 48 heads are 1.8 MB. In another loop, whose end nobody
            knows, maps are of look 0, 1, 2, 4, 8 …, so many at most.
        layers: which modules to look at, as for `watch`; None: all.
        every: steps from look to look. `train` has its own: `Recipe.monitor_steps`.
        rules: what raises an alarm.
        on_alarm: "record"; "warn", once for each rule; "raise" a `TrainingError`; or a function of the `Alarm`, called
            once for each. All alarms are in `alarms`, whatever is done. A head that breaks a rule look after look
            raises one alarm; another one only after a look at which it did not.
        writers: where numbers go, from the first process.
        history: what was seen so far. One of an earlier run can be put here, to go on with it.
        alarms: all that were raised.

    Raises:
        ArgumentError: a value out of its range, or inputs that are no keyword arguments.
    """

    inputs: Mapping[str, Any] | None = None
    statistics: tuple[str | Choice, ...] | None = None
    cells: int = 32
    pictures: int = 16
    layers: str | int | Iterable[str | int] | None = None
    every: int = 50
    rules: Iterable[Rule] = RULES
    on_alarm: str | Callable[[Alarm], Any] = "warn"
    writers: Iterable[Writer] = ()
    history: History = field(init=False, default_factory=History)
    alarms: list[Alarm] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.inputs is not None and not any(isinstance(x, Tensor) for x in self.inputs.values()):
            raise ArgumentError(
                "inputs must be the keyword arguments of the model, tensors among them, "
                f"got {type(self.inputs).__name__}"
            )
        if self.cells < 0:
            raise ArgumentError(f"cells must be at least 0, got {self.cells}")
        if self.pictures < 2:
            raise ArgumentError(f"pictures must be at least 2, the first and the last, got {self.pictures}")
        if self.every < 1:
            raise ArgumentError(f"every must be at least 1, got {self.every}")
        self.rules = tuple(listed("rules", self.rules, _rule))
        self.writers = tuple(listed("writers", self.writers, _writer))
        named = isinstance(self.on_alarm, str) and self.on_alarm in ACTIONS
        if not named and not callable(self.on_alarm):
            raise ArgumentError(
                f"on_alarm must be one of {', '.join(map(repr, ACTIONS))} or a function, got {shown(self.on_alarm)}"
            )
        if self.statistics is None:
            self.statistics = OF_PASSES
            if self.inputs is not None:
                self.statistics = OF_BATCH
        # First what was asked for, so that an error speaks of that.
        wanted(self.statistics)
        wanted(self.recorded)
        # What is hooked while a look is open; closing it leaves the model as it was.
        self._look = ExitStack()
        self._open: tuple[int, nn.Module, Numbers] | None = None
        self._steps = self._looks = 0
        self._active: set[tuple[str, str, str, int]] = set()
        self._warned: set[str] = set()

    @property
    def recorded(self) -> tuple[str | Choice, ...]:
        """The statistics, and what is needed to know which queries count, and for alarms."""
        chosen = self.statistics or ()
        # A choice such as first(4) must not meet the plain name, which means another one.
        names = {item if isinstance(item, str) else item.name for item in chosen}
        return (*chosen, *(name for name in NEEDED if name not in names))

    def step(self, model: nn.Module, step: int | None = None) -> None:
        """A training step begins: call this before its forward pass. What was watched in the step before is taken in.

        Args:
            model: that is trained, in `DistributedDataParallel` or not.
            step: how many updates it has seen; None: as many as `step` was called before.

        Raises:
            WatchError: an attention call that cannot be read exactly, or a compiled model (names the module and the way
                out); or nothing was run with gradients since a look began.
            TrainingError: an alarm, with `on_alarm="raise"`.
        """
        model = module("model", model)
        self.finish()
        if step is not None:
            self._steps = whole("step", step, 0)
        at, self._steps = self._steps, self._steps + 1
        if at % self.every == 0:
            # Nobody knows how many looks there will be: maps of 0, 1, 2, 4, 8 … are dense where most happens.
            doubling = self._looks & (self._looks - 1) == 0
            self.begin(model, at, picture=doubling and self._looks <= 2 ** (self.pictures - 2))

    def begin(self, model: nn.Module, step: int, *, picture: bool = True) -> None:
        """Begin a look now, whatever `every` is: the fixed batch is run, or the next passes are watched.

        Args:
            model: that is trained.
            step: how many updates it has seen.
            picture: whether the look has maps, where there is a fixed batch.

        Raises:
            WatchError: as for `step`.
            TrainingError: an alarm, with `on_alarm="raise"`.
        """
        self.finish()
        self._looks += 1
        inner = _unwrapped(model)
        if self.inputs is not None:
            self.take(self.look(inner, step, picture=picture))
            return
        numbers = Numbers()
        self._look.enter_context(
            training_passes(inner, numbers.add, statistics=self.recorded, layers=self.layers)
        )
        self._open = step, inner, numbers

    def finish(self) -> None:
        """End the look that is going on, if there is one, and take in what was seen.

        Raises:
            WatchError: no forward pass with gradients was seen.
            TrainingError: an alarm, with `on_alarm="raise"`.
        """
        if self._open is None:
            return
        step, model, numbers = self._open
        self.abandon()
        if not numbers.largest:
            raise WatchError(
                f"{type(model).__name__} must be run with gradients, and not through torch.compile, between two "
                f"steps of its monitor, and was not from step {step} to the next"
            )
        # Processes exchange tensors where the model is: NCCL takes none from the CPU.
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self.take(numbers.reduced(device).history(step, self._names))

    def abandon(self) -> None:
        """Forget the look that is going on, if there is one: the model is left as it was."""
        self._open = None
        self._look.close()

    def close(self) -> None:
        """End the look that is going on, and all writers."""
        try:
            self.finish()
        finally:
            # The other processes opened nothing.
            if _is_first():
                for writer in self.writers:
                    writer.close()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # What was going on has failed, and its look with it.
            self.abandon()
        self.close()

    def look(self, model: nn.Module, step: int = 0, *, picture: bool = True) -> History:
        """What the heads of a model do now with the fixed batch: a history of one step, which is not kept.

        Args:
            model: stays as it is, and so does the random state.
            step: how many updates it has seen.
            picture: whether to keep maps.

        Raises:
            WatchError: an attention call that cannot be read; names the module and the way out.
            ArgumentError: the monitor has no fixed batch.
        """
        if self.inputs is None:
            raise ArgumentError("inputs must be given for a look at a model that nobody runs, got None")
        record = batch_record(
            model, self.inputs, statistics=self.recorded, cells=self.cells, layers=self.layers
        )
        # Maps come from the record, and the numbers that alarms are about from the same sums as those of passes.
        numbers = Numbers()
        numbers.add(record)
        names = (*self._names, *(ROLE + name for name in ROLES))
        history, maps = numbers.history(step, names), History.of(step, record, picture=picture)
        return replace(
            maps, statistics=history.statistics, parameters=history.parameters, values=history.values
        )

    def pictured(self, steps: tuple[int, ...]) -> frozenset[int]:
        """Those of the steps that get maps."""
        if not self.cells or self.inputs is None:
            return frozenset()
        if len(steps) <= self.pictures:
            return frozenset(steps)
        last = len(steps) - 1
        return frozenset(steps[round(i * last / (self.pictures - 1))] for i in range(self.pictures))

    def trainer_callback(self) -> Any:
        """A `TrainerCallback` for `transformers.Trainer(callbacks=[…])`, which calls `step` and `close`.

        Raises:
            MissingPackageError: transformers is not installed.
        """
        return callbacks.trainer_callback(self)

    def lightning_callback(self) -> Any:
        """A `Callback` for `lightning.Trainer(callbacks=[…])`, which calls `step` and `close`.

        Raises:
            MissingPackageError: lightning is not installed.
        """
        return callbacks.lightning_callback(self)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(item if isinstance(item, str) else item.name for item in self.statistics or ())

    def take(self, seen: History) -> None:
        """Take in a look: keep it, ask the rules, write the numbers, and do what is done about alarms.

        Args:
            seen: a history of one step.

        Raises:
            TrainingError: an alarm, with `on_alarm="raise"`.
        """
        self.history = self.history.merge(seen)
        alarms = [alarm for rule in self.rules for alarm in rule.alarms(seen)]
        fresh = [alarm for alarm in alarms if _identity(alarm) not in self._active]
        # Only what is broken now: a head that recovers and breaks the rule again raises another alarm.
        self._active = {_identity(alarm) for alarm in alarms}
        self.alarms += fresh
        # The numbers first: an alarm may end the run.
        if _is_first():
            values = _scalars(seen, alarms)
            for writer in self.writers:
                writer.scalars(seen.steps[-1], values)
        # On every process, as all have the same alarms: a function that ends the run must end all of it.
        if callable(self.on_alarm):
            for alarm in fresh:
                self.on_alarm(alarm)
        elif fresh and self.on_alarm == "raise":
            raise TrainingError(_summary(fresh))
        elif self.on_alarm == "warn" and _is_first():
            self._warn(fresh)

    def _warn(self, alarms: list[Alarm]) -> None:
        """One warning for each rule, the first time that it is broken."""
        for name in {alarm.rule: None for alarm in alarms}:
            if name not in self._warned:
                self._warned.add(name)
                summary = _summary([alarm for alarm in alarms if alarm.rule == name])
                warnings.warn(f"{summary} (later ones are in monitor.alarms)", AlarmWarning, stacklevel=4)


def _rule(name: str, value: Any) -> Rule:
    if not isinstance(value, Rule):
        raise ArgumentError(f"{name} must be a Rule, got {shown(value)}")
    return value


def _writer(name: str, value: Any) -> Writer:
    if isinstance(value, type) or not isinstance(value, Writer):
        raise ArgumentError(f"{name} must have the methods scalars and close, got {shown(value)}")
    return value


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model inside what shares it among processes, whose layers have the names of one process alone."""
    while isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module
    return model


def _is_first() -> bool:
    """Whether this process is the only one, or the first of many."""
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def _identity(alarm: Alarm) -> tuple[str, str, str, int]:
    return alarm.rule, alarm.layer, alarm.kind, alarm.head


def _summary(alarms: list[Alarm]) -> str:
    """The first alarm, and how many there are besides."""
    if len(alarms) == 1:
        return alarms[0].sentence
    return f"{alarms[0].sentence}; {len(alarms) - 1} more at this step"


def _scalars(seen: History, alarms: list[Alarm]) -> dict[str, float]:
    """The numbers of a look by name, those that are not known left out, and how many heads break each rule."""
    names = short_names([layer.name for layer in seen.layers], [layer.kind for layer in seen.layers])
    scalars: dict[str, float] = {}
    for index, layer in enumerate(names):
        block = seen.values[-1, :, seen.heads_of(index)].tolist()
        for statistic, row in zip(seen.statistics, block, strict=True):
            for head, value in enumerate(row):
                # NaN is no number: a chart would break, and `nonfinite` says that there was one.
                if value == value:
                    scalars[f"regard {layer}/head {head}/{statistic}"] = value
    for alarm in alarms:
        name = f"regard alarms/{alarm.rule}"
        scalars[name] = scalars.get(name, 0.0) + 1.0
    return scalars
