"""What every page is made of: one frame, a strict policy, escaped words, styles from `assets`, the built front end.

Knows HTML and what must be escaped; it does not know what is shown.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from regard.errors import MissingPackageError
from regard.html import text
from regard.page import encode


def page(title: str, body: str, *, styles: Sequence[str], program: Program | None = None) -> str:
    """A whole page that loads nothing: its policy allows these styles and scripts, pictures within it, and no more.

    Args:
        title: not yet escaped. body: HTML.
        styles: files of `assets` without their endings, in order.
        program: the front end that draws the page, None for a page without a script.
    """
    style, allowed, script = "".join(asset(f"{name}.css") for name in styles), "", ""
    if program is not None:
        style += program.style
        loader = asset("loader.js")
        # The loader unpacks the program and adds it as an element, whose text the policy must name as well.
        allowed = f"; script-src {_digest(loader)} {_digest(program.script)}"
        packed = encode.packed(program.script.encode())
        script = f'<script type="text/plain" id="program">{packed}</script>\n<script>{loader}</script>\n'
    parts = {
        "policy": f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {_digest(style)}{allowed}",
        "title": text(title),
        "style": style,
        "body": body,
        "script": script,
    }
    return fill("frame", parts)


@dataclass(frozen=True)
class Program:
    """A built front end: its script and its style."""

    script: str
    style: str


def program() -> Program:
    """The front end of pages, as it was built.

    Raises:
        MissingPackageError: it was not, as in a source tree in which `make web` was not run.
    """
    folder = resources.files("regard.web").joinpath("bundle")
    names = ("widget/widget.js", "widget/widget.css", "widget/licenses.md")
    try:
        script, style, licenses = (folder.joinpath(name).read_text("utf-8") for name in names)
        # Who hands a page on hands on what it is made of, which asks to be named with its license.
        return Program(f"/*\n{licenses.replace('*/', '* /')}\n*/\n{script}", style)
    except FileNotFoundError:
        raise MissingPackageError(
            "the front end of pages must be built, and is not: in the source tree, `make web` does it"
        ) from None


def fill(name: str, parts: Mapping[str, str]) -> str:
    """The template `assets/NAME.html` with its markers replaced, in one pass: nothing inserted is searched again."""
    # A record's text may hold @@title@@: it must come out as it is.
    return re.sub(r"@@(\w+)@@", lambda marker: parts[marker[1]], asset(f"{name}.html"))


def asset(name: str) -> str:
    """A file of `assets`."""
    return resources.files("regard.page").joinpath("assets", name).read_text("utf-8")


def pairs(named: Iterable[tuple[str, str]]) -> str:
    """Names and values, for a `<dl>`."""
    return "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in named)


def count(number: int, word: str, several: str = "") -> str:
    """A number with its word: "1 head", "2 heads"."""
    return f"{number:,} {word if number == 1 else several or word + 's'}".replace(",", "\u202f")


def _digest(content: str) -> str:
    # The policy names the digest of the text between the tags: one blank more, and the browser runs nothing.
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
