"""Texts as words, numbers and signs, and the list of all of them that a model knows.

Knows how a text falls into pieces and how pieces become the text again: a piece that follows the one before it without
a space begins with `##`, as in WordPiece (Schuster and Nakajima 2012). Knows no task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

from regard import files
from regard.errors import ArgumentError
from regard.statistics.observation import close_to

GLUE = "##"
SPECIAL = ("<pad>", "<start>", "<end>", "<unknown>", "<mask>")
PAD, START, END, UNKNOWN, MASK = range(len(SPECIAL))
FORMAT, VERSION = "regard-vocabulary", 1
_PIECE = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")


def pieces(text: str, glued: bool = False) -> tuple[str, ...]:
    """The words, numbers and signs of a text, in order.

    Args:
        text: any text; `joined` gives it back with single, plain spaces.
        glued: whether it follows another text without a space.
    """
    found = []
    for match in _PIECE.finditer(text):
        start = match.start()
        together = glued if start == 0 else not text[start - 1].isspace()
        found.append(GLUE * together + match[0])
    return tuple(found)


def joined(parts: Iterable[str]) -> str:
    """The text of some pieces."""
    return "".join(part[len(GLUE) :] if part.startswith(GLUE) else f" {part}" for part in parts).removeprefix(
        " "
    )


@dataclass(frozen=True)
class Text:
    """A text in pieces, each with what it says.

    Attributes:
        pieces: as `pieces` makes them.
        says: for each piece the names of what it tells, such as "day"; none for words without a meaning of their own.
    """

    pieces: tuple[str, ...]
    says: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, segments: Iterable[tuple[str, Iterable[str]]]) -> Text:
        """The text that segments make when they are written one after the other, each with what it says."""
        found: list[str] = []
        says: list[frozenset[str]] = []
        before = " "
        for text, names in segments:
            own = pieces(text, glued=not before.isspace())
            found += own
            says += [frozenset(names)] * len(own)
            before = text[-1:] or before
        if found:
            found[0] = found[0].removeprefix(GLUE)
        return cls(tuple(found), tuple(says))

    def __str__(self) -> str:
        return joined(self.pieces)


@dataclass(frozen=True)
class Vocabulary:
    """The pieces that a model knows, by number; the first are `SPECIAL`.

    Attributes:
        words: all but the special ones.

    Raises:
        ArgumentError: a word that is there twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self._numbers) != len(self):
            double = next(word for i, word in enumerate(self.all) if self._numbers[word] != i)
            raise ArgumentError(f"words must differ from each other and from {SPECIAL}, got {double!r} twice")

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.words)

    @property
    def all(self) -> tuple[str, ...]:
        """Every piece, by its number."""
        return (*SPECIAL, *self.words)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.all)}

    def encode(self, parts: Iterable[str], *, unknown: bool = False) -> list[int]:
        """Numbers of pieces.

        Args:
            parts: the pieces. unknown: take `<unknown>` for those that are not known, instead of raising.

        Raises:
            ArgumentError: a piece that is not known; says which ones are close.
        """
        numbers = []
        for part in parts:
            number = self._numbers.get(part, UNKNOWN if unknown else None)
            if number is None:
                raise ArgumentError(
                    f"the text must be of known words, got {part.removeprefix(GLUE)!r}; {self._close(part)}"
                )
            numbers.append(number)
        return numbers

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of numbers, up to `<end>`, without the other special ones."""
        found = []
        for number in numbers:
            if number == END:
                break
            if number >= len(SPECIAL):
                found.append(self.all[number])
        return joined(found)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the words as JSON.

        Raises:
            ArgumentError: it cannot be written there.
        """
        body = {"format": FORMAT, "version": VERSION, "words": self.words}
        text = json.dumps(body, ensure_ascii=False, indent=0) + "\n"
        files.write(path, text, error=ArgumentError, what="vocabulary")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Vocabulary:
        """Read what `save` wrote.

        Raises:
            ArgumentError: no vocabulary, or one of another version; names the file.
        """
        try:
            body = json.loads(Path(path).read_text(encoding="utf-8"))
            found = (body["format"], body["version"])
            words = tuple(body["words"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"{path}: is no vocabulary that can be read: {error}") from error
        if found != (FORMAT, VERSION) or not all(isinstance(word, str) for word in words):
            raise ArgumentError(f"{path}: is no vocabulary that this Regard reads")
        return cls(words)

    def _close(self, part: str) -> str:
        # A word is known twice where it also follows others without a space.
        known = dict.fromkeys(word.removeprefix(GLUE) for word in self.words)
        near = close_to(part.removeprefix(GLUE), known)
        return near if near.startswith("did") else f"{len(self.words):,} words are known"
