"""What caches of limited size hold, against a plain simulation on dense float64 weights."""

from dataclasses import replace

import pytest
import torch

import regard as rg
from helpers.bare_calls import a_call
from helpers.calls import vectors
from helpers.dense_distances import dense
from regard.analysis import eviction
from regard.errors import ArgumentError, RecordError
from regard.record import Record


def simulated(weights, policy, budget, first):
    """The share that one head's cache holds, query by query: sets of Python and one weight at a time."""
    held, received, shares = set(), {}, []
    for t, row in enumerate(weights):
        held.add(t)
        received[t] = 0.0
        if len(held) > budget:
            if policy == "heavy hitters":
                old = [k for k in held if k <= t - budget // 2]
                gone = min(old, key=lambda k: (received[k], k))
            else:
                fixed = first if policy == "first and recent" else 0
                gone = min(k for k in held if k >= fixed)
            held.remove(gone)
        total = sum(float(row[k]) for k in held)
        for k in held:
            received[k] += float(row[k]) / total
        shares.append(total / float(row.sum()))
    return shares


@pytest.mark.parametrize("spec", [dict(), dict(sink_logit=torch.tensor([1.0, -1.0, 4.0])), dict(softcap=5.0)])
def test_it_is_the_simulation(spec):
    torch.manual_seed(1)
    query, key = (part.double() for part in vectors(queries=89, keys=89, heads=3, kv_heads=1))
    call = a_call(2 * query, key, mask=rg.causal(), **spec)
    table = eviction(Record([call]), [7, 24, 89], first=3)
    assert len(table) == 3 * 3 * 3
    weights = dense(call)[..., :-1]
    for row in table.itertuples():
        shares = [s for batch in weights[row.head] for s in simulated(batch, row.policy, row.budget, 3)]
        assert row.mass == pytest.approx(sum(shares) / len(shares), abs=1e-9)
        assert row.least == pytest.approx(min(shares), abs=1e-9)
    assert (table.mass[table.budget == 89] > 1 - 1e-9).all()


def test_padding_counts_nowhere():
    torch.manual_seed(2)
    query, key = vectors(queries=31, keys=31, heads=3, kv_heads=3)
    padded = torch.arange(31) >= torch.tensor([[31], [19]])
    both = eviction(Record([a_call(query, key, mask=rg.causal(), padded=padded)]), 8)
    alone = [
        eviction(Record([a_call(query[i : i + 1, :, :n], key[i : i + 1, :, :n], mask=rg.causal())]), 8).mass
        for i, n in ((0, 31), (1, 19))
    ]
    assert both.mass.to_numpy() == pytest.approx((31 * alone[0] + 19 * alone[1]).to_numpy() / 50, abs=1e-6)


def test_only_causal_self_attention_is_looked_at():
    query, key = vectors(queries=70, keys=70)
    causal = a_call(query, key, "layer.0", mask=rg.causal() & rg.near(9))
    others = [
        a_call(query, key, "layer.1"),
        a_call(query, key, "layer.2", kind="cross", mask=rg.causal()),
        a_call(query, key, "layer.3", mask=rg.causal() | rg.near(0, 1)),
        a_call(query[:, :, 3:], key, "layer.4", mask=rg.causal()),
    ]
    assert set(eviction(Record([causal, *others]), 16).layer) == {"layer.0"}
    with pytest.raises(RecordError, match="causal self-attention over a text from its beginning"):
        eviction(Record(others), 16)


def test_errors_say_what_must_hold():
    call = a_call(*vectors(queries=5, keys=5), mask=rg.causal())
    with pytest.raises(ArgumentError, match=r"budget\[1\] must be at least 5, got 4"):
        eviction(Record([call]), [9, 4])
    with pytest.raises(ArgumentError, match="budget must have at least 1, got 0"):
        eviction(Record([call]), [])
    with pytest.raises(RecordError, match='watch with keep="vectors"'):
        eviction(Record([replace(call, key=None)]), 9)
