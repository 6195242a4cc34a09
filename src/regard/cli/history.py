"""`regard history`: how the heads of a task's models came to be: a table here, pictures on a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from regard.cli import figures as drawn
from regard.cli.look import LINES, write
from regard.errors import ArgumentError, RecordError, require
from regard.page import Part, histories
from regard.page.changes import changes, entropy_of
from regard.page.frame import count
from regard.page.history import drawings
from regard.record.history import History
from regard.record.table import ROLE
from regard.tasks.common import pretrained
from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.task import CARD, MODEL, Task, read_card
from regard.training.monitor import FILE
from regard.web.words import words


def history(
    name: Annotated[str, typer.Argument(help=f"The task: {', '.join(NAMES)}.")],
    only: Annotated[
        str | None, typer.Option(help="Only this model of the task; without it, each that has attention.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where regard train put the models; without it, those of the package.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Where the HTML page goes; without it, regard-history-TASK.html.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write figures (PNG) to this folder.")] = None,
) -> None:
    """Show how the attention heads of a task's models came to be, from before the first update to the last."""
    console = Console()
    places = _places(name, only, folder)
    parts = [Part(model, History.load(run / FILE), losses_of(run)) for model, run in places.items()]
    if folder is None:
        parts = [_with_roles(name, part, places[part.title]) for part in parts]
    for part in parts:
        _print(console, name, part)
    _explain(console, parts)
    if page is None:
        page = Path(f"regard-history-{name}.html")
    title = name
    if len(parts) == 1:
        title = f"{name}, {parts[0].title}"
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as bar:
        bar.add_task("drawing the page", total=None)
        write(page, histories(parts, title=f"{title}: how its heads came to be"), "page")
        if figures is not None:
            _figures(console, parts, figures)
    console.print(f"The page: {page}   (open it in a browser; it needs no network)", highlight=False)


def _places(name: str, only: str | None, folder: Path | None) -> dict[str, Path]:
    """Where the histories of the models are that have attention."""
    chosen = tasks(name, only)
    # A model without attention has no history to show, and is no mistake beside others.
    attending = [task for task in chosen if task.attends]
    if not attending:
        able = [task.model for task in tasks(name) if task.attends]
        raise ArgumentError(
            f"the model must have attention, whose history is kept, and {only!r} of {name} has none: "
            f"take {', '.join(able)}"
        )
    places = {
        task.model: pretrained.folder(name, task.model) if folder is None else folder / task.model
        for task in attending
    }
    missing = [task for task in attending if not (places[task.model] / FILE).exists()]
    if missing:
        there = [task.model for task in attending if task not in missing]
        raise RecordError(_wanted(missing[0], places[missing[0].model], folder, there))
    return places


def _with_roles(name: str, part: Part, run: Path) -> Part:
    """With a record of the trained model, where the history kept no roles."""
    if any(statistic.startswith(ROLE) for statistic in part.history.statistics) or not (run / MODEL).exists():
        return part
    # Imported here, as models need transformers, which takes seconds.
    from regard.tasks.common.looks import record_of

    require("transformers", extra="train").utils.logging.disable_progress_bar()
    return replace(part, record=record_of(name, part.title))


def _wanted(task: Task, run: Path, folder: Path | None, there: list[str]) -> str:
    """Which file is missing, and what makes it."""
    command = f"regard train {task.name} --only {task.model}"
    instructions = f"{command}, then regard history {task.name} --folder regard-train/{task.name}"
    if folder is not None:
        instructions = f"{command} --folder {folder}"
    others = ""
    if there:
        others = f"; for a model that is there: --only {there[0]}"
    return (
        f"the history of the heads of {task.model!r} must be in {str(run / FILE)!r}, and there is no such file: "
        f"{instructions}{others}"
    )


def losses_of(run: Path) -> dict[int, float]:
    """Step → training loss, as far as the card in the folder of a trained model says.

    Raises:
        RecordError: the card is damaged.
    """
    card = run / CARD
    if not card.exists():
        return {}
    body = read_card(run)
    try:
        losses = body["training"].get("losses") or {}
        return {int(step): float(loss) for step, loss in losses.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{card}: is damaged: {error}") from None


def _print(console: Console, name: str, part: Part) -> None:
    history, heads = part.history, changes(part.history)
    console.print(
        f"{name}, {part.title}: {count(len(heads), 'attention head')}, "
        f"from step {history.steps[0]:,} to step {history.steps[-1]:,}",
        highlight=False,
    )
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    # Without wrapping: a head's line must stay a line.
    for heading in ("layer", "head", "entropy", "share that changed most"):
        table.add_column(heading, justify="right" if heading == "head" else "left", no_wrap=True)
    descriptions = words(history.statistics, history.parameters)
    for change in heads[:LINES]:
        most = "–"
        if change.name:
            most = f"{descriptions[change.name]['title']} {_from_to(change.share)}"
        table.add_row(
            change.layer, str(change.head), _from_to(change.entropy) if change.entropy else "–", most
        )
    console.print(table)
    if len(heads) > LINES:
        console.print(f"… and {len(heads) - LINES} more heads, on the page")


def _explain(console: Console, parts: list[Part]) -> None:
    """What the numbers of the tables mean."""
    meanings: dict[str, str] = {}
    for history in (part.history for part in parts):
        meant = words(history.statistics, history.parameters)
        for name in (entropy_of(history), *(change.name for change in changes(history))):
            if name:
                title = "entropy"
                if name != entropy_of(history):
                    title = meant[name]["title"]
                meanings.setdefault(title, meant[name]["meaning"])
    for title, meaning in meanings.items():
        console.print(f"[dim]{title}: {meaning}[/dim]", highlight=False)


def _from_to(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} → {ends[1]:.2f}"


def _figures(console: Console, parts: list[Part], folder: Path) -> None:
    for part in parts:
        written = drawn.write(drawings(part.history, part.loss), folder / part.title, formats=("png",))
        console.print(f"{len(written)} figures: {folder / part.title}", highlight=False)
