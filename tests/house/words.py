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

# A local variable or an argument that is called nothing else has no noun yet.
RETIRED_ALONE = {
    "place": "index, position, folder, …",
    "found": "the noun that was found",
    "given": "arguments, tensors, …",
    "asked": "kwargs, wanted, …",
    "own": "the noun that it is",
    "each": "the singular of what is gone through",
    "said": "message, answer, …",
}
# Rooms in which they still stand, and which; in stories a place is where somebody is.
STILL = {
    "tasks/answer/": {"place"},
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


def alone_faults(files: list[Path], root: Path, still: Mapping[str, set[str]] = STILL) -> list[str]:
    """Local variables and arguments whose whole name is retired, where `still` does not let it stand."""
    faults = []
    for path in files:
        where = path.relative_to(root).as_posix()
        allowed = set().union(*(names for start, names in still.items() if where.startswith(start)))
        faults += [
            f"{path}:{line}: {name} is {RETIRED_ALONE[name]}"
            for line, name in sorted(_locals(path))
            if name in RETIRED_ALONE.keys() - allowed
        ]
    return faults


def _locals(path: Path) -> set[tuple[int, str]]:
    """Variables that functions, lambdas and comprehensions set, and arguments; fields of a class are none."""
    tree = ast.parse(path.read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {line.target for node in classes for line in node.body if isinstance(line, ast.AnnAssign)}
    local = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in fields:
                local.add((node.lineno, name))
            case ast.arg(arg=name):
                local.add((node.lineno, name))
    return local


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
