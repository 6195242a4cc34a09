"""Tables of a profile that have a row for each bin: histograms of statistics, and where mass goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import ArgumentError, RecordError
from regard.record import bins
from regard.record.exact import floats
from regard.record.layer_sums import Layer
from regard.record.table import frame
from regard.statistics.observation import close_to

if TYPE_CHECKING:
    from pandas import DataFrame

Layers = dict[tuple[str, str], Layer]
# Which statistics have a histogram, and in which bins.
HISTOGRAMS = {"entropy_fraction": bins.fraction_edges, "distance": bins.power_edges}
# What mass is told by, and how the pieces of layers call it.
MASSES = {"position": "received", "distance": "by_offset"}


def counts_of(layers: Layers, statistic: str) -> dict[tuple[str, str], Tensor]:
    """`(heads, bins)`, int64, of each layer that has this histogram.

    Raises:
        ArgumentError: no statistic with a histogram. RecordError: no layer has it.
    """
    if statistic not in HISTOGRAMS:
        raise ArgumentError(
            f"statistic must be one that has a histogram, got {statistic!r}; {close_to(statistic, HISTOGRAMS)}"
        )
    return _pieces(layers, statistic)


def masses_of(layers: Layers, by: str) -> dict[tuple[str, str], Tensor]:
    """`(heads, bins)` by position, `(heads, 2, bins)` by distance, float64, of each layer that has this mass.

    Raises:
        ArgumentError: it is told by something else. RecordError: no layer has it.
    """
    if by not in MASSES:
        raise ArgumentError(f"by must be one of {', '.join(map(repr, MASSES))}, got {by!r}")
    return {key: floats(digits) for key, digits in _pieces(layers, MASSES[by]).items()}


def histogram(layers: Layers, statistic: str) -> DataFrame:
    """See `Profile.histogram`."""
    edges = HISTOGRAMS.get(statistic, bins.fraction_edges)()
    counts = counts_of(layers, statistic)
    return _table({key: {"": count.double()} for key, count in counts.items()}, edges, "queries")


def mass(layers: Layers, by: str) -> DataFrame:
    """See `Profile.mass`."""
    masses = masses_of(layers, by)
    if by == "distance":
        sides = {key: {"before": mass[:, 0], "after": mass[:, 1]} for key, mass in masses.items()}
        return _table(sides, bins.power_edges(), "mass")
    keys = {key: layers[key].pieces["keys"] for key in masses}
    return _table({key: {"": mass} for key, mass in masses.items()}, bins.power_edges(), "mass", keys)


def _pieces(layers: Layers, name: str) -> dict[tuple[str, str], Tensor]:
    pieces = {key: layer.pieces[name] for key, layer in layers.items() if name in layer.pieces}
    if not pieces:
        raise RecordError(f"{name!r} must have been kept by some layer of the profile, and none has it")
    return pieces


def _table(
    tables: dict[tuple[str, str], dict[str, Tensor]],
    edges: list[float],
    column: str,
    keys: dict[tuple[str, str], Tensor] | None = None,
) -> DataFrame:
    """Rows of bins, up to the last one that any head uses; by side, where there are sides."""
    # NaN counts as mass: a bin whose value is unknown must not be cut off.
    used = torch.stack([v.nan_to_num(1.0).sum(0) != 0 for sides in tables.values() for v in sides.values()])
    most = int(used.any(0).int().mul(torch.arange(1, used.shape[1] + 1)).max())
    lows, highs = np.array(edges[:most]), np.array(edges[1 : most + 1])
    parts = []
    for (name, kind), sides in tables.items():
        whole = torch.stack(list(sides.values())).sum((0, 2))
        for head in range(len(whole)):
            for side, values in sides.items():
                part: dict[str, np.ndarray[Any, Any]] = {
                    "layer": np.full(most, name, object),
                    "kind": np.full(most, kind, object),
                    "head": np.full(most, head),
                }
                if side:
                    part["side"] = np.full(most, side, object)
                part |= {"low": lows, "high": highs, column: values[head, :most].numpy()}
                # A head without any mass has shares of 0.
                part["share"] = part[column] / (float(whole[head]) or 1.0)
                if keys is not None:
                    part["keys"] = keys[name, kind][:most].numpy()
                parts.append(part)
    return frame(parts, parts[0])
