"""What a record and its calls show of themselves in a notebook."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.calls import a_record, call_of, vectors, without
from helpers.cards import Card
from regard.record import Record
from regard.record.display import HEADS, LAST, LAYERS


def a_call(layer="layer.0", heads=2, **sizes):
    query, key = vectors(batch=1, heads=heads, kv_heads=heads, **({"queries": 3, "keys": 5} | sizes))
    return call_of(query, key, layer=layer)


def cells_of(card):
    return [attrs["title"] for tag, attrs in card.tags if tag == "td" and "title" in attrs]


def test_layers_by_heads():
    record = a_record()
    card = Card(record)
    assert "Small" in card.text and "2 calls · batch 2 · queries 3 · keys 7 · 3 tokens" in card.text
    assert "layer 0" in card.text and "layer 1" in card.text
    titles = cells_of(card)
    assert len(titles) == 2 * 3 * 6  # calls, statistics, heads
    means = record.heads.set_index(["call", "head"])
    assert titles[3] == f"head 3, entropy: {means.loc[(0, 3), 'entropy']:.3g}"
    assert titles[-1] == f"head 5, first: {means.loc[(1, 5), 'first']:.3g}"


def test_a_call_has_its_layer_its_maps_and_its_statistics():
    card = Card(a_record()[0])
    assert "layer.0" in card.text and "self attention · batch 2 · heads 6 · queries 3 · keys 7" in card.text
    assert "causal()" in card.text and card.count("img") == 6 and len(cells_of(card)) == 6 * 6


def test_a_record_of_no_calls():
    assert "0 calls" in Card(Record()).text


def test_text_is_escaped():
    unseen = {f"<i>{number}": "it's <script>alert(1)</script>" for number in range(9)}
    record = Record([a_call("<b>layer</b>.&amp;")], [["<s>"]], None, {"model": "</code><script>"}, unseen)
    card = Card(record)
    assert card.count("script") == card.count("b") == 0 and "9 modules" in card.text
    assert card.text.count("alert(1)") == 5
    Card(record[0])


def test_many_calls_and_heads_are_cut_and_counted():
    first = a_call(heads=HEADS + 5)
    record = Record([replace(first, layer=f"model.{'x' * 300}.layer.{i}") for i in range(LAYERS + 9)])
    card = Card(record)
    assert card.count("tbody") == 1 and len(cells_of(card)) == LAYERS * HEADS
    assert f"first {LAYERS - LAST} and the last {LAST} of {LAYERS + 9} calls" in card.text
    assert f"first {HEADS} of {HEADS + 5} heads" in card.text


def test_calls_of_different_heads_and_statistics():
    calls = [
        a_call(heads=1),
        a_call("other", heads=4),
        without(a_call("third"), "entropy", "distance", "map"),
    ]
    card = Card(Record(calls))
    assert cells_of(card).count("head 3, entropy: no number") == 2


@pytest.mark.parametrize("names", [("lse", "allowed", "attends"), ("map",), ("entropy", "distance", "first")])
def test_what_was_not_kept(names):
    record = Record([without(call, *names) for call in a_record()])
    Card(record)
    Card(record[0])


def test_steps_are_counted():
    assert "3 steps" in Card(replace(a_call(), steps=3)).text


@given(
    st.lists(st.tuples(st.text(max_size=400), st.integers(1, 70), st.integers(1, 3)), max_size=4),
    st.dictionaries(st.text(), st.text(), max_size=7),
    st.none() | st.lists(st.lists(st.text(), max_size=2), max_size=2),
)
def test_any_record_shows_itself(layers, unseen, tokens):
    calls = [a_call(layer, heads, queries=queries) for layer, heads, queries in layers]
    record = Record(calls, tokens, None, {"model": next(iter(unseen), "")}, unseen)
    for value in (record, *record):
        Card(value)


def test_a_broken_row_is_a_cell_without_a_number():
    call = a_call()
    broken = replace(call, entropy=call.entropy.clone().index_fill(1, torch.tensor(1), torch.nan))
    assert cells_of(Card(Record([broken])))[1] == "head 1, entropy: no number"
