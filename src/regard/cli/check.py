"""`regard check`: what is wrong with the heads of a model, as a table, JSON or a page, and as an exit status.

Knows where models and texts come from; what is a finding is `regard.analysis`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from regard import embedded, files
from regard.analysis.diagnosis import SEVERITIES, Diagnosis, Finding, diagnose, diagnose_model
from regard.analysis.diagnosis.finding import ended
from regard.cli import models
from regard.cli.look import is_text, write
from regard.cli.survey import check_writable, tokenizer_of
from regard.cli.texts import Texts
from regard.errors import ArgumentError, ModelError, RecordError, require
from regard.page.frame import count
from regard.record import History, Profile, Record, load
from regard.tasks.common.looks import LOOKS, look

COLORS = {"severe": "bold red", "warning": "yellow", "note": "blue"}
NEVER = "never"
# Heads that a line of the table names.
NAMED = 6


def check(
    model: Annotated[
        str | None,
        typer.Argument(
            help=f"A local folder, a Hugging Face name, a task ({', '.join(LOOKS)}), a saved record or profile, "
            "or a text in quotation marks for the embedded model, which is language."
        ),
    ] = None,
    text: Annotated[str | None, typer.Argument(help="The text to read; without one, an example.")] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Read many texts instead: a file, a folder or a Parquet file, as in regard survey."
        ),
    ] = None,
    column: Annotated[str | None, typer.Option(help="Of a Parquet file: the column of the texts.")] = None,
    layers: Annotated[
        list[str] | None, typer.Option(help="Only these layers: names, patterns with *, or numbers.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Cut longer texts to this many tokens.")] = 512,
    ablate: Annotated[
        bool,
        typer.Option(
            "--ablate",
            help="Also take out each head in turn, to find those that are safe to prune. Takes long.",
        ),
    ] = False,
    only: Annotated[str | None, typer.Option(help="For a task: which of its models.")] = None,
    fail_on: Annotated[
        str,
        typer.Option(help="End with status 1 at a finding like this or worse: severe, warning, note, never."),
    ] = "severe",
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write JSON here; - for standard output, alone.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page (HTML) with drawings here.")] = None,
    device: Annotated[str, typer.Option(help="Where the model runs: cpu, cuda, mps …")] = "cpu",
) -> None:
    """Say what is wrong with the attention heads of a model, with evidence; the exit status can stand in a pipeline."""
    if fail_on not in (*SEVERITIES, NEVER):
        raise ArgumentError(f"--fail-on must be one of {', '.join((*SEVERITIES, NEVER))}, got {fail_on!r}")
    if max_tokens < 1:
        raise ArgumentError(f"--max-tokens must be at least 1, got {max_tokens}")
    # JSON on standard output stands alone: whatever else is said goes to the other one.
    console = Console(emoji=False, stderr=json_file == "-")
    paths = [path for path in (report, Path(json_file) if json_file not in (None, "-") else None) if path]
    for path in paths:
        check_writable(path)
    if texts is None and text is None and is_text(model):
        model, text = None, model
    if text is not None and texts is not None:
        raise ArgumentError("the text must come from the command line or from --texts, got both")
    if column is not None and texts is None:
        raise ArgumentError("--column must be left out without --texts")
    source = _given(text, texts, column)
    saved = _saved(model)
    name = model or "language"
    if only is not None and (saved is not None or name not in LOOKS):
        raise ArgumentError(
            f"--only must be left out where no task is checked; the tasks are {', '.join(LOOKS)}"
        )
    if saved is not None:
        _refuse("what was kept of a model", source, layers, ablate)
        diagnosis = diagnose(saved)
    elif name in LOOKS:
        if ablate or layers:
            raise ArgumentError(f"--ablate and --layers must be left out for a task, got them for {name!r}")
        diagnosis = diagnose(_of_task(name, source, only))
    else:
        diagnosis = _of_model(console, name, source, layers, max_tokens, ablate, device)
    _print(console, diagnosis, name)
    if report is not None:
        from regard.page import findings as page

        write(
            report,
            page(diagnosis, title=f"{_title(diagnosis, name)}: what is wrong with its heads"),
            "report",
        )
        console.print(f"The report: {report}   (open it in a browser; it needs no network)", highlight=False)
    if json_file == "-":
        typer.echo(diagnosis.to_json())
    elif json_file is not None:
        files.write(Path(json_file), diagnosis.to_json(), error=ModelError, what="JSON")
        console.print(f"The findings: {json_file}", highlight=False)
    if fail_on != NEVER and diagnosis.at_least(fail_on):
        raise typer.Exit(1)


def _given(text: str | None, texts: Path | None, column: str | None) -> Texts | list[str] | None:
    """The texts that were given; None where there are none."""
    if texts is not None:
        return Texts.of(texts, column)
    if text is not None:
        return [text]
    return None


def _saved(model: str | None) -> Record | Profile | None:
    """What Regard kept of a model, where the name is that of a folder or file of it; None where it is a model."""
    if model is None:
        return None
    path = Path(model)
    if not path.exists() or (path.is_dir() and (path / "config.json").exists()):
        return None
    if path.is_dir() and model in LOOKS:
        return None
    try:
        saved = load(path)
    except RecordError as error:
        raise ModelError(
            f"{model!r} must be a folder of a model, which has a config.json, or what Regard kept of one: {error}"
        ) from error
    if isinstance(saved, History):
        raise ArgumentError(
            f"{model!r} is the history of a training, whose alarms its monitor has: check a record or profile"
        )
    return saved


def _refuse(what: str, source: Any, layers: Any, ablate: bool) -> None:
    if source is not None or layers or ablate:
        raise ArgumentError(f"a text, --texts, --layers and --ablate must be left out for {what}")


def _of_task(name: str, source: Texts | list[str] | None, only: str | None) -> Iterator[Record]:
    """What a trained model of a task does with each text, or with its example."""
    # Its bar would stand above the table, once for each text.
    require("transformers", extra="train").utils.logging.disable_progress_bar()
    if source is None:
        return iter([look(name, model=only).record])
    if name == "caption":
        return (look(name, Path(text), model=only).record for text in source)
    return (look(name, text, model=only).record for text in source)


def _of_model(
    console: Console,
    name: str,
    source: Texts | list[str] | None,
    layers: list[str] | None,
    max_tokens: int,
    ablate: bool,
    device: str,
) -> Diagnosis:
    with Progress(SpinnerColumn(), TextColumn("loading the model"), console=console, transient=True) as bar:
        bar.add_task("loading", total=None)
        reader = models.load(embedded.folder() if name == "language" else name, device)
    readable: Any = source or [embedded.TEXT]
    tokens = min(max_tokens, reader.limit or max_tokens)
    tokenizer: Any = tokenizer_of(reader, tokens)
    if ablate:
        tokenizer = _with_labels(reader, tokens)
    chosen: list[str | int] | None = None
    if layers:
        chosen = [int(layer) if layer.isdecimal() else layer for layer in layers]
    parts = [SpinnerColumn(), TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("texts")]
    with Progress(*parts, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=readable.count if isinstance(readable, Texts) else len(readable))
        return diagnose_model(
            reader.model,
            readable,
            tokenizer=tokenizer,
            token_names=reader.tokens,
            layers=chosen,
            tokens=tokens,
            ablate=ablate,
            progress=lambda done: bar.update(task, completed=done),
        )


def _with_labels(reader: models.Reader, tokens: int) -> Any:
    """A tokenizer that also gives what the model is to write, so that it has a loss."""
    if not reader.writes:
        raise ArgumentError(
            f"--ablate needs a model that predicts the next token, and {reader.name} does not: "
            f"rg.analysis.diagnose_model takes any loss"
        )

    def arguments(texts: list[str]) -> dict[str, Any]:
        encoded = reader.tokenizer(
            texts, return_tensors="pt", truncation=True, max_length=tokens, verbose=False
        )
        ids = encoded["input_ids"]
        if not ids.shape[1]:
            raise ModelError("the text must have at least one token, and it has none: is it empty?")
        return {"input_ids": ids, "attention_mask": encoded["attention_mask"], "labels": ids}

    return arguments


def _title(diagnosis: Diagnosis, name: str) -> str:
    if name == "language":
        return "Regard's embedded model"
    if diagnosis.model and Path(name).exists():
        return f"{diagnosis.model} ({name})"
    return name


def _print(console: Console, diagnosis: Diagnosis, name: str) -> None:
    """A line for each rule and severity, and what was looked at."""
    title = f"{_title(diagnosis, name)}: {count(diagnosis.heads, 'attention head')}, {count(diagnosis.texts, 'text')}"
    if not diagnosis.findings:
        console.print(f"{escape(title)}\n[green]✓[/green] nothing found", highlight=False)
    else:
        table = Table(title=escape(title), title_justify="left", header_style="bold", box=box.SIMPLE_HEAD)
        for heading in ("severity", "finding", "heads", "what"):
            table.add_column(heading, vertical="top", overflow="fold")
        for (severity, rule), group in groupby(
            diagnosis.findings, lambda finding: (finding.severity, finding.name)
        ):
            several = list(group)
            table.add_row(
                f"[{COLORS[severity]}]{severity}[/]",
                rule,
                escape(_heads(diagnosis, several)),
                escape(f"{ended(several[0].sentence)} {ended(several[0].advice)}"),
            )
        console.print(table)
    applied = ", ".join(diagnosis.applied)
    console.print(f"[dim]Looked for: {applied}[/dim]", highlight=False)
    for rule, reason in diagnosis.skipped.items():
        console.print(f"[dim]Not looked for: {rule} ({escape(reason)})[/dim]", highlight=False)


def _heads(diagnosis: Diagnosis, findings: list[Finding]) -> str:
    """Which heads these are: "layer 3: 6, 7"."""
    if findings[0].head is None:
        return "the model"
    names, lines = diagnosis.names, []
    for key, group in groupby(findings[:NAMED], lambda finding: (finding.layer, finding.kind)):
        lines.append(f"{names[key]}: {', '.join(str(finding.head) for finding in group)}")
    if len(findings) > NAMED:
        lines.append(f"… and {len(findings) - NAMED} more")
    return "\n".join(lines)
