"""A diagnosis as a page without a script: each finding with its numbers, its head drawn, and what to do about it.

Knows in which order findings are shown; what is a finding is `regard.analysis`'s to say.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from regard import draw
from regard.analysis.diagnosis import RULES, Diagnosis, Finding
from regard.analysis.diagnosis.finding import ended
from regard.checks.arguments import checked
from regard.errors import RecordError
from regard.html import number, text
from regard.page import embed
from regard.page.frame import count, fill, page, pairs
from regard.record import Profile, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Findings of one rule whose heads are drawn, and those that are listed; JSON has all of them.
DRAWN, LISTED = 6, 200
# Queries and keys up to which every weight is drawn with its tokens.
EXACT = 64
FOOT = (
    "Severe: a bug, or a model that is broken. Warning: a head that does no work, or soon cannot. Note: nothing is "
    "wrong, and good to know. An interval is that of 95 % of the mean over texts. Heads and layers are counted from 0."
)


@checked
def findings(diagnosis: Diagnosis, *, title: str | None = None) -> str:
    """One self-contained HTML page of a diagnosis: it loads nothing and needs no script.

    It holds a grid of all heads, each finding with its sentence, numbers, a drawing of the head and advice, and what
    was looked at, so that a healthy model has a page that says why nothing was found.

    Args:
        diagnosis: what `regard.analysis.diagnose` gave.
        title: the page's heading; None: the model's name.

    Raises:
        RecordError: the diagnosis is of no head.
    """
    if not diagnosis.heads:
        raise RecordError("a page of a diagnosis must be of at least one head, and it has none")
    heading = title or diagnosis.model or "Diagnosis"
    shown = [_panel("All heads", "", _drawn(embed.figure(draw.findings(diagnosis, title=""), "")))]
    # One panel a rule and severity: a model may have a hundred heads that rest.
    for (severity, name), group in groupby(
        diagnosis.findings, lambda finding: (finding.severity, finding.name)
    ):
        shown.append(_rule(diagnosis, severity, name, list(group)))
    shown.append(_panel("What was looked at", _of_texts(diagnosis), _rules(diagnosis)))
    parts = {
        "title": text(heading),
        "lede": _lede(diagnosis),
        "facts": pairs(_facts(diagnosis)),
        "panels": "".join(shown),
        "foot": FOOT,
    }
    return page(heading, fill("panels", parts), styles=("page", "history", "profile", "findings"))


def _lede(diagnosis: Diagnosis) -> str:
    heads, texts = count(diagnosis.heads, "head"), count(diagnosis.texts, "text")
    if diagnosis.worst is None:
        return f"<b>Nothing was found</b> in {heads} on {texts}; below is what was looked for."
    return f"What is wrong with {heads} on {texts}: <b>{diagnosis.summary()}</b>."


def _facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    layers = count(len(diagnosis.layers), "layer")
    return [
        ("Heads", f"{layers}, {count(diagnosis.heads, 'head')}"),
        ("Texts", count(diagnosis.texts, "text")),
        ("Queries with a choice", f"{diagnosis.queries:,}".replace(",", "\u202f")),
        ("Rules", f"{len(diagnosis.applied)} applied, {len(diagnosis.skipped)} not"),
    ]


def _of_texts(diagnosis: Diagnosis) -> str:
    return (
        f"{count(diagnosis.texts, 'text')}. A ✓ stands for a rule that was applied to all that it needs and found "
        f"nothing; – for one that could not be applied."
    )


def _rule(diagnosis: Diagnosis, severity: str, name: str, group: list[Finding]) -> str:
    """All findings of one rule and severity."""
    items = "".join(
        f"<tr><td>{text(diagnosis.where(finding))}</td><td>{number(finding.value)}{_interval(finding)}</td>"
        f"<td>{number(finding.threshold)}</td><td>{finding.texts}</td><td>{text(_evidence(finding))}</td></tr>"
        for finding in group[:LISTED]
    )
    head = (
        "<thead><tr><th>head</th><th>value</th><th>threshold</th><th>texts</th><th>evidence</th></tr></thead>"
    )
    table = f'<div class="scroll"><table class="numbers rules">{head}<tbody>{items}</tbody></table></div>'
    pictures = ""
    for finding in group[:DRAWN]:
        figure = _picture(diagnosis, finding)
        if figure is not None:
            pictures += embed.figure(figure, diagnosis.where(finding))
    if pictures:
        pictures = _drawn(pictures, "maps")
    words = f"<p>{text(ended(group[0].sentence))}</p>"
    advice = f'<p class="advice">{text(ended(group[0].advice))}</p>'
    some = count(len(group), "head")
    if group[0].head is None:
        some = "the model"
    heading = f"{text(name.capitalize())} <span>{text(severity)}, {some}</span>"
    return _panel(heading, "", f"{words}{advice}{table}{pictures}", f"finding {severity}")


def _interval(finding: Finding) -> str:
    if finding.low != finding.low:
        return ""
    return f"<br><small>{number(finding.low)} – {number(finding.high)}</small>"


def _evidence(finding: Finding) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in finding.evidence.items())


def _picture(diagnosis: Diagnosis, finding: Finding) -> Figure | None:
    """The map of a finding's head; None where nothing was kept of it that can be drawn."""
    seen = diagnosis.seen
    if finding.head is None or seen is None:
        return None
    if isinstance(seen, Profile):
        layer = seen.layers.get((finding.layer, finding.kind))
        cells = None if layer is None else layer.relative_map()
        if cells is None:
            return None
        return draw.heatmap(np.clip(cells[finding.head].numpy(), 0.0, None), scale="sqrt", title="")
    return _of_record(seen, finding)


def _of_record(record: Record, finding: Finding) -> Figure | None:
    call = next((call for call in record if (call.layer, call.kind) == (finding.layer, finding.kind)), None)
    if call is None or call.map is None or not bool(call.map.total[0, finding.head].isfinite().all()):
        return None
    tokens, keys = record.tokens, record.tokens
    if call.kind == "cross":
        keys = record.source_tokens
    # Names beside every line of a map of cells would be those of other tokens.
    exact = call.map.cell == 1 and max(call.sizes.queries, call.sizes.keys) <= EXACT
    names: list[list[str] | None] = [None, None]
    if exact and tokens and keys and (len(tokens[0]), len(keys[0])) == (call.sizes.queries, call.sizes.keys):
        names = [tokens[0], keys[0]]
    return draw.heatmap(
        call.map,
        finding.head,
        tokens=names[0],
        key_tokens=names[1],
        scale="sqrt",
        title="",
        values=False,
    )


def _rules(diagnosis: Diagnosis) -> str:
    """A line for every rule: what it looks for, and what came of it."""
    counts = dict.fromkeys(diagnosis.applied, 0)
    for finding in diagnosis.findings:
        counts[finding.name] += 1
    lines = []
    for rule in RULES:
        mark, came = "–", diagnosis.skipped.get(rule.name, "not looked at")
        if rule.name in diagnosis.applied:
            mark, came = "✓", "nothing found"
            if counts[rule.name]:
                mark, came = "✗", count(counts[rule.name], "finding")
        lines.append(
            f"<tr><td>{mark} {text(rule.name)}</td><td>{text(rule.meaning)}</td><td>{text(came)}</td></tr>"
        )
    head = "<thead><tr><th>rule</th><th>what it looks for</th><th>result</th></tr></thead>"
    return f'<div class="scroll"><table class="numbers rules">{head}<tbody>{"".join(lines)}</tbody></table></div>'


def _panel(heading: str, hint: str, content: str, more: str = "") -> str:
    below = f'<p class="hint">{hint}</p>' if hint else ""
    return f'<section class="panel {more}"><h2>{heading}</h2>{below}{content}</section>'


def _drawn(pictures: str, more: str = "") -> str:
    return f'<div class="figures drawn {more}">{pictures}</div>'
