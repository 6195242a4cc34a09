"""The code blocks of a Markdown page or notebook: what they are, and running them in order in one namespace."""

import ast
import contextlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<ticks>`{3,}|:{3,})(?P<language>\S*)[^\n]*\n(?P<body>.*?)^(?P=ticks)\s*$", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of its first line in the page."""

    language: str
    text: str
    line: int
    tags: tuple[str, ...] = ()


def pages() -> list[Path]:
    """Every page that a stranger reads, in the order of their names; without what is written by machines."""
    written = {"breadth.md", "statistics.md"}
    docs = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "cards" not in path.parts]
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(path for path in docs if path.name not in written),
    ]


def notebooks() -> list[Path]:
    """The notebooks of the site."""
    return sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, or the code cells of a notebook, in order."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return [
            Block("python", "".join(cell["source"]), 1, tuple(cell["metadata"].get("tags", ())))
            for cell in cells
        ]
    return [
        Block(match["language"], match["body"], text.count("\n", 0, match.start()) + 2)
        for match in FENCE.finditer(text)
    ]


def run(page: Path, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run the Python blocks of a page in order and hold what they print against the `text` block below each.

    Args:
        page: a Markdown page or notebook.
        parameters: set after the cell that is tagged "parameters".

    Returns:
        The namespace in which they ran.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = None
    for block in blocks(page):
        if block.language == "text" and printed is not None:
            where = f"{page.name}:{block.line}"
            assert alike(printed, block.text), (
                f"{where} shows\n{block.text}\nand what was printed is\n{printed}"
            )
        printed = None
        if block.language == "python":
            printed = execute(block, page, namespace)
            if "parameters" in block.tags:
                namespace |= parameters or {}
    return namespace


def execute(block: Block, page: Path, namespace: dict[str, Any]) -> str:
    """Run one block; what it printed. A last line that is an expression shows its value, as in a notebook."""
    # A notebook's magic lines, such as %matplotlib inline, mean nothing outside of it.
    source = re.sub(r"^%.*$", "", block.text, flags=re.MULTILINE)
    # Empty lines first, so that a traceback names the line of the page.
    tree = ast.parse("\n" * (block.line - 1) + source, str(page))
    last = tree.body[-1] if tree.body else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if page.suffix == ".ipynb" and isinstance(last, ast.Expr):
            tree.body.pop()
            exec(compile(tree, str(page), "exec"), namespace)
            show(eval(compile(ast.Expression(last.value), str(page), "eval"), namespace))
        else:
            exec(compile(tree, str(page), "exec"), namespace)
    return out.getvalue()


def show(value: Any) -> None:
    """What a notebook does with the value of a cell's last line."""
    if hasattr(value, "savefig"):
        value.savefig(io.BytesIO(), format="png")
    elif hasattr(value, "_repr_html_"):
        assert value._repr_html_()
    elif value is not None:
        print(repr(value))


def alike(printed: str, shown: str) -> bool:
    """The same words, and numbers that differ by less than two units in the last digit that is shown."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(abs(value(a) - value(b)) <= 2 * unit(b) for a, b in pairs)


def value(number: str) -> float:
    """A number as it is written on a page."""
    return float(number.replace(",", ""))


def unit(number: str) -> float:
    """What one more in the last digit of a number that is written with decimals is worth; 0 for whole numbers."""
    mantissa, _, power = number.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(power or 0) - decimals) if decimals else 0.0
