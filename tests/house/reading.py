"""How plainly code reads, as numbers: conditional expressions, comments that stand on a line of their own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

# In 1 000 lines; the libraries that people like to read have 3 to 8.
MOST_CONDITIONALS = 12
# In 100 lines; there it is 5 to 14.
FEWEST_COMMENTS = 3
COMMENT = re.compile(r"^\s*#(?! (isort|fmt|type|ruff):)", re.MULTILINE)
EXPLAINED = re.compile(r"^    ([a-z_]+(?:, [a-z_]+)*): ", re.MULTILINE)
SCAR = re.compile(r"# fmt: (?:skip|off)")


def density_faults(files: list[Path]) -> list[str]:
    """Too many conditional expressions for the lines of these files together, or too few comments."""
    texts = [path.read_text() for path in files]
    lines = sum(text.count("\n") for text in texts)
    conditionals = sum(isinstance(node, ast.IfExp) for text in texts for node in ast.walk(ast.parse(text)))
    comments = sum(len(COMMENT.findall(text)) for text in texts)
    faults = []
    if 1000 * conditionals > MOST_CONDITIONALS * lines:
        faults.append(f"{conditionals} conditional expressions in {lines} lines")
    if 100 * comments < FEWEST_COMMENTS * lines:
        faults.append(f"{comments} comments in {lines} lines")
    return faults


def conditional_faults(files: list[Path]) -> list[str]:
    """Conditional expressions that are over more than one line, or within another."""
    faults = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.IfExp):
                continue
            inner = [child for child in (node.body, node.test, node.orelse) if isinstance(child, ast.IfExp)]
            if inner:
                faults.append(f"{path}:{node.lineno}: a conditional expression within another")
            if node.end_lineno != node.lineno:
                faults.append(f"{path}:{node.lineno}: a conditional expression over several lines")
    return faults


def docstring_faults(files: list[Path]) -> list[str]:
    """Arguments that a function's docstring explains and that the function does not take."""
    faults = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or "Args:" not in (ast.get_docstring(node) or ""):
                continue
            given = node.args
            stars = [argument for argument in (given.vararg, given.kwarg) if argument]
            every = (*given.posonlyargs, *given.args, *given.kwonlyargs, *stars)
            names = {argument.arg for argument in every}
            explained = str(ast.get_docstring(node)).split("Args:")[1].split("\n\n")[0]
            for line in EXPLAINED.findall(explained):
                faults += [
                    f"{path}:{node.lineno}: {node.name} explains {name}, which it does not take"
                    for name in line.split(", ")
                    if name not in names
                ]
    return faults


def scar_faults(files: list[Path]) -> list[str]:
    """Places that the formatter is told to leave alone."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if SCAR.search(line)
    ]
