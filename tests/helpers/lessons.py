"""The lessons as cells, and what each of them must hold: claims with their assertions, a figure, sources, a link.

A claim is a paragraph that begins with **Claim.** The code cell right after it must have an assertion for it.
"""

import ast
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import jupytext

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "lessons"
MARK = "**Claim.**"
LEAST_CLAIMS = 5
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)|<https?:[^>]*>")
# A measured number: one with decimals, a percentage, or one with thousands apart.
NUMBER = re.compile(r"(?<![\w.])\d[\d ]*\.\d+|(?<![\w.])\d+(?= ?%)|(?<![\w.])\d{1,3}(?: \d{3})+(?!\w|\.\d)")
SOURCE = re.compile(r"\b(?:18|19|20)\d\d\b")
ARXIV = re.compile(r"\b\d{4}\.\d{4,5}\b")
COMMAND = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"`(#/[^`]*)`")


@dataclass(frozen=True)
class Cell:
    """A cell: "markdown" or "code", and its text."""

    kind: str
    text: str


def lessons() -> list[Path]:
    """All lessons, in their order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def cells(text: str) -> list[Cell]:
    """The cells of a percent script."""
    notebook = jupytext.reads(text, fmt="py:percent")
    return [Cell(cell.cell_type, cell.source) for cell in notebook.cells]


def faults(text: str) -> list[str]:
    """What is wrong with a lesson, in words; an empty list is a lesson as it must be."""
    every = cells(text)
    return [*_claims(every), *_numbers(every), *_parts(every)]


def claims(cell: Cell) -> list[str]:
    """The paragraphs of a cell that claim something."""
    if cell.kind != "markdown":
        return []
    return [part for part in re.split(r"\n\s*\n", cell.text) if part.lstrip("-> ").startswith(MARK)]


def assertions(cell: Cell) -> list[ast.Assert]:
    """The assertions of a cell that compute something: one of constants alone proves nothing."""
    nodes = ast.walk(ast.parse(_without_magic(cell.text)))
    return [node for node in nodes if isinstance(node, ast.Assert) and _computes(node.test)]


def commands(every: list[Cell]) -> list[list[str]]:
    """The commands that a lesson names, word by word."""
    blocks = [block for cell in every for block in COMMAND.findall(cell.text)]
    return [
        shlex.split(line, comments=True) for block in blocks for line in block.splitlines() if line.strip()
    ]


def addresses(every: list[Cell]) -> list[str]:
    """The explorer's addresses that a lesson names: what follows `#`."""
    return [address for cell in every if cell.kind == "markdown" for address in ADDRESS.findall(cell.text)]


def figures(every: list[Cell]) -> int:
    """How many cells end with a figure of `rg.draw`, or with one that such a cell named before."""
    return sum(_shows_figure(cell) for cell in every if cell.kind == "code")


def constants(node: ast.AST) -> set[float]:
    """The numbers that stand in a piece of code."""
    numbers = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
    return {float(one) for one in numbers if isinstance(one, int | float) and not isinstance(one, bool)}


def _claims(every: list[Cell]) -> list[str]:
    wrong, total = [], 0
    for cell, following in zip(every, [*every[1:], Cell("markdown", "")], strict=True):
        claimed = claims(cell)
        total += len(claimed)
        if not claimed:
            continue
        start = claimed[0][:60]
        if following.kind != "code":
            wrong.append(f"no code follows the claim {start!r}")
            continue
        proofs = assertions(following)
        if len(proofs) < len(claimed):
            wrong.append(f"{len(claimed)} claims and {len(proofs)} assertions after {start!r}")
        # A number may be what an assertion compares with, or what the cell sets before.
        proven = set().union(*(constants(node) for node in [*proofs, *_assignments(following)]))
        wrong += [
            f"{number} is claimed and stands neither in an assertion nor in an assignment after {start!r}"
            for claim in claimed
            for number in _measured(claim)
            if not {_value(number), _value(number) / 100} & proven
        ]
    if total < LEAST_CLAIMS:
        wrong.append(f"a lesson must claim at least {LEAST_CLAIMS} things, this one claims {total}")
    return wrong


def _numbers(every: list[Cell]) -> list[str]:
    """Measured numbers in prose that no claim makes, so that nothing would prove them."""
    wrong = []
    for cell in every:
        if cell.kind != "markdown" or cell.text.startswith("## Sources"):
            continue
        rest = [part for part in re.split(r"\n\s*\n", cell.text) if part not in claims(cell)]
        wrong += [f"{number} is written outside of a claim" for part in rest for number in _measured(part)]
    return wrong


def _parts(every: list[Cell]) -> list[str]:
    wrong = []
    if not every or not every[0].text.startswith("# "):
        wrong.append("the first cell must be the title")
    if not figures(every):
        wrong.append("no cell ends with a figure of rg.draw")
    sources = [cell.text for cell in every if cell.text.startswith("## Sources")]
    entries = [line for text in sources for line in re.split(r"\n(?=- )", text)[1:]]
    if not entries or not all(SOURCE.search(entry) for entry in entries):
        wrong.append("there must be a list of sources, each with its year")
    if not any(words[:2] == ["regard", "explore"] for words in commands(every)):
        wrong.append("there must be a command that opens the explorer")
    return wrong


def _assignments(cell: Cell) -> list[ast.Assign]:
    return [node for node in ast.walk(ast.parse(_without_magic(cell.text))) if isinstance(node, ast.Assign)]


def _measured(text: str) -> list[str]:
    plain = ARXIV.sub("", LINK.sub(r"\1", CODE.sub("", re.sub(r"\$[^$]*\$", "", text))))
    return [match.strip() for match in NUMBER.findall(plain)]


def _value(number: str) -> float:
    return float(number.replace(" ", ""))


def _computes(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) for node in ast.walk(test))


def _shows_figure(cell: Cell) -> bool:
    body = ast.parse(_without_magic(cell.text)).body
    if not body or not isinstance(body[-1], ast.Expr):
        return False
    return ast.unparse(body[-1]).startswith("rg.draw.")


def _without_magic(text: str) -> str:
    return re.sub(r"^%.*$", "", text, flags=re.MULTILINE)
