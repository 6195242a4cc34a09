"""Activation strength: how long the output vector of each token is, as bars side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.checks.arguments import checked
from regard.draw import inputs, style
from regard.draw.chart import Entry, chart
from regard.draw.inputs import Array
from regard.draw.lines import LONGEST, line
from regard.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@checked
def strength(
    outputs: Mapping[str, Array], tokens: Sequence[str] | None = None, *, title: str | None = None
) -> Figure:
    """Draw the L2 norm of each token's output, one bar per token and kind of attention.

    More than 1200 tokens are drawn as lines: the mean of neighbors, and their range.

    Args:
        outputs: name, such as "single head", to output `(tokens, dim)`; the widths may differ, the tokens may
            not.
        tokens: one label per token.
        title: written above.

    Raises:
        ShapeError: an output has other axes or another number of tokens; labels do not fit.
        ArgumentError: there is no output, or one that is not finite.
    """
    if not isinstance(outputs, Mapping) or not 1 <= len(outputs) <= len(style.PALETTE):
        if isinstance(outputs, Mapping):
            got = len(outputs)
        else:
            got = type(outputs).__name__
        raise ArgumentError(f"outputs must be a dict of 1 to {len(style.PALETTE)} named outputs, got {got}")
    norms = {name: _norm(name, output) for name, output in outputs.items()}
    counts = {name: len(norm) for name, norm in norms.items()}
    if len(set(counts.values())) > 1:
        raise ShapeError(f"outputs must have the same number of tokens, got {counts}")
    count, series = next(iter(counts.values())), len(norms)
    words = None
    if tokens is not None:
        words = inputs.token_list("tokens", tokens, count, "tokens")
    entries = [
        Entry(f"{name} · mean {norm.mean():.2f}", color, "block")
        for (name, norm), color in zip(norms.items(), style.PALETTE, strict=False)
    ]
    figure, axes = chart(
        count,
        words,
        names=("token", "L2 norm of the output"),
        entries=entries,
        title=title or "",
        pitch=max(0.6, 0.27 * series + 0.1),
    )
    for index, (norm, color) in enumerate(zip(norms.values(), style.PALETTE, strict=False)):
        if count > LONGEST:
            line(axes, 0, norm, color, 1.2)
        else:
            bars(axes, norm, index, series, color)
    axes.set_ylim(0, (max(float(norm.max()) for norm in norms.values()) or 1.0) * 1.08)
    return figure


def bars(axes: Axes, norm: inputs.Numbers, index: int, series: int, color: str) -> None:
    """The bars of one of several series, with their values where these fit."""
    width = 0.8 / series
    places = np.arange(len(norm)) + (index - (series - 1) / 2) * width
    axes.bar(places, norm, width * (0.92 if len(norm) <= 60 else 1.0), color=color, linewidth=0)
    left, right = axes.get_xlim()
    room = width / (right - left) * axes.bbox.width / style.DPI * style.POINTS
    values = [f"{value:.2f}" for value in norm]
    if max(style.measure(value, style.TINY)[0] for value in values) <= room:
        look = {"color": style.MUTED, "ha": "center", "va": "bottom"}
        for x, height, value in zip(places, norm, values, strict=True):
            style.write(axes, x, height, value, style.TINY, **look)


def _norm(name: str, output: Array) -> inputs.Numbers:
    """L2 norm of each token's output, in double precision."""
    values = inputs.numbers(f"output {name!r}", output, "tokens", "dim")
    return np.linalg.norm(values.astype(np.float64), axis=1)
