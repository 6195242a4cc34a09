"""One look at a model with a fixed batch, without a trace in the run.

Knows how to look without disturbing; what is looked at, and when, is the monitor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from regard.record import Record
from regard.statistics.table import Choice
from regard.watch import watch
from regard.watch.undisturbed import undisturbed


def batch_record(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    statistics: tuple[str | Choice, ...],
    cells: int,
    layers: str | int | Iterable[str | int] | None,
) -> Record:
    """What the heads of a model do with a batch, in evaluation mode; model and random state stay as they are.

    Raises:
        WatchError: an attention call that cannot be read; names the module and the way out.
    """
    with undisturbed(model) as device:
        # The batch was put together before Trainer moved the model.
        moved = {name: x.to(device) if isinstance(x, Tensor) else x for name, x in inputs.items()}
        # `None` and not 0: a map of no cells would be an error.
        with watch(model, layers=layers, statistics=statistics, map=cells or None) as record:
            model(**moved)
    return record
