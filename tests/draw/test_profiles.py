"""Histograms, distances and maps of many texts are drawn as they are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard as rg
from draw.looking import axes_of, faults, words
from helpers.calls import call_of, dense_weights, vectors
from regard import draw
from regard.analysis import roles
from regard.errors import ArgumentError, RecordError
from regard.record import Profile, Record
from regard.statistics.offsets import diagonal_sums


def a_call(layer, heads, tokens):
    query, key = vectors(heads=heads, kv_heads=1, queries=tokens, keys=tokens)
    call = call_of(query, key, layer=layer, cell=1)
    return replace(call, by_offset=diagonal_sums(dense_weights(query, key, call.spec)))


def a_profile(lengths=(7, 41), layers=2, heads=6):
    torch.manual_seed(0)
    return Profile.of(Record([a_call(f"model.{i}.attn", heads, n) for i in range(layers)]) for n in lengths)


@pytest.mark.parametrize(
    ("statistic", "across"), [("entropy_fraction", "entropy fraction"), ("distance", "mean distance")]
)
def test_each_head_is_a_row_of_its_histogram(statistic, across):
    profile = a_profile()
    figure = draw.histograms(profile, statistic)
    table = profile.histogram(statistic)
    panels = axes_of(figure, "panel")
    assert len(panels) == 2
    for name, axes in zip(("model.0.attn", "model.1.attn"), panels, strict=True):
        (image,) = axes.images
        drawn = np.asarray(image.get_array())
        own = table[table["layer"] == name].pivot(index="head", columns="low", values="share").to_numpy()
        np.testing.assert_allclose(drawn[:, : own.shape[1]], own)
        np.testing.assert_allclose(drawn.sum(1), 1)
    assert any(across in word for word in words(figure)) and {"layer 0", "layer 1"} <= set(words(figure))
    assert faults(figure) == []


def test_each_head_is_a_row_of_distances():
    profile = a_profile()
    figure = draw.by_distance(profile)
    table = profile.mass("distance")
    (image,) = axes_of(figure, "panel")[1].images
    own = table[(table["layer"] == "model.1.attn") & (table["side"] == "before")]
    np.testing.assert_allclose(
        np.asarray(image.get_array()), own.pivot(index="head", columns="low", values="share").to_numpy()
    )
    assert faults(figure) == []


def test_each_head_has_a_map_on_relative_position():
    profile = a_profile((7, 41, 64))
    figure = draw.relative_maps(profile, shared=True)
    images = axes_of(figure, "heads")[0].images
    assert len(images) == 12
    np.testing.assert_allclose(
        images[7].get_array(), profile.layers["model.1.attn", "self"].relative_map()[1]
    )
    assert faults(figure) == []


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (12, 12), (3, 16)])
def test_profiles_of_any_size(layers, heads):
    profile = a_profile((13,), layers, heads)
    for figure in (
        draw.histograms(profile),
        draw.histograms(profile, "distance"),
        draw.relative_maps(profile),
    ):
        assert faults(figure) == []


def test_what_is_not_there_is_said():
    with pytest.raises(ArgumentError, match="statistic must be one that has a histogram, got 'sink'"):
        draw.histograms(a_profile(), "sink")
    for function in (draw.histograms, draw.by_distance, draw.relative_maps):
        with pytest.raises(RecordError):
            function(Profile())


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 7), (2, 5), (7, 1), (3, 12), (2, 61)])
def test_roles_stand_over_the_maps_where_there_is_room(layers, heads):
    model = torch.nn.ModuleList(rg.nn.MultiHeadAttention(2 * heads, heads) for _ in range(layers))
    stack = torch.nn.Sequential(*model)
    seen = rg.survey(stack, [{"input": torch.randn(1, length, 2 * heads)} for length in (11, 13)])
    figure = draw.relative_maps(seen, roles=True)
    assert faults(figure) == []
    table = roles(seen)
    shown = " ".join(words(figure))
    # The longest notes for which all heads have room, or none.
    if heads < 12:
        assert all(row.role in shown for row in table.itertuples())
    if heads == 61:
        assert not any(row.role in shown for row in table.itertuples())
    assert faults(draw.relative_maps(seen)) == []
    with pytest.raises(RecordError, match="roles are told by statistics"):
        draw.relative_maps(a_profile(), roles=True)
