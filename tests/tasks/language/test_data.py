"""Source files as rows: held out by file, what is hidden from an encoder, and n-grams against plain counting."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.tasks.common.batches import IGNORED
from regard.tasks.language import data as language
from regard.tasks.language import recipe
from regard.tasks.language.files import Source, is_held_out, sources, standard_library
from regard.tasks.language.ngrams import NGrams, baselines


@pytest.fixture(scope="module")
def files():
    return standard_library()


def test_held_out_files_are_those_of_no_training(files):
    train, held = files
    assert len(train) > 300 and 0.02 < len(held) / len(train) < 0.09
    assert not {f.path for f in train} & {f.path for f in held}
    assert not {f.text for f in train} & {f.text for f in held}
    assert all(is_held_out(f.path) for f in held) and not any(is_held_out(f.path) for f in train)


def test_tests_doubles_and_other_encodings_are_left(tmp_path):
    (tmp_path / "tests").mkdir()
    for name, text in (
        ("a.py", "x = 1"),
        ("b.py", "x = 1"),
        ("tests/c.py", "y"),
        ("empty.py", " "),
        ("d.txt", "z"),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    assert sources(tmp_path) == [Source("a.py", "x = 1")]


def test_the_tokenizer_loses_nothing_and_is_the_same_each_time(files):
    some = files[0][:20]
    tokenizer, again = language.train_tokenizer(some), language.train_tokenizer(some)
    assert tokenizer.get_vocab() == again.get_vocab() and len(tokenizer) == language.VOCABULARY
    for file in files[1][:5]:
        ids = tokenizer(file.text)["input_ids"]
        assert ids[0] == language.FILE_ID and tokenizer.decode(ids[1:]) == file.text
    cut = language.stream(tokenizer, some[:3])
    assert (cut == language.FILE_ID).sum() == 3
    rows = language.rows(cut, context=101)
    assert torch.equal(rows[:, 1:].flatten(), cut[: len(rows) * 100]) and (rows[:, 0] == 0).all()
    example = language.Rows(rows)[1]
    assert torch.equal(example["input_ids"], rows[1]) and torch.equal(example["labels"], rows[1])


def test_what_is_hidden():
    tokens = torch.randint(1, language.VOCABULARY, (97, 211))
    tokens[:, 0] = language.FILE_ID
    batch = language.hide([{"input_ids": row} for row in tokens])
    asked = batch["labels"] != IGNORED
    assert torch.equal(batch["labels"][asked], tokens[asked]) and not asked[:, 0].any()
    assert torch.equal(batch["input_ids"][~asked], tokens[~asked])
    share = asked.double().mean().item()
    hidden = (batch["input_ids"] == language.HIDDEN_ID)[asked].double().mean().item()
    kept = (batch["input_ids"] == tokens)[asked].double().mean().item()
    assert (share, hidden, kept) == pytest.approx((0.15, 0.8, 0.1), abs=0.03)


def test_random_tokens_twice():
    rows = language.repeated(7, 13, seed=3)
    assert rows.shape == (7, 27) and (rows[:, 0] == language.FILE_ID).all()
    assert torch.equal(rows[:, 1:14], rows[:, 14:]) and rows[:, 1:].min() > 0
    assert torch.equal(rows, language.repeated(7, 13, seed=3)) and not torch.equal(
        rows, language.repeated(7, 13, 4)
    )


@pytest.mark.parametrize("context", [37, 256])
def test_a_copied_row_is_one_span_over_and_over(context):
    lengths = set()
    for seed in range(97):
        row = language.copied(context, seed)
        ids, labels = row["input_ids"], row["labels"]
        assert ids.shape == labels.shape == (context,) and ids[0] == language.FILE_ID
        assert ids[1:].min() > 0 and ids.max() < language.VOCABULARY
        length = int((labels == IGNORED).sum()) - 1
        assert context // 16 <= length < context // 2
        assert (labels[: 1 + length] == IGNORED).all() and torch.equal(
            labels[1 + length :], ids[1 + length :]
        )
        assert torch.equal(ids[1 + length :], ids[1:-length])
        assert length < 9 or not torch.equal(ids[2 : 1 + length], ids[1:length])
        lengths.add(length)
        assert all(torch.equal(row[name], language.copied(context, seed)[name]) for name in row)
    assert len(lengths) > 10
    assert not torch.equal(language.copied(context, 0)["input_ids"], language.copied(context, 1)["input_ids"])


def test_copies_come_after_the_rows():
    table = torch.randint(1, language.VOCABULARY, (7, 41))
    rows = language.Rows(table, copies=3)
    assert (len(rows), len(language.Rows(table))) == (10, 7)
    for place in range(7):
        assert torch.equal(rows[place]["input_ids"], table[place])
        assert torch.equal(rows[place]["labels"], table[place])
    for place in range(3):
        want = language.copied(41, place)
        assert all(torch.equal(rows[7 + place][name], want[name]) for name in ("input_ids", "labels"))
    batch = recipe._stack([rows[5], rows[8]])
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 41)


def test_only_the_decoder_learns_from_copies_and_no_baseline_counts_them(files, monkeypatch):
    few = tuple(side[:11] for side in files)
    tokenizer = language.train_tokenizer(few[0])
    for name, value in (("files", lambda: few), ("CONTEXT", 37), ("HELD", {True: 13})):
        monkeypatch.setattr(recipe, name, value)
    decoder, encoder = recipe.data(True, tokenizer), recipe.hidden(True, tokenizer)
    text = language.rows(language.stream(tokenizer, few[0]), context=37)
    learned = decoder.train()
    assert torch.equal(learned.rows, text) and learned.copies == len(text) // 8 > 50
    assert len(encoder.train()) == len(text) and torch.equal(encoder.train().rows, text)
    for side in (decoder, encoder):
        assert (len(side.held_out), side.held_out.copies) == (13, 0)
    assert torch.equal(decoder.held_out.rows, encoder.held_out.rows)
    below = {
        name: round(value, 4)
        for name, value in baselines(
            text[:, 1:].flatten(), decoder.held_out.rows, language.VOCABULARY
        ).items()
    }
    assert recipe._baselines(decoder) == recipe._baselines(encoder) == below


def plain(stream, vocabulary, order, context, token):
    """P(token | context) by counting with dictionaries and recursion."""
    context = context[-(order - 1) :] if order > 1 else ()
    if not context:
        return (stream.count(token) + 1) / (len(stream) + vocabulary)
    n = len(context) + 1
    grams = Counter(tuple(stream[i : i + n]) for i in range(len(stream) - n + 1))
    after = {gram[-1]: count for gram, count in grams.items() if gram[:-1] == tuple(context)}
    shorter = plain(stream, vocabulary, order, context[1:], token)
    total, kinds = sum(after.values()), len(after)
    return (after.get(token, 0) + kinds * shorter) / (total + kinds) if after else shorter


@given(
    stream=st.lists(st.integers(0, 3), min_size=1, max_size=41),
    row=st.lists(st.integers(0, 3), min_size=2, max_size=8),
    order=st.integers(1, 5),
)
@example(stream=[0] * 5, row=[0] * 3, order=5)  # rows that are shorter than the longest context
def test_ngrams_are_those_of_plain_counting(stream, row, order):
    model = NGrams(torch.tensor(stream), 5, order)
    found = model.losses(torch.tensor([row, row[::-1]]))
    for line, losses in zip((row, row[::-1]), found, strict=True):
        expected = [-math.log(plain(stream, 5, order, tuple(line[:i]), line[i])) for i in range(1, len(line))]
        assert losses.tolist() == pytest.approx(expected, rel=1e-12)


def test_ngrams_are_distributions():
    model = NGrams(torch.randint(0, 7, (503,)), 7, 4)
    context = torch.randint(0, 7, (11, 3))
    rows = torch.stack([torch.cat([c, torch.tensor([w])]) for c in context for w in range(7)])
    p = model.probabilities(rows.numpy())[:, -1].reshape(11, 7)
    assert p.sum(1).tolist() == pytest.approx([1.0] * 11, rel=1e-12)


def test_longer_contexts_help_where_text_repeats():
    stream = torch.randint(0, 53, (101,)).repeat(7)
    found = baselines(stream, stream[:606].view(6, 101), 53)
    assert list(found) == ["uniform", "unigram", "bigram", "5-gram"]
    assert (
        found["5-gram"] < found["bigram"] < found["unigram"] < found["uniform"] == pytest.approx(math.log(53))
    )


@pytest.mark.parametrize(("vocabulary", "order"), [(5, 0), (2**16, 4)])
def test_a_bad_order_is_said(vocabulary, order):
    with pytest.raises(
        ArgumentError, match=rf"order must be at least 1, and .* below 2 \*\* 63, got {order} and"
    ):
        NGrams(torch.tensor([1]), vocabulary, order)
