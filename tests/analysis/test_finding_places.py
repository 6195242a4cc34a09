"""Where a finding can be seen: the query and the key that were planted."""

import pytest
import torch

import regard as rg
from helpers.ill_heads import Layer, Model, noise, on_key
from regard.analysis import diagnose
from regard.analysis.diagnosis.finding import Finding
from regard.analysis.diagnosis.place import Place, place_of
from regard.record import Record

N = 61
CAUSAL = rg.causal()


def watched(*layers, lengths=(N,), keep="vectors", cells=64):
    """A record of a model of these layers on texts of these lengths, padded to the longest."""
    ids = torch.randint(1, 31, (len(lengths), max(lengths)))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    model = Model(*layers).eval()
    with torch.no_grad(), rg.watch(model, keep=keep, statistics=None, map=cells) as record:
        model(ids, mask)
    return record


def places(record):
    """By rule and head where each finding is."""
    return {(one.name, one.head): place_of(record, one) for one in diagnose(record).findings}


def later(scores, query, key):
    """Scores of a causal head that looks ahead at one place."""
    grid = torch.arange(N)
    blocked = scores.masked_fill(grid > grid[:, None], -100.0)
    blocked[:, query, key] = 5.0
    return blocked


def test_sinks_and_collapse_are_at_their_key():
    record = watched(Layer(torch.cat((on_key(N, 0), on_key(N, 17), noise(1, N)))))
    found = places(record)
    assert found["sink", 0] == Place(0, 0, None, 0)
    assert found["collapse", 1] == Place(0, 0, None, 17)


@pytest.mark.parametrize("keep", ["vectors", "statistics"])
def test_large_scores_are_at_their_pair(keep):
    scores = noise(2, N)
    scores[1, 23, 41] = 2000.0
    found = places(watched(Layer(scores), lengths=(N, N), keep=keep))
    assert found["score growth", 1] == Place(0, 0, 23, 41)
    assert ("score growth", 0) not in found


def test_a_number_that_is_not_finite_is_at_its_query():
    scores = noise(2, N)
    scores[1, 29, 3] = torch.nan
    record = watched(Layer(noise(2, N)), Layer(scores))
    assert places(record)["not finite", 1] == Place(1, 0, 29, None)


@pytest.mark.parametrize(("query", "key"), [(11, 12), (3, 59), (40, 58)])
def test_a_look_ahead_is_at_its_pair(query, key):
    ahead = later(noise(1, N), query, key)
    layers = [Layer(noise(2, N), CAUSAL), Layer(noise(2, N), CAUSAL), Layer(ahead.expand(2, -1, -1))]
    exact = places(watched(*layers))
    assert exact["broken causality", 0] == exact["broken causality", 1] == Place(2, 0, query, key)
    # Without vectors the map's cells of one token tell as much.
    assert places(watched(*layers, keep="statistics"))["broken causality", 1] == Place(2, 0, query, key)


def test_of_a_coarse_map_the_cell_is_told():
    layers = [Layer(noise(2, N), CAUSAL), Layer(noise(2, N), CAUSAL)]
    record = watched(*layers, Layer(later(noise(1, N), 19, 45)), keep="statistics", cells=8)
    assert record[2].map.cell == 8
    finding = Finding("broken causality", "severe", "layers.2", "self", 0, 1.0, 0.0)
    assert place_of(record, finding) == Place(2, 0, 16, 40)


def test_padding_is_at_the_padded_key_of_its_text():
    scores = torch.cat((noise(1, N), on_key(N, 55, 3.0)))
    record = watched(Layer(scores, pass_padding=False), lengths=(N, 50))
    # What the caller would have said, had the layer handed its mask on.
    padded = torch.zeros(2, N, dtype=torch.bool)
    padded[1, 50:] = True
    object.__setattr__(record[0], "padded", padded)
    finding = Finding("attention to padding", "severe", "layers.0", "self", 1, 1.0, 0.0)
    assert place_of(record, finding) == Place(0, 1, None, 55)


def test_a_finding_without_a_place_of_its_own_is_at_its_head_and_one_of_the_model_nowhere():
    record = watched(Layer(torch.zeros(2, N, N)))
    assert places(record)["vanishing", 0] == Place(0)
    assert place_of(record, Finding("not finite", "severe", "", "", None, 1.0, 0.0)) is None
    assert place_of(record, Finding("sink", "note", "layers.7", "self", 0, 1.0, 0.0)) is None


def test_of_several_calls_of_one_layer_the_worst_is_told():
    mild, worse = noise(1, N), noise(1, N)
    mild[0, 2, 5], worse[0, 7, 9] = 1500.0, 3000.0
    calls = [watched(Layer(scores))[0] for scores in (mild, worse)]
    record = Record(calls)
    assert places(record)["score growth", 0] == Place(1, 0, 7, 9)


def test_redundant_heads_name_the_other_layer():
    same = noise(1, N)
    record = watched(Layer(torch.cat((noise(1, N), same))), Layer(torch.cat((same, noise(1, N)))))
    (finding,) = (one for one in diagnose(record).findings if one.name == "redundant head")
    assert (finding.layer, finding.head) == ("layers.1", 0)
    assert (finding.evidence["other_layer"], finding.evidence["other_head"]) == (0, 1)
