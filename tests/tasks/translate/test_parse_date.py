"""What the data of `translate` and `bottleneck` say is recognized, however it is typed; what cannot be is not."""

import re
from datetime import datetime, timedelta

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.translate import data as translate
from regard.tasks.translate import dates
from regard.tasks.translate.pairs import Pair
from regard.tasks.translate.parse_date import english_words, recognize, wrong_weekdays

LANGUAGES, ENGLISH, STYLES = (
    st.sampled_from(choices) for choices in (translate.LANGUAGES, translate.ENGLISH, dates.STYLES)
)
WHENS = st.datetimes(datetime(1900, 1, 1), datetime(2099, 12, 31, 23, 59, 59)).map(
    lambda when: when.replace(microsecond=0)
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def typed(draw, text):
    """The text as people type it: other commas, capitals and spaces."""
    words = [
        draw(st.sampled_from([word, word.lower(), word.upper()]))
        + draw(st.sampled_from(["", ","] if word[-1].isalnum() else [""]))
        for word in text.replace(",", "").split()
    ]
    gaps = [draw(st.sampled_from([" ", "  ", "\u202f"])) for _ in words]
    return "".join(word + gap for word, gap in zip(words, gaps, strict=True)).strip()


def test_every_held_out_pair_is_recognized():
    for pair in translate.pairs(1000, held=True, seed=7):
        found = recognize(str(pair.source), pair.language_token[1:3])
        assert pair in found, f"{pair.source} was read as {found}"
        (same,) = [other for other in found if str(other.target) == str(pair.target)][:1]
        assert torch.equal(same.alignment, pair.alignment)
        assert {str(other.source) for other in found} == {str(pair.source)}


@pytest.mark.parametrize("length", range(1, bottleneck.MOST + 1))
def test_every_row_of_dates_is_recognized(length):
    for pair in bottleneck.pairs(7, length=length, held=True, seed=7):
        found = recognize(str(pair.source), pair.language_token[1:3])
        (same,) = [other for other in found if str(other.target) == str(pair.target)][:1]
        assert (same.language_token, same.source.subwords) == (pair.language_token, pair.source.subwords)
        assert torch.equal(same.alignment, pair.alignment)


@settings(max_examples=100)
@given(
    WHENS,
    ENGLISH,
    STYLES,
    LANGUAGES,
    st.sampled_from([(True, False), (False, True), (True, True)]),
    st.data(),
)
def test_a_moment_is_recognized_however_it_is_typed(when, english, style, into, shown, data):
    show = dict(zip(("date", "time"), shown, strict=True))
    source, target = (dates.moment(when, locale, style, **show) for locale in (english, into))
    found = recognize(typed(data.draw, str(source)), into)
    assert Pair(translate.LANGUAGE_TOKENS[into], source, target) in found


@given(st.integers(0, dates.MOST), st.booleans(), LANGUAGES, st.data())
def test_a_number_is_recognized_however_it_is_typed(value, conjunction, into, data):
    source = dates.number(value, "en", conjunction=conjunction)
    pair = Pair(translate.LANGUAGE_TOKENS[into], source, dates.number(value, into))
    assert recognize(typed(data.draw, str(source)), into) == [pair]
    assert recognize(str(source).replace("-", " "), into) == [pair]


def test_only_may_has_two_translations():
    for month in range(1, 13):
        for text in (f"{month_name(month)} 3, 2022", f"3 {month_name(month)} 2022"):
            targets = {str(pair.target) for pair in recognize(text, "de")}
            assert len(targets) == (2 if month == 5 else 1), text
            assert len({str(pair.target) for pair in recognize(text, "fr")}) == 1
    assert {str(pair.target) for pair in recognize("3 May 2022", "de")} == {"3. Mai 2022", "03.05.2022"}


def month_name(month):
    return datetime(2022, month, 1).strftime("%B")


@given(WHENS, ENGLISH, LANGUAGES, st.integers(1, 6), st.booleans())
@example(datetime(2000, 1, 1), "en", "fr", 4, True)
def test_a_wrong_weekday_is_translated_as_it_is_said_and_named(when, english, into, later, clock):
    text = str(dates.moment(when, english, "full", time=clock))
    right, wrong = (WEEKDAYS[(when.weekday() + days) % 7] for days in (0, later))
    (pair, *_) = recognize(text, into)
    assert right in text and wrong_weekdays(text) == []
    (changed, *_) = recognize(text.replace(right, wrong), into)
    other = dates.moment(when + timedelta(days=later), into, "full").subwords[0]
    assert changed.target.subwords == (other, *pair.target.subwords[1:])
    assert wrong_weekdays(text.replace(right, wrong)) == [str(dates.moment(when, "en_GB", "full"))]


@given(WHENS, ENGLISH, ENGLISH, STYLES, LANGUAGES, st.booleans(), st.booleans(), st.data())
def test_a_time_of_either_clock_is_recognized(when, english, clock, style, into, date, seconds, data):
    show = {"date": date, "time": True, "seconds": seconds}
    source = dates.moment(when, english, style, clock=clock, **show)
    target = dates.moment(when, into, style, **show)
    found = recognize(typed(data.draw, str(source)), into)
    assert target in [pair.target for pair in found] and all(pair.source == source for pair in found)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        *(("11:59 PM", "23:59"), ("7:05 AM", "07:05"), ("7:05", "07:05"), ("12:00 am", "00:00")),
        *(("four hundred twelve", "quatre cent douze"), ("two hundred one", "deux cent un")),
        *(("nine thousand one", "neuf mille un"), ("Friday, 3 March 2022", "vendredi 3 mars 2022")),
        *(("3 May 2022, 7:05pm", "3 mai 2022, 19:05"), ("may 3 2022 19:05", "3 mai 2022, 19:05")),
    ],
)
def test_what_no_locale_has_is_recognized(text, target):
    assert {str(pair.target) for pair in recognize(text, "fr")} == {target}


def test_english_words_are_those_of_every_source():
    sources = {str(pair.source) for pair in translate.pairs(1000, seed=7)}
    words = {word for source in sources for word in re.findall(r"[^\W\d]+", source)}
    assert words <= english_words() and not {"mars", "juin", "zwei", "Uhr", "deux"} & english_words()


@given(WHENS, ENGLISH, STYLES, LANGUAGES, st.integers(1, 3))
def test_one_wrong_date_spoils_its_row(when, english, style, into, days):
    whens = [when, when - timedelta(days=days) if when.year > 2000 else when + timedelta(days=days)]
    text = str(bottleneck.row(whens, english, style, into).source)
    assert recognize(text, into) != []
    first, second = text.split("; ")
    assert recognize(f"{first}; {second.replace(str(whens[1].year), 'then')}", into) == []
    assert {str(pair.source) for pair in recognize(f"{first};", into)} == {first}


@pytest.mark.parametrize(
    "text",
    [
        *("31 June 2022", "June 31, 2022", "30 February 2024", "29 February 2023", "0 March 2022", "32 March 2022"),
        *("25:00:00", "24:00:00", "12:60:00", "12:00:60", "13:00:00 PM", "0:30:00 AM", "1:2:3"),
        *("31 June 2022 at 4:05:06 UTC", "3 March 2022 at 25:05:06 UTC", "3 March at 4:05:06", "March 3 22"),
        *("ten thousand", "two two", "minus one", "deux cents", "3. März 2022", "2022-03-03"),
        *("", " ", ",", ";", "; ;", "hello", "March", "2022", "Thursday", "UTC", "3 March 2022 3", "3 3 March 2022"),
        *("3 March 2022; hello", "3 March 2022; March 4, 2022", "3 March 2022; two", "3 March 0000"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_not_recognized(text):
    assert recognize(text, "fr") == [] == recognize(text, "de")


def test_a_leap_day_is_a_day():
    (pair, *_) = recognize("29 february 2024", "fr")
    assert str(pair.target) == "29 février 2024"
