"""The processes that `accelerate launch` started: which one this is, and how it waits for the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from regard.errors import require

# What a launch says to each of its processes.
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# A process whose texts are short may wait for another one's.
PATIENCE = timedelta(days=30)


@dataclass(frozen=True)
class Processes:
    """This process among all.

    Attributes:
        index: its number, 0 for the main one. count: how many there are.
        wait: comes back when all of them are there.
    """

    index: int = 0
    count: int = 1
    wait: Callable[[], None] = lambda: None

    @classmethod
    def here(cls, *, cpu: bool) -> Processes:
        """Those of a launch, if this process is one of several; else this one alone.

        Args:
            cpu: whether the model is on the CPU, so that they talk by gloo.

        Raises:
            MissingPackageError: a launch of several processes, and accelerate is not installed.
        """
        world = os.environ.get("WORLD_SIZE", "1")
        if world == "1" or not all(name in os.environ for name in LAUNCHED):
            return cls()
        state = require("accelerate", extra="survey").PartialState(cpu=cpu, timeout=PATIENCE)
        return cls(state.process_index, state.num_processes, state.wait_for_everyone)
