"""The loss of a model whose heads forget, against the model with dense masks of what each cache holds."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import regard as rg
from analysis.test_eviction import simulated
from helpers.dense_distances import dense
from regard import models
from regard.analysis import eviction, eviction_loss
from regard.analysis.eviction_loss import Held
from regard.errors import ArgumentError
from regard.masks import ALL, NONE, SOME
from regard.watch import Change, Plan

N, VOCABULARY = 41, 23


def a_model():
    torch.manual_seed(4)
    config = models.DecoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        max_position_embeddings=64,
    )
    return models.DecoderForCausalLM(config), torch.randint(VOCABULARY, (1, N))


def loss(result, batch):
    return cross_entropy(result.logits[0, :-1], batch["input_ids"][0, 1:])


def kept(weights, policy, budget, first):
    """`(queries, keys)`, bool: which keys a cache holds, from a simulation with sets that says what it held."""
    held, rows, received = set(), [], {}
    for t, row in enumerate(weights.tolist()):
        held.add(t)
        received[t] = 0.0
        if len(held) > budget:
            old = {
                "recent": held,
                "first and recent": [k for k in held if k >= first],
                "heavy hitters": [k for k in held if k <= t - budget // 2],
            }[policy]
            gone = min(old)
            if policy == "heavy hitters":
                gone = min(old, key=lambda k: (received[k], k))
            held.remove(gone)
        total = sum(row[k] for k in held)
        for k in held:
            received[k] += row[k] / total
        rows.append([k in held for k in range(len(row))])
    return torch.tensor(rows)


def test_losses_are_those_of_dense_masks():
    model, ids = a_model()
    with torch.no_grad(), rg.watch(model.eval(), keep="vectors") as record:
        full = float(loss(model(input_ids=ids), {"input_ids": ids}))
    model.train()
    table = eviction_loss(model, {"input_ids": ids}, [7, 19, N], loss, first=3)
    assert model.training and len(table) == 9
    mass = eviction(record, [7, 19, N], first=3).groupby(["policy", "budget"]).mass.mean()
    model.eval()
    for row in table.itertuples():
        changes = []
        for call in record:
            keep = torch.stack([kept(w[0, :, :-1], row.policy, row.budget, 3) for w in dense(call)])
            pairs = [(call.layer, head) for head in range(3)]
            changes.append(Change(heads=pairs, mask=rg.dense(keep=keep[None])))
        with torch.no_grad(), rg.intervene(model, Plan(changes)):
            want = float(loss(model(input_ids=ids), {"input_ids": ids}))
        assert row.loss == pytest.approx(want, abs=1e-5)
        assert row.full_loss == pytest.approx(full, abs=1e-6)
        assert row.change == pytest.approx(row.loss / row.full_loss - 1)
        assert row.mass == pytest.approx(mass[row.policy, row.budget], abs=1e-6)
        # A cache with room for all forgets nothing.
        if row.budget == N:
            assert row.loss == pytest.approx(full, abs=1e-5) and row.mass == pytest.approx(1)
    assert (table[table.budget == 7].loss != full).all()


def test_the_simulation_here_is_the_one_of_masses():
    weights = torch.rand(31, 31).tril().double()
    weights = weights / weights.sum(-1, keepdim=True)
    for policy in ("recent", "first and recent", "heavy hitters"):
        shares = simulated(weights, policy, 9, 2)
        held = (weights * kept(weights, policy, 9, 2)).sum(-1)
        assert held.tolist() == pytest.approx(shares)


def test_texts_of_a_batch_forget_each_its_own():
    model, _ = a_model()
    ids = torch.randint(VOCABULARY, (2, N), generator=torch.Generator().manual_seed(7))
    both = eviction_loss(model, {"input_ids": ids, "labels": ids}, 9)
    alone = [eviction_loss(model, {"input_ids": row[None], "labels": row[None]}, 9) for row in ids]
    for name in ("loss", "mass", "full_loss"):
        mean = (alone[0][name] + alone[1][name]) / 2
        assert both[name].to_numpy() == pytest.approx(mean.to_numpy(), abs=1e-5)


def test_a_key_is_held_until_it_is_forgotten():
    until = torch.tensor([[[3, 2**62, 5, 2], [9, 2**62, 4, 9]]])
    mask = Held(until)
    q, k = torch.arange(11)[:, None], torch.arange(4)
    want = q < until[:, :, None]
    found = mask.allows(q, k, torch.zeros(1, 1, 1, 1).long(), torch.arange(2)[:, None, None])
    assert torch.equal(found.expand_as(want), want) and mask.shape == (1, 2)
    for q0 in range(10):
        for k0 in range(4):
            for k1 in range(k0 + 1, 5):
                part = want[..., q0 : q0 + 2, k0:k1]
                tile = mask.tile(q0, q0 + 2, k0, k1)
                assert tile is SOME or (part.all() == (tile is ALL) and (not part.any()) == (tile is NONE))
    assert mask.tile(9, 11, 2, 4) is NONE and mask.tile(50, 60, 1, 2) is ALL and mask.tile(0, 1, 4, 9) is NONE
    outside = mask.allows(torch.tensor([0, 0]), torch.tensor([-1, 4]), 0, torch.tensor([0, 1]))
    assert not outside.any()


def test_errors_say_what_must_hold():
    model, ids = a_model()
    with pytest.raises(ArgumentError, match="must be at least 5, got 4"):
        eviction_loss(model, {"input_ids": ids}, 4, loss)
    with pytest.raises(ArgumentError, match="loss must be given where the model returns none"):
        eviction_loss(model, {"input_ids": ids}, 9)
    with pytest.raises(ArgumentError, match="layers must name layers"):
        eviction_loss(model, {"input_ids": ids}, 9, loss, layers="nothing")
