"""Reads a report back without its script: the HTML tree, the index, and the arrays in the block behind it."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np

VOID = {"meta", "link", "br", "wbr", "input", "img", "hr"}
TYPES = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "log8": np.uint8}


@dataclass
class Page(HTMLParser):
    """Tags with their attributes, the text of each `id`, and whether every tag is closed in order."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID and self._open[-1:] != [("svg", None)]:
            self._open.append((tag, dict(attrs).get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.faults.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for _, name in self._open:
            if name:
                self.texts[name] = self.texts.get(name, "") + data
        if self._open and self._open[-1][0] in ("title", "script", "style", "h1"):
            name = self._open[-1][0]
            self.texts[f"<{name}>"] = self.texts.get(f"<{name}>", "") + data

    def finish(self) -> Page:
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag, _ in self._open]
        return self


def parse(html: str) -> Page:
    page = Page()
    page.feed(html)
    return page.finish()


@dataclass(frozen=True)
class Contents:
    """The index and the arrays of one report."""

    index: dict[str, Any]
    block: bytes

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Maps and series of the calls of the first text."""
        return self.index["texts"][0]["calls"]

    @property
    def description(self) -> dict[str, Any]:
        """That of the first text."""
        return self.index["texts"][0]["description"]

    def array(self, part: dict[str, Any]) -> np.ndarray:
        count = int(np.prod(part["shape"]))
        if part["code"] == "bits":
            packed = np.frombuffer(self.block, np.uint8, -(-count // 8), part["at"])
            return np.unpackbits(packed, count=count, bitorder="little").reshape(part["shape"]).astype(bool)
        values = np.frombuffer(self.block, TYPES[part["code"]], count, part["at"]).reshape(part["shape"])
        if part["code"] != "log8":
            return values
        top = self.array(part["top"]).astype(np.float64)
        top = top.reshape(*top.shape, *[1] * (values.ndim - 1))
        decades = part["decades"] * (255 - values.astype(np.float64)) / 254
        return np.where(values == 0, 0, top * 10**-decades)


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def contents(html: str) -> Contents:
    whole = unpacked(parse(html).texts["held"])
    start = 4 + int.from_bytes(whole[:4], "little")
    return Contents(json.loads(whole[4:start]), whole[start:])
