"""What is wrong with which head, as a grid of colors: layers down, heads across, in the color of the worst finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.analysis.diagnosis import SEVERITIES, Diagnosis
from regard.checks.arguments import checked
from regard.draw import labels, style
from regard.draw.chart import Entry, legend
from regard.errors import RecordError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {"severe": "#B3261E", "warning": "#E69F00", "note": "#9CC3E0", "": "#E9EEEA"}
NAMES = {"severe": "severe", "warning": "warning", "note": "note", "": "nothing found"}
# Inches: a cell of few heads and of many, the axis below, the legend beside.
LARGEST, WIDEST, BELOW, BESIDE = 0.3, 9.0, 0.5, 1.5
# Cells up to which white lines part them.
RULED = 40


@checked
def findings(diagnosis: Diagnosis, *, title: str | None = None) -> Figure:
    """Draw the worst finding of every head.

    Args:
        diagnosis: what `regard.analysis.diagnose` gave.
        title: written above.

    Raises:
        RecordError: the diagnosis is of no head.
    """
    if not diagnosis.heads:
        raise RecordError("a diagnosis that is drawn must be of at least one head, and it has none")
    cells = _cells(diagnosis)
    rows, columns = cells.shape
    names = list(diagnosis.names.values())
    cell = min(LARGEST, WIDEST / columns)
    width, height = cell * columns, max(cell, 0.16) * rows
    left = style.MARGIN + max(style.measure(name, style.SMALL)[0] for name in names) / style.POINTS + 0.3
    figure, top = style.sheet(
        max(left + width + BESIDE, 4.2),
        max(height + BELOW, 0.2 * len(COLORS) + 0.2),
        title="What is wrong with each head" if title is None else title,
        note=_note(diagnosis),
    )
    axes = style.place(figure, left, top, width, height)
    axes.set_gid("findings")
    rgb = require("matplotlib.colors", extra="draw").to_rgb
    # White where a layer has fewer heads than another.
    shades = np.array([[rgb(COLORS.get(name, "white")) for name in row] for row in cells])
    axes.imshow(
        shades, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), aspect="auto", interpolation="nearest"
    )
    if max(rows, columns) <= RULED:
        axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color="white", linewidth=1.2)
        axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, color="white", linewidth=1.2)
    labels.put(axes, labels.of_positions(0, columns - 1, cell * style.POINTS), across=True)
    axes.set_yticks(range(rows), names, fontproperties=style.font(style.SMALL))
    style.level(figure, left + width / 2, top + height + 0.26, "head")
    entries = [Entry(NAMES[name], COLORS[name], "block") for name in (*SEVERITIES, "")]
    legend(axes, entries, width, height)
    return figure


def _cells(diagnosis: Diagnosis) -> np.ndarray:
    """`(layers, heads)`: the worst severity of each head, "" where nothing was found, "none" where there is no head."""
    most = max(layer.count for layer in diagnosis.layers)
    cells = np.full((len(diagnosis.layers), most), "none", object)
    rows = {(layer.layer, layer.kind): row for row, layer in enumerate(diagnosis.layers)}
    for layer in diagnosis.layers:
        cells[rows[layer.layer, layer.kind], : layer.count] = ""
    # Worst last, so that it is the color that stays.
    for finding in reversed(diagnosis.findings):
        row = rows.get((finding.layer, finding.kind))
        if row is not None:
            heads = range(diagnosis.layers[row].count)
            if finding.head is not None:
                heads = range(finding.head, finding.head + 1)
            cells[row, heads] = finding.severity
    return cells


def _note(diagnosis: Diagnosis) -> str:
    """What was found, rule by rule, and what is about no single head."""
    counts: dict[str, int] = {}
    for finding in diagnosis.findings:
        counts[finding.name] = counts.get(finding.name, 0) + 1
    words = [", ".join(f"{name} ({count})" for name, count in counts.items()) or "No rule found anything."]
    words += [finding.sentence for finding in diagnosis.findings if not finding.layer]
    words.append(f"{len(diagnosis.applied)} rules, {diagnosis.heads} heads, {diagnosis.texts} texts.")
    return "\n".join(words)
