"""Texts as words, numbers and signs, and the vocabulary of a model.

Knows how a text is split into subwords and put together again: a subword that follows the one before it without a
space begins with `##`, as in WordPiece (Schuster and Nakajima 2012). Knows no task.
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

CONTINUATION = "##"
SPECIAL = ("<pad>", "<start>", "<end>", "<unknown>", "<mask>")
PAD, START, END, UNKNOWN, MASK = range(len(SPECIAL))
FORMAT, VERSION = "regard-vocabulary", 1
_SUBWORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")


def tokenize(text: str, glued: bool = False) -> tuple[str, ...]:
    """Split a text into words, numbers and single signs, in order.

    Args:
        text: any text; `detokenize` gives it back with single, plain spaces.
        glued: whether the text follows another one without a space between them.

    Returns:
        the subwords; those without a space before them begin with `##`.

    >>> tokenize("3:45 PM.")
    ('3', '##:', '##45', 'PM', '##.')
    """
    subwords = []
    for match in _SUBWORD.finditer(text):
        start = match.start()
        if start == 0:
            continues = glued
        else:
            continues = not text[start - 1].isspace()
        subwords.append(CONTINUATION * continues + match[0])
    return tuple(subwords)


def detokenize(subwords: Iterable[str]) -> str:
    """The text of some subwords.

    >>> detokenize(("3", "##:", "##45", "PM", "##."))
    '3:45 PM.'
    """
    # A space before every subword; where that is followed by the mark of a continuation, both go.
    spaced = "".join(f" {subword}" for subword in subwords)
    return spaced.replace(f" {CONTINUATION}", "").removeprefix(" ")


@dataclass(frozen=True)
class Text:
    """A text in subwords, each tagged with what it tells.

    Attributes:
        subwords: as `tokenize` makes them.
        tags: for each subword the names of what it tells, such as "day"; empty for words without a meaning of their
            own.
    """

    subwords: tuple[str, ...]
    tags: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, segments: Iterable[tuple[str, Iterable[str]]]) -> Text:
        """Join segments into one text; every subword of a segment gets all tags of the segment.

        Args:
            segments: (text, names of what it tells), in order; spaces between segments belong to their texts.

        >>> text = Text.of([("March", ["month"]), (" ", []), ("3", ["day"])])
        >>> str(text), [sorted(tags) for tags in text.tags]
        ('March 3', [['month'], ['day']])
        """
        subwords: list[str] = []
        tags: list[frozenset[str]] = []
        before = " "
        for text, names in segments:
            added = tokenize(text, glued=not before.isspace())
            subwords += added
            tags += [frozenset(names)] * len(added)
            # An empty segment changes nothing: what stood before it is then before the next one.
            before = text[-1:] or before
        if subwords:
            subwords[0] = subwords[0].removeprefix(CONTINUATION)
        return cls(tuple(subwords), tuple(tags))

    def __str__(self) -> str:
        return detokenize(self.subwords)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that a model knows, each with its id; the first ids are those of `SPECIAL`.

    Attributes:
        tokens: all but the special ones.

    Raises:
        ArgumentError: a token that is there twice.

    >>> vocabulary = Vocabulary(("a", "seven"))
    >>> vocabulary.encode(["a", "seven"]), vocabulary.decode([5, 6, END, 5])
    ([5, 6], 'a seven')
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self._ids) != len(self):
            double = next(token for i, token in enumerate(self.all) if self._ids[token] != i)
            raise ArgumentError(
                f"tokens must differ from each other and from {SPECIAL}, got {double!r} twice"
            )

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.tokens)

    @property
    def all(self) -> tuple[str, ...]:
        """Every token, the special ones first, by its id."""
        return (*SPECIAL, *self.tokens)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.all)}

    def encode(self, subwords: Iterable[str], *, unknown: bool = False) -> list[int]:
        """The ids of subwords.

        Args:
            subwords: the subwords. unknown: take `<unknown>` for those that are not known, instead of raising.

        Raises:
            ArgumentError: a subword that is not known; says which ones are close.
        """
        ids = []
        for subword in subwords:
            if subword in self._ids:
                ids.append(self._ids[subword])
            elif unknown:
                ids.append(UNKNOWN)
            else:
                word = subword.removeprefix(CONTINUATION)
                raise ArgumentError(f"the text must be of known words, got {word!r}; {self._close(word)}")
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, up to `<end>`, without the other special tokens."""
        subwords = []
        for number in ids:
            if number == END:
                break
            if number >= len(SPECIAL):
                subwords.append(self.all[number])
        return detokenize(subwords)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the tokens as JSON.

        Raises:
            ArgumentError: it cannot be written there.
        """
        # The name in the file is older than the attribute's; files that were written with it are sealed.
        body = {"format": FORMAT, "version": VERSION, "words": self.tokens}
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
            written_as = (body["format"], body["version"])
            tokens = tuple(body["words"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"{path}: is no vocabulary that can be read: {error}") from error
        if written_as != (FORMAT, VERSION) or not all(isinstance(token, str) for token in tokens):
            raise ArgumentError(f"{path}: is no vocabulary that this Regard reads")
        return cls(tokens)

    def _close(self, word: str) -> str:
        """What to say of a word that is not known: the close ones that are, or how many there are."""
        # A word is known twice where it also follows others without a space.
        known = dict.fromkeys(token.removeprefix(CONTINUATION) for token in self.tokens)
        near = close_to(word, known)
        if near.startswith("did"):
            return near
        return f"{len(self.tokens):,} words are known"
