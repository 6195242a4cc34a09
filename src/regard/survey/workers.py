"""Actors of Ray that do the stretches of a survey. Knows Ray Data; it does not know what a stretch is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from regard.errors import require


class Doing(Protocol):
    """What actors have a copy of: a reader with a model, and what it does with a stretch."""

    @property
    def reader(self) -> Any:
        """What has the model."""

    def do(self, stretch: Any) -> int:
        """Do a stretch; how many texts it has."""


class Actor:
    """One actor, which has the model in its memory."""

    def __init__(self, work: Doing, stretches: Sequence[Any], gpus: float) -> None:
        self.work, self.stretches = work, stretches
        if gpus:
            work.reader.model.to("cuda")

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """How many texts the stretches of these numbers have, once they are done."""
        return {"texts": np.array([self.work.do(self.stretches[number]) for number in rows["id"]])}


def counts(work: Doing, stretches: Sequence[Any], *, actors: int, cpus: float, gpus: float) -> Iterator[int]:
    """Let actors do all stretches; how many texts each has, as soon as it is done.

    Raises:
        MissingPackageError: Ray is not installed.
    """
    ray = require("ray", extra="ray")
    data = require("ray.data", extra="ray")
    if not ray.is_initialized():
        _start(ray)
    # Once into Ray's store, and not with each task.
    shared = ray.put(work), ray.put(stretches)
    # Numbers from here and not from tasks that read, which wait for a processor where the actors have them all.
    numbers = [{"id": number} for number in range(len(stretches))]
    rows = data.from_items(numbers, override_num_blocks=len(numbers))
    rows.context.enable_progress_bars = False
    # The ledger knows what is done; a second account of it could only differ.
    rows.context.checkpoint_config = None
    # Ray Data starts an actor that died again, as often as it takes, and lets it do its stretch again.
    done = rows.map_batches(
        _Shared,
        batch_size=1,
        compute=data.ActorPoolStrategy(size=actors),
        fn_constructor_args=(*shared, gpus),
        num_cpus=cpus,
        num_gpus=gpus,
    )
    for row in done.iter_rows():
        yield int(row["texts"])


def _start(ray: Any) -> None:
    """Join the cluster that the environment names, or start Ray on this machine alone."""
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False)
    else:
        ray.init(address="local", include_dashboard=False, log_to_driver=False)


class _Shared(Actor):
    """An actor that gets what it needs from Ray's store."""

    def __init__(self, work: Any, stretches: Any, gpus: float) -> None:
        ray = require("ray", extra="ray")
        super().__init__(ray.get(work), ray.get(stretches), gpus)
