"""How heads came to be, as a page without a script: the loss, statistics of every head along the steps, its maps.

Knows which figures tell a history, and in which order; `regard.draw` knows how to draw them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard import draw
from regard.checks.arguments import checked
from regard.errors import RecordError
from regard.html import text
from regard.page import embed
from regard.page.changes import Change, changes, entropy_of, largest, names
from regard.page.frame import count, fill, page, pairs
from regard.record.history import History
from regard.record.record import Record
from regard.record.table import ROLE
from regard.web.words import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENTROPY = (
    "How spread out the attention of each head is, query by query: 0 where it looks at a single token. "
    "A line that falls is a head that learns where to look."
)
NO_ROLES = "The history kept no roles, so it cannot be told what the heads did along the steps"
MAPS = (
    "One map per step, with the queries down and the keys across: the stronger the color, the larger the weight. "
    "The colors of a head mean the same at all steps."
)


@dataclass(frozen=True)
class Part:
    """One model of a page.

    Attributes:
        title: its heading. history: as `regard.training.train` kept it.
        loss: step → training loss; None or empty: no curve.
        record: of the trained model, whose roles are shown where the history kept none, which the page says; None: no
            roles then.
    """

    title: str
    history: History
    loss: Mapping[int, float] | None = None
    record: Record | None = None


@checked
def history(history: History, *, title: str, loss: Mapping[int, float] | None = None) -> str:
    """One self-contained HTML page that tells how the heads of a model came to be.

    It holds the loss, the entropy and the other statistics of every head along the steps, and the maps of every head.
    It loads nothing, needs no script, and 48 heads with maps of sixteen steps are less than 6 MB.

    Args:
        history: as `regard.training.train` kept it.
        title: what was trained.
        loss: step → training loss, as in `Run.losses`.

    Raises:
        RecordError: the history is empty.
        MissingPackageError: matplotlib is not installed.
    """
    return histories([Part(title, history, loss)], title=title)


@checked
def histories(parts: Sequence[Part], *, title: str) -> str:
    """`history` of several models on one page, one after the other, with a list of them at its top.

    Raises:
        RecordError: there is none, or one is empty.
    """
    if not parts or not all(part.history.steps and part.history.layers for part in parts):
        raise RecordError(
            "a page of histories must have one at least, each of at least one step and one layer, got none"
        )
    several = len(parts) > 1
    links = "".join(f'<a href="#history-{i}">{text(part.title)}</a>' for i, part in enumerate(parts))
    body = fill(
        "history",
        {
            "title": text(title),
            "lede": _lede([part.history for part in parts]),
            "contents": f'<nav class="contents" aria-label="Models">{links}</nav>' if several else "",
            "histories": "".join(_part(part, i, several) for i, part in enumerate(parts)),
        },
    )
    return page(title, body, styles=("page", "history"))


def drawings(history: History, loss: Mapping[int, float] | None = None) -> Iterator[tuple[str, Figure]]:
    """The figures of a history, each with a name for its file."""
    if loss:
        yield "loss", _losses(loss, title="loss")
    if roles := _roles(history):
        yield "roles", roles
    for name in history.statistics:
        # One picture shows all of them.
        if name.startswith(ROLE):
            continue
        yield name.replace("_", "-"), draw.history(history, name)
    for index, layer in enumerate(history.layers if history.pictured else ()):
        name = re.sub(r"[^\w.-]", "_", layer.name)
        for head in range(layer.heads):
            yield f"{index}-{name}-head-{head}", draw.strip(history, index, head)


def _lede(histories: Sequence[History]) -> str:
    heads = sum(layer.heads for history in histories for layer in history.layers)
    first, last = (
        min(history.steps[0] for history in histories),
        max(history.steps[-1] for history in histories),
    )
    begun = "before the first update"
    if first != 0:
        begun = f"step {first:,}"
    return (
        f"A head is not made with a habit: it learns one. This page shows how {count(heads, 'head')} came to be, from "
        f"{begun} to step {last:,} of training. <b>At each of the steps the model read the same texts again.</b>"
    )


def _part(part: Part, number: int, several: bool) -> str:
    """One model: what it is, and its panels."""
    panels = [
        ("What the model learned", *_learned(part.loss)),
        ("What each head does", *_does(part)),
        ("How focused each head is", *_focus(part.history)),
        ("More numbers of every head", *_others(part.history)),
        ("The maps of every head", *_maps(part.history)),
    ]
    level = "h2"
    if several:
        level = "h3"
    shown = "".join(
        f'<section class="panel"><{level}>{heading}</{level}><p class="hint">{hint}</p>{content}</section>'
        for heading, hint, content in panels
        if hint
    )
    heading = ""
    if several:
        heading = f"<h2>{text(part.title)}</h2>"
    facts = f'<dl class="facts">{pairs(_facts(part.history))}</dl>'
    return f'<article id="history-{number}">{heading}{facts}{shown}</article>'


def _facts(history: History) -> list[tuple[str, str]]:
    heads = {layer.heads for layer in history.layers}
    total = count(sum(layer.heads for layer in history.layers), "head")
    if len(heads) == 1:
        per_layer = f" × {count(heads.pop(), 'head')}"
    else:
        per_layer = f", {total}"
    return [
        ("Heads", f"{count(len(history.layers), 'layer')}{per_layer}"),
        ("Training", f"steps {history.steps[0]:,} to {history.steps[-1]:,}"),
        ("Looked at", count(len(history.steps), "time")),
        ("Maps", f"at {len(history.pictured)} of these steps" if history.pictured else "none"),
    ]


def _learned(loss: Mapping[int, float] | None) -> tuple[str, str]:
    if not loss:
        return "", ""
    (first, begun), (last, ended) = min(loss.items()), max(loss.items())
    caption = f"From {begun:.3g} at step {first:,} to {ended:.3g} at step {last:,}."
    hint = (
        "The training loss, the mean over the steps since the point before. Does it fall where heads change?"
    )
    return hint, _drawn(embed.figure(_losses(loss), caption))


def _losses(loss: Mapping[int, float], title: str = "") -> Figure:
    steps = sorted(loss)
    values = [loss[step] for step in steps]
    logs = "x" * (steps[0] > 0) + "y" * (min(values) > 0)
    line = {"training loss": (steps, values)}
    return draw.series([draw.Panel("", "step of training", "loss", line, logs)], title=title)


def _does(part: Part) -> tuple[str, str]:
    hint = (
        "Where most of its attention goes, in a word. Where the color changes, the head does something new."
    )
    figure = _roles(part.history, title="")
    if figure is not None:
        return (hint, _drawn(embed.figure(figure, "")))
    if part.record is not None:
        figure = _roles(part.record, title="")
    if figure is None:
        return (f"{NO_ROLES}.", "")
    # What the heads did at earlier steps cannot be told any more: only the trained model is left.
    hint = f"{NO_ROLES}: this is the trained model alone, as it reads one example, and no step before."
    return (hint, _drawn(embed.figure(figure, "")))


def _roles(seen: History | Record, title: str | None = None) -> Figure | None:
    """The roles of the heads; None where a statistic that they are told by was not kept."""
    try:
        return draw.roles(seen, title=title)
    except RecordError:
        return None


def _focus(history: History) -> tuple[str, str]:
    name = entropy_of(history)
    if name is None:
        return "", ""
    return ENTROPY, _drawn(embed.figure(draw.history(history, name, title=""), _most(history, name)))


def _others(history: History) -> tuple[str, str]:
    """A fold for each statistic."""
    descriptions = words(history.statistics, history.parameters)
    shown = [name for name in history.statistics if name != entropy_of(history)]
    folds = (
        f"<details><summary><b>{text(descriptions[name]['title'])}</b> {text(descriptions[name]['meaning'])}</summary>"
        f"{_drawn(embed.figure(draw.history(history, name, title=''), _most(history, name), small=True))}</details>"
        for name in shown
    )
    return "Open one to see it along the steps." if shown else "", "".join(folds)


def _most(history: History, name: str) -> str:
    """The head in which a statistic changed most, as a sentence."""
    change = largest(history, name)
    if change is None or len(history.steps) == 1:
        return ""
    layer, head, (first, last) = change
    return f"Changed most: {layer}, head {head}, from {first:.2f} to {last:.2f}."


def _maps(history: History) -> tuple[str, str]:
    """A fold for each layer, the first of them open, with the maps of its heads."""
    if not history.pictured:
        return "The history has none: a monitor keeps them with cells=32.", ""
    descriptions, became = words(history.statistics, history.parameters), changes(history)
    folds = []
    for index, layer in enumerate(names(history)):
        of_layer = became[history.heads_of(index)]
        strips = "".join(
            embed.figure(
                draw.strip(history, index, one.head, title=""),
                f"Head {one.head}{_became(one, descriptions)}",
                alt=f"Maps of {layer}, head {one.head}, at the steps {', '.join(map(str, history.pictured))}",
                small=True,
            )
            for one in of_layer
        )
        folds.append(
            f"<details{' open' * (index == 0)}><summary><b>{text(layer)}</b> {count(len(of_layer), 'head')}</summary>"
            f"{_drawn(strips, 'strips')}</details>"
        )
    return MAPS, "".join(folds)


def _became(change: Change, descriptions: Mapping[str, Mapping[str, str]]) -> str:
    """What a head's caption says of its numbers: ": entropy 0.91 → 0.12, previous 0.03 → 0.88"."""
    named = []
    if change.entropy:
        named = [("entropy", change.entropy)]
    named += [(descriptions[change.name]["title"], change.share)] if change.name else []
    words = ", ".join(f"{name} {first:.2f} → {last:.2f}" for name, (first, last) in named)
    if words:
        return f": {words}"
    return ""


def _drawn(pictures: str, more: str = "") -> str:
    """Pictures on the ground of the page, in the dark too: their colors are those of `regard.draw`."""
    return f'<div class="figures drawn {more}">{pictures}</div>'
