"""Pieces of a text become the text again; a vocabulary numbers them and says what it does not know."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.tasks.common.split import held_out
from regard.tasks.common.tokenizer import (
    END,
    PAD,
    SPECIAL,
    START,
    UNKNOWN,
    Text,
    Vocabulary,
    detokenize,
    tokenize,
)

ROW = st.lists(
    st.sampled_from(["March", "3", "2022", ",", ".", "-", "é_", "(", "ß"]), min_size=1, max_size=11
)


@given(words=ROW, gaps=st.lists(st.sampled_from(["", " "]), min_size=11, max_size=11))
def test_pieces_become_the_text_again(words, gaps):
    text = "".join(gap + word for gap, word in zip(gaps, words, strict=False)).strip()
    assert detokenize(tokenize(text)) == text


def test_spaces_of_any_kind_are_one_plain_space():
    assert tokenize(" 3:45\u202fPM\n now ") == ("3", "##:", "##45", "PM", "now")
    assert detokenize(tokenize(" 3:45\u202fPM\n now ")) == "3:45 PM now"
    assert tokenize("") == () and detokenize(()) == ""


def test_segments_are_cut_where_they_meet():
    text = Text.of([("ein", ["ones"]), ("und", []), ("dreißig", ["tens"]), (", ", []), ("3", ["day"])])
    assert text.subwords == ("ein", "##und", "##dreißig", "##,", "3") and str(text) == "einunddreißig, 3"
    assert text.tags == tuple(map(frozenset, [["ones"], [], ["tens"], [], ["day"]]))


def test_numbers_and_words(tmp_path):
    vocabulary = Vocabulary(("the", "##,", "thé"))
    assert len(vocabulary) == len(SPECIAL) + 3
    assert vocabulary.encode(["thé", "##,", "<end>"]) == [7, 6, END]
    assert vocabulary.decode([START, 7, 6, 5, END, 5, PAD]) == "thé, the"
    assert vocabulary.encode(["tea", "the"], unknown=True) == [UNKNOWN, 5]
    vocabulary.save(tmp_path / "words.json")
    assert Vocabulary.load(tmp_path / "words.json") == vocabulary


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("Marche", "the text must be of known words, got 'Marche'; did you mean 'March'"),
        ("##Mars", "got 'Mars'; did you mean 'March'"),
        ("qq", "the text must be of known words, got 'qq'; 2 words are known"),
    ],
)
def test_an_unknown_word_is_said(piece, message):
    with pytest.raises(ArgumentError, match=message):
        Vocabulary(("March", "##May")).encode([piece])


def test_a_word_twice_is_said():
    with pytest.raises(ArgumentError, match="tokens must differ from each other and from .*, got 'a' twice"):
        Vocabulary(("a", "b", "a"))
    with pytest.raises(ArgumentError, match="got '<end>' twice"):
        Vocabulary(("a", "<end>"))


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"format": "regard-vocabulary", "version": 1, "words": 3}'],
)
def test_a_damaged_file_is_said(tmp_path, body):
    (tmp_path / "words.json").write_text(body)
    with pytest.raises(ArgumentError, match=r"words.json: is no vocabulary that can be read"):
        Vocabulary.load(tmp_path / "words.json")


@pytest.mark.parametrize("changed", [{"version": 2}, {"format": "other"}, {"words": [1]}])
def test_another_format_is_said(tmp_path, changed):
    body = {"format": "regard-vocabulary", "version": 1, "words": ["a"]} | changed
    (tmp_path / "words.json").write_text(json.dumps(body))
    with pytest.raises(ArgumentError, match=r"words.json: is no vocabulary that this Regard reads"):
        Vocabulary.load(tmp_path / "words.json")


@pytest.mark.parametrize("one_in", [3, 10, 20])
def test_the_split_has_the_size_it_says_and_never_changes(one_in):
    held = [name for name in map(str, range(5000)) if held_out(name, one_in)]
    assert abs(len(held) / 5000 - 1 / one_in) < 0.02
    assert held_out("ast.py", 20) and held_out("types.py", 20) and not held_out("typing.py", 20)
