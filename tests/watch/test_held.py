"""What a watch holds of a pass that is over: the record alone, unless a later pass may go on from it."""

import weakref

import pytest
import torch
from torch import nn

import regard as rg
from regard.watch.caches import given
from regard.watch.modules import CallSite


class Attention(nn.Module):
    """One head, by torch's function or by hand, of whose keys or scores the weak references are kept."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.by_hand, self.made = by_hand, []

    def forward(self, x, past_key_values=None):
        query, key = self.query(x)[:, None], self.key(x)[:, None]
        if self.by_hand:
            scores = query @ key.mT / 8**0.5
            self.made.append(weakref.ref(scores))
            return (scores.softmax(-1) @ key)[:, 0]
        self.made.append(weakref.ref(key))
        return nn.functional.scaled_dot_product_attention(query, key, key)[:, 0]


class Recurrent(nn.Module):
    """As XLNet, whose mems are of the pass before."""

    def forward(self, x, mems=None):
        return x, x


@pytest.mark.parametrize("by_hand", (False, True))
@pytest.mark.parametrize("grad", (False, True))
def test_nothing_that_a_call_was_computed_from_is_held(by_hand, grad):
    model = nn.Sequential(*(Attention(by_hand) for _ in range(3)))
    with torch.set_grad_enabled(grad), rg.watch(model) as record:
        model(torch.randn(2, 7, 8)).detach()
        assert len(record) == 3
        assert [made() for layer in model for made in layer.made] == [None] * 3


@pytest.mark.parametrize("cache", (object(), (torch.zeros(1, 1, 3, 8),) * 2, torch.zeros(3, 1, 8)))
def test_a_cache_may_be_given_to_any_module_that_runs(cache):
    inner, outer = Attention(False), nn.Sequential()
    x = torch.randn(1, 2, 8)
    without = CallSite("", outer, (x,), {"use_cache": True}), CallSite("inner", inner, (x,))
    assert not given(without)
    for where in (0, 1):
        arguments = [{}, {}]
        arguments[where] = {"past_key_values": cache}
        sites = [
            CallSite(one.layer, one.module, (x,), more) for one, more in zip(without, arguments, strict=True)
        ]
        assert given(sites)
    # Its first pass is given none, and returns one.
    assert given([CallSite("", Recurrent(), (x,))])
    # Some models are told by a name of a cache whether they are to keep one.
    assert not given([CallSite("inner", inner, (x,), {"past_key_values": True})])
