"""What people wrote about their code: summaries and the sentences below them, from the source files of packages.

Knows where packages lie, Python's syntax tree and how docstrings are laid out; knows no task and no split.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.tasks.language.files import python_files

SITE = ("site-packages", "dist-packages")
SKIPPED = {*SITE, "test", "tests", "testing", "__pycache__", "_vendor", "lib-dynload"}
# Sentences below a summary, at least and at most: with a single one there is nothing to choose from.
FEWEST, MOST = 2, 30
WORDS = (4, 60)  # in a sentence
SUMMARY = (4, 25)  # words in a summary
# Documents, at most, so that no package is most of the data.
PER_PACKAGE = 1500

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_MARKUP = re.compile(r":[\w:]+:`~?([^`<]+?)(?: <[^`]*>)?`|`{1,2}([^`]*)`{1,2}|\*\*?([^*\s][^*]*)\*\*?")
_HEADING = re.compile(
    r"(args|arguments|parameters?|params|returns?|yields|raises|attributes|methods|examples?|notes?|references?"
    r"|see also|warnings?|usage|warns|keyword arguments|other parameters|inputs?|outputs?|shape)\s*:?$",
    re.IGNORECASE,
)
_NO_PROSE = re.compile(r">>>|\.\. |^\s*([-*+|=]|\d+[.)]|:\w+|@\w+)|[=|{}<>]|::$", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """A docstring.

    Attributes:
        package: that it is from. name: of what it is about, in its file.
        summary: its first line. sentences: of the prose below, in order.
    """

    package: str
    name: str
    summary: str
    sentences: tuple[str, ...]


def packages(roots: Iterable[Path] | None = None) -> dict[str, list[Path]]:
    """The packages in some folders: name → source files, sorted by name.

    A module that lies in a folder itself, as many of the standard library do, is a package of its own.

    Args:
        roots: the folders; None: the standard library's and those of what is installed. Of a package that is in two of
            them, that in the first counts.
    """
    if roots is None:
        roots = _roots()
    every: dict[str, list[Path]] = {}
    for root in roots:
        here: dict[str, list[Path]] = {}
        for file in python_files(root, SKIPPED):
            here.setdefault(file.relative_to(root).parts[0].removesuffix(".py"), []).append(file)
        # Those of earlier folders last, as of two values for a name the second stays.
        every = here | every
    return dict(sorted(every.items()))


def documents(package: str, files: Iterable[Path]) -> list[Document]:
    """The docstrings of a package's files that have a summary and enough prose, each text once.

    Args:
        package: its name. files: its source files; those that Python cannot parse are skipped.

    Returns:
        at most `PER_PACKAGE`, from files in an order that has nothing to do with their names.
    """
    by_text: dict[tuple[str, tuple[str, ...]], Document] = {}
    # By a hash of the path: a large package is not represented by the modules whose names begin with "a".
    for file in sorted(files, key=_path_hash):
        for document in _of_file(package, file):
            by_text.setdefault((document.summary, document.sentences), document)
        if len(by_text) >= PER_PACKAGE:
            break
    return list(by_text.values())[:PER_PACKAGE]


def parse(package: str, name: str, text: str) -> Document | None:
    """Read a docstring as a document; None where it has no summary line, or too little prose below it.

    Args:
        package: that it is from. name: of what it is about. text: the docstring, as it is in the source.

    >>> text = "Read a file that is open.\\n\\n    The file is read to its end. It is not closed after that.\\n"
    >>> parse("io", "read", text).sentences
    ('The file is read to its end.', 'It is not closed after that.')
    """
    paragraphs = re.split(r"\n\s*\n", _without_marks(inspect.cleandoc(text)))
    summary = paragraphs[0].strip()
    if "\n" in summary or not _between(SUMMARY, summary) or _NO_PROSE.search(summary):
        return None
    sentences: list[str] = []
    for paragraph in paragraphs[1:]:
        # What comes after the first heading (arguments, returns, examples) is no prose about the whole.
        if _HEADING.match(paragraph.split("\n", 1)[0].strip()):
            break
        if paragraph.startswith(" ") or _NO_PROSE.search(paragraph):
            continue
        sentences += _SENTENCE.split(" ".join(paragraph.split()))
    prose = tuple(dict.fromkeys(s for s in sentences if _between(WORDS, s) and s != summary))
    if len(prose) < FEWEST:
        return None
    return Document(package, name, summary, prose[:MOST])


def _of_file(package: str, file: Path) -> Iterator[Document]:
    try:
        with warnings.catch_warnings():
            # Of invalid escapes in other people's files.
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        # Templates and sources of other versions of Python lie in packages too.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text and (document := parse(package, getattr(node, "name", file.stem), text)):
                yield document


def _roots() -> list[Path]:
    """The standard library, and every folder that packages are installed in."""
    sites = [Path(path) for path in sys.path if Path(path).name in SITE]
    return list(dict.fromkeys([Path(sysconfig.get_path("stdlib")), *filter(Path.is_dir, sites)]))


def _path_hash(file: Path) -> str:
    # The last three parts only: where a package is installed must not matter.
    return hashlib.sha256("/".join(file.parts[-3:]).encode()).hexdigest()


def _without_marks(text: str) -> str:
    return _MARKUP.sub(lambda match: next(filter(None, match.groups()), ""), text)


def _between(limits: tuple[int, int], text: str) -> bool:
    return limits[0] <= len(text.split()) <= limits[1]
