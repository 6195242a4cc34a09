"""The history of a training, for a viewer: what was looked at and when, numbers of all heads, maps at a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from regard.errors import ArgumentError
from regard.record.history import History
from regard.record.layers import short_names
from regard.statistics.observation import close_to
from regard.web.describe import DIVERGING, StatisticDescription, number
from regard.web.words import words

# Of queries that have a place among the keys: queries of cross-attention have none.
OF_PLACES = ("distance", "self_mass", "previous", "local")


@dataclass(frozen=True, eq=False)
class Training:
    """A history and what else is known of the training.

    Attributes:
        title: what was trained. history: of its heads.
        losses: step → training loss; empty where it is not known.
        code: lines of Python after which `history` is this one.
    """

    title: str
    history: History
    losses: Mapping[int, float] = field(default_factory=dict)
    code: str = ""


@dataclass
class HistoryLayer:
    """One layer of the model.

    Attributes:
        first: the place of its first head among all heads.
        cell: tokens a side of each cell of its maps; 0 without maps.
        without: statistics that mean nothing in it.
        tops: the largest cell of each head at any step, so that its colors mean the same at all of them.
    """

    layer: str
    name: str
    kind: str
    heads: int
    first: int
    cell: int
    offset: int
    queries: int
    keys: int
    without: list[str]
    tops: list[float]


@dataclass
class HistoryDescription:
    """One history.

    Attributes:
        steps: of the training at which heads were looked at. pictured: those that have maps.
        statistics: by name, in the order of the values.
        losses: pairs of a step and the training loss.
        code: Python that reads it.
    """

    title: str
    steps: list[int]
    pictured: list[int]
    statistics: dict[str, StatisticDescription]
    layers: list[HistoryLayer]
    losses: list[tuple[int, float]]
    code: str


def describe_history(training: Training) -> HistoryDescription:
    """The description of a history.

    Example:
        >>> from regard.record import History
        >>> describe_history(Training("nothing yet", History())).steps
        []
    """
    history = training.history
    names = short_names([layer.name for layer in history.layers], [layer.kind for layer in history.layers])
    described = words(history.statistics, history.parameters)
    statistics = {
        name: StatisticDescription(**described[name], diverging=name in DIVERGING)
        for name in history.statistics
    }
    # A loss of NaN or infinity is nothing for JSON, and has no point on a curve.
    losses = [(step, loss) for step, loss in sorted(training.losses.items()) if number(loss) is not None]
    return HistoryDescription(
        title=training.title,
        steps=list(history.steps),
        pictured=list(history.pictured),
        statistics=statistics,
        layers=[_layer(history, index, name) for index, name in enumerate(names)],
        losses=losses,
        code=training.code,
    )


def values_of(history: History) -> dict[str, Tensor]:
    """`values`, float32 `(steps, statistics, heads)`: means over the queries of all texts, NaN where none counted."""
    return {"values": history.values}


def maps_of(history: History, step: int) -> dict[str, Tensor]:
    """The maps of all heads at a step.

    Args:
        history: that has maps.
        step: one of `history.pictured`.

    Returns:
        for each layer's number its mean weights, float16 `(heads, rows, columns)`.

    Raises:
        ArgumentError: the history has no maps of this step.
    """
    _check_pictured(history, step)
    # Maps are counted along the steps that have some.
    index = history.pictured.index(step)
    return {str(layer): maps[index] for layer, maps in enumerate(history.maps)}


def history_code(training: Training, statistic: str, step: int | None = None) -> str:
    """Python that gives the numbers of a history: `values` of a statistic, and the `maps` of a step.

    Args:
        training: whose code reads the history.
        statistic: one of `history.statistics`.
        step: one of `history.pictured`; None: without maps.

    Raises:
        ArgumentError: the history has no such statistic, or no maps of this step.
    """
    history = training.history
    if statistic not in history.statistics:
        known = close_to(statistic, history.statistics)
        raise ArgumentError(f"the statistic must be one of the history, got {statistic!r}; {known}")
    lines = [
        training.code or f"history = ...  # the history that was shown as {training.title!r}",
        "",
        "# (steps, heads)",
        "steps = history.steps",
        f"values = history.of_statistic({statistic!r})",
    ]
    if step is not None:
        _check_pictured(history, step)
        lines += [
            "",
            "# Of each layer the mean weights of its heads, (heads, rows, columns).",
            f"maps = [layer[history.pictured.index({step})] for layer in history.maps]",
        ]
    return "\n".join(lines) + "\n"


def _check_pictured(history: History, step: int) -> None:
    if step not in history.pictured:
        known = close_to(str(step), [str(one) for one in history.pictured])
        raise ArgumentError(f"the step must be one that has maps, got {step}; {known}")


def _layer(history: History, index: int, name: str) -> HistoryLayer:
    layer = history.layers[index]
    # Older histories have numbers there all the same.
    without: list[str] = []
    if layer.kind == "cross":
        without = [statistic for statistic in history.statistics if statistic in OF_PLACES]
    # Of all steps, as colors that change their meaning would hide what training changed.
    tops: list[float] = []
    if history.maps and history.pictured:
        # What is not finite in a damaged map must not become the top of a scale.
        tops = history.maps[index].float().nan_to_num(0.0, 0.0, 0.0).amax((0, 2, 3)).tolist()
    return HistoryLayer(
        layer=layer.name,
        name=name,
        kind=layer.kind,
        heads=layer.heads,
        first=history.heads_of(index).start,
        cell=layer.cell,
        offset=layer.offset,
        queries=layer.queries,
        keys=layer.keys,
        without=without,
        tops=tops,
    )
