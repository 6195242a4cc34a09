"""A row of dates through one fixed vector and, beside it, with attention: the contrast that `bottleneck` is for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from regard import draw
from regard.draw.contrast import contrast as draw_contrast
from regard.tasks.bottleneck.data import BETWEEN
from regard.tasks.common.result import MARKS, SURE, Result, Written
from regard.tasks.common.tokenizer import CONTINUATION
from regard.tasks.translate.read_text import Source, best_head, run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Five dates are more than one vector holds, and no more than attention brings.
TEXT = "Thursday, 3 March 2022; Monday, 4 July 1994; Sunday, 9 May 1976; Friday, 17 August 2035; Tuesday, 2 June 1908"


def contrast(text: str | None, model: str, other: str, into: str) -> Result:
    """Translate a row of dates without attention and with it.

    Args:
        text: English dates with "; " between them; None: an example.
        model: the one without attention. other: the one with it.
        into: "fr" or "de".

    Raises:
        ArgumentError: no text, a word that is not known.
    """
    source = Source.of("bottleneck", TEXT if text is None else text, into)
    vector, vocabulary = run(source, model)
    attention, _ = run(source, other)
    outputs = [vocabulary.decode(written.ids) for written in (vector, attention)]
    rows = _rows(source, outputs)
    marks = [_marks(source, number, row) for number, row in enumerate(rows)]
    header = ("read", f"{model}: one vector", f"{other}: attention")
    lines = tuple(
        (row[0], *(f"{cell} {MARKS[mark]}".strip() for cell, mark in zip(row[1:], marked, strict=True)))
        for row, marked in zip(rows, marks, strict=True)
    )
    notes = (*_notes(source, marks, header), *vector.doubts(SURE["bottleneck"]))
    title = "The same dates through one fixed vector, and with attention"
    table = draw_contrast(header, rows, marks, title=title)
    attention.record.info["model"] = f"bottleneck, {model} beside {other}"
    figures = ((" ".join(notes), table), _heatmap(other, attention))
    return Result(outputs[0], header, lines, notes, attention.record, figures)


def _rows(source: Source, outputs: list[str]) -> list[tuple[str, ...]]:
    """For each date what was read, and what each model wrote in its place."""
    columns = [text.split(BETWEEN.strip()) for text in (source.text, *outputs)]
    return [tuple(cell.strip() for cell in row) for row in zip_longest(*columns, fillvalue="")]


def _marks(source: Source, number: int, row: tuple[str, ...]) -> tuple[bool | None, ...]:
    """Whether what each model wrote of a date is right; None where it is not known what is."""
    targets = [str(pair.target).split(BETWEEN) for pair in source.pairs]
    if not targets:
        return tuple(None for _ in row[1:])
    wanted = {dates[number] for dates in targets if number < len(dates)}
    return tuple(cell in wanted for cell in row[1:])


def _notes(
    source: Source,
    marks: list[tuple[bool | None, ...]],
    header: tuple[str, ...],
) -> Iterator[str]:
    if source.pairs:
        for name, column in zip(header[1:], zip(*marks, strict=True), strict=True):
            yield f"{name} brought {column.count(True)} of {len(column)} dates."
        yield f"Right is {source.wanted}."
    # What is right has been said, of both outputs.
    yield from source.notes(next(iter(source.pairs), None))


def _heatmap(model: str, written: Written) -> tuple[str, Figure]:
    call, head = best_head("bottleneck", model, written)
    (subwords,) = written.record.source_tokens or [[]]
    keys = [subword.removeprefix(CONTINUATION) for subword in subwords]
    title = f"{model}: what it looked at while it wrote"
    figure = draw.heatmap(call.weights(head), tokens=written.words, key_tokens=keys, title=title)
    under = (
        f"Where {call.layer}, head {head}, looked while it wrote each word. The fixed vector has no such map: "
        "what its decoder knows of the whole row is one state."
    )
    return under, figure
