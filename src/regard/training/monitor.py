"""Looking at a model while it trains: the same batch at every look, without a trace in the run.

Knows how to look without disturbing, and when; what was seen is a `History`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.checks.arguments import check_fields
from regard.errors import ArgumentError
from regard.record.history import History
from regard.statistics.table import Choice, wanted
from regard.watch import watch
from regard.watch.undisturbed import undisturbed

STATISTICS = (
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
FILE = "history.safetensors"


@dataclass(frozen=True, eq=False)
class Monitor:
    """What to look at while a model trains.

    Attributes:
        inputs: keyword arguments of the model's forward: one fixed batch, a few texts being enough.
        statistics: what to keep of each head: names, and choices such as `regard.statistics.local(2)`.
        cells: maps have at most so many cells a side; 0: no maps.
        pictures: at most so many of the looks have maps, spread evenly over them, the first and the last included.
            32 cells, 16 pictures and 100 looks of 48 heads are 1.8 MB.
        layers: which modules to look at, as for `watch`; None: all.

    Raises:
        ArgumentError: a value out of its range, or inputs that are no keyword arguments.
    """

    inputs: Mapping[str, Any]
    statistics: tuple[str | Choice, ...] = STATISTICS
    cells: int = 32
    pictures: int = 16
    layers: str | int | Iterable[str | int] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.inputs, Mapping) or not any(
            isinstance(x, Tensor) for x in self.inputs.values()
        ):
            raise ArgumentError(
                "inputs must be the keyword arguments of the model, tensors among them, "
                f"got {type(self.inputs).__name__}"
            )
        if self.cells < 0:
            raise ArgumentError(f"cells must be at least 0, got {self.cells}")
        if self.pictures < 2:
            raise ArgumentError(f"pictures must be at least 2, the first and the last, got {self.pictures}")
        wanted(self.recorded)

    @property
    def recorded(self) -> tuple[str | Choice, ...]:
        """The statistics, and what tells which queries count."""
        return (*self.statistics, "allowed")

    def look(self, model: nn.Module, step: int = 0, *, picture: bool = True) -> History:
        """What the heads of a model do now: a history of one step. The model and the random state stay as they are.

        Raises:
            WatchError: an attention call that cannot be read; names the module and the way out.
        """
        with undisturbed(model) as device:
            # The batch was made before Trainer moved the model.
            inputs = {name: x.to(device) if isinstance(x, Tensor) else x for name, x in self.inputs.items()}
            with watch(model, layers=self.layers, statistics=self.recorded, map=self.cells or None) as record:
                model(**inputs)
        return History.of(step, record, picture=picture)

    def pictured(self, steps: tuple[int, ...]) -> frozenset[int]:
        """Those of the steps that get maps."""
        if not self.cells:
            return frozenset()
        if len(steps) <= self.pictures:
            return frozenset(steps)
        last = len(steps) - 1
        return frozenset(steps[round(i * last / (self.pictures - 1))] for i in range(self.pictures))


class MonitorCallback:
    """Listens to a run and looks when it is time; keeps the history with the checkpoints.

    Attributes:
        history: what was seen so far.
    """

    def __init__(self, monitor: Monitor, steps: tuple[int, ...], history: History) -> None:
        self.monitor, self.steps, self.history = monitor, frozenset(steps), history
        self.pictured = monitor.pictured(steps)

    def on_train_begin(self, state: Any, model: nn.Module) -> None:
        """Look before the first update; a run that goes on has done so."""
        if not self.history.steps:
            self._look(state.global_step, model)

    def on_step_end(self, state: Any, model: nn.Module) -> None:
        """Look if it is time."""
        if state.global_step in self.steps:
            self._look(state.global_step, model)

    def on_train_end(self, state: Any, model: nn.Module) -> None:
        """Look at the end, wherever it is."""
        # A run may be stopped by a callback before its last planned look.
        if state.global_step > self.history.steps[-1]:
            self._look(state.global_step, model)

    def save(self, folder: Path) -> None:
        """Write the history into a folder."""
        self.history.save(folder / FILE)

    def _look(self, step: int, model: nn.Module) -> None:
        self.history = self.history.merge(self.monitor.look(model, step, picture=step in self.pictured))
