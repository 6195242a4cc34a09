"""Heads are matched by what they do, and what changed most comes first."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import regard as rg
from draw.looking import axes_of, faults, words
from helpers.histories import random_history
from regard import analysis, draw
from regard.errors import ArgumentError, RecordError
from regard.record import History, Profile, Record
from training import tiny

HEADS, DIM = 4, 8
ORDER = [2, 0, 3, 1]


def model(seed=0, heads=HEADS, layers=3):
    own = tiny.gpt(0.0, heads=heads, layers=layers)
    generator = torch.Generator().manual_seed(seed)
    for parameter in own.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.4
    return own


def shuffled(original, layer=1):
    """The same function, with the heads of one layer in another order."""
    other = copy.deepcopy(original)
    attention, width = other.transformer.h[layer].attn, HEADS * DIM
    index = torch.cat([torch.arange(head * DIM, (head + 1) * DIM) for head in ORDER])
    with torch.no_grad():
        for part in range(3):
            own = slice(part * width, (part + 1) * width)
            attention.c_attn.weight[:, own] = attention.c_attn.weight[:, own][:, index]
            attention.c_attn.bias[own] = attention.c_attn.bias[own][index]
        attention.c_proj.weight[:] = attention.c_proj.weight[index]
    return other


def watched(own, keep="vectors", seed=3, **settings):
    with rg.watch(own, keep=keep, **settings) as record, torch.no_grad():
        own(**tiny.batch(2, seed))
    return record


def matches(table, layer=1):
    own = table[table.layer == f"transformer.h.{layer}.attn"].sort_values("head")
    return own.other.tolist()


@pytest.mark.parametrize("way", ["models", "vectors", "statistics", "profiles"])
def test_heads_in_another_order_are_found(way):
    one = model()
    other = shuffled(one)
    if way == "models":
        table = analysis.compare(one, other, inputs=tiny.batch(2))
    elif way == "vectors":
        table = analysis.compare(watched(one), watched(other))
    elif way == "statistics":
        table = analysis.compare(watched(one, "statistics"), watched(other, "statistics"))
    else:
        table = analysis.compare(
            *(Profile.of([watched(each), watched(each, seed=4)]) for each in (one, other))
        )
    # Head h of the one is where the other has it.
    assert matches(table) == [ORDER.index(head) for head in range(HEADS)]
    assert matches(table, 0) == matches(table, 2) == list(range(HEADS))
    # The root of a rounding error.
    assert table.distance.max() < 2e-3
    assert np.allclose(table.before, table.after, atol=1e-5)


def test_what_changed_most_comes_first():
    one = model()
    other = copy.deepcopy(one)
    with torch.no_grad():
        other.transformer.h[2].attn.c_attn.weight[:, 2 * DIM : 3 * DIM] *= 7
    table = analysis.compare(one, other, inputs=tiny.batch(2))
    top = table.iloc[0]
    assert (top.layer, top["head"], top.other) == ("transformer.h.2.attn", 2, 2)
    assert top.distance > 10 * table.distance[1] and top.before != top.after
    assert table.distance.is_monotonic_decreasing
    assert [module.training for module in one.modules()] == [True] * len(list(one.modules()))


def test_the_distance_of_weights_is_hellingers():
    one, other = watched(model())[1], watched(model(1))[1]
    weights = [
        torch.stack(
            [torch.stack([call.weights(h, batch=b) for h in range(HEADS)]) for b in range(2)]
        ).double()
        for call in (one, other)
    ]
    gaps = (weights[0][:, :, None].sqrt() - weights[1][:, None].sqrt()).square().sum(-1) / 2
    expected = gaps.mean((0, 3)).sqrt()
    apart = analysis.distances(Record([one]), Record([other]))
    assert np.allclose(apart, expected, atol=1e-6)
    assert analysis.distances(Record([one]), Record([one])).diagonal().max() < 2e-3


def test_histories_are_compared_at_their_ends():
    history = random_history(7, 2, 5)
    earlier = replace(history, steps=history.steps[:3], values=history.values[:3], pictured=(), maps=())
    table = analysis.compare(earlier, history)
    assert len(table) == 10 and (table.groupby(["layer", "kind"]).other.nunique() == 5).all()
    same = analysis.compare(history, history)
    assert same.distance.max() == 0 and (same["head"] == same.other).all()


def test_copies_of_a_head_keep_their_numbers():
    one = model()
    for block in one.transformer.h:
        block.attn.c_attn.weight.data.zero_()
        block.attn.c_attn.bias.data.zero_()
    table = analysis.compare(one, copy.deepcopy(one), inputs=tiny.batch(2))
    assert (table["head"] == table.other).all()


def test_what_cannot_be_compared_is_said():
    one = watched(model())
    with pytest.raises(ArgumentError, match="inputs must be given for two models"):
        analysis.compare(model(), model())
    with pytest.raises(ArgumentError, match="inputs must be left out unless two models are compared"):
        analysis.compare(one, one, inputs=tiny.batch(2))
    with pytest.raises(ArgumentError, match="two histories, got Record and Profile"):
        analysis.compare(one, Profile.of([one]))
    with pytest.raises(ArgumentError, match="got int and int"):
        analysis.compare(1, 2)
    larger = tiny.gpt()
    larger.config.vocab_size += 1
    with pytest.raises(ArgumentError, match="must have one vocabulary, got 31 and 32 tokens"):
        analysis.compare(tiny.gpt(), larger, inputs=tiny.batch(2))
    with pytest.raises(
        RecordError, match="as many heads, got self 4, self 4, self 4 and self 3, self 3, self 3"
    ):
        analysis.compare(one, watched(model(heads=3)))
    with pytest.raises(RecordError, match="the same layers of as many heads"):
        analysis.compare(one, watched(model(layers=2)))
    for empty in (Record(), Profile(), History()):
        with pytest.raises(RecordError, match="must have at least one layer, got 0 and 0"):
            analysis.compare(empty, empty)
    texts = [watched(model(), tokens=[[letter] * tiny.LENGTH] * 2) for letter in "ab"]
    with pytest.raises(RecordError, match=r"of the same tokens, got \['a'.* and \['b'.*Profile.of"):
        analysis.compare(*texts)
    assert len(analysis.compare(*(Profile.of([text]) for text in texts))) == 12
    own = model()
    with rg.watch(own, keep="vectors") as short, torch.no_grad():
        own(input_ids=tiny.batch(2)["input_ids"][:, :7])
    with pytest.raises(RecordError, match=r"one size .*, got \(2, 13, 13\) and \(2, 7, 7\)"):
        analysis.compare(one, short)
    others = [watched(own, "statistics", statistics=[rg.statistics.first(n), "entropy"]) for n in (1, 4)]
    with pytest.raises(RecordError, match="first must be of one parameter, got 1 and 4"):
        analysis.compare(*others)
    with pytest.raises(RecordError, match="one of entropy_fraction, .* must be known of both, and none is"):
        analysis.compare(*(watched(own, "statistics", statistics=["lse"]) for _ in range(2)))


def test_the_drawing_shows_every_head_and_its_match():
    table = analysis.compare(model(), shuffled(model()), inputs=tiny.batch(2))
    figure = draw.changed(table, title="Two models")
    (axes,) = axes_of(figure, "panel")
    assert axes.images[0].get_array().shape == (3, HEADS)
    assert [text.get_text() for text in axes.texts if text.get_position()[1] == 1] != []
    assert {"Two models", "layer 0", "layer 2", "head"} <= set(words(figure)) and faults(figure) == []
    wide = analysis.compare(random_history(3, 11, 17), random_history(5, 11, 17))
    assert faults(draw.changed(wide)) == []
    with pytest.raises(RecordError, match="a table of compare, with the columns layer, kind, head"):
        draw.changed(3)
    with pytest.raises(RecordError, match="a table of compare"):
        draw.changed(table[:0])
