"""Dates, times and numbers: right, held out, the same for a seed, and aligned by what each word says."""

import re
from datetime import UTC, datetime

import pytest
import torch
from babel.dates import format_date, format_datetime, format_time
from num2words import num2words

from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.common.batches import IGNORED, collate
from regard.tasks.common.tokenizer import END, PAD
from regard.tasks.translate import data as translate
from regard.tasks.translate import dates
from regard.tasks.translate.pairs import Pairs

WHEN = datetime(2022, 3, 3, 15, 45, 12)
TOLD = {"en": [{"hour"}, {"minute"}, {"half"}], "en_GB": [{"hour", "half"}, {"minute"}]}
LOCALES = (*translate.ENGLISH, *translate.LANGUAGES)


def plain(text):
    """With single, plain spaces."""
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("style", dates.STYLES)
@pytest.mark.parametrize("locale", LOCALES)
def test_moments_are_those_of_babel(locale, style):
    for when in (
        WHEN,
        datetime(1900, 1, 1),
        datetime(2099, 12, 31, 23, 59, 59),
        datetime(1987, 9, 28, 12, 1),
    ):
        there = when.replace(tzinfo=UTC)
        assert str(dates.moment(when, locale, style)) == plain(format_date(when, style, locale=locale))
        alone = dates.moment(when, locale, style, date=False, time=True)
        assert str(alone) == plain(format_time(there, style, locale=locale))
        both = dates.moment(when, locale, style, time=True)
        assert str(both) == plain(format_datetime(there, style, locale=locale))
        short = dates.moment(when, locale, style, date=False, time=True, seconds=False)
        assert str(short) == plain(format_time(there, "short", locale=locale))


@pytest.mark.parametrize("style", dates.STYLES)
def test_a_clock_is_that_of_its_locale_whatever_the_date_is_of(style):
    for locale, clock in (("en", "en_GB"), ("en_GB", "en"), ("en", "en")):
        day = plain(format_date(WHEN, style, locale=locale))
        full = plain(format_time(WHEN.replace(tzinfo=UTC), style, locale=clock))
        assert str(dates.moment(WHEN, locale, style, time=True, clock=clock)) == f"{day}, {full}"
        short = dates.moment(WHEN, locale, style, time=True, seconds=False, clock=clock)
        assert str(short) == f"{day}, {plain(format_time(WHEN, 'short', locale=clock))}"
        told = [set(tags) for tags in short.tags if tags & {"hour", "minute", "half", "second"}]
        assert told == TOLD[clock]


@pytest.mark.parametrize("language", ["en", "fr", "de"])
def test_numbers_are_those_of_num2words_and_every_digit_is_told(language):
    for value in (*range(200), *range(200, 10_000, 7)):
        text = dates.number(value, language)
        assert str(text) == num2words(value, lang=language)
        told = set().union(*text.tags) - {"hundred", "thousand"}
        digits = zip(("ones", "tens", "hundreds", "thousands"), reversed(str(value)), strict=False)
        needed = {name for name, digit in digits if digit != "0"} or {"ones"}
        one = {"hundreds": "1", "thousands": "1"}  # "cent" and "mille" say themselves that there is one
        missing = {name for name in needed - told if not (language == "fr" and one.get(name) in str(value))}
        assert not missing and told - needed <= {"ones"}, (value, text)


def test_a_number_without_and_is_the_same_number_with_the_same_digits():
    for value in (*range(1100), *range(1100, 10_000, 7)):
        text, longer = (dates.number(value, "en", conjunction=conjunction) for conjunction in (False, True))
        assert str(text).split() == [word for word in str(longer).split() if word != "and"]
        assert [tags for tags in text.tags if tags] == [tags for tags in longer.tags if tags]


def aligned(pair):
    """Target word → the source words that it is made from."""
    rows = pair.alignment[:-1, 1:-1]
    source = [subword.removeprefix("##") for subword in pair.source.subwords]
    return [
        (word.removeprefix("##"), [source[k] for k in row.nonzero().flatten().tolist()])
        for word, row in zip(pair.target.subwords, rows, strict=True)
    ]


def test_the_alignment_of_a_date_by_hand():
    source, target = (
        dates.moment(WHEN, "en", "full", time=True),
        dates.moment(WHEN, "de", "full", time=True),
    )
    zone = ["Coordinated", "Universal", "Time"]
    assert aligned(translate.Pair("<de>", source, target)) == [
        ("Donnerstag", ["Thursday"]), (",", []), ("3", ["3"]), (".", []), ("März", ["March"]), ("2022", ["2022"]),
        (",", []), ("15", ["3", "PM"]), (":", []), ("45", ["45"]), (":", []), ("12", ["12"]),
        ("Koordinierte", zone), ("Weltzeit", zone),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "language", "expected"),
    [
        (231, "de", "zwei:two hundert:hundred ein:one und: dreißig:thirty"),
        (71, "fr", "soixante:seventy et: onze:seventy+one"),
        (97, "fr", "quatre:ninety -: vingt:ninety -: dix:ninety -: sept:seven"),
        (116, "fr", "cent:hundred seize:sixteen"),
        (4017, "de", "vier:four tausend:thousand siebzehn:seventeen"),
    ],
)
def test_the_alignment_of_numbers_by_hand(value, language, expected):
    pair = translate.Pair("<>", dates.number(value, "en"), dates.number(value, language))
    assert " ".join(f"{word}:{'+'.join(sources)}" for word, sources in aligned(pair)) == expected


@pytest.mark.parametrize("module", [translate, bottleneck])
def test_the_same_seed_gives_the_same_pairs_and_another_gives_others(module):
    assert module.pairs(53, seed=5) == module.pairs(53, seed=5)
    assert module.pairs(53, seed=5) != module.pairs(53, seed=6)
    assert module.pairs(53, seed=5, held=True) != module.pairs(53, seed=5)


def test_held_out_values_are_those_of_no_training_pair():
    for values, size in (
        (translate.dates, 73_049),
        (translate.times, 86_400),
        (translate.minutes, 1440),
        (translate.numbers, 10_000),
    ):
        train, held = set(values(False)), set(values(True))
        assert not train & held and len(train) + len(held) == size
        # One in ten by a hash: within three standard deviations.
        assert len(held) / size == pytest.approx(0.1, abs=max(0.01, 0.9 / size**0.5))


def test_pairs_have_every_form_that_people_type():
    """Times with and without seconds on both clocks, with dates of both orders; numbers with and without `and`."""
    drawn = translate.pairs(4001, seed=13)
    texts = [str(pair.source) for pair in drawn]
    times = [text for text in texts if ":" in text]
    short = [text for text in times if text.count(":") == 1]
    assert len(short) / len(times) == pytest.approx(translate.WITHOUT_SECONDS, abs=0.05)
    for chosen in (times, short):
        assert sum(text.endswith("M") or "M " in text for text in chosen) / len(chosen) > 0.4
    for order in (
        r"^\w+, \d+ \w+ \d{4}",
        r"^\w+, \w+ \d+, \d{4}",
        r"^\d+ \w+ \d{4}",
        r"^\w+ \d+, \d{4}",
        "^",
    ):
        for clock in (r"\d:\d\d", r"\d:\d\d [AP]M", r"\d:\d\d:\d\d.*", r"\d:\d\d:\d\d [AP]M.*"):
            assert any(re.search(f"{order}.*{clock}$", text) for text in texts), (order, clock)
    # Of values, those below a hundred and whole hundreds have no `and`.
    numbers = [text for text in texts if re.search(r"(hundred|thousand)(?!,) (and )?\w+$", text)]
    without = [text for text in numbers if " and " not in text and not text.endswith("hundred")]
    assert len(without) / len(numbers) == pytest.approx(translate.WITHOUT_AND, abs=0.06)


def said(pair, names):
    """What a pair tells of some names, in its source: a date, a time or a number."""
    return tuple(p for p, tags in zip(pair.source.subwords, pair.source.tags, strict=True) if tags & names)


def test_held_out_pairs_share_no_date_time_or_number_with_training_pairs():
    train, held = translate.pairs(7001), translate.pairs(2003, held=True)
    assert not {str(p.source) for p in train} & {str(p.source) for p in held}
    for names in (("day", "month", "year"), ("hour", "minute", "second", "half")):
        names = set(names)
        sets = [{said(p, names) for p in side} - {()} for side in (train, held)]
        assert min(map(len, sets)) > 300 and not sets[0] & sets[1]


def test_held_out_rows_share_no_date_with_training_rows():
    train, held = (
        {(said(pair, {f"day {i}", f"month {i}", f"year {i}"}))
         for pair in bottleneck.pairs(503, held=side) for i in range(8)} - {()}
        for side in (False, True)
    )  # fmt: skip
    assert min(len(train), len(held)) > 1000 and not train & held


def test_rows_have_the_length_asked_for_and_align_within_their_dates():
    (pair,) = bottleneck.pairs(1, length=5, seed=2)
    assert str(pair.source).count(";") == str(pair.target).count(";") == 4
    for row, tags in zip(pair.alignment[:-1, 1:-1], pair.target.tags, strict=True):
        assert all(pair.source.tags[k] & tags for k in row.nonzero().flatten().tolist())
    rows = pair.alignment[:-1, 1:-1].float()
    places = (rows @ torch.arange(rows.shape[1]).float() / rows.sum(1)).nan_to_num(-1)
    cut = [i for i, piece in enumerate(pair.target.subwords) if piece == "##;"]
    assert (places[: cut[0]].max() < places[cut[-1] + 1 :].max()).item()
    drawn = bottleneck.pairs(401)
    counts = [sum(str(p.source).count(";") == n for p in drawn) for n in range(8)]
    assert min(counts) > 25


@pytest.mark.parametrize("module", [translate, bottleneck])
def test_every_piece_is_known(module):
    held = Pairs(module.pairs(1009, held=True, seed=3), module.vocabulary())
    assert all(len(held[place]["labels"]) > 1 for place in range(len(held)))


def test_every_day_hour_and_number_word_is_known():
    vocabulary = translate.vocabulary()
    for locale in LOCALES:
        for style in dates.STYLES:
            for i in range(400):
                when = datetime(1900 + i % 200, i % 12 + 1, i % 28 + 1, i % 24, i % 60, i % 60)
                vocabulary.encode(dates.moment(when, locale, style, time=True).subwords)
            vocabulary.encode(dates.moment(datetime(2001, 1, 31), locale, style).subwords)
    for value in range(0, 10_000, 3):
        for language in ("en", "fr", "de"):
            vocabulary.encode(dates.number(value, language).subwords)


def test_an_example_is_tag_text_and_end_and_a_batch_is_padded():
    data = translate.data(7, seed=11)
    examples = [data[place] for place in range(7)]
    batch = collate(examples)
    longest = max(len(example["input_ids"]) for example in examples)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (7, longest)
    for row, (example, pair) in enumerate(zip(examples, data.pairs, strict=True)):
        source, target = example["input_ids"], example["labels"]
        assert pair.alignment.shape == (len(target), len(source))
        assert source[-1] == END and data.vocabulary.decode(target.tolist()) == str(pair.target)
        assert f"{pair.language_token} {pair.source}" == data.vocabulary.decode(source.tolist())
        assert batch["input_ids"][row, : len(source)].tolist() == source.tolist()
        assert (batch["input_ids"][row, len(source) :] == PAD).all()
        assert batch["attention_mask"][row].sum() == len(source)
        assert (batch["labels"][row, len(target) :] == IGNORED).all()


def test_the_example_of_the_command_is_known():
    words = translate.vocabulary()
    source = dates.moment(datetime(2022, 3, 3), "en_GB", "full")
    assert str(source) == "Thursday, 3 March 2022" and words.encode(source.subwords)


def test_rows_to_learn_from_are_cut_to_one_number_of_dates():
    rows = bottleneck.data(7)
    words, seen = bottleneck.vocabulary(), []
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        for _ in range(401):
            batch = bottleneck.collate([rows[i] for i in range(7)])
            texts = [words.decode(row) for row in batch["labels"].clamp(min=0).tolist()]
            (count,) = {text.count(";") + 1 for text in texts}
            sources = [words.decode(row) for row in batch["input_ids"].tolist()]
            assert {text.count(";") + 1 for text in sources} == {count}
            whole = [str(pair.target) for pair in rows.rows.pairs]
            assert all(long.startswith(text) for long, text in zip(whole, texts, strict=True))
            assert ((batch["labels"] == END).sum(1) == 1).all() and (
                (batch["input_ids"] == END).sum(1) == 1
            ).all()
            seen.append(count)
    # One date is drawn with a chance of 1 / (1 + 1/2 + … + 1/8) = 0.368, eight dates with an eighth of that.
    assert seen.count(1) / 401 == pytest.approx(0.368, abs=0.08) and set(seen) == set(range(1, 9))


def test_held_out_rows_are_not_cut():
    pairs = bottleneck.pairs(11, length=8, held=True)
    batch = bottleneck.collate([Pairs(pairs, bottleneck.vocabulary())[i] for i in range(11)])
    texts = [bottleneck.vocabulary().decode(row) for row in batch["labels"].clamp(min=0).tolist()]
    assert texts == [str(pair.target) for pair in pairs]
