"""Where the numbers of a monitor go: TensorBoard, Weights & Biases, MLflow, a Parquet file.

Knows each client's own way to take a number; it does not know attention. Clients are opened with the first number, so
that of many processes the one that writes opens one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard import files
from regard.errors import ArgumentError, RecordError, require

# What MLflow takes in no name.
NOT_PLAIN = r"[^\w\-. /]"


@runtime_checkable
class Writer(Protocol):
    """What takes numbers: two methods, for a destination of one's own."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Take in the numbers of one step, each with its name."""

    def close(self) -> None:
        """Write what is not written yet; no number comes after."""


class TensorBoardWriter:
    """Event files for TensorBoard.

    Args:
        folder: where they go; `tensorboard --logdir` takes it.

    Raises:
        MissingPackageError: tensorboard is not installed.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        require("tensorboard", extra="monitor")
        self.folder = _path("folder", folder)

    @cached_property
    def _events(self) -> Any:
        # Torch's module says no more than that something is missing, so tensorboard is asked for first.
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.folder))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Take in the numbers of one step."""
        for name, value in values.items():
            self._events.add_scalar(name, value, step)
        # A training may be killed at any time.
        self._events.flush()

    def close(self) -> None:
        """End the event file."""
        if "_events" in vars(self):
            self._events.close()


class WandbWriter:
    """A run of Weights & Biases: the one that is going on, else one of its own.

    The step is a number among the others, `regard_step`, and the axis of all charts: the run's own counter rises with
    each call of whoever else logs to it.

    Args:
        settings: keywords of `wandb.init`, such as `project`, `dir`, or `mode="offline"`.

    Raises:
        MissingPackageError: wandb is not installed.
    """

    def __init__(self, **settings: Any) -> None:
        self._wandb: Any = require("wandb", extra="monitor")
        self.settings, self._own = settings, False

    @cached_property
    def _run(self) -> Any:
        # The run that is going on is the user's: it is written to, and not ended.
        run = self._wandb.run
        if run is None:
            run, self._own = self._wandb.init(**self.settings), True
        run.define_metric("regard_step", hidden=True)
        run.define_metric("regard *", step_metric="regard_step")
        return run

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Take in the numbers of one step."""
        self._run.log({**values, "regard_step": step})

    def close(self) -> None:
        """End the run, unless it is somebody else's."""
        if "_run" in vars(self) and self._own:
            self._run.finish()


class MLflowWriter:
    """Metrics of a run of MLflow.

    Args:
        uri: of the tracking server, or a folder; None: as MLflow is set up.
        experiment: its name, made where there is none.
        run_id: a run to write to, which stays open; None: a run of its own.

    Raises:
        MissingPackageError: mlflow is not installed; `mlflow-skinny` is enough.
    """

    def __init__(
        self, uri: str | PathLike[str] | None = None, experiment: str = "regard", run_id: str | None = None
    ) -> None:
        self._mlflow: Any = require("mlflow", extra="monitor")
        self.uri, self.experiment, self.run_id, self._own = uri, experiment, run_id, run_id is None

    @cached_property
    def _client(self) -> Any:
        uri = self.uri
        # MLflow takes a plain path for one relative to its own folder, and a URI for what it says.
        if isinstance(uri, PathLike):
            uri = Path(uri).absolute().as_uri()
        client = self._mlflow.MlflowClient(tracking_uri=uri)
        if self.run_id is None:
            known = client.get_experiment_by_name(self.experiment)
            if known is None:
                number = client.create_experiment(self.experiment)
            else:
                number = known.experiment_id
            self.run_id = client.create_run(number).info.run_id
        return client

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Take in the numbers of one step."""
        client, now = self._client, int(1000 * time.time())
        entities = require("mlflow.entities", extra="monitor")
        metrics = [
            entities.Metric(re.sub(NOT_PLAIN, "-", name), value, now, step) for name, value in values.items()
        ]
        # MLflow takes a thousand in one call.
        for start in range(0, len(metrics), 1000):
            client.log_batch(self.run_id, metrics[start : start + 1000])

    def close(self) -> None:
        """End the run, unless it is somebody else's."""
        if "_client" in vars(self) and self._own:
            self._client.set_terminated(self.run_id)


class ParquetWriter:
    """One Parquet file with the columns `step`, `name` and `value`, whole after every look.

    Args:
        path: where it goes.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._arrow: Any = require("pyarrow", extra="monitor")
        self.path, self._tables = _path("path", path), list[Any]()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Take in the numbers of one step, and write the file anew.

        Raises:
            RecordError: it cannot be written there.
        """
        arrow, parquet = self._arrow, require("pyarrow.parquet", extra="monitor")
        columns = {
            "step": arrow.array([step] * len(values), arrow.int64()),
            "name": arrow.array(list(values), arrow.string()).dictionary_encode(),
            "value": arrow.array(list(values.values()), arrow.float64()),
        }
        # Names as numbers into a dictionary: they are the same at every step.
        self._tables.append(arrow.table(columns))
        whole = arrow.concat_tables(self._tables).unify_dictionaries()
        # Anew, as a Parquet file can be read only once its end is there, and a training may be killed.
        with files.replacing(self.path, error=RecordError, what="numbers") as unfinished:
            parquet.write_table(whole, unfinished)

    def close(self) -> None:
        """Nothing is left to write."""
        self._tables.clear()


def _path(name: str, path: object) -> Path:
    if not isinstance(path, str | PathLike):
        raise ArgumentError(f"{name} must be a path, got {type(path).__name__}")
    return Path(path)
