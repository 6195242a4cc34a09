"""How Sphinx builds the site: `make docs`. Nothing is fetched, neither here nor by the pages."""

import os
import re
from pathlib import Path
from typing import Any

from regard.files.versions import own_version

ROOT = Path(__file__).parents[1]
CARDS = Path(__file__).parent / "cards"  # written below, ignored by git
LESSONS = Path(__file__).parent / "lessons"  # likewise

# What the notebooks' kernels inherit: Hugging Face's libraries would ask the network else.
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")

project, author = "Regard", "the authors of Regard"
version = release = own_version()
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Regard {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = html_show_sourcelink = False

myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "colon_fence"]

nb_execution_mode = "force"
nb_execution_in_temp = True  # what a notebook writes goes
# Seconds for a cell: the longest walks 131 072 tokens, and a loaded machine takes its time.
nb_execution_timeout = 1200
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_output_stderr = "remove"  # progress bars of transformers
# A widget has nobody who answers it here, and its script would be fetched: the static picture is shown.
nb_ipywidgets_js: dict[str, Any] = {}
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_use_rtype = False

# The builder `linkcheck` asks the network: `sphinx-build -b linkcheck docs build/links`, by hand, not in CI.
linkcheck_anchors = False
linkcheck_timeout = 20

nitpick_ignore_regex = [
    # Types of other packages have their pages elsewhere, and asking those needs the network.
    (
        r"py:class",
        r"(collections|matplotlib|nn|np|numpy|os|pandas|pathlib|torch|transformers|types|typing)\..*",
    ),
    (r"py:class", r"BlockMask|DataFrame|Figure|NDArray|PathLike|Tensor|TrainingArguments"),
    # Types of arguments and fields that have no page of their own.
    (r"py:class", r"regard\.\w+(\.\w+)*\.[A-Z]\w*"),
    (
        r"py:class",
        r"Activation|Array|Init|Layers|Linkage|Loss|NextTokens|Part|Positions|Seen|Share|Sizes|Spec|Task",
    ),
    # Of what a function returns, a sentence with a colon, or a type cut at its comma, is taken for the name of a class.
    (r"py:class", r".* .*|\w+\[.*"),
]


def as_rst(lines: list[str]) -> list[str]:
    """Docstrings are plain text with `code` in single backticks and indented examples; this is their markup."""
    out: list[str] = []
    literal, before = False, ""
    for line in lines:
        indented = line.startswith("    ")
        after_blank = bool(out) and not out[-1].strip()
        if line.strip():
            if indented and not literal and after_blank and before[:1].strip() and ">>>" not in line:
                literal = True
                out += ["::", ""]
            elif not indented:
                literal = False
            if line.startswith("- ") and not after_blank and not before.startswith(("- ", "  ")):
                out.append("")
            before = line
        out.append(line if literal else _line(line))
    return out


def _line(line: str) -> str:
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = re.split(r"(``[^`]+``|`[^`]+`)", line)
    for place, part in enumerate(parts):
        if part.startswith("``"):
            continue
        if part.startswith("`"):
            parts[place] = f"`{part}`"
        else:
            # Stars, bars and a closing underscore are mathematics or names here, never markup.
            parts[place] = re.sub(r"([*|]|_(?=\W|$))", r"\\\1", part)
    return "".join(parts)


def docstring(app: Any, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """autodoc's event, before napoleon reads the sections."""
    lines[:] = as_rst(lines)


def write_cards(app: Any) -> None:
    """A page for each card that lies beside trained weights, with its pictures."""
    CARDS.mkdir(exist_ok=True)
    for name, card in cards().items():
        lines = [
            f"```{{include}} ../../{card.relative_to(ROOT)}",
            ":relative-images:",
            ":relative-docs: .",
            "```",
            "",
        ]
        (CARDS / f"{name}.md").write_text("\n".join(lines))


def cards() -> dict[str, Path]:
    """Where the cards are, by the names of their pages."""
    trained = ROOT / "packages" / "regard-tasks" / "src" / "regard_tasks"
    found = {path.parent.name: path for path in sorted(trained.glob("*/CARD.md"))}
    return found | {"embedded": ROOT / "src/regard/embedded/CARD.md"}


def link_cards(app: Any, page: str, source: list[str]) -> None:
    """In the repository a link leads to the card's file, on the site to its page."""
    for name, card in cards().items():
        source[0] = source[0].replace(f"](../{card.relative_to(ROOT)})", f"](cards/{name}.md)")


def write_lessons(app: Any) -> None:
    """A notebook for each lesson, which is a script in the repository; it is run when the page is built."""
    import jupytext

    LESSONS.mkdir(exist_ok=True)
    for script in sorted((ROOT / "lessons").glob("*.py")):
        notebook = jupytext.read(script, fmt="py:percent")
        notebook.metadata["kernelspec"] = {
            "name": "python3",
            "language": "python",
            "display_name": "Python 3",
        }
        text = jupytext.writes(notebook, fmt="ipynb")
        page = LESSONS / f"{script.stem}.ipynb"
        # One that did not change is left alone, so that a second build need not run it again.
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def link_lessons(app: Any, page: str, source: list[str]) -> None:
    """In the repository a link leads to the lesson's script, on the site to its notebook."""
    source[0] = re.sub(r"\]\(\.\./lessons/(\w+)\.py\)", r"](lessons/\1.ipynb)", source[0])


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("builder-inited", write_cards)
    app.connect("builder-inited", write_lessons)
    app.connect("source-read", link_cards)
    app.connect("source-read", link_lessons)
    app.connect("autodoc-process-docstring", docstring, priority=400)
