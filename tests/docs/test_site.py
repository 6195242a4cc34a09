"""The check of the built site finds what is wrong."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_site.py"


def faults(site):
    spec = importlib.util.spec_from_file_location("check_site", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.faults(site)


def test_broken_links_and_what_is_fetched_are_found(tmp_path):
    (tmp_path / "other.html").write_text('<h1 id="here">Other</h1>')
    (tmp_path / "index.html").write_text(
        '<a href="other.html#here">a</a> <a href="other.html#there">b</a> <a href="none.html">c</a> '
        '<a href="https://example.org">d</a> <script src="https://example.org/x.js"></script>'
    )
    assert faults(tmp_path) == [
        "index.html: loads https://example.org/x.js",
        "index.html: leads nowhere: none.html",
        "index.html: leads nowhere: other.html#there",
    ]
