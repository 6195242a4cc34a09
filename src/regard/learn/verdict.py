"""What a check says: messages, each of a kind, and whether the exercise is passed. Knows how they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from regard import html

Kind: TypeAlias = Literal["must_mend", "could_be_better", "note", "praise"]
TITLES: dict[Kind, str] = {
    "must_mend": "must mend",
    "could_be_better": "could be better",
    "note": "note",
    "praise": "well done",
}
MARKS: dict[Kind, str] = {"must_mend": "✗", "could_be_better": "△", "note": "·", "praise": "✓"}


@dataclass(frozen=True)
class Example:
    """The smallest input that shows what a message says, as text.

    Attributes:
        inputs: the call, input by input. expected: what must come out. got: what came out.
    """

    inputs: str
    expected: str
    got: str

    def lines(self) -> list[tuple[str, str]]:
        """The three parts with their names."""
        return [("input", self.inputs), ("expected", self.expected), ("got", self.got)]


@dataclass(frozen=True)
class Message:
    """One thing that is said about a solution.

    Attributes:
        kind: "must_mend", "could_be_better", "note" or "praise".
        text: one or two sentences.
        variant: the name of the known mistake, where the solution does what that does on every input; "" otherwise.
        example: input, expected and got; None where nothing is to be shown.
    """

    kind: Kind
    text: str
    variant: str = ""
    example: Example | None = None

    def __str__(self) -> str:
        lines = [f"{MARKS[self.kind]} {self.text}"]
        for name, shown in self.example.lines() if self.example else ():
            first, *rest = shown.splitlines() or [""]
            lines.append(f"    {name:<9} {first}")
            lines += [" " * 14 + line for line in rest]
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """Whether an exercise is passed, and what is to be said about the solution.

    Attributes:
        passed: no message is of the kind "must_mend".
        messages: in the order of their weight.
        exercise: the name of the exercise.
    """

    passed: bool
    messages: tuple[Message, ...]
    exercise: str = ""

    def __str__(self) -> str:
        return "\n".join([self.headline, *map(str, self.messages)])

    @property
    def headline(self) -> str:
        """The name of the exercise and whether it is passed."""
        return f"{self.exercise}: {'passed' if self.passed else 'not passed yet'}"

    def _repr_html_(self) -> str:
        parts = [html.heading("Exercise", self.exercise, ["passed" if self.passed else "not passed yet"])]
        for message in self.messages:
            # Each kind has its word beside its sign: a sign alone is not read aloud.
            title = f"<strong>{MARKS[message.kind]} {html.text(TITLES[message.kind])}</strong>"
            parts.append(f'<p style="margin:8px 0 0;max-width:80ch">{title}: {html.text(message.text)}</p>')
            if message.example:
                rows = "".join(
                    f'<dt style="opacity:.68">{name}</dt><dd style="margin:0 0 4px 16px">'
                    f'<pre style="margin:0;white-space:pre-wrap;overflow-wrap:anywhere">{html.text(shown)}</pre></dd>'
                    for name, shown in message.example.lines()
                )
                parts.append(f'<dl style="margin:4px 0 0 16px">{rows}</dl>')
        return html.card(*parts)
