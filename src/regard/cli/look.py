"""`regard look`: run a model on a text, print a table of its heads, write a report. Knows no arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from os.path import isdir
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table

from regard import embedded, files
from regard.analysis.roles import labels as names_of_heads
from regard.cli import answers, models, reading
from regard.errors import ArgumentError, ModelError
from regard.record import Record
from regard.record.table import ROLE, columns
from regard.statistics.roles import ROLES
from regard.statistics.table import SHARES, TABLE
from regard.tasks.common.looks import LOOKS
from regard.web.next_tokens import NextTokens, logits_of
from regard.web.next_tokens import next_tokens as following

COLUMNS = {
    "entropy_fraction": "entropy",
    "max_weight": "largest",
    "distance": "distance",
    "first": "first",
    "self_mass": "self",
    "previous": "previous",
    "local": "local",
    "received_share": "popular",
}
# Tokens up to which the report shows single weights.
EXACT = 256
# Heads printed; the report holds all.
LINES = 48


def look(
    model: Annotated[
        str | None,
        typer.Argument(
            help=f"A task ({', '.join(LOOKS)}), a local folder, a Hugging Face name, or a text in quotation "
            "marks for the embedded model, which also reads an example where nothing is given."
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Argument(
            help="The text to read, or a task's file (for caption, a picture); without one, an example."
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the text from this file.")] = None,
    report: Annotated[Path, typer.Option(help="Where the HTML report goes.")] = Path("regard-report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Also write figures (PNG, SVG, PDF) to this folder.")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="Also keep the record in this folder.")] = None,
    device: Annotated[str, typer.Option(help="Where the model runs: cpu, cuda, mps …")] = "cpu",
    only: Annotated[str | None, typer.Option(help="For a task: which of its models.")] = None,
    to: Annotated[str | None, typer.Option(help="For translate: into which language, fr or de.")] = None,
) -> None:
    """Show what every attention head of a model does with a text: a table here, pictures in an HTML report."""
    console = Console(emoji=False)  # a text may hold :key:
    # Tasks before folders: a folder of such a name is reached as ./translate.
    if model in LOOKS:
        if device != "cpu":
            raise ArgumentError(
                f"--device must be left out for a task, whose models are small, got {device!r}"
            )
        result = answers.show(console, model, answers.given(text, file), only, to)
        _report(console, result.record, report, record, result.figures)
        if figures is not None:
            _figures(console, _named(result.figures), figures)
        return
    if only is not None or to is not None:
        raise ArgumentError(
            f"--only and --to must be left out where no task is shown; the tasks are {', '.join(LOOKS)}"
        )
    # `regard look "some text"`: the first argument is a model only where it can be one.
    if text is None and is_text(model):
        model, text = None, model
    if model == "language":
        model = None
    words = _text(text, file)
    with _progress(console, "loading the model") as bar:
        bar.add_task("loading", total=None)
        if model is None:
            reader = models.load_embedded(device)
        else:
            reader = models.load(model, device)
    # Before anything is watched, so that a text that is too long is told at once.
    encoded = reader.encode(words)
    seen, likeliest = _watch(console, reader, encoded)
    if model is None:
        seen.info["model"] = reader.name
    # As much as the header of a page can show; the tokens are all in the record.
    seen.info["text"] = words[:2000]
    _print(console, seen)
    _report(console, seen, report, record, next_tokens=likeliest)
    if figures is not None:
        from regard.cli.figures import of_record

        _figures(console, of_record(seen), figures)


def _named(figures: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The figures of a task, each with the name of its file."""
    if len(figures) == 1:
        return [("attention", figures[0][1])]
    return [(f"attention-{number}", figure) for number, (_, figure) in enumerate(figures, 1)]


def _report(
    console: Console,
    seen: Record,
    report: Path,
    record: Path | None,
    figures: Sequence[tuple[str, Any]] = (),
    next_tokens: NextTokens | None = None,
) -> None:
    """Write the report, and the record where it is wanted."""
    write(report, _html(seen, figures, next_tokens), "report")
    if record is not None:
        seen.save(record)
        console.print(f"The record: {record}")
    console.print(f"The report: {report}   (open it in a browser; it needs no network)", highlight=False)


def is_text(model: str | None) -> bool:
    """Whether what stands in the place of a model is a text: no model's name and hardly a folder's has a blank."""
    return model is not None and re.search(r"\s", model) is not None and not isdir(model)


def _text(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise ArgumentError("the text must come from the command line or from --file, got both")
    if file is None:
        if text is None:
            return embedded.TEXT
        return text
    return answers.read(file)


def _watch(console: Console, reader: models.Reader, encoded: Any) -> tuple[Record, NextTokens | None]:
    """The record of a text, and what the model says comes next after each of its tokens, where it says so."""
    count = encoded["input_ids"].shape[1]
    keep: Literal["vectors", "statistics"] = "statistics"
    if count <= EXACT:
        keep = "vectors"
    with _progress(console, "preparing") as bar:
        bar.add_task("preparing", total=None)
        inputs = reader.inputs(encoded)
    with (
        reading.watched(reader, inputs, keep) as record,
        _progress(console, f"reading {count} tokens", record) as bar,
    ):
        bar.add_task("reading", total=reader.layers or None)
        logits = logits_of(reader.run(inputs))
    if logits is None or not reader.predicts:
        return record, None
    return record, following(logits, reader.piece)


class _Calls(TextColumn):
    """How many attention calls have been seen; the bar moves with them."""

    def __init__(self, record: Record) -> None:
        super().__init__("{task.completed:.0f} attention calls")
        self._record = record

    def render(self, task: Task) -> Any:
        """The count, read from the record as it grows."""
        task.completed = len(self._record)
        return super().render(task)


def _progress(console: Console, what: str, record: Record | None = None) -> Progress:
    parts: list[ProgressColumn] = [SpinnerColumn(), TextColumn(what), BarColumn()]
    if record is not None:
        parts.append(_Calls(record))
    return Progress(*parts, console=console, transient=True)


def _print(console: Console, record: Record) -> None:
    # Not `record.heads`, as pandas takes half a second to import.
    heads = columns(record.calls)
    count = len(heads["head"])
    shown = {name: short for name, short in COLUMNS.items() if name in heads}
    title = f"{record.info.get('model', 'model')}: {count} attention heads"
    table = Table(
        title=title,
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    labels = _short(list(heads["layer"]))
    named, _, _ = names_of_heads({name: heads[ROLE + name] for name in ROLES})
    several = len(set(heads["kind"])) > 1
    for name in ("layer", *(["kind"] if several else []), "head", *shown.values()):
        table.add_column(name, justify="left" if name in ("layer", "kind") else "right", no_wrap=True)
    table.add_column("role", no_wrap=True)
    for row, label in enumerate(labels[:LINES]):
        kind = []
        if several:
            kind = [heads["kind"][row]]
        numbers = (f"{heads[name][row]:.2f}" for name in shown)
        table.add_row(label, *kind, str(heads["head"][row]), *numbers, named[row])
    console.print(table)
    if count > LINES:
        console.print(f"… and {count - LINES} more heads, in the report")
    for name, short in shown.items():
        meaning = (TABLE.get(name) or SHARES[name]).explained(record.calls[0].parameters)
        console.print(f"[dim]{short}: {meaning}[/dim]", highlight=False)
    for name in [name for name in ROLES if name in named]:
        console.print(f"[dim]{name}: the head {ROLES[name].meaning}.[/dim]", highlight=False)


def _short(layers: list[str]) -> list[str]:
    """Layer names without the parts that all of them share at either end."""
    parts = [name.split(".") for name in layers]
    if len(set(layers)) == 1:
        return layers
    # There is a level that differs, as not all names are one.
    start = next(i for i, level in enumerate(zip(*parts, strict=False)) if len(set(level)) > 1)
    from_the_end = [part[start:][::-1] for part in parts]
    end = next((i for i, level in enumerate(zip(*from_the_end, strict=False)) if len(set(level)) > 1), 0)
    return [".".join(part[end:][::-1]) for part in from_the_end]


def _html(record: Record, figures: Sequence[tuple[str, Any]], next_tokens: NextTokens | None) -> str:
    from regard.page import report

    return report(record, figures=figures, next_tokens=next_tokens)


def write(path: Path, content: str, what: str) -> None:
    """Write a page, of which errors speak as `what`, and the folders above it.

    Raises:
        ModelError: it cannot be written there.
    """
    files.write(path, content, error=ModelError, what=what)


def _figures(console: Console, drawn: Iterable[tuple[str, Any]], folder: Path) -> None:
    from regard.cli import figures

    for path in figures.write(drawn, folder):
        console.print(f"A figure: {path}", highlight=False)
