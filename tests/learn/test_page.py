"""The page of exercises says what there is."""

from pathlib import Path

from regard import learn

PAGE = Path(__file__).parents[2] / "docs" / "learn.md"


def test_the_table_is_the_catalogue():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
    assert rows == [
        f"| {one.name} | {one.lesson} | `{one.function}` | {len(one.variants)} |" for one in learn.exercises()
    ]


def test_lessons_and_file_names_are_there():
    lessons = {int(path.name[:2]) for path in (PAGE.parents[1] / "lessons").glob("[0-9][0-9]_*.py")}
    assert {one.lesson for one in learn.exercises()} <= lessons
    assert len({one.file for one in learn.exercises()}) == len(learn.exercises())
