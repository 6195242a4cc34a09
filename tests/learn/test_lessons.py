"""The path of the package is that of the lessons themselves."""

import re
from pathlib import Path

import pytest

from regard import learn
from regard.learn.lessons import PATH

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))


def test_every_lesson_is_on_the_path():
    assert [title.file for title in PATH] == [path.name for path in FILES]
    assert [title.number for title in PATH] == list(range(1, len(FILES) + 1))
    assert {one.lesson for one in learn.exercises()} <= {title.number for title in PATH}


@pytest.mark.parametrize("title", PATH, ids=lambda title: title.file)
def test_titles_minutes_and_addresses_are_those_of_the_lesson(title):
    text = (ROOT / "lessons" / title.file).read_text()
    assert f"# # {title.number}. {title.title}\n" in text
    assert re.search(r"\*(\d+) minutes", text).group(1) == str(title.minutes)
    # Where a lesson has an address in which to play, that is the one.
    addresses = re.findall(r"`(#/[^`]+)`", text)
    assert title.play == addresses[0] if addresses else title.play in ("#/model", "#/head")
    row = f"| {title.number} | [{title.title}](../lessons/{title.file}) | {title.about} | {title.minutes} |"
    assert row in (ROOT / "docs" / "lessons.md").read_text().splitlines()
