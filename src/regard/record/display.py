"""What a record shows in a notebook: layers × heads as colored cells, a block of them for each of a few statistics.

Knows calls and their means; nothing of how they were caught. Of bounded size, however many the layers and heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard import html
from regard.record.call import Call
from regard.record.layers import short_names
from regard.statistics.display import UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A card is of bounded size: calls in its table, of these the last ones where there are more, and heads.
LAYERS, LAST, HEADS = 32, 8, 32
BLOCKS = 3  # statistics side by side …
CELLS = 48  # … of so many cells in a line together, so that many heads leave room for fewer
UNSEEN = 5  # modules that are named


def record_card(
    calls: Sequence[Call], tokens: int, info: Mapping[str, Any], unseen: Mapping[str, str]
) -> str:
    """A record for a notebook.

    Args:
        calls: the attention calls.
        tokens: how many tokens the first row of the batch has, 0 where they were not given.
        info: of it the name of the model.
        unseen: modules that could not be read, and why.
    """
    facts = [counted(len(calls), "call")]
    if calls:
        first = calls[0].sizes
        facts += [
            f"batch {html.number(first.batch)}",
            f"queries {html.number(first.queries)}",
            f"keys {html.number(first.keys)}",
        ]
    if tokens:
        facts.append(counted(tokens, "token"))
    parts = [html.heading("Record", str(info.get("model", "")), facts)]
    if calls:
        parts.append(_table(calls))
    if unseen:
        parts.append(html.note(f"Not seen: {counted(len(unseen), 'module')}"))
        parts += [html.note(f"{layer}: {why}") for layer, why in list(unseen.items())[:UNSEEN]]
    return html.card(*parts)


def _table(calls: Sequence[Call]) -> str:
    """A line per call; side by side, a block of heads for each statistic."""
    most = max(call.sizes.heads for call in calls)
    heads = min(most, HEADS)
    shown = shown_lines(len(calls))
    blocks = _means([calls[index] for index in shown], heads)
    tops = {name: float(values[np.isfinite(values)].max(initial=0)) for name, values in blocks.items()}
    names = short_names([call.layer for call in calls], [call.kind for call in calls])
    gap = '<td class="gap"></td>'
    titles, numbers = ["<th></th>"], ["<th>head</th>"]
    for name, top in tops.items():
        titles.append(
            f'<th colspan="{heads}">{html.text(name)}&emsp;{html.legend(top, UNITS[name])}</th>{gap}'
        )
        numbers.append("".join(f'<th class="n">{head}</th>' for head in range(heads)) + gap)
    lines = []
    for line, index in enumerate(shown):
        row = []
        for name, values in blocks.items():
            which = [f"head {head}, {name}" for head in range(heads)]
            row.append(html.cells(values[line], tops[name], which) + gap)
        lines.append((names[index], f"record[{index}]: {calls[index].layer}", "".join(row)))
    words = ["Means over all queries that attend something."]
    if not blocks:
        words = ["No statistic of rows was kept."]
    if most > HEADS:
        words.append(f"The first {HEADS} of {html.number(most)} heads.")
    if len(calls) > LAYERS:
        words.append(f"The first {LAYERS - LAST} and the last {LAST} of {html.number(len(calls))} calls.")
    return html.table(["".join(titles), "".join(numbers)], lines) + html.note(" ".join(words))


def shown_lines(calls: int) -> list[int]:
    """Which of so many calls or layers have a line."""
    if calls <= LAYERS:
        return list(range(calls))
    return [*range(LAYERS - LAST), *range(calls - LAST, calls)]


def _means(calls: Sequence[Call], heads: int) -> dict[str, NDArray[np.float64]]:
    """Statistic → means `(calls, heads)`, NaN where a call has none; as many statistics as fit beside each other."""
    blocks: dict[str, NDArray[np.float64]] = {}
    # Stops at the first ones that fit: a mean at 131 072 tokens reads every row.
    for name in UNITS:
        if len(blocks) == BLOCKS or (len(blocks) + 1) * heads > max(CELLS, heads):
            break
        means = [call.head_means(name) for call in calls]
        if all(mean is None for mean in means):
            continue
        values = np.full((len(calls), heads), np.nan)
        for line, mean in zip(values, means, strict=True):
            if mean is not None:
                line[: len(mean)] = mean[:heads].numpy()
        blocks[name] = values
    return blocks


def counted(number: int, word: str) -> str:
    """A number with its word: "1 head", "2 heads"."""
    if number == 1:
        return f"1 {word}"
    return f"{html.number(number)} {word}s"
