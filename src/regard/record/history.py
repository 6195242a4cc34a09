"""The history of the heads of one model: their statistics, and small maps of them, at steps of its training.

Knows steps, heads and one file; it does not know training, nor how a model is looked at.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard import files
from regard.errors import ArgumentError, RecordError
from regard.files import sealing
from regard.record import notebook
from regard.record.call import Call
from regard.record.history_display import Shown, history_card
from regard.record.layers import matching, short_names
from regard.record.record import Record
from regard.record.table import Sums, added, frame, identity, means, names_of
from regard.record.table import sums as table_sums
from regard.statistics.observation import check_index, close_to

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT, VERSION = "regard-history", 2
SIZES = ("heads", "cell", "offset", "queries", "keys")
# The same at every step, or without a mean that means something.
UNKEPT = ("allowed", "argmax")


@dataclass(frozen=True)
class Layer:
    """Which heads one part of a history is about.

    Attributes:
        name: the module's qualified name. kind: "self" or "cross".
        heads: how many.
        cell: tokens a side of each cell of its maps, 0 without maps.
        offset: position of the first query. queries, keys: how many.
    """

    name: str
    kind: str
    heads: int
    cell: int
    offset: int
    queries: int
    keys: int


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """A frozen value: what each head did on the same batch, at one step of training after another.

    Histories of one model follow each other by `merge`, whose identity is `History()`.

    Attributes:
        layers: the layers in order. The heads of all of them, one after the other, are the axis `heads` below.
        statistics: names of the statistics.
        parameters: what the statistics were told, such as the radius of `local`.
        steps: the steps looked at, rising; 0 is before the first update.
        values: `(steps, statistics, heads)`, float32: means over all queries of the batch that may attend something.
        pictured: those of the steps that have maps.
        maps: for each layer `(pictured, heads, grid_q, grid_k)`, float16: the mean weight in each cell.
    """

    layers: tuple[Layer, ...] = ()
    statistics: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    steps: tuple[int, ...] = ()
    values: Tensor = field(default_factory=lambda: torch.empty(0, 0, 0))
    pictured: tuple[int, ...] = ()
    maps: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, step: int, record: Record, *, picture: bool = False) -> History:
        """What a record shows of the model after `step` updates.

        Where one layer was called several times, its values are means over all calls, and its map is the first's.
        `picture` keeps the maps, if the record has them.
        """
        firsts: dict[tuple[str, str], Call] = {}
        sums: dict[tuple[str, str], Sums] = {}
        for call in record:
            key = call.layer, call.kind
            firsts.setdefault(key, call)
            sums[key] = added(sums.get(key, {}), table_sums(call))
        there = set().union(*sums.values())
        names = [name for name in names_of(sums.values()) if name in there and name not in UNKEPT]
        heads = {key: call.sizes.heads for key, call in firsts.items()}
        columns = [means(sums[key], names, heads[key]) for key in sums]
        values = [np.concatenate([column[name] for column in columns] or [np.empty(0)]) for name in names]
        mapped = [call for call in firsts.values() if call.map is not None]
        pictured: tuple[int, ...] = ()
        if picture and mapped:
            pictured = (step,)
        return cls(
            layers=tuple(_layer(*key, heads[key], firsts[key]) for key in sums),
            statistics=tuple(names),
            parameters={name: value for call in firsts.values() for name, value in call.parameters.items()},
            steps=(step,),
            values=torch.from_numpy(np.array(values)).float().reshape(1, len(names), sum(heads.values())),
            pictured=pictured,
            maps=tuple(_mean_map(call)[: len(pictured)] for call in mapped),
        )

    def merge(self, later: History) -> History:
        """This history and what came after it.

        Raises:
            RecordError: another model, other statistics, or steps that do not come later.
        """
        # The identity has no layers to agree in.
        if not self.steps:
            return later
        if not later.steps:
            return self
        for name in ("layers", "statistics", "parameters"):
            mine, other = getattr(self, name), getattr(later, name)
            if mine != other:
                raise RecordError(
                    f"histories that merge must agree in {name}, got {_short(mine)} and {_short(other)}"
                )
        if later.steps[0] <= self.steps[-1]:
            raise RecordError(
                f"the history that is merged must come later than step {self.steps[-1]}, got step {later.steps[0]}"
            )
        return replace(
            self,
            steps=self.steps + later.steps,
            values=torch.cat((self.values, later.values)),
            pictured=self.pictured + later.pictured,
            maps=tuple(torch.cat(pair) for pair in zip(self.maps, later.maps, strict=True)),
        )

    def __repr__(self) -> str:
        span = "no step"
        if self.steps:
            span = f"steps {self.steps[0]} to {self.steps[-1]}"
        heads = sum(layer.heads for layer in self.layers)
        return f"History of {heads} heads in {len(self.layers)} layers: {len(self.steps)} looks, {span}"

    def _repr_html_(self) -> str:
        names = short_names([layer.name for layer in self.layers], [layer.kind for layer in self.layers])
        heads = [layer.heads for layer in self.layers]
        return history_card(Shown(names, heads, self.steps, len(self.pictured), self.statistics, self.values))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return notebook.bundle(self)

    def _display_(self) -> object:
        return notebook.display(self._repr_html_(), self)

    def of_statistic(self, name: str) -> Tensor:
        """One statistic: `(steps, heads)`.

        Raises:
            RecordError: it was not kept.
        """
        if name not in self.statistics:
            raise RecordError(f"{name!r} was not kept; {close_to(name, self.statistics)}")
        return self.values[:, self.statistics.index(name)]

    def place(self, layer: int | str) -> int:
        """The place of a layer in `layers`, by number or by name (a part of it between dots will do).

        Raises:
            ArgumentError: there is no such layer, or there are several.
        """
        names = [part.name for part in self.layers]
        if not isinstance(layer, str):
            check_index("layer", layer, len(names))
            return layer % len(names)
        # Both kinds of a layer bear its name: only a number tells self-attention from cross-attention.
        indices = matching(layer, names)
        if len(indices) != 1:
            raise ArgumentError(
                f"layer must be a number or the name of one layer, got {layer!r}; {close_to(layer, names)}"
            )
        return indices[0]

    def heads_of(self, index: int) -> slice:
        """Where the heads of a layer are on the axis `heads`."""
        start = sum(layer.heads for layer in self.layers[:index])
        return slice(start, start + self.layers[index].heads)

    @property
    def table(self) -> DataFrame:
        """One row per step, layer and head. Columns: `layer`, `kind`, `head`, `step`, and the statistics.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        values = self.values.double().numpy()
        parts = []
        for row, step in enumerate(self.steps):
            for index, layer in enumerate(self.layers):
                columns = values[row, :, self.heads_of(index)]
                which = identity(layer.name, layer.kind, layer.heads, step=step)
                parts.append(which | dict(zip(self.statistics, columns, strict=True)))
        return frame(parts, identity("", "", 0, step=0) | {name: np.empty(0) for name in self.statistics})

    def save(self, path: str | PathLike[str]) -> None:
        """Write one sealed safetensors file, whole or not at all.

        Raises:
            RecordError: it cannot be written there.
            MissingPackageError: safetensors is not installed.
        """
        body = {"format": FORMAT, "version": VERSION, "steps": self.steps, "pictured": self.pictured}
        body |= {"statistics": self.statistics, "parameters": self.parameters}
        body |= {"layers": [asdict(layer) for layer in self.layers]}
        tensors = {"values": self.values} | {f"maps.{i}": maps for i, maps in enumerate(self.maps)}
        # NaN is a value in the tensors; JSON has none, and a reader elsewhere would stumble over it.
        content = sealing.packed(tensors, {"history": json.dumps(body, allow_nan=False)})
        files.write(path, content, error=RecordError, what="history")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> History:
        """Read a history that `save` wrote.

        Raises:
            RecordError: no history, or one that is damaged, altered or too new; names the file.
            MissingPackageError: safetensors is not installed.
        """
        try:
            sealing.plain_size(Path(path))
            tensors, metadata = sealing.unpacked(Path(path).read_bytes())
            body = sealing.strict(metadata.get("history", "null").encode())
        except FileNotFoundError:
            raise RecordError(f"{path}: there is no such file") from None
        except OSError as error:
            raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise RecordError(f"{path}: {error}") from error
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise RecordError(f"{path}: is no history of Regard")
        if (version := body.get("version")) != VERSION:
            raise RecordError(
                f"{path}: has format version {version!r}, this Regard reads {VERSION}: update it"
            )
        try:
            history = cls(
                layers=tuple(Layer(**layer) for layer in body["layers"]),
                statistics=tuple(body["statistics"]),
                parameters=body["parameters"],
                steps=tuple(body["steps"]),
                values=tensors.pop("values"),
                pictured=tuple(body["pictured"]),
                # By number: a name that is missing, or one too many, is a KeyError.
                maps=tuple(tensors.pop(f"maps.{i}") for i in range(len(tensors))),
            )
            return history._checked()
        # Whatever a damaged file makes of fields that this version expects.
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"{path}: is damaged: {error}") from None

    def _checked(self) -> History:
        """This history, once its parts are what they must be and fit together."""
        texts = (*self.statistics, *(text for layer in self.layers for text in (layer.name, layer.kind)))
        if not all(type(text) is str for text in texts):
            raise ValueError("its statistics, and its layers' names and kinds, must be strings")
        sizes = [getattr(layer, name) for layer in self.layers for name in SIZES]
        if not all(type(number) is int for number in (*self.steps, *self.pictured, *sizes)):
            raise ValueError("its steps, and its layers' sizes, must be integers")
        if not all(type(value) in (int, float, bool) for value in self.parameters.values()):
            raise ValueError("its parameters must be numbers")
        if self.values.dtype != torch.float32 or any(maps.dtype != torch.float16 for maps in self.maps):
            raise ValueError("its values must be float32 and its maps float16")
        heads = [layer.heads for layer in self.layers]
        shape = (len(self.steps), len(self.statistics), sum(heads))
        if tuple(self.values.shape) != shape or list(self.steps) != sorted(set(self.steps)):
            raise ValueError(f"values must be {shape}, its steps rising, got {tuple(self.values.shape)}")
        if len(self.maps) not in (0, len(heads)) or not set(self.pictured) <= set(self.steps):
            raise ValueError(
                f"maps must be of {len(heads)} layers and of steps that there are, got {len(self.maps)}"
            )
        # `strict=False`: a history without pictures has no maps.
        for count, maps in zip(heads, self.maps, strict=False):
            if maps.ndim != 4 or tuple(maps.shape[:2]) != (len(self.pictured), count):
                raise ValueError(f"a map must be ({len(self.pictured)}, {count}, …), got {tuple(maps.shape)}")
        return self


def _layer(name: str, kind: str, heads: int, call: Call) -> Layer:
    cell = 0
    if call.map is not None:
        cell = call.map.cell
    return Layer(name, kind, heads, cell, call.offset, call.sizes.queries, call.sizes.keys)


def _mean_map(call: Call) -> Tensor:
    """`(1, heads, grid_q, grid_k)`, float16: the mean over all queries of the batch."""
    assert call.map is not None
    rows = call.map.rows.sum(0).clamp(min=1).unsqueeze(-1)
    return (call.map.total.sum(0) / (rows * call.map.widths)).half().cpu().unsqueeze(0)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value)[:120]
    return str([getattr(item, "name", item) for item in value])[:120]
