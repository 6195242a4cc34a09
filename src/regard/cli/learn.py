"""`regard learn`: exercises that are checked whenever their file is saved; quizzes are in `quiz`. Knows no exercise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli import interrupts, keys
from regard.cli import quiz as questions
from regard.errors import ArgumentError, require
from regard.learn.checking import check_file, exercise, exercises
from regard.learn.verdict import MARKS, TITLES
from regard.learn.workshop import Workshop

if TYPE_CHECKING:
    from regard.learn.exercise import Exercise
    from regard.learn.store import Learner
    from regard.learn.verdict import Verdict

# Seconds between two looks at the file.
EVERY = 0.2
# Characters of a file that are written down.
MOST_TEXT = 100_000
STYLES = {"must_mend": "red", "could_be_better": "yellow", "note": "dim", "praise": "green"}
KEYS = {"n": "next", "h": "hint", "s": "solution", "l": "list", "r": "reset", "q": "quit"}


def learn(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[EXERCISE]",
            help="Which exercise, such as attention or causal-mask; without it, the first that is not passed.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where the files to fill in lie.")] = Path("regard-exercises"),
    listed: Annotated[bool, typer.Option("--list", help="Say which exercises there are, and end.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Check once, and end: with status 0 if passed, else 1.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Begin the exercise anew; your text stays beside it.")
    ] = False,
    quiz: Annotated[
        bool, typer.Option("--quiz", help="Questions instead: those that are due, then new ones.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            help="With --quiz: a saved record or profile that the questions are about, instead of the embedded model.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="With --quiz: how many questions at most.")] = 10,
    database: Annotated[
        str,
        typer.Option(
            envvar="REGARD_DATABASE",
            help="The URL of the database of progress, SQLite or PostgreSQL; by default a file of your own.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Write attention yourself: exercises that are checked when you save, and say what is wrong; and quizzes."""
    require("sqlalchemy", extra="learn")
    from regard.learn.store import Store

    if record is not None and not quiz:
        raise ArgumentError("--record must go with --quiz, got it alone")
    console = Console(emoji=False, highlight=False)
    learner = Store(database).learner()
    if quiz:
        questions.run(console, learner, record, count)
        return
    workshop = Workshop(folder)
    if listed:
        console.print(_table(learner, workshop))
        return
    if reset and name is None:
        raise ArgumentError("--reset must have the name of an exercise, got none")
    current = exercise(name) if name is not None else _first_open(learner)
    if reset:
        _reset(console, workshop, learner, current)
        return
    path = workshop.open(current)
    if once:
        verdict = check_file(path, current.name)
        show(console, verdict)
        remember(learner, workshop, current, verdict)
        if not verdict.passed:
            raise typer.Exit(1)
        return
    # From here on the terminal gives keys without a line to end.
    with keys.single() as key:
        Loop(console, learner, workshop, key).run(current)


class Loop:
    """Checks an exercise whenever its file is saved, and obeys keys.

    Args:
        console: where verdicts go. learner: who has passed what. workshop: the files.
        key: waits for a key, so many seconds at most.
    """

    def __init__(self, console: Console, learner: Learner, workshop: Workshop, key: keys.Key) -> None:
        self.console, self.learner, self.workshop, self.key = console, learner, workshop, key
        self.hints = 0

    def run(self, current: Exercise) -> None:
        """Until the learner quits."""
        stamp: object = ()
        self._greet(current)
        while True:
            interrupts.check()
            now = self.workshop.stamp(current)
            # A file that is saved while it is checked is checked again.
            if now is not None and now != stamp:
                stamp = now
                self._check(current)
            match self.key(EVERY).lower():
                case "q" | keys.END:
                    return
                case "n":
                    following = self._next(current)
                    if following is not current:
                        current, stamp, self.hints = following, (), 0
                        self._greet(current)
                case "h":
                    self._hint(current)
                case "s":
                    self._solution(current)
                case "l":
                    self.console.print(_table(self.learner, self.workshop))
                case "r":
                    _reset(self.console, self.workshop, self.learner, current)
                    self.hints = 0

    def _greet(self, current: Exercise) -> None:
        path = self.workshop.open(current)
        self.console.rule(f"{current.name}, lesson {current.lesson}", align="left")
        self.console.print(current.statement)
        self.console.print(f"\nWrite {current.function} in [bold]{path}[/bold] and save.", soft_wrap=True)

    def _check(self, current: Exercise) -> None:
        verdict = check_file(self.workshop.open(current), current.name)
        self.console.print()
        show(self.console, verdict)
        remember(self.learner, self.workshop, current, verdict)
        # The solution is shown only after passing, and so is the way on.
        shown = {
            letter: word
            for letter, word in KEYS.items()
            if verdict.passed or word not in ("next", "solution")
        }
        line = "   ".join(f"[bold]{letter}[/bold] {word}" for letter, word in shown.items())
        self.console.print(f"[dim]{line}[/dim]")

    def _next(self, current: Exercise) -> Exercise:
        """The exercise to go on with; the current one where it is not passed, or is the last."""
        passed = self.learner.passed()
        if current.name not in passed:
            self.console.print("This one is not passed yet. Another one: regard learn EXERCISE.")
            return current
        # Those after this one first, then those that were left out.
        every = exercises()
        at = every.index(current)
        for following in (*every[at + 1 :], *every[:at]):
            if following.name not in passed:
                return following
        self.console.print("All exercises are passed.")
        return current

    def _hint(self, current: Exercise) -> None:
        self.hints = min(self.hints + 1, len(current.hints))
        self.learner.hint(current.name, self.hints)
        self.console.print(
            f"Hint {self.hints} of {len(current.hints)}: {current.hints[self.hints - 1]}", markup=False
        )

    def _solution(self, current: Exercise) -> None:
        if current.name not in self.learner.passed():
            self.console.print("The solution is shown once yours passes. h gives a hint.")
            return
        self.console.print(f"\n{current.solved}", markup=False)


def show(console: Console, verdict: Verdict) -> None:
    """Print a verdict: each message in the color of its kind, and its example."""
    style = "bold green" if verdict.passed else "bold"
    console.print(Text(verdict.headline, style))
    for message in verdict.messages:
        head = Text(f"{MARKS[message.kind]} {TITLES[message.kind]}: ", STYLES[message.kind])
        console.print(head + Text(message.text))
        for part, text in message.example.lines() if message.example else ():
            # Without markup: brackets of an array are no style.
            grid = Table.grid(padding=(0, 2))
            grid.add_row(Text(f"  {part:<8}", "dim"), Text(text, no_wrap=True, overflow="ignore"))
            console.print(grid)


def remember(learner: Learner, workshop: Workshop, current: Exercise, verdict: Verdict) -> None:
    """Write down a check of a file: whether it passed, what was checked, and the mistake that is known."""
    text = workshop.text(current)
    # A file that was only laid out must not take the place of what was written elsewhere.
    if text == current.unsolved:
        return
    variant = next((message.variant for message in verdict.messages if message.variant), "")
    learner.checked(current.name, verdict.passed, text=text[:MOST_TEXT], variant=variant)


def _first_open(learner: Learner) -> Exercise:
    """The first exercise that is not passed; where all are, the first."""
    passed = learner.passed()
    return next((one for one in exercises() if one.name not in passed), exercises()[0])


def _reset(console: Console, workshop: Workshop, learner: Learner, current: Exercise) -> None:
    before = workshop.reset(current)
    learner.begin_anew(current.name)
    console.print(f"{workshop.path(current)} begins anew; what you wrote is in {before}.", soft_wrap=True)


def _table(learner: Learner, workshop: Workshop) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("", "exercise", "lesson", "file"):
        table.add_column(title, no_wrap=True)
    passed = learner.passed()
    for one in exercises():
        mark = Text("✓ passed", "green") if one.name in passed else Text("open", "dim")
        table.add_row(mark, one.name, str(one.lesson), str(workshop.path(one)))
    return table
