"""Sums by offset: what they add up to, how they merge, and where nobody knows them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from helpers.cases import Case, cases, draw_tensors
from regard.attention import window_of
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics import offsets
from regard.statistics.dense_weights import observe_weights
from regard.statistics.table import wanted


def by_hand(weights: torch.Tensor) -> torch.Tensor:
    """Diagonal by diagonal, number by number."""
    queries, keys = weights.shape[-2:]
    sums = weights.new_zeros(*weights.shape[:-2], queries + keys - 1)
    for q in range(queries):
        for k in range(keys):
            sums[..., q - k + keys - 1] += weights[..., q, k]
    return sums


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 7), (5, 1), (5, 7), (11, 3)])
def test_diagonals_are_summed(queries, keys):
    weights = torch.rand(2, 3, queries, keys, dtype=torch.float64)
    torch.testing.assert_close(offsets.diagonal_sums(weights), by_hand(weights))
    assert offsets.offsets(queries, keys, 4).tolist() == list(range(5 - keys, 4 + queries))


@given(cases())
def test_they_add_up_to_what_is_received(case: Case):
    seen = case.observe(statistics=["by_offset", "received"])
    torch.testing.assert_close(seen.by_offset.sum(-1), seen.received.sum(-1), rtol=1e-12, atol=1e-12)


@given(st.sampled_from([(11, 17), (13, 13), (7, 5)]), st.data())
def test_pieces_of_the_queries_merge_into_the_whole(sizes, data):
    """As those of a generation, whose keys grow: under a causal mask the later ones get nothing from the earlier."""
    queries, keys = sizes
    query, key, _ = draw_tensors(2, 3, 1, queries, keys, 5, 2)
    spec, offset = Spec.of(sizes_of(query, key), mask=rg.causal()), keys - queries
    whole = rg.observe(query, key, mask=rg.causal(), statistics="by_offset").by_offset
    cuts = sorted(data.draw(st.lists(st.integers(1, queries - 1), max_size=3, unique=True)))
    strips = []
    for start, stop in zip([0, *cuts], [*cuts, queries], strict=True):
        have, part = max(0, offset + stop), query[:, :, start:stop]
        here = replace(spec, offset=offset + start)
        weights = window_of(part, key, here, slice(None), slice(0, have))
        strips.append(offsets.Strip(offsets.diagonal_sums(weights), stop - start, have, offset + start))
    merged = offsets.merge(data.draw(st.permutations(strips)))
    torch.testing.assert_close(merged, whole, rtol=1e-9, atol=1e-12)


def test_steps_of_a_generation_give_what_one_pass_gives(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=53, n_positions=64, bos_token_id=1, eos_token_id=1
    )
    model, text = transformers.GPT2LMHeadModel(config).eval(), torch.randint(1, 53, (2, 7))
    asked = {"statistics": ("by_offset", "lse", "received")}
    with torch.no_grad():
        with rg.watch(model, **asked) as steps:
            text = model.generate(text, max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0)
        with rg.watch(model, **asked) as once:
            model(text[:, :-1])
    steps.save(tmp_path / "record")
    for call, want, loaded in zip(steps, once, rg.load(tmp_path / "record"), strict=True):
        assert call.steps == 5 and call.by_offset.shape == (2, 2, 21)
        torch.testing.assert_close(call.by_offset, want.by_offset, atol=1e-5, rtol=1e-5)
        assert torch.equal(call.by_offset, loaded.by_offset)


def test_weights_that_are_there_already_are_summed_too():
    query, key, _ = draw_tensors(2, 3, 1, 5, 11, 7, 2)
    weights = rg.weights(query, key, mask=rg.near(4), align=2)
    seen = observe_weights(weights, wanted("by_offset"), offset=2)
    torch.testing.assert_close(seen.by_offset, by_hand(weights))
    assert observe_weights(weights, wanted(None), offset=2).by_offset is None


def test_a_broken_query_breaks_its_own_diagonals_alone():
    query, key, _ = (t.float() for t in draw_tensors(1, 1, 1, 70, 70, 5, 2))
    query[0, 0, 40] = torch.nan
    for engine in ("tiles", "native"):
        seen = rg.observe(query, key, mask=rg.causal(), statistics="by_offset", engine=engine)
        broken = seen.by_offset[0, 0].isnan()
        assert broken[69 : 69 + 41].all() and not broken[:69].any() and not broken[69 + 41 :].any(), engine
