"""What remedies do: for each illness a panel, for each remedy a row, a dot for each run. Knows no models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.checks.arguments import checked, listed, number, shown, text
from regard.draw import style
from regard.draw.chart import plain
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: width of a panel, height of a row, above a panel for its name, below it for its numbers.
WIDTH, ROW, ABOVE, BELOW = 5.0, 0.27, 0.34, 0.3
WITHOUT, BETTER, WORSE = style.FAINT, style.PALETTE[2], style.PALETTE[1]


@checked
def remedies(
    outcomes: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    without: str = "none",
    name: str = "loss",
    title: str | None = None,
) -> Figure:
    """Draw what remedies do about illnesses: a dot for each run, a bar from the mean without a remedy to that with it.

    Panels have scales of their own, as losses of several tasks cannot be compared. A remedy is green where its mean is
    lower than without, orange where it is higher, gray where it is the same.

    Args:
        outcomes: illness → remedy → a number for each run, lower being better; and those without a remedy.
        without: what these are called.
        name: of the numbers, below the figure.
        title: written above.

    Raises:
        ArgumentError: no illness, one without a remedy or without runs that had none, a number that is not finite.
    """
    panels = {
        text("an illness", illness): _runs(illness, runs, without) for illness, runs in outcomes.items()
    }
    if not panels:
        raise ArgumentError("outcomes must have at least one illness, got none")
    widest = max(style.measure(remedy, style.BODY)[0] for runs in panels.values() for remedy in runs)
    left = style.MARGIN + widest / style.POINTS + 0.2
    height = sum(ABOVE + ROW * len(runs) + BELOW for runs in panels.values()) + 0.25
    note = f"Dots: runs; a dashed line: the mean of {without!r}. Green: a lower mean with the remedy, orange: a higher."
    figure, top = style.sheet(left + WIDTH + style.MARGIN + 0.1, height, title=title or "", note=note)
    for illness, runs in panels.items():
        style.write_at(figure, left, top + ABOVE - 0.1, illness, bold=True, va="bottom")
        axes: Any = style.place(figure, left, top + ABOVE, WIDTH, ROW * len(runs))
        axes.set_gid("panel")
        plain(axes)
        axes.yaxis.grid(False)
        axes.set_ylim(len(runs) - 0.5, -0.5)
        _rows(axes, runs, without)
        axes.set_yticks(range(len(runs)), list(runs), fontproperties=style.font(style.BODY))
        for label in axes.get_xticklabels():
            label.set_fontproperties(style.font(style.SMALL))
        top += ABOVE + ROW * len(runs) + BELOW
    style.level(figure, left + WIDTH / 2, top, name)
    return figure


def _runs(illness: str, runs: Mapping[str, Sequence[float]], without: str) -> dict[str, np.ndarray]:
    """The numbers of each remedy, those without one first."""
    if not isinstance(runs, Mapping):
        raise ArgumentError(f"{illness} must have a mapping from remedies to numbers, got {shown(runs)}")
    if without not in runs or len(runs) < 2:
        raise ArgumentError(f"{illness} must have the runs {without!r} and a remedy, got {shown(list(runs))}")
    numbers = {
        text("a remedy", remedy): np.array(listed(f"numbers of {remedy}", values, number))
        for remedy, values in runs.items()
    }
    empty = next((remedy for remedy, values in numbers.items() if not len(values)), None)
    if empty is not None:
        raise ArgumentError(f"{empty} must have at least one run, got none")
    return {without: numbers[without]} | numbers


def _rows(axes: Any, runs: Mapping[str, np.ndarray], without: str) -> None:
    """The rows of a panel, from 0 to a little more than the largest number."""
    values = np.concatenate(list(runs.values()))
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    margin = 0.04 * ((high - low) or 1.0)
    axes.set_xlim(low - margin, high + margin)
    before = float(runs[without].mean())
    axes.axvline(before, color=style.MUTED, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    for row, numbers in enumerate(runs.values()):
        mean, color = float(numbers.mean()), WITHOUT
        if mean < before:
            color = BETTER
        elif mean > before:
            color = WORSE
        axes.plot([before, mean], [row, row], color=color, linewidth=2.2, alpha=0.5, solid_capstyle="butt")
        look = {"linestyle": "", "marker": "o", "markersize": 5.0, "markeredgewidth": 0, "clip_on": False}
        axes.plot(numbers, np.full(len(numbers), row), color=color, **look)
