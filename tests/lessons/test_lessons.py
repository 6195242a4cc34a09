"""Each lesson runs in an empty folder and asserts what it claims; the goldens of the source documents are among it."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import lessons
from regard.tasks.common.looks import LOOKS

GOLDENS = Path(__file__).parents[1] / "goldens"
GOOD = """\
# %% [markdown]
# # 0. A lesson

# %%
import regard as rg

half = 1 / 2

# %% [markdown]
# Some prose, and then:
#
# **Claim.** A half is 0.5.

# %%
assert half == 0.5

# %% [markdown]
# **Claim.** It is less than one.
#
# **Claim.** It is more than 40 % of one.

# %%
assert half < 1
assert half > 0.4

# %% [markdown]
# **Claim.** Twice it is one.
#
# **Claim.** Its square is smaller.

# %%
assert 2 * half == 1
assert half**2 < half
rg.draw.temperatures([half, 1.0])

# %% [markdown]
# ## Play
# ```sh
# regard explore
# ```

# %% [markdown]
# ## Sources
# - Somebody 2017, arXiv 1706.03762.
"""


def name(path):
    return path.stem


def run(script, folder):
    """Run a script as a learner would, in an empty folder and without a window."""
    environment = os.environ | {"MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=880,
    )


def test_there_are_seventeen():
    assert [int(path.stem[:2]) for path in lessons.lessons()] == list(range(1, 18))


# A loaded machine takes its time; nothing is asserted about how long.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lesson", lessons.lessons(), ids=name)
def test_a_lesson_runs(lesson, tmp_path):
    done = run(lesson, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("lesson", lessons.lessons(), ids=name)
def test_a_lesson_asserts_what_it_claims(lesson):
    assert lessons.faults(lesson.read_text()) == []


@pytest.mark.parametrize("lesson", lessons.lessons(), ids=name)
def test_what_the_explorer_is_asked_to_open_is_there(lesson):
    every = lessons.cells(lesson.read_text())
    for words in lessons.commands(every):
        assert words[:2] == ["regard", "explore"] and set(words[2:]) <= set(LOOKS), words
    known = (lessons.ROOT / "web/src/playground/state.ts").read_text()
    for address in lessons.addresses(every):
        page, _, asked = address.removeprefix("#/").partition("?")
        assert page in ("model", "head", "compare", "changes", "check", "playground")
        for pair in filter(None, asked.split("&")):
            key, _, value = pair.partition("=")
            assert key.startswith("play.") and f"  {key[5:]}:" in known, address
            assert value.replace(".", "").isdigit() or f'"{value.replace("%20", " ")}"' in known, address


def test_every_number_of_the_source_documents_is_in_a_lesson():
    printed = set()
    for path in sorted(GOLDENS.glob("*.json")):
        printed |= set(numbers(json.loads(path.read_text())))
    written = set().union(*(lessons.constants(ast.parse(path.read_text())) for path in lessons.lessons()))
    assert printed and printed <= written, sorted(printed - written)


def numbers(value):
    """All numbers of a JSON value that are written with decimals and are not whole."""
    if isinstance(value, dict):
        return [one for item in value.values() for one in numbers(item)]
    if isinstance(value, list):
        return [one for item in value for one in numbers(item)]
    return [value] if isinstance(value, float) and value % 1 else []


def test_a_lesson_as_it_must_be_has_no_fault():
    assert lessons.faults(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("assert half < 1\n", "", "2 claims and 1 assertions"),
        ("assert half < 1\n", "assert True\n", "2 claims and 1 assertions"),
        ("assert half < 1\n", "half < 1\n", "2 claims and 1 assertions"),
        ("is 0.5", "is 0.6", "0.6 is claimed and stands neither in an assertion"),
        ("40 %", "41 %", "41 is claimed and stands neither in an assertion"),
        ("Some prose", "Some prose says 0.7", "0.7 is written outside of a claim"),
        ("# %%\nassert half == 0.5\n", "", "no code follows the claim"),
        (
            "**Claim.** Twice it is one.",
            "Twice it is one.",
            "a lesson must claim at least 5 things, this one claims 4",
        ),
        ("rg.draw.temperatures([half, 1.0])", "half", "no cell ends with a figure of rg.draw"),
        (
            "- Somebody 2017, arXiv 1706.03762.",
            "- Somebody.",
            "there must be a list of sources, each with its year",
        ),
        ("regard explore", "regard look", "there must be a command that opens the explorer"),
        ("# # 0. A lesson", "# A lesson", "the first cell must be the title"),
    ],
)
def test_what_is_missing_is_found(old, new, fault):
    wrong = lessons.faults(GOOD.replace(old, new))
    assert any(fault in one for one in wrong), wrong


def test_a_false_claim_stops_a_lesson(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(GOOD.replace("assert half < 1", "assert half > 1"))
    done = run(script, tmp_path)
    assert done.returncode == 1 and "assert half > 1" in done.stderr
