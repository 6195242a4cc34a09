"""`report`: header, words, data and scripts of one record, in one page.

Knows how numbers are told in words; it does not know how they are packed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.checks.arguments import checked
from regard.errors import ArgumentError, RecordError
from regard.html import text
from regard.page import embed
from regard.page.describe import describe
from regard.page.encode import DECADES, F16_ERROR, LOG8_ERROR, Numbers
from regard.page.frame import count, fill, page, pairs
from regard.page.pictures import plan
from regard.record import Record
from regard.record.picture import PICTURE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCRIPTS = ("decode", "color", "tokens", "text", "grid", "large", "charts", "table", "report")


@checked
def report(
    record: Record, *, title: str | None = None, rows: int = 8, figures: Sequence[tuple[str, Figure]] = ()
) -> str:
    """One self-contained HTML page: it loads nothing, opens from disk and stays a few megabytes at any length.

    It holds the tokens, shaded by the weights of the token under the pointer; all heads as small maps; one head large;
    its entropy query by query; the table of heads; what each number means; settings and versions. Texts of up to 256
    tokens are shown weight by weight where the record knows them, longer ones as pooled maps.

    Args:
        record: what `watch` gave.
        title: the page's heading; the model's name when None.
        rows: how many rows of a batch to carry at most.
        figures: captions with what `regard.draw` or matplotlib drew: a finding, to be seen at a glance. They stand
            above everything else, as SVG, or as PNG where that would be large.

    Raises:
        ArgumentError: `rows` is less than 1, or `figures` are no such pairs.
        RecordError: the record holds no attention call.
    """
    if rows < 1:
        raise ArgumentError(f"rows must be at least 1, got {rows}")
    calls = list(record.calls)
    if not calls:
        raise RecordError("a report needs at least one attention call, and this record holds none")
    # Calls of one record may have different batches; the page shows what all of them have.
    rows = min(rows, *(call.sizes.batch for call in calls))
    numbers = Numbers()
    description = describe(record, plan(calls, rows), rows, numbers)
    heading = title or str(record.info.get("model") or "Attention")
    parts = {
        "title": text(heading),
        "lede": _lede(description),
        "facts": pairs(_facts(record, description)),
        "figures": embed.figures(figures),
        "glossary": _glossary(description),
        "precision": "".join(f"<li>{text(line)}</li>" for line in _precision(description, numbers)),
        "settings": pairs(_settings(record)),
        "description": _json(description),
        "numbers": numbers.text(),
    }
    return page(heading, fill("report", parts), styles=("page", "report"), scripts=_SCRIPTS)


def _json(value: Any) -> str:
    """JSON that no HTML parser can mistake for markup."""
    packed = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # `</script>` within a token would end the script; escaped, JSON reads the same.
    return packed.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _lede(description: dict[str, Any]) -> str:
    calls, heads = description["calls"], len(description["heads"])
    alone = len(description["sections"]) == 1
    tokens = ""
    if alone:
        tokens = f" for {count(max(call['keys'] for call in calls), 'token')}"
    return (
        f"For every token of a text, an attention head decides how much to look at each of the others. "
        f"This page shows what {count(heads, 'head')} decided{tokens}. "
        f"<b>Pick a head, then point at a token.</b>"
    )


def _facts(record: Record, description: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        (section["title"], _extent(section, description["calls"])) for section in description["sections"]
    ]
    batch, shown = description["batch"], description["sequences"]
    if batch > 1:
        facts.append(
            ("Batch", count(batch, "sequence") + (f", the first {shown} shown" if shown < batch else ""))
        )
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


def _extent(section: dict[str, Any], calls: list[dict[str, Any]]) -> str:
    """How many layers, heads and tokens: "12 layers × 12 heads, 30 tokens"."""
    chosen = [calls[index] for index in section["calls"]]
    heads = {call["heads"] for call in chosen}
    if len(heads) == 1:
        shape = f" × {count(heads.pop(), 'head')}"
    else:
        shape = f", {count(len(section['heads']), 'head')}"
    queries, keys = max((call["queries"], call["keys"]) for call in chosen)
    if queries == keys:
        size = count(keys, "token")
    else:
        size = f"{count(queries, 'query', 'queries')} × {count(keys, 'key')}"
    return f"{count(len(chosen), 'layer')}{shape}, {size}"


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


def _glossary(description: dict[str, Any]) -> str:
    lines = []
    for word in description["statistics"].values():
        lines.append(
            f"<div><dt>{text(word['title'])}</dt><dd>{text(word['meaning'])} "
            f"<span>{text(word['formula'])} · {text(word['unit'])}</span></dd></div>"
        )
    return "".join(lines)


def _series(call: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in call["series"].values() if isinstance(part, dict)]


def _precision(description: dict[str, Any], numbers: Numbers) -> list[str]:
    """What is rounded on this page, and how far."""
    pictures = [call["picture"] for call in description["calls"] if call["picture"]]
    single = {picture["mean"]["code"] for picture in pictures if "peak" not in picture}
    cells = sorted({picture["cell"] for picture in pictures if "peak" in picture})
    half = f"within {100 * F16_ERROR:.2f} % of the record's (float16)"
    levels = (
        f"kept with 256 levels, even in the logarithm over {DECADES} decades: within {100 * LOG8_ERROR:.1f} % of the "
        f"record's, and 0 where they are less than a millionth of the head's largest"
    )
    lines = ["The table and the cards are the record's own numbers, rounded to five digits."]
    if single:
        lines.append(f"Weights are {levels if 'log8' in single else half}.")
    if cells:
        sizes = " and ".join(f"{cell} × {cell}" for cell in cells)
        lines.append(f"Maps hold the mean and the largest weight of {sizes} tokens; both are {levels}.")
    if not pictures:
        lines.append("The record holds no map, so the page has no pictures.")
    coarse = any(part["code"] == "log8" for call in description["calls"] for part in _series(call))
    lines.append(f"Entropy along the text is {half}; received attention is {levels if coarse else half}.")
    if numbers.flawed:
        lines.append("Some numbers of the record are NaN or infinite; in the pictures they stand as 0.")
    lines.append(
        "Heads, layers and positions are counted from 0. Logarithms are natural: entropy is in nats."
    )
    return lines
