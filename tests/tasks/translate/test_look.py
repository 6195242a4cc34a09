"""`translate` with the weights of the package: what is said, where it came from, and what cannot be told."""

import io

import pytest
import torch

from regard import load
from regard.errors import ArgumentError, ModelError
from regard.page import report
from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.bottleneck import look as bottleneck_look
from regard.tasks.common import pretrained
from regard.tasks.common.catalogue import tasks
from regard.tasks.common.looks import look
from regard.tasks.common.tokenizer import tokenize
from regard.tasks.translate import data, read_text
from regard.tasks.translate.pairs import Pair
from regard.tasks.translate.parse_date import recognize
from tasks.reading import plain, written

ISSUE = "Thursday, 3 March 2022"
PARTNERS = {
    "fr": {"jeudi": "Thursday", "3": "3", "mars": "March", "2022": "2022"},
    "de": {"Donnerstag": "Thursday", "3": "3", "März": "March", "2022": "2022"},
}
FOUND = "Attention was on the right word for {} of {} words that have a partner."


def noted(looked, part):
    return any(part in note for note in looked.notes)


@pytest.mark.parametrize("model", ["transformer", "bahdanau"])
@pytest.mark.parametrize(("into", "said"), [("fr", "jeudi 3 mars 2022"), ("de", "Donnerstag, 3. März 2022")])
def test_the_example_is_translated_and_each_word_finds_its_partner(into, said, model):
    looked = look("translate", ISSUE, into=into, model=model)
    assert looked.said == said and looked.header == ("written", "looked at", "weight", "")
    assert [word for word, *_ in looked.rows] == [
        *(piece.removeprefix("##") for piece in tokenize(said)),
        "<end>",
    ]
    marks = {word: (key, mark) for word, key, _, mark in looked.rows if mark}
    assert marks == {word: (key, "✓") for word, key in PARTNERS[into].items()}
    assert all(0 < float(weight) <= 1 for _, _, weight, _ in looked.rows)
    assert looked.notes == (FOUND.format(4, 4),)
    record = looked.record
    assert record.source_tokens == [[f"<{into}>", "Thursday", "##,", "3", "March", "2022", "<end>"]]
    assert record.tokens[0][0] == "<start>" and "".join(record.tokens[0][1:]).replace(
        "##", ""
    ) == said.replace(" ", "")


def test_the_rows_are_the_largest_weights_of_the_head_that_the_card_names():
    looked = look("translate", "two hundred and one", into="de")
    best = pretrained.card("translate", "transformer")["scores"]["alignment"]["best"]
    weights = looked.record[best["layer"]].weights(best["head"])
    source = ["<de>", "two", "hundred", "and", "one", "<end>"]
    assert looked.said == "zweihunderteins" and [row[0] for row in looked.rows] == [
        "zwei",
        "hundert",
        "eins",
        "<end>",
    ]
    for row, (_, key, weight, _) in zip(weights, looked.rows, strict=True):
        assert key == source[int(row.argmax())] and weight == f"{float(row.max()):.2f}"
    assert f"{best['layer']}, head {best['head']}," in looked.figures[0][0]


def test_held_out_texts_are_mostly_right_and_said_to_be():
    right = 0
    for pair in data.pairs(20, held=True, seed=3):
        looked = look("translate", str(pair.source), into=pair.language_token[1:3])
        wrong = looked.said not in {
            str(each.target) for each in recognize(str(pair.source), pair.language_token[1:3])
        }
        assert noted(looked, "This is wrong: it should be") == wrong
        right += looked.said == str(pair.target)
    assert right >= 18


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("two thousand one hundred and one", "two thousand, one hundred and one"),
        ("two thousand one hundred one", "two thousand, one hundred one"),
        ("3 march 2022 7:05pm", "3 March 2022, 7:05 PM"),
        ("TWO HUNDRED AND ONE", "two hundred and one"),
        ("thursday 3 march 2022", ISSUE),
        ("March 3 2022 4:05:06 pm utc", "March 3, 2022, 4:05:06 PM UTC"),
    ],
)
def test_what_is_typed_otherwise_is_read_as_what_is_known(typed, read):
    looked, same = look("translate", typed, into="de"), look("translate", read, into="de")
    assert (looked.said, looked.rows) == (same.said, same.rows)
    assert noted(looked, f"It was read as {read!r}.") and not noted(same, "It was read")
    assert typed in written(looked.figures[0][1]) and read in written(same.figures[0][1])


@pytest.mark.parametrize("into", ["fr", "de"])
def test_another_style_of_dates_is_doubted(into):
    looked = look("translate", "2022-03-03", into=into)
    assert noted(looked, "This cannot be checked: it is none of the dates, times and numbers")
    assert noted(looked, "The model is not sure: it gave ") and noted(
        looked, "It may not know this kind of input."
    )
    assert all(mark == "" for *_, mark in looked.rows)


@pytest.mark.parametrize("text", ["31 June 2022", "25:00:00"])
def test_what_cannot_be_is_not_called_right(text):
    looked = look("translate", text)
    assert noted(looked, "This cannot be checked") and noted(looked, "there is no such day or time")
    assert not noted(looked, "Attention was on") and all(mark == "" for *_, mark in looked.rows)


@pytest.mark.parametrize("model", ["transformer", "bahdanau"])
@pytest.mark.parametrize(
    ("text", "right"),
    [
        *(("11:59 PM", "23:59"), ("7:05 AM", "07:05"), ("16:20", "16:20")),
        *(("four hundred twelve", "quatre cent douze"), ("3 March 2022, 4:05 PM", "3 mars 2022, 16:05")),
    ],
)
def test_times_without_seconds_and_numbers_without_and_are_translated(text, right, model):
    looked = look("translate", text, model=model)
    assert looked.said == right
    assert [note for note in looked.notes if not note.startswith("Attention was on")] == []


def test_a_wrong_weekday_is_said_and_translated():
    looked = look("translate", "Friday, 3 March 2022")
    assert noted(looked, "The text gives a day another weekday than it had: it was Thursday, 3 March 2022.")
    assert looked.said == "vendredi 3 mars 2022" and not noted(looked, "This is wrong")


def test_a_wrong_translation_is_said_to_be(monkeypatch):
    (right,), (friday,), (two,) = (recognize(text, "fr") for text in (ISSUE, "Friday, 4 March 2022", "two"))
    wrong, other = (Pair(right.language_token, right.source, each.target) for each in (friday, two))

    def notes_if_right_were(*pairs):
        monkeypatch.setattr(read_text, "recognize", lambda text, into: list(pairs))
        looked = look("translate", ISSUE)
        assert looked.said == "jeudi 3 mars 2022"
        return looked.notes

    assert notes_if_right_were(wrong) == ("This is wrong: it should be 'vendredi 4 mars 2022'.",)
    assert notes_if_right_were(wrong, wrong, other) == (
        "This is wrong: it should be 'vendredi 4 mars 2022' or 'deux'.",
    )
    assert notes_if_right_were(wrong, right) == (FOUND.format(4, 4),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "the text must have 1 to 90 words and signs, got 0; this model knows dates, times and numbers up to 9999",
        ),
        (" \n ", "the text must have 1 to 90 words and signs, got 0"),
        ("3 " * 91, "the text must have 1 to 90 words and signs, got 91"),
        ("hello", "the text must be of known English words, got 'hello'; "),
        ("Thursdy, 3 March 2022", "got 'Thursdy'; did you mean 'Thursday'"),
        ("3 at 4", "got 'at'; "),
        ("3 mars 2022", "of known English words, got 'mars'; "),
        ("march 3", "got 'march'; did you mean 'March'"),
        ("3 March 2150", "got '2150'; did you mean"),
        ("3rd March 2022", "got 'rd'; 68 words are known; this model knows dates"),
    ],
)
def test_what_cannot_be_read_is_said(text, message):
    with pytest.raises(ArgumentError) as error:
        look("translate", text)
    assert message in str(error.value)


def test_close_words_are_named_once():
    with pytest.raises(ArgumentError, match="got '1234'; did you mean") as error:
        look("translate", "1234")
    close = str(error.value).partition("did you mean ")[2].partition("?")[0].split(" or ")
    assert len(close) == len(set(close)) == 3


def test_the_longest_text_is_read():
    looked = look("translate", "3 " * 90)
    assert len(looked.record.source_tokens[0]) == 92 and looked.figures


def test_the_record_is_kept_and_reported(tmp_path):
    looked = look("translate", ISSUE, into="de")
    looked.record.save(tmp_path / "kept")
    again = load(tmp_path / "kept")
    assert [call.layer for call in again.calls] == [call.layer for call in looked.record.calls]
    assert (again.tokens, again.source_tokens) == (looked.record.tokens, looked.record.source_tokens)
    best = pretrained.card("translate", "transformer")["scores"]["alignment"]["best"]
    for record in (again, looked.record):
        assert torch.equal(record[best["layer"]].weights(1), looked.record[best["layer"]].weights(1))
    html = report(looked.record, figures=looked.figures)
    assert "<h1>translate, transformer</h1>" in html and "Donnerstag" in html
    assert plain(" ".join(looked.notes)) in plain(html) and looked.record.info["text"] == ISSUE
    for _, figure in looked.figures:
        picture = io.BytesIO()
        figure.savefig(picture, dpi=50)
        assert picture.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"into": "es"}, r"into \(--to\) must be fr or de, got 'es'"),
        ({"into": ""}, r"into \(--to\) must be fr or de, got ''"),
        ({"model": "lstm"}, "the model must be one that translate has, got 'lstm'"),
    ],
)
def test_other_languages_and_models_are_said(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        look("translate", ISSUE, **arguments)


def test_a_model_that_the_package_lacks_names_what_makes_it(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "root", lambda: tmp_path)
    with pytest.raises(ModelError, match="there is no 'transformer' of translate: regard train translate"):
        look("translate", ISSUE)


# --- bottleneck, with new models ---------------------------------------------------------------------------

ROW = "Thursday, 3 March 2022; Friday, 4 March 2022"


@pytest.mark.parametrize("model", [task.model for task in tasks("bottleneck") if task.attends])
def test_a_row_of_dates_is_read_and_checked(fresh, model):
    fresh("bottleneck")
    looked = look("bottleneck", ROW.replace(",", "").lower(), into="de", model=model)
    assert noted(looked, f"It was read as {ROW!r}.")
    assert noted(looked, "This is wrong: it should be 'Donnerstag, 3. März 2022; Freitag, 4. März 2022'.")
    assert "".join(looked.record.source_tokens[0][1:-1]).replace("##", "") == ROW.replace(" ", "")
    cross = [call for call in looked.record.calls if call.kind == "cross"]
    assert looked.figures[0][0].startswith(f"Where {cross[-1].layer}, head 0, looked")
    weights = cross[-1].weights(0)
    assert [weight for _, _, weight, _ in looked.rows] == [
        f"{x:.2f}" for x in weights.max(-1).values.tolist()
    ]


def test_bottleneck_has_an_example_of_its_own(fresh):
    fresh("bottleneck")
    looked = look("bottleneck")
    text = read_text.TEXTS["bottleneck"]
    assert recognize(text, "fr") and bottleneck.BETWEEN in text
    assert (
        "##;" in looked.record.source_tokens[0]
        and not noted(looked, "It was read")
        and noted(looked, "This is wrong")
    )


def test_one_vector_is_shown_beside_attention():
    """With the weights of the package: what the task exists for."""
    shown = look("bottleneck", model="fixed")
    assert shown.header == ("read", "fixed: one vector", "bahdanau: attention")
    assert [row[0] for row in shown.rows] == bottleneck_look.TEXT.split("; ")
    counts = [sum(row[column].endswith("✓") for row in shown.rows) for column in (1, 2)]
    assert counts[0] < counts[1] == len(shown.rows) == 5
    assert all(cell[-1] in "✓✗" for row in shown.rows for cell in row[1:])
    assert noted(shown, f"fixed: one vector brought {counts[0]} of 5 dates.")
    assert noted(shown, "Right is 'jeudi 3 mars 2022; lundi 4 juillet 1994;")
    table, heatmap = (written(figure) for _, figure in shown.figures)
    assert "lundi 4 juillet 1994" in table and "✗" in table and "bahdanau" in heatmap
    assert "The fixed vector has no such map" in shown.figures[1][0]
    assert "lundi 4 juillet 1994" in shown.rows[1][2] and len(shown.record) == 1
    assert "fixed beside bahdanau" in report(shown.record, figures=shown.figures)


def test_a_row_that_is_not_recognized_is_not_marked_beside_attention(fresh):
    fresh("bottleneck")
    shown = look("bottleneck", "3 March 2022; March 4, 2022", model="fixed")
    assert not any(cell.endswith(("✓", "✗")) for row in shown.rows for cell in row)
    assert noted(shown, "This cannot be checked") and not noted(shown, "brought")


def test_translate_knows_no_rows():
    with pytest.raises(ArgumentError, match="got ';'; .* this model knows dates, times and numbers"):
        look("translate", ROW)
