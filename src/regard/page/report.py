"""`report`: header, words, data and scripts of one record, in one page.

Knows how numbers are told in words; it does not know how they are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.checks.arguments import checked
from regard.errors import ArgumentError, RecordError
from regard.html import text
from regard.page import embed
from regard.page.encode import DECADES, F16_ERROR, LOG8_ERROR, packed
from regard.page.frame import count, fill, page, pairs, program
from regard.page.held import Held, hold
from regard.record import Record
from regard.record.picture import PICTURE
from regard.web.describe import CallDescription, Description
from regard.web.next_tokens import NextTokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@checked
def report(
    record: Record,
    *,
    title: str | None = None,
    rows: int = 8,
    figures: Sequence[tuple[str, Figure]] = (),
    next_tokens: NextTokens | None = None,
) -> str:
    """One self-contained HTML page: it loads nothing, opens from disk and stays a few megabytes at any length.

    It is the explorer with its answers inside: all heads as small maps, one head large with its text and the curves
    along it, heads side by side, the table of heads; and what each number means, settings and versions. Texts of up to
    256 tokens are shown weight by weight where the record knows them, longer ones as maps with larger cells.

    Args:
        record: what `watch` gave.
        title: the page's heading; the model's name when None.
        rows: how many rows of a batch to carry at most.
        figures: captions with what `regard.draw` or matplotlib drew: a finding, to be seen at a glance. They stand
            above everything else, as SVG, or as PNG where that would be large.
        next_tokens: what the model says comes next after each token of the first row, as
            `regard.web.next_tokens.next_tokens` gives it; None: the page says nothing of it.

    Raises:
        ArgumentError: `rows` is less than 1, or `figures` are no such pairs, or `next_tokens` nothing of the kind.
        RecordError: the record holds no attention call.
        MissingPackageError: scipy is not installed, or the front end was not built.
    """
    if rows < 1:
        raise ArgumentError(f"rows must be at least 1, got {rows}")
    calls = list(record.calls)
    if not calls:
        raise RecordError("a report needs at least one attention call, and this record holds none")
    front_end = program()
    # Calls of one record may have different batches; the page shows what all of them have.
    rows = min(rows, *(call.sizes.batch for call in calls))
    heading = title or str(record.info.get("model") or "Attention")
    held = hold(record, rows, heading, next_tokens)
    description = held.descriptions[0]
    parts = {
        "title": text(heading),
        "lede": _lede(description),
        "facts": pairs(_facts(record, description, rows)),
        "figures": embed.figures(figures),
        "glossary": _glossary(description),
        "precision": "".join(f"<li>{text(line)}</li>" for line in _precision(held)),
        "settings": pairs(_settings(record)),
        "held": packed(held.content),
    }
    return page(heading, fill("report", parts), styles=("page", "report"), program=front_end)


def _lede(description: Description) -> str:
    calls = description.calls
    heads, tokens = sum(call.heads for call in calls), ""
    if len({call.section for call in calls}) == 1:
        tokens = f" for {count(max(call.keys for call in calls), 'token')}"
    return (
        f"For every token of a text, an attention head decides how much to look at each of the others. "
        f"This page shows what {count(heads, 'head')} decided{tokens}. "
        f"<b>Choose a head, then a token.</b>"
    )


def _facts(record: Record, description: Description, rows: int) -> list[tuple[str, str]]:
    sections = dict.fromkeys(call.section for call in description.calls)
    facts = [
        (name, _extent([call for call in description.calls if call.section == name])) for name in sections
    ]
    batch = max(call.sizes.batch for call in record)
    if batch > 1:
        shown = ""
        if rows < batch:
            shown = f", the first {rows} shown"
        facts.append(("Batch", f"{count(batch, 'sequence')}{shown}"))
    if record.info.get("text"):
        facts.append(("Text", " ".join(str(record.info["text"]).split())[:160]))
    if record.info.get("date"):
        facts.append(("Date", str(record.info["date"])[:16].replace("T", " ")))
    return facts + _left_out(record)


def _left_out(record: Record) -> list[tuple[str, str]]:
    """What counts nowhere, what could not be seen, and which statistics are missing, with the reasons."""
    facts = []
    places = sorted({call.padding for call in record.calls if call.padding})
    if places:
        most = max(int(call.padded.sum()) for call in record.calls if call.padded is not None)
        facts.append(("Padding", f"{count(most, 'query', 'queries')} left out, by {', '.join(places)}"))
    if record.unseen:
        facts.append(("Not seen", "; ".join(f"{layer}: {reason}" for layer, reason in record.unseen.items())))
    changed = [call.layer for call in record.calls if not call.normalized]
    if changed:
        facts.append(("Weights that do not add up to 1", ", ".join(changed)))
    unplaced = [call.layer for call in record.calls if not call.placed]
    if unplaced:
        reason = "no distance, previous, self or local: where the queries stand among the keys is not known"
        facts.append(("Without positions", f"{', '.join(unplaced)} ({reason})"))
    return facts


def _extent(calls: list[CallDescription]) -> str:
    """How many layers, heads and tokens: "12 layers × 12 heads, 30 tokens"."""
    heads = {call.heads for call in calls}
    if len(heads) == 1:
        shape = f" × {count(heads.pop(), 'head')}"
    else:
        shape = f", {count(sum(call.heads for call in calls), 'head')}"
    queries, keys = max((call.queries, call.keys) for call in calls)
    if queries == keys:
        size = count(keys, "token")
    else:
        size = f"{count(queries, 'query', 'queries')} × {count(keys, 'key')}"
    return f"{count(len(calls), 'layer')}{shape}, {size}"


def _settings(record: Record) -> list[tuple[str, str]]:
    settings: dict[str, Any] = {}
    for name, value in record.info.items():
        # Pixels are no setting.
        if name == PICTURE:
            continue
        settings |= value if isinstance(value, dict) else {name: value}
    settings["engine"] = ", ".join(sorted({call.engine for call in record.calls if call.engine})) or None
    settings["weights seen through"] = ", ".join(sorted({call.seen for call in record.calls}))
    settings.pop("text", None)  # stands in the header
    spoken = {None: "default", True: "yes", False: "no"}
    return [
        (name.replace("_", " "), spoken[value] if value is None or isinstance(value, bool) else str(value))
        for name, value in settings.items()
    ]


def _glossary(description: Description) -> str:
    lines = []
    for word in description.statistics.values():
        lines.append(
            f"<div><dt>{text(word.title)}</dt><dd>{text(word.meaning)} "
            f"<span>{text(word.formula)} · {text(word.unit)}</span></dd></div>"
        )
    return "".join(lines)


def _precision(held: Held) -> list[str]:
    """What is rounded on this page, and how far."""
    single = {picture["mean"]["code"] for picture in held.pictures if picture["cell"] == 1}
    cells = sorted({picture["cell"] for picture in held.pictures if picture["cell"] > 1})
    half = f"within {100 * F16_ERROR:.2f} % of the record's, or 3·10⁻⁸ below 6·10⁻⁵ (float16)"
    levels = (
        f"kept with 256 levels, even in the logarithm over {DECADES} decades: within {100 * LOG8_ERROR:.1f} % of the "
        f"record's, and 0 where they are less than a millionth of the head's largest"
    )
    lines = ["Means and roles of heads are the record's own numbers."]
    if "f16" in single:
        lines.append(f"Weights are {half}.")
    if "log8" in single:
        lines.append(f"Weights are {levels}.")
    if cells:
        sizes = " and ".join(f"{cell} × {cell}" for cell in cells)
        lines.append(
            f"Maps hold the mean and the largest weight of {sizes} tokens; both are {levels}. Single weights of these "
            f"heads are not on this page: regard explore shows them, where the record has the vectors."
        )
    if not held.pictures:
        lines.append("The record holds no map, so the page has no pictures.")
    lines.append(_of_series(held, half, levels))
    if held.numbers.flawed:
        lines.append("Some numbers of the record are NaN or infinite; in the pictures they stand as 0.")
    lines.append(
        "Heads, layers and positions are counted from 0. Logarithms are natural: entropy is in nats."
    )
    return lines


def _of_series(held: Held, half: str, levels: str) -> str:
    """How exact the numbers along the text are."""
    names = [held.descriptions[0].statistics[name].title for name in held.coarse]
    line = f"Numbers along the text are {half}."
    if names:
        line = f"Numbers along the text are {half}; {' and '.join(names)} are {levels}."
    if held.step > 1:
        line += f" Each of them is a mean over {held.step} tokens."
    return line
