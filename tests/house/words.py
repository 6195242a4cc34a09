"""Names that the field has better words for, and where one of them is still used."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

# retired → what it is called
RETIRED = {
    "probe": "monitor",
    "prober": "monitor",
    "life": "history",
    "lives": "histories",
    "seam": "hook",
    "seams": "hooks",
    "settle": "resolve",
    "settled": "resolved call",
    "settler": "resolver",
    "road": "fast path",
    "roads": "fast paths",
    "colour": "color",
    "initialise": "initialize",
    "recognise": "recognize",
    "summarise": "summarize",
    "neighbour": "neighbor",
    "centre": "center",
}

# In the package itself; tests may be plainer.
RETIRED_IN_PACKAGE = RETIRED | {
    "pull": "vjp, or backward",
    "turn": "rotation, or transpose",
    "turned": "transposed, or rotated",
    "crosses": "is_cross, or cross_attention",
    "kept": "the noun that it is: saved, cached, …",
    "told": "the noun that it is: message, summary, …",
    "tell": "describe",
    "made": "the noun that it is",
    "mixed": "partial, or the noun that it is",
    "looked": "result",
    "heard": "parsed",
}


def retired_faults(files: list[Path], retired: Mapping[str, str] = RETIRED) -> list[str]:
    """Identifiers, or names of files, of which a part between underscores or capitals is retired."""
    faults = []
    for path in files:
        names = [(0, path.stem), *((0, folder) for folder in path.parts[-3:-1])]
        if path.suffix == ".py":
            names += _identifiers(path)
        for line, name in names:
            parts = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).split("_")
            faults += [
                f"{path}:{line}: {name}: {part} is {retired[part]}" for part in parts if part in retired
            ]
    return faults


def _identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """What a file itself names: variables, arguments, keywords, functions, classes and attributes that it sets."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name
