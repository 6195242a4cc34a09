"""Every block of Python on a page runs as it stands, in order, offline, in an empty folder; so does every notebook."""

import ast
import json
import re
import shlex
import socket
import tomllib
from pathlib import Path

import pytest

from helpers import pages

ROOT = pages.ROOT
OPTIONS = json.loads((ROOT / "tests" / "house" / "command_line.json").read_text())
LANGUAGES = {"python", "text", "sh", "html", "cpp", "{toctree}", "{eval-rst}", "{include}"}
# Programs of others, whose options are theirs.
PROGRAMS = {"accelerate", "cmake", "build/check/check", "qemu-aarch64", "git", "cd", "pip", "sphinx-build"}
SMALLER = {"long_context": {"n": 4096}}  # of notebooks that take minutes; `make docs` runs them whole


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty folder to be in, and no network."""

    def refuse(self, address):
        raise OSError(f"a page must run without network, and asked for {address}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def name(path):
    return str(path.relative_to(ROOT))


def with_language(language):
    """The pages that have a block of it."""
    return [page for page in pages.pages() if any(block.language == language for block in pages.blocks(page))]


@pytest.mark.parametrize("page", with_language("python"), ids=name)
def test_the_blocks_of_a_page_run_in_order(page, empty):
    pages.run(page)


@pytest.mark.parametrize("notebook", pages.notebooks(), ids=name)
def test_a_notebook_runs(notebook, empty):
    pages.run(notebook, SMALLER.get(notebook.stem))


@pytest.mark.parametrize("notebook", pages.notebooks(), ids=name)
def test_a_notebook_is_kept_without_outputs(notebook):
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


def test_every_block_says_what_it_is():
    found = [
        (name(page), block.line, block.language) for page in pages.pages() for block in pages.blocks(page)
    ]
    assert [row for row in found if row[2] not in LANGUAGES] == []


def commands(page):
    """The command lines of a page, without comments, continued lines joined."""
    text = "\n".join(block.text for block in pages.blocks(page) if block.language == "sh")
    lines = text.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def wrong(words):
    """What is wrong with a command line, or None."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program, *rest = words
    program = program.removeprefix(".venv/bin/")
    if program == "regard":
        return wrong_options(rest)
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return next((word for word in rest if "=" not in word and word not in targets), None)
    if program in ("python", "python3"):
        return wrong_script(rest)
    if program == "pip":
        return wrong_extras(rest)
    if program.startswith("scripts/"):
        return None if (ROOT / program).exists() else program
    return None if program in PROGRAMS | {"pre-commit", "pytest"} else program


def wrong_options(rest):
    if not rest or rest[0] == "--version":
        return None
    command, *rest = rest
    if command not in OPTIONS:
        return command
    known = {
        written
        for option in OPTIONS[command].values()
        for written in option["written"]
        if written[:2] == "--"
    }
    return next((word for word in rest if word.startswith("--") and word not in known), None)


def wrong_script(rest):
    if rest[0] == "-m":
        module = rest[1].replace(".", "/")
        here = any(
            (ROOT / folder / f"{module}{end}").exists()
            for folder in ("", "src")
            for end in (".py", "/__init__.py")
        )
        missing = [word for word in rest[2:] if word.startswith("tests/") and not (ROOT / word).exists()]
        return (missing or [None])[0] if here or module in ("pytest", "venv", "pip") else module
    return None if (ROOT / rest[0]).exists() else rest[0]


def wrong_extras(rest):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [extra for word in rest for group in re.findall(r"\[(.+)\]", word) for extra in group.split(",")]
    return next((extra for extra in asked if extra not in extras), None)


@pytest.mark.parametrize("page", with_language("sh"), ids=name)
def test_the_commands_of_a_page_exist(page):
    assert [(words, wrong(words)) for words in commands(page) if wrong(words)] == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("regard look --colour", "--colour"),
        ("regard glance", "glance"),
        ("make coffee", "coffee"),
        ("python scripts/nothing.py", "scripts/nothing.py"),
        ("python -m nothing", "nothing"),
        (".venv/bin/python -m pytest tests/nothing.py", "tests/nothing.py"),
        ('pip install "regard[nothing]"', "nothing"),
        ("nothing", "nothing"),
        ("REGARD_NATIVE=1 pip install .", None),
        ("regard look --report page.html", None),
    ],
)
def test_a_wrong_command_is_found(line, word):
    assert wrong(shlex.split(line)) == word


def test_a_block_that_prints_something_else_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(f'{1 / 3:.3f} nats')\n```\n```text\n0.334 nats\n```\n")
    pages.run(page)
    page.write_text(page.read_text().replace("0.334", "0.336"))
    with pytest.raises(AssertionError, match=r"page\.md:5 shows"):
        pages.run(page)


def test_a_block_that_stops_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nx + y\n```\n")
    with pytest.raises(NameError, match="'y' is not defined") as caught:
        pages.run(page)
    assert caught.traceback[-1].lineno == 5


def test_blocks_are_python():
    """So that a page is a page of whole programs, with nothing left out."""
    for page in with_language("python"):
        for block in pages.blocks(page):
            if block.language == "python":
                ast.parse(block.text, str(Path(page)))
