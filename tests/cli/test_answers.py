"""`regard look TASK`: the answer, a line for each word or sentence, the report; and what a user gets wrong."""

import re

import numpy as np
import pytest

from helpers.untrained import fresh
from regard import load
from regard.tasks.caption import data as caption
from regard.tasks.common import pretrained
from regard.tasks.translate.look import TEXTS

__all__ = ["fresh"]

STORY = "Alice went to the kitchen. Alice took the key. Bruno moved to the attic. Where is the key?"


@pytest.fixture
def scene(tmp_path):
    image = pytest.importorskip("PIL.Image")
    gray = np.rint(255 - 255 * caption.scenes(1, held=True)[0].image[0].numpy()).astype(np.uint8)
    image.fromarray(gray).save(tmp_path / "scene.png")
    return "scene.png"


def lines(out):
    """The table's lines below its header, in parts."""
    table = re.search(r"^ ─+ $\n(.*?)^ +$", out, re.MULTILINE | re.DOTALL)[1]
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]


def test_a_date_is_translated_and_reported(regard, tmp_path):
    status, out, err = regard("look", "translate", TEXTS["translate"], "--to", "de")
    assert (status, err) == (0, "") and out.startswith("Donnerstag, 3. März 2022\n")
    assert [line[:2] for line in lines(out) if line[-1] == "✓"] == [
        ["Donnerstag", "Thursday"],
        ["3", "3"],
        ["März", "March"],
        ["2022", "2022"],
    ]
    assert "Attention was on the right word for 4 of 4 words that have a partner." in out
    assert "The report: regard-report.html" in out
    html = (tmp_path / "regard-report.html").read_text()
    assert "looked while it wrote each word. Attention was on" in html and "Donnerstag" in html
    assert "http" + "://" not in html.split("<script")[0]


def test_without_a_text_it_shows_an_example_in_french(regard):
    status, out, _ = regard("look", "translate", "--only", "bahdanau")
    assert status == 0 and out.startswith("jeudi 3 mars 2022\n")


def test_record_figures_and_report_go_where_they_are_wanted(regard, tmp_path):
    arguments = ("--record", "kept", "--figures", "drawn", "--report", "deep/down/page.html")
    status, out, _ = regard("look", "translate", "two hundred and one", *arguments)
    assert status == 0 and "The record: kept" in out and out.count("A figure: drawn") == 3
    assert load(tmp_path / "kept").source_tokens == [["<fr>", "two", "hundred", "and", "one", "<end>"]]
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "drawn").iterdir()}
    assert set(drawn) == {"attention.png", "attention.svg", "attention.pdf"}
    assert drawn["attention.png"].startswith(b"\x89PNG") and drawn["attention.pdf"].startswith(b"%PDF")
    assert "deux cent un" in (tmp_path / "deep/down/page.html").read_text()
    assert not (tmp_path / "regard-report.html").exists()


@pytest.mark.parametrize("how", [("--file", "date.txt"), ("date.txt",)])
def test_a_text_comes_from_a_file(regard, tmp_path, how):
    (tmp_path / "date.txt").write_text("March 3, 2022\n")
    status, out, _ = regard("look", "translate", *how)
    assert status == 0 and out.startswith("3 mars 2022\n")


def test_a_story_is_answered(regard, fresh):
    fresh("answer")
    status, out, err = regard("look", "answer", STORY)
    assert (status, err) == (0, "") and out.startswith("where is the key ? ")
    parts = [line[0].removeprefix("▶").strip() or line[1] for line in lines(out)]
    assert parts == ["Alice went to the kitchen .", "Alice took the key .", "Bruno moved to the attic ."]
    assert sum("▶" in line[0] for line in lines(out)) == 1
    assert [line[-1] in ("✓", "✗") for line in lines(out)] == [True, True, False]


def test_a_long_story_is_no_file_name(regard, fresh):
    """A name of more than 255 letters cannot be a file's, and asking for it is an error of the system."""
    fresh("answer")
    status, out, err = regard(
        "look", "answer", STORY.replace(". Where", f"{'. Bruno went to the garden' * 20}. Where")
    )
    assert (status, err) == (0, "") and len(lines(out)) == 23
    status, out, err = regard("look", "translate", "3 " * 3000)
    assert status == 2 and "the text must have 1 to 90 words and signs, got 3,000" in err


def test_a_text_is_summarized_and_printed_as_it_is(regard, fresh, tmp_path):
    fresh("summarize")
    (tmp_path / "text.md").write_text(
        "The [bold]cache[/bold] keeps :key: [/].\nA lock [red]makes sure.\\\n\nThe end"
    )
    status, out, err = regard("look", "summarize", "text.md")
    assert (status, err) == (0, "")
    for sentence in ("The [bold]cache[/bold] keeps :key: [/].", "A lock [red]makes sure.\\", "The end"):
        assert sentence in out
    assert [line[-3] for line in lines(out)] == ["0", "1", "2"]


@pytest.mark.parametrize("how", [(), ("scene.png",), ("--file", "scene.png")])
def test_a_picture_is_put_into_words(regard, fresh, scene, how):
    fresh("caption")
    status, out, err = regard("look", "caption", *how)
    assert (status, err) == (0, "") and "looked at (row, column)" in out
    assert ("This is wrong: it should be" in out) == (how == ())


def test_a_row_of_dates_is_translated(regard, fresh):
    fresh("bottleneck")
    status, out, err = regard("look", "bottleneck", TEXTS["bottleneck"], "--only", "luong-dot", "--to", "de")
    assert (status, err) == (0, "")
    assert "This is wrong: it should be 'Donnerstag, 3. März 2022; Montag, 4. Juli 1994'." in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["translate", "hello"],
            "the text must be of known English words, got 'hello'; 68 words are known; this",
        ),
        (["translate", ""], "the text must have 1 to 90 words and signs, got 0"),
        (["translate", "--to", "es"], "into (--to) must be fr or de, got 'es'"),
        (["translate", "--only", "lstm"], "the model must be one that translate has, got 'lstm'"),
        (
            ["translate", "--device", "cuda"],
            "--device must be left out for a task, whose models are small, got 'cuda'",
        ),
        (
            ["translate", "two", "--file", "binary"],
            "the text must come from the command line or from --file, got both",
        ),
        (["translate", "--file", "missing.txt"], "the file must be one that can be read, got 'missing.txt'"),
        (["translate", "missing.txt"], "the file must be there, and there is no 'missing.txt'"),
        (["translate", "binary"], "the file must hold UTF-8 text, got 'binary', which does not at byte 0"),
        (["translate", "--file", "."], "the file must be one that can be read, got '.'"),
        (["answer", "--to", "de"], "into (--to) must be left out, as answer has no other language, got 'de'"),
        (
            ["answer", "Alice went to the kitchen."],
            "the story must end in a question, got 'Alice went to the kitchen.'",
        ),
        (["answer", ""], "the story must have sentences and a question, and it is empty"),
        (["summarize", "One sentence."], "the text must have at least 2 sentences to choose from, got 1"),
        (["summarize", "--file", "binary"], "the file must hold UTF-8 text"),
        (["caption", "missing.png"], "the file must be there, and there is no 'missing.png'"),
        (["caption", "--file", "missing.png"], "the picture must be a file, and there is no 'missing.png'"),
        (
            ["caption", "an eight above a two"],
            "the picture must be a file, and there is no 'an eight above a two'",
        ),
        (["caption", "binary"], "the picture must be one that can be read, got 'binary'"),
        (["caption", "--file", "."], "the picture must be one that can be read, got '.'"),
        (
            ["translate", "two", "--report", "binary/page.html"],
            "the report must go where files can be written",
        ),
        (["translate", "two", "--figures", "binary"], "--figures must be a folder that can be written to"),
        (["translate", "two", "--record", "binary"], "binary"),
    ],
)
def test_a_mistake_gets_one_message_and_no_traceback(regard, tmp_path, arguments, message):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    status, out, err = regard("look", *arguments)
    assert status == 2 and "Traceback" not in out + err
    assert err.splitlines()[-1].startswith("regard: ") and message in err


def test_a_task_that_the_package_does_not_bring_says_what_makes_it(regard, monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "root", lambda: tmp_path)
    status, _, err = regard("look", "answer")
    assert status == 2 and err == (
        "regard: the model must be one that Regard brings, and there is no 'encoder' of answer: regard train answer\n"
    )
