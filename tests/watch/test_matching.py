"""Matching ids where somebody watches: a batch of texts, the steps of a generation, weights that are made elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import regard
from regard.errors import WatchError
from regard.statistics import matching
from regard.statistics.dense_weights import observe_weights
from regard.statistics.table import wanted
from watch.families import BATCH, FAMILIES, LENGTH
from watch.test_places import BATCH as ROWS
from watch.test_places import DIM, TOKENS, Joined

GPT2 = FAMILIES["GPT2"]
NEW = 5


def test_a_batch_of_texts(tmp_path: Path) -> None:
    model, inputs = GPT2.build("eager"), GPT2.inputs()
    ids = inputs["input_ids"] % 5
    before = torch.cat([ids.new_full((BATCH, 1), -1), ids[:, :-1]], 1)
    asked = (matching("duplicate", ids, ids, high=-1), matching("induction", ids, before, high=0))
    with torch.no_grad(), regard.watch(model, statistics=("lse", "min_weight", *asked)) as record:
        weights = model(**inputs, output_attentions=True).attentions
    record.save(tmp_path / "record")
    same, causal = ids[:, :, None] == ids[:, None], torch.ones(LENGTH, LENGTH).tril().bool()
    follows = (ids[:, :, None] == before[:, None]) & causal
    for calls in (record, regard.load(tmp_path / "record")):
        for call, w in zip(calls, weights, strict=True):
            for name, phi in (("duplicate", same & causal.tril(-1)), ("induction", follows)):
                want = (w * phi[:, None]).sum(-1)
                torch.testing.assert_close(call.groups[name], want, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(
                call.min_weight, w.masked_fill(~causal, 2).amin(-1), atol=1e-6, rtol=1e-4
            )
    assert {"group.duplicate", "group.induction", "min_weight"} <= set(record.heads)


def test_the_steps_of_a_generation_are_one_pass() -> None:
    """The ids of the whole text serve each step; the number of ids that a step does not see yet is no error."""
    model, inputs = GPT2.build(), GPT2.inputs()
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    with torch.no_grad():
        text = model.generate(**inputs, **options)
        asked = (matching("duplicate", text % 5, text % 5, high=-1),)
        with regard.watch(model, statistics=("lse", *asked)) as steps:
            assert torch.equal(model.generate(**inputs, **options), text)
        with regard.watch(model, statistics=("lse", *asked)) as once:
            model(text[:, :-1])
    for call, want in zip(steps, once, strict=True):
        assert call.steps == NEW and call.groups["duplicate"].shape[2] == text.shape[1] - 1
        torch.testing.assert_close(call.groups["duplicate"], want.groups["duplicate"], atol=1e-5, rtol=1e-4)


def test_ids_of_another_text_are_an_error() -> None:
    ids, model = torch.arange(LENGTH - 1), GPT2.build()
    message = f"query_ids of group:a must .* at least {LENGTH} positions"
    with (
        pytest.raises(WatchError, match=message),
        torch.no_grad(),
        regard.watch(model, statistics=("lse", matching("a", ids, ids))),
    ):
        model(**GPT2.inputs())


def test_where_places_are_unknown_nothing_matches() -> None:
    module, x = Joined(3, 0), torch.randn(ROWS, TOKENS, DIM)
    ids = torch.arange(2 * TOKENS)
    group = regard.statistics.group("all", torch.ones(TOKENS + 3) > 0)
    with regard.watch(module, statistics=("lse", matching("a", ids, ids), group)) as record:
        module(x)
    assert not record[0].placed and set(record[0].groups) == {"all"}


def test_weights_alone() -> None:
    weights = torch.rand(2, 3, 5, 7).masked_fill(torch.rand(2, 3, 5, 7) < 0.3, 0)
    weights[0, 0, 1] = 0
    ids = torch.randint(0, 3, (2, 7))
    want = wanted(["min_weight", matching("a", ids, ids, low=-3)])
    seen = observe_weights(weights, want, offset=2)
    away = torch.arange(7) - torch.arange(2, 7)[:, None]
    phi = (ids[:, 2:, None] == ids[:, None]) & (away >= -3)
    torch.testing.assert_close(seen.groups["a"], (weights * phi[:, None]).sum(-1))
    least = weights.where(weights > 0, 2).amin(-1)
    torch.testing.assert_close(seen.min_weight, least.where((weights > 0).any(-1), 0))
