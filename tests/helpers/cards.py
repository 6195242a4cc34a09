"""What every card of a notebook must be: well-formed HTML that loads and runs nothing, and is not large."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np

VOID = {"img"}
MOST = 200_000  # characters of one card, whatever it shows


class Card(HTMLParser):
    """The parts of a card."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        html = value._repr_html_()  # type: ignore[attr-defined]
        assert isinstance(html, str) and len(html) <= MOST
        self.feed(html)
        self.close()
        assert not self._open, f"not closed: {self._open}"
        self.size = len(html)
        self._check()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def images(self) -> list[np.ndarray]:
        """The indices of each picture's pixels, `(rows, columns)`."""
        return [_pixels(str(attrs["src"])) for tag, attrs in self.tags if tag == "img"]

    def _check(self) -> None:
        allowed = {"div", "style", "code", "span", "figure", "figcaption", "img"}
        allowed |= {"table", "thead", "tbody", "tr", "th", "td"}
        for tag, attrs in self.tags:
            assert tag in allowed, f"a card may not hold <{tag}>"
            assert not any(name.startswith("on") for name in attrs)
            assert "href" not in attrs and "url(" not in str(attrs.get("style"))
            assert re.match("data:image/png;base64,", str(attrs.get("src", "data:image/png;base64,")))


def _pixels(source: str) -> np.ndarray:
    data = base64.b64decode(source.partition(",")[2])
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert crc == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    columns, rows = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(rows, columns + 1)
    assert not lines[:, 0].any() and lines.max() < len(chunks[b"PLTE"]) // 3 == len(chunks[b"tRNS"])
    return lines[:, 1:]
