"""The package reads plainly, and the guards that say so can fail."""

from house import guards, reading

SHIPPED = guards.python_files(guards.SOURCE)


def test_few_conditional_expressions_and_enough_comments():
    assert reading.density_faults(SHIPPED) == []


def test_conditional_expressions_are_on_one_line():
    assert reading.conditional_faults(SHIPPED) == []


def test_the_formatter_formats_everything():
    assert reading.scar_faults(SHIPPED) == []


def test_docstrings_explain_what_is_taken():
    assert reading.docstring_faults(SHIPPED) == []


def test_an_argument_that_was_renamed_is_found(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        'def f(new, kept):\n    """Do.\n\n    Args:\n        old: gone.\n        new, kept: here.\n    """\n'
    )
    assert [fault.split(": ")[1] for fault in reading.docstring_faults([file])] == [
        "f explains old, which it does not take"
    ]


def test_faults_are_found(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("x = 1 if a else 2\ny = 3 if b else (\n    4 if c else 5\n)\nz = [1]  # fmt: skip\n")
    assert reading.density_faults([file]) == [
        "3 conditional expressions in 5 lines",
        "0 comments in 5 lines",
    ]
    assert [fault.split(": ", 1)[1] for fault in reading.conditional_faults([file])] == [
        "a conditional expression within another",
        "a conditional expression over several lines",
    ]
    assert [fault.split(": ", 1)[1] for fault in reading.scar_faults([file])] == ["z = [1]  # fmt: skip"]
    file.write_text("# Why.\n" + "x = 1\n" * 30)
    assert reading.density_faults([file]) == []
