"""A profile of many texts as a page without a script: its heads with intervals, its histograms, its maps, its failures.

Knows which figures tell a profile, and in which order; `regard.draw` knows how to draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from regard import draw
from regard.analysis.roles import NOT_JUDGED, by_layer
from regard.analysis.roles import roles as named
from regard.checks.arguments import checked
from regard.errors import RecordError
from regard.html import text
from regard.page import embed
from regard.page.frame import count, fill, page, pairs
from regard.record import Profile
from regard.record.layers import short_names
from regard.web.words import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# The columns of the table, as far as they are there, and so many groups beside them.
COLUMNS = (
    "entropy_fraction",
    "max_weight",
    "distance",
    "first",
    "self_mass",
    "previous",
    "local",
    "received_share",
)
FOOT = (
    "An interval is Student's t over texts: it says how far the mean would move with other texts like these, not how "
    "far single texts lie apart. Heads and layers are counted from 0."
)
# Heads of the table, and failures that are listed; the files have all of them.
MOST_HEADS, MOST_FAILURES = 1024, 50


@checked
def profile(profile: Profile, *, title: str, confidence: float = 0.95) -> str:
    """One self-contained HTML page that tells what every head does over many texts.

    It loads nothing and needs no script. It holds the means of the heads with their intervals, histograms, mass by
    distance, maps on relative position, and the texts that could not be read.

    Args:
        profile: as `regard.survey` gave it.
        title: what was read.
        confidence: of the intervals.

    Raises:
        RecordError: the profile is empty.
        ArgumentError: another confidence.
        MissingPackageError: matplotlib, pandas or scipy is not installed.
    """
    if not profile.layers:
        raise RecordError("a page of a profile must have at least one layer to show, and it has none")
    roles = _roles(profile)
    panels = [
        ("What each head does", _hint(confidence, roles), _table(profile, confidence, roles)),
        *(
            (heading, hint, f'<div class="figures drawn">{embed.figure(figure, "")}</div>')
            for _, heading, hint, figure in _figures(profile, "", roles is not None)
        ),
        ("Texts that could not be read", *_failures(profile)),
    ]
    shown = "".join(
        f'<section class="panel"><h2>{heading}</h2><p class="hint">{hint}</p>{content}</section>'
        for heading, hint, content in panels
        if hint
    )
    heads = sum(len(layer.queries) for layer in profile.layers.values())
    parts = {
        "title": text(title),
        "lede": f"What {count(heads, 'attention head')} did in <b>{count(profile.texts, 'text')}</b>.",
        "facts": pairs(_facts(profile)),
        "panels": shown,
        "foot": FOOT,
    }
    return page(title, fill("panels", parts), styles=("page", "history", "profile"))


def profile_drawings(profile: Profile) -> Iterator[tuple[str, Figure]]:
    """The figures of a profile, each with a name for its file."""
    for name, _, _, figure in _figures(profile, None, _roles(profile) is not None):
        yield name, figure


def _roles(profile: Profile) -> DataFrame | None:
    """The table of roles; None where nothing was kept by which a role could be told."""
    try:
        return named(profile)
    except RecordError:
        return None


def _figures(profile: Profile, title: str | None, roles: bool) -> Iterator[tuple[str, str, str, Figure]]:
    """Name, heading, hint and figure of what the profile has."""
    above = ""
    if roles:
        above = " Over each stands the head's role, with its score and interval where there is room."
    parts: list[tuple[str, str, str, Callable[[], Figure]]] = [
        (
            "entropy-fraction",
            "How focused each head is",
            "Entropy as a part of its largest value, query by query: 0 looks at one token, 1 at all alike.",
            lambda: draw.histograms(profile, "entropy_fraction", title=title),
        ),
        (
            "distance",
            "How far the attention of a query goes",
            "The mean distance of each query from the tokens that it attends, in powers of two.",
            lambda: draw.histograms(profile, "distance", title=title),
        ),
        (
            "mass-by-distance",
            "How much attention goes how far",
            "All weights by the distance of query and key, in powers of two.",
            lambda: draw.by_distance(profile, title=title),
        ),
        (
            "relative-maps",
            "The maps of every head",
            f"Mean maps over texts of all lengths, each stretched to the same size.{above}",
            lambda: draw.relative_maps(profile, roles=roles, title=title),
        ),
    ]
    for name, heading, hint, drawing in parts:
        try:
            figure = drawing()
        except RecordError:
            # Not every survey asks for everything.
            continue
        yield name, heading, hint, figure


def _facts(profile: Profile) -> list[tuple[str, str]]:
    heads = sum(len(layer.queries) for layer in profile.layers.values())
    queries = max(int(layer.queries.max()) for layer in profile.layers.values())
    facts = [
        ("Heads", f"{count(len(profile.layers), 'layer')}, {count(heads, 'head')}"),
        ("Texts", count(profile.texts, "text")),
        ("Queries", count(queries, "query", "queries")),
    ]
    if profile.truncated:
        facts.append(("Cut", f"{count(profile.truncated, 'text')} of too many tokens"))
    if profile.failures:
        facts.append(("Not read", count(len(profile.failures), "text")))
    return facts


def _hint(confidence: float, roles: DataFrame | None) -> str:
    interval = f"the interval of {100 * confidence:g} % confidence"
    hint = f"Means over texts, each of which counts once, and below them {interval}."
    if roles is None:
        return f"{hint} Roles are not told: nothing was kept by which they could be."
    hint += (
        " A role is what the head does most, with its score from chance (0) to the most possible (1) and its interval "
        "of 95 %."
    )
    if left_out := roles.attrs[NOT_JUDGED]:
        hint += f" Not judged, for want of their statistics: {', '.join(left_out)}."
    return hint


def _table(profile: Profile, confidence: float, roles: DataFrame | None) -> str:
    """The heads with roles, means and intervals."""
    labels = None
    if roles is not None:
        labels = by_layer(roles)
    intervals = profile.intervals(confidence)
    there = list(dict.fromkeys(intervals["statistic"]))
    columns = [name for name in (*COLUMNS, *(n for n in there if n.startswith("group."))) if name in there]
    parameters: dict[str, Any] = {}
    for layer in profile.layers.values():
        parameters |= layer.parameters
    meant = words(columns, parameters)
    titles = "".join(
        f'<th title="{text(meant[name]["meaning"])}">{text(meant[name]["title"])}</th>' for name in columns
    )
    lines = []
    names = short_names([name for name, _ in profile.layers], [kind for _, kind in profile.layers])
    short = dict(zip(profile.layers, names, strict=True))
    # A dictionary, as a pandas index is slow to ask for every single cell.
    rows = intervals.set_index(["layer", "kind", "head", "statistic"])[["mean", "low", "high"]].to_dict(
        "index"
    )
    for (name, kind), layer in profile.layers.items():
        for number in range(len(layer.queries)):
            cells = "".join(f"<td>{_cell(rows.get((name, kind, number, column)))}</td>" for column in columns)
            if labels is not None:
                cells = f"<td>{text(labels[name, kind][number][0] or '–')}</td>{cells}"
            lines.append(f"<tr><td>{text(short[name, kind])}</td><td>{number}</td>{cells}</tr>")
    more = ""
    if len(lines) > MOST_HEADS:
        more = f'<p class="hint">The first {MOST_HEADS} of {count(len(lines), "head")}.</p>'
    if labels is not None:
        titles = f"<th>role</th>{titles}"
    head = f"<thead><tr><th>layer</th><th>head</th>{titles}</tr></thead>"
    body = f"<tbody>{''.join(lines[:MOST_HEADS])}</tbody>"
    return f'<div class="scroll"><table class="numbers">{head}{body}</table></div>{more}'


def _cell(numbers: dict[str, float] | None) -> str:
    """A mean and its interval, which fewer than two texts do not have."""
    if numbers is None or numbers["mean"] != numbers["mean"]:
        return "–"
    words = _said(numbers["mean"])
    if numbers["low"] == numbers["low"]:
        words += f"<br><small>{_said(numbers['low'])} – {_said(numbers['high'])}</small>"
    return words


def _said(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _failures(profile: Profile) -> tuple[str, str]:
    if not profile.failures:
        return "", ""
    lines = "".join(
        f"<tr><td>{failure.number}</td><td>{text(failure.type)}</td><td>{text(failure.message)}</td></tr>"
        for failure in profile.failures[:MOST_FAILURES]
    )
    hint = f"{count(len(profile.failures), 'text')}, by number from 0, with the error of each"
    if len(profile.failures) > MOST_FAILURES:
        hint += f"; the first {MOST_FAILURES} are listed"
    head = "<thead><tr><th>text</th><th>error</th><th>what it says</th></tr></thead>"
    return (
        f"{hint}.",
        f'<div class="scroll"><table class="numbers">{head}<tbody>{lines}</tbody></table></div>',
    )
