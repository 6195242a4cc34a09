"""What `regard look TASK` prints: the answer of a trained model, and line by line where its attention was."""

from __future__ import annotations

import re
from os.path import isfile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from regard.errors import ArgumentError, require
from regard.tasks.common.looks import look
from regard.tasks.common.result import Result

# Of a line, by the mark that is one of its cells.
COLORS = {"✓": "green", "✗": "red", "▶": "bold"}
NUMBERS = "weight", "share", "number"  # columns of numbers
FILES = ".txt", ".md", ".rst", ".py", ".png", ".jpg", ".jpeg", ".gif", ".bmp", ".pdf"


def given(text: str | None, file: Path | None) -> str | Path | None:
    """What the user gave: a text, or the file that it is in.

    Raises:
        ArgumentError: both, or the name of a file that is not there.
    """
    if text is not None and file is not None:
        raise ArgumentError("the text must come from the command line or from --file, got both")
    if file is not None or text is None:
        return file
    # False, and no error, where a text is too long for a name.
    if isfile(text):
        return Path(text)
    # A mistyped file's name would otherwise be translated, or read as a story.
    if text.lower().endswith(FILES) and not re.search(r"\s", text):
        raise ArgumentError(f"the file must be there, and there is no {text!r}")
    return text


def read(file: Path) -> str:
    """The text of a file.

    Raises:
        ArgumentError: it cannot be read, or is no text.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(
            f"the file must be one that can be read, got {str(file)!r}: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"the file must hold UTF-8 text, got {str(file)!r}, which does not at byte {error.start}"
        ) from error


def show(console: Console, task: str, source: str | Path | None, only: str | None, to: str | None) -> Result:
    """Run a trained model of a task on an input and print what came of it."""
    # A model of a few megabytes is loaded in no time, and its bar would stand above the answer.
    require("transformers", extra="train").utils.logging.disable_progress_bar()
    if isinstance(source, Path) and task != "caption":
        source = read(source)
    result = look(task, source, model=only, into=to)
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in result.header:
        table.add_column(name, justify="right" if name in NUMBERS else "left")
    for row in result.rows:
        # A row has the color of its own mark; a cell that ends in one has that mark's.
        style = next((color for mark, color in COLORS.items() if mark in row), None)
        table.add_row(*map(_cell, row), style=style)
    console.print(f"[bold]{escape(result.said)}[/bold]", highlight=False)
    console.print(table)
    for note in result.notes:
        console.print(escape(note), highlight=False)
    return result


def _cell(text: str) -> str:
    """A cell as markup: one that ends in a mark of its own has that mark's color."""
    color = COLORS.get(text[-1:])
    if color is None or len(text) == 1:
        return escape(text)
    return f"[{color}]{escape(text)}[/{color}]"
