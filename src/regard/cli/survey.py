"""`regard survey`: watch a model on many texts, print a table of its heads, write a page and a Parquet table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from regard import embedded, files
from regard.cli import models
from regard.cli.look import COLUMNS, LINES, write
from regard.cli.texts import Texts
from regard.errors import ArgumentError, ModelError
from regard.record import Profile
from regard.record.layers import short_names
from regard.statistics.table import SHARES, TABLE
from regard.survey import Corpus
from regard.survey import survey as read_texts
from regard.survey.processes import Processes

# Texts that failed and are printed; the page has more, the ledger all.
FAILURES = 5


def survey(
    model: Annotated[
        str,
        typer.Argument(
            help="A local folder, a Hugging Face name, or language: the embedded model.", show_default=False
        ),
    ] = "language",
    *,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="A file, each of whose lines is a text (each paragraph, where blank lines part them); a folder, each "
            "of whose files is one; or a Parquet file."
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="In place of --texts: a file, folder or pattern of lines, JSON lines, Parquet or Arrow files, which "
            "need not fit in memory; an address such as s3://bucket/texts too."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Of a Parquet file or a corpus: the column of the texts; without it, text, or of --texts the only "
            "one of strings."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Cut longer texts to this many tokens.")] = 512,
    batch_size: Annotated[int, typer.Option(help="How many texts go through the model together.")] = 1,
    folder: Annotated[
        str | None,
        typer.Option(
            help="Keep a ledger in this folder, by which a stopped survey can go on. A corpus must have one."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on with the ledger that is in the folder; else that is an error.")
    ] = True,
    report: Annotated[
        Path | None, typer.Option(help="Write a page (HTML) with intervals and pictures here.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="Write the means of the heads with their intervals here (Parquet).")
    ] = None,
    profile: Annotated[Path | None, typer.Option(help="Keep the profile in this file, for rg.load.")] = None,
    device: Annotated[str, typer.Option(help="Where the model runs: cpu, cuda, mps …")] = "cpu",
) -> None:
    """Show what every attention head of a model does on average over many texts, and how sure that is."""
    # Of the processes of a launch one speaks and writes.
    main = Processes.here(cpu=device == "cpu").index == 0
    console = Console(emoji=False, quiet=not main)
    for name, number in (("--max-tokens", max_tokens), ("--batch-size", batch_size)):
        if number < 1:
            raise ArgumentError(f"{name} must be at least 1, got {number}")
    source = _source(texts, corpus, column)
    # Before hours of work are done for files that cannot be written.
    for path in (report, parquet, profile):
        if path is not None:
            check_writable(path)
    with Progress(SpinnerColumn(), TextColumn("loading the model"), console=console, transient=True) as bar:
        bar.add_task("loading", total=None)
        reader = models.load(embedded.folder() if model == "language" else model, device)
    tokens = min(max_tokens, reader.limit or max_tokens)
    parts = [SpinnerColumn(), TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("texts")]
    with Progress(*parts, TimeRemainingColumn(), console=console, transient=True) as bar:
        # How many texts a corpus has is known when it has been read.
        task = bar.add_task("reading", total=source.count if isinstance(source, Texts) else None)
        seen = read_texts(
            reader.model,
            source,
            tokenizer=tokenizer_of(reader, tokens),
            tokens=tokens,
            batch_size=batch_size,
            folder=folder,
            resume=resume,
            progress=lambda done: bar.update(task, completed=done),
        )
    # All processes have the same profile here, and two that write one file would race.
    if not main:
        return
    name = reader.name
    if model == "language":
        name = "Regard's embedded model"
    _print(console, name, seen, tokens)
    if profile is not None:
        seen.save(profile)
        console.print(f"The profile: {profile}", highlight=False)
    if parquet is not None:
        table = seen.intervals()
        with files.replacing(parquet, error=ModelError, what="table") as unfinished:
            table.to_parquet(unfinished, index=False)
        console.print(f"The table: {parquet}", highlight=False)
    if report is not None:
        # Imported here, as without a report nothing needs to draw.
        from regard.page import profile as page

        title = f"{name}: {corpus if texts is None else texts.name}"
        write(report, page(seen, title=title), "report")
        console.print(f"The report: {report}   (open it in a browser; it needs no network)", highlight=False)


def _source(texts: Path | None, corpus: str | None, column: str | None) -> Texts | Corpus:
    """What is read."""
    if (texts is None) == (corpus is None):
        raise ArgumentError("one of --texts and --corpus must be given, and not both")
    if texts is not None:
        return Texts.of(texts, column)
    return Corpus(corpus or "", column=column or "text")


def tokenizer_of(reader: models.Reader, tokens: int) -> Callable[..., Any]:
    """The model's tokenizer; for an encoder–decoder a function that writes a reply too, so that its decoder is seen."""
    if not reader.answers:
        tokenizer: Callable[..., Any] = reader.tokenizer
        return tokenizer

    def arguments(texts: list[str]) -> dict[str, Any]:
        if not all(texts):
            raise ModelError("the text must have at least one token, and it has none: is it empty?")
        many = len(texts) > 1
        encoded = reader.tokenizer(
            texts, return_tensors="pt", truncation=True, max_length=tokens, padding=many, verbose=False
        )
        return reader.inputs(encoded)

    return arguments


def check_writable(path: Path) -> None:
    """Raise ModelError unless a file can be written there; the folders above it are there afterwards."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.check_writable(path)
    except OSError as error:
        raise ModelError(
            f"{str(path)!r} must be a file that can be written: {error.strerror or error}"
        ) from error


def _print(console: Console, name: str, seen: Profile, tokens: int) -> None:
    intervals = seen.intervals()
    shown = {key: short for key, short in COLUMNS.items() if key in set(intervals["statistic"])}
    numbers = intervals.set_index(["layer", "kind", "head", "statistic"])[["mean", "low", "high"]].to_dict(
        "index"
    )
    heads = [(key, head) for key, layer in seen.layers.items() for head in range(len(layer.queries))]
    table = Table(
        title=f"{name}: {len(heads)} attention heads, {seen.texts} texts",
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("layer", "head", *shown.values()):
        table.add_column(heading, justify="left" if heading == "layer" else "right", no_wrap=True)
    names = short_names([key[0] for key in seen.layers], [key[1] for key in seen.layers])
    short = dict(zip(seen.layers, names, strict=True))
    for key, head in heads[:LINES]:
        # A line of a narrow terminal has room for one interval; the page and the Parquet table have all.
        cells = [
            _cell(numbers.get((*key, head, statistic)), margin=column == 0)
            for column, statistic in enumerate(shown)
        ]
        table.add_row(short[key], str(head), *cells)
    console.print(table)
    if len(heads) > LINES:
        console.print(f"… and {len(heads) - LINES} more heads, in the report")
    console.print(
        "[dim]Means over texts; ±: half of their interval of 95 % confidence[/dim]", highlight=False
    )
    parameters: dict[str, Any] = {}
    for layer in seen.layers.values():
        parameters |= layer.parameters
    for statistic, heading in shown.items():
        meaning = (TABLE.get(statistic) or SHARES[statistic]).explained(parameters)
        console.print(f"[dim]{heading}: {meaning}[/dim]", highlight=False)
    if seen.truncated:
        console.print(f"{seen.truncated} texts were cut to {tokens} tokens", highlight=False)
    if seen.failures:
        console.print(f"{len(seen.failures)} texts could not be read:", highlight=False)
        for failure in seen.failures[:FAILURES]:
            console.print(
                f"  text {failure.number}: {failure.type}: {failure.message}", highlight=False, markup=False
            )


def _cell(numbers: dict[str, float] | None, *, margin: bool) -> str:
    """A mean, and half of its interval, which fewer than two texts do not have."""
    if numbers is None:
        return "–"
    half = numbers["high"] - numbers["mean"]
    # NaN is unequal to itself: fewer than two texts have no interval.
    if not margin or half != half:
        return f"{numbers['mean']:.2f}"
    return f"{numbers['mean']:.2f} ±{half:.2f}"
