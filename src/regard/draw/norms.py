"""Weights against what they move: shares of the mass beside shares of value-weighted norms, by head and by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.analysis.flow import CallNorms, Norms
from regard.checks.arguments import checked
from regard.draw import colors, inputs, style
from regard.draw.chart import Entry, beside, chart, legend, plain
from regard.draw.lines import LONGEST, line
from regard.draw.output_norms import bars
from regard.record.layers import short_names
from regard.statistics.observation import check_index

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: a side of the square, and what stands left of and below it.
SIDE, LEFT, BELOW = 3.6, 0.66, 0.52
# Layers up to which each has a line in the legend; of more, so many of them.
MOST_LAYERS = 14


@checked
def norms(result: Norms, *, key: int = 0, title: str | None = None) -> Figure:
    """Draw how much of its weight each head gives to one key against how much of what it moves comes from there.

    A dot per head, colored by layer. On the line both are alike; below it, large weights meet short vectors, as those
    of a sink do.

    Args:
        result: as `regard.analysis.flow.norms` gives it.
        key: which key; 0, the first one, is where sinks usually are.
        title: written above.

    Raises:
        ArgumentError: a call has no such key.
    """
    table = result.table(key)
    names = short_names([call.layer for call in result.calls], [call.kind for call in result.calls])
    shades = colors.graded(len(names))
    entries = [Entry(name, shade, "block") for name, shade in zip(names, shades, strict=True)]
    step = -(-len(entries) // MOST_LAYERS)
    entries = entries[::step]
    if title is None:
        title = f"Key {key}: weight and what it moves"
    note = "One dot per head. Below the line, large weights meet short values."
    if not result.projected:
        note += " Where no output projection is known, norms are those of the values."
    left = style.MARGIN + LEFT
    figure, top = style.sheet(left + SIDE + beside(entries), SIDE + BELOW, title=title, note=note)
    axes = style.place(figure, left, top, SIDE, SIDE)
    axes.set_gid("norms")
    plain(axes)
    axes.xaxis.grid(True, color=style.RULE, linewidth=0.6, linestyle="-")
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1.1, linestyle=(0, (4, 2)))
    calls = table["call"].to_numpy()
    for call, shade in zip(result.calls, shades, strict=True):
        rows = table[calls == call.index]
        # Dots at the ends are drawn whole: many heads lie on 0 or 1.
        look: dict[str, Any] = {"color": shade, "markeredgewidth": 0, "markersize": 5.0, "alpha": 0.8}
        axes.plot(rows["first_mass"], rows["first_norm"], "o", clip_on=False, zorder=3, **look)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    places = [0.0, 0.25, 0.5, 0.75, 1.0]
    names = [f"{tick:.0%}" for tick in places]
    look = {"fontproperties": style.font(style.SMALL)}
    axes.set_xticks(places, names, **look)
    # The 0 of both axes would stand in one corner.
    axes.set_yticks(places, ["", *names[1:]], **look)
    style.level(figure, left + SIDE / 2, top + SIDE + 0.26, "share of the weights")
    style.upright(figure, style.MARGIN + 0.05, top + SIDE / 2, "share of the norms ‖w · f(v)‖")
    legend(axes, entries, SIDE, SIDE)
    return figure


@checked
def norm_shares(
    call: CallNorms,
    head: int,
    *,
    batch: int = 0,
    tokens: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the share of its weights that each key receives from one head beside its share of their norms.

    Args:
        call: one of `Norms.calls`.
        head: which head.
        batch: which row of the batch.
        tokens: one label per key.
        title: written above.

    Raises:
        ArgumentError: there is no such head or row.
        ShapeError: labels that do not fit the keys.
    """
    check_index("head", head, call.mass.shape[1])
    check_index("batch", batch, call.mass.shape[0])
    tables = {"of the weights": call.mass_shares, "of the norms": call.norm_shares}
    series = {name: inputs.numbers("shares", shares[batch, head], "keys") for name, shares in tables.items()}
    count = call.mass.shape[2]
    words = None
    if tokens is not None:
        words = inputs.token_list("tokens", tokens, count, "keys")
    if title is None:
        title = f"{call.layer}, head {head % call.mass.shape[1]}: what each key gets and gives"
    shades = style.PALETTE[: len(series)]
    entries = [Entry(name, color, "block") for name, color in zip(series, shades, strict=True)]
    figure, axes = chart(count, words, names=("key", "share"), entries=entries, title=title)
    for index, (values, color) in enumerate(zip(series.values(), shades, strict=True)):
        if count > LONGEST:
            line(axes, 0, values, color, 1.2)
        else:
            bars(axes, values, index, len(series), color)
    axes.set_ylim(0, (max(float(values.max()) for values in series.values()) or 1.0) * 1.08)
    return figure
