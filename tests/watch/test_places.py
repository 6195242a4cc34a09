"""Where queries stand among their keys: what the call or its cache says, or unknown and said so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicSlidingWindowLayer

import regard
from regard.record import Record
from regard.statistics.table import PLACED

BATCH, TOKENS, DIM = 2, 13, 4


class Joined(nn.Module):
    """Self-attention over its own tokens and more keys, before or after them."""

    def __init__(self, before: int = 0, after: int = 0) -> None:
        super().__init__()
        self.before, self.after, self.project = before, after, nn.Linear(DIM, 3 * DIM)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)[:, None].chunk(3, -1)
        tokens = x.shape[1]
        more = [t.mean(2, keepdim=True).expand(-1, -1, self.before, -1) for t in (k, v)]
        last = [t.amax(2, keepdim=True).expand(-1, -1, self.after, -1) for t in (k, v)]
        k, v = (torch.cat(parts, 2) for parts in zip(more, (k, v), last, strict=True))
        own = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        keep = torch.cat([own.new_ones(tokens, self.before), own, own.new_ones(tokens, self.after)], 1)
        self.weights = ((q @ k.mT).double() / DIM**0.5).masked_fill(~keep, -torch.inf).softmax(-1).detach()
        return F.scaled_dot_product_attention(q, k, v, keep)[:, 0]


@pytest.mark.parametrize(("before", "after"), [(3, 0), (0, 7), (2, 5)])
def test_keys_that_are_no_tokens_leave_the_place_unknown(before: int, after: int, tmp_path: Path) -> None:
    module, x = Joined(before, after), torch.randn(BATCH, TOKENS, DIM)
    want = module(x)
    with regard.watch(module, keep="vectors") as record:
        assert torch.equal(module(x), want)
    record.save(tmp_path / "record")
    for call in (record[0], regard.load(tmp_path / "record")[0]):
        assert not call.placed and all(getattr(call, name) is None for name in PLACED)
        assert call.valid().all() and "Without positions" in regard.page.report(Record([call]))
        w = module.weights
        torch.testing.assert_close(call.received.double(), w.sum(2), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            call.entropy.double(), -torch.special.xlogy(w, w).sum(-1), atol=1e-5, rtol=0
        )
        torch.testing.assert_close(call.weights(0, batch=1).double(), w[1, 0], atol=1e-6, rtol=0)
    assert record.heads[list(PLACED)].isna().all(None)


def test_tokens_alone_have_a_place() -> None:
    module = Joined()
    with regard.watch(module) as record:
        module(torch.randn(BATCH, TOKENS, DIM))
    call = record[0]
    assert call.placed and call.kind == "self" and call.offset == 0
    distance = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs()
    torch.testing.assert_close(call.distance.double(), (module.weights * distance).sum(-1), atol=1e-5, rtol=0)


def test_a_cache_that_was_filled_before_the_watch_says_where_queries_stand() -> None:
    from transformers import DynamicCache

    from watch.families import FAMILIES

    model, cache = FAMILIES["Llama"].build(), DynamicCache()
    ids = FAMILIES["Llama"].inputs()["input_ids"]
    with torch.no_grad():
        model(ids[:, :8], past_key_values=cache)
        with regard.watch(model) as record:
            model(ids[:, 8:], past_key_values=cache)
        with regard.watch(model) as whole:
            model(ids)
    for call, want in zip(record, whole, strict=True):
        assert call.placed and (call.offset, call.sizes.queries, call.sizes.keys) == (8, 5, 13)
        torch.testing.assert_close(call.distance, want.distance[:, :, 8:], atol=1e-5, rtol=0)
        torch.testing.assert_close(call.previous, want.previous[:, :, 8:], atol=1e-6, rtol=0)


def test_keys_of_unknown_places_step_by_step() -> None:
    """Steps whose place is unknown still are one call, and a step that is known does not say more."""
    module = Joined(before=1)
    parts = torch.randn(1, 9, DIM).split([6, 3], 1)
    with regard.watch(module) as record:
        for part in parts:
            module(part)
    assert [call.sizes.queries for call in record] == [6, 3] and not any(call.placed for call in record)


def test_steps_over_growing_keys_of_unknown_places_stay_apart() -> None:
    """Own keys first, then those of another sequence: these move on with every step."""
    module = Joined(after=5)
    parts = torch.randn(1, 4, DIM)
    with regard.watch(module, keep="vectors") as record:
        for count in (2, 3, 4):
            module(parts[:, :count])
    assert [(call.sizes.queries, call.sizes.keys) for call in record] == [(2, 7), (3, 8), (4, 9)]
    torch.testing.assert_close(record[2].weights(0).double(), module.weights[0, 0], atol=1e-6, rtol=0)


class Beside(nn.Module):
    """Attention whose new keys are put into a sliding cache, or only laid beside what it holds."""

    layer_idx = 0

    def __init__(self, puts: bool) -> None:
        super().__init__()
        self.puts, self.project = puts, nn.Linear(DIM, 3 * DIM)

    def forward(self, x: Tensor, past_key_values: Cache) -> Tensor:
        q, k, v = self.project(x)[:, None].chunk(3, -1)
        held = past_key_values.layers[0]
        if self.puts:
            k, v = past_key_values.update(k, v, 0)
        else:
            k, v = torch.cat([held.keys, k], 2), torch.cat([held.values, v], 2)
        return F.scaled_dot_product_attention(q, k, v)[:, 0]


@pytest.mark.parametrize("puts", [True, False])
def test_a_sliding_cache_places_only_keys_that_were_put_into_it(puts: bool) -> None:
    cache = Cache(layers=[DynamicSlidingWindowLayer(sliding_window=5)])
    cache.update(torch.randn(BATCH, 1, TOKENS, DIM), torch.randn(BATCH, 1, TOKENS, DIM), 0)
    with torch.no_grad(), regard.watch(module := Beside(puts)) as record:
        module(torch.randn(BATCH, 7, DIM), past_key_values=cache)
    [call] = record.calls
    assert call.placed is puts
    assert call.sizes.keys == (TOKENS + 7 if puts else 4 + 7)
    assert (call.distance is None) is not puts
