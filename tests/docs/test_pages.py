"""The docs say what the code says, and every link within them leads somewhere."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from helpers import pages
from regard import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!\\)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
EVERY = [*pages.pages(), DOCS / "breadth.md", DOCS / "statistics.md"]


def test_the_page_of_statistics_is_the_table():
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "statistics.md").read_text() == module.page(), "run python scripts/write_docs.py"


def test_every_error_class_has_its_section():
    classes = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RegardError | Warning) and kind is not errors.RegardError
    }
    sections = set(re.findall(r"^## (\w+)$", (DOCS / "errors.md").read_text(), re.MULTILINE))
    assert classes == sections


def anchors(text):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(
        r"^#{1,6} (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    plain = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken(page, text):
    """The links of a page that lead nowhere within the repository."""
    found = []
    for match in LINK.finditer(re.sub(r"^```.*?^```|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)):
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            found.append(target)
    return found


@pytest.mark.parametrize("page", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page, page.read_text()) == []


def test_a_broken_link_is_found():
    text = "# Here\n[a](errors.md) [b](nowhere.md) [c](#here) [d](#there) [e](errors.md#maskerror) [f](errors.md#none)"
    assert broken(DOCS / "index.md", text.replace("#here", "errors.md#errors")) == [
        "nowhere.md",
        "#there",
        "errors.md#none",
    ]


def test_every_page_is_in_the_table_of_contents():
    listed = set()
    for index in DOCS.rglob("index.md"):
        for block in pages.blocks(index):
            if block.language == "{toctree}":
                entries = [
                    line.split("<")[-1].rstrip(">") for line in block.text.split() if not line.startswith(":")
                ]
                listed |= {str((index.parent / entry).relative_to(DOCS)) for entry in entries}
    sources = [
        path for path in DOCS.rglob("*") if path.suffix in (".md", ".ipynb") and "cards" not in path.parts
    ]
    there = {str(path.relative_to(DOCS).with_suffix("")) for path in sources} - {"index"}
    assert there - listed == set()
