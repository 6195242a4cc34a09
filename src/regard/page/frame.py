"""What every page is made of: one frame, a strict policy, escaped words, styles and scripts from `assets`.

Knows HTML and what must be escaped; it does not know what is shown.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from regard.html import text


def page(title: str, body: str, *, styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """A whole page that loads nothing: its policy allows these styles and scripts, pictures within it, and no more.

    Args:
        title: not yet escaped. body: HTML.
        styles, scripts: files of `assets` without their endings, in order.
    """
    style = "".join(asset(f"{name}.css") for name in styles)
    script = ""
    if scripts:
        sources = "\n".join(asset(f"{name}.js") for name in scripts)
        # One function around all of them: their names stay out of the page's global scope.
        script = f'"use strict";\n(() => {{\n{sources}}})();\n'
    allowed = ""
    if script:
        allowed = f"; script-src {_digest(script)}"
    parts = {
        "policy": f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {_digest(style)}{allowed}",
        "title": text(title),
        "style": style,
        "body": body,
        "script": f"<script>{script}</script>\n" if script else "",
    }
    return fill("frame", parts)


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
