"""The docs say what the code says."""

import importlib.util
import inspect
from pathlib import Path

from regard import errors

ROOT = Path(__file__).parents[1]


def test_the_page_of_statistics_is_the_table():
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "statistics.md").read_text() == module.page(), "run python scripts/write_docs.py"


def test_every_error_class_has_a_page():
    classes = {
        name for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RegardError) and kind is not errors.RegardError
    }  # fmt: skip
    pages = {path.stem for path in (ROOT / "docs" / "errors").glob("*.md")}
    assert classes == pages
    index = (ROOT / "docs" / "errors.md").read_text()
    assert all(f"errors/{name}.md" in index for name in classes)
