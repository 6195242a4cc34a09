"""Dropout of `attend`: on average nothing, repeatable, and torch's seed decides."""

import math

import torch

import regard as rg
from helpers.cases import draw_tensors, tiles_of

PRIMES = (2, 6, 3, 5, 11, 7, 13)  # batch, heads, kv_heads, queries, keys, dim, value_dim


def test_dropout_keeps_the_mean_and_the_share():
    query, key, _ = draw_tensors(2, 6, 3, 61, 67, 7, 1)
    eye = torch.eye(67, dtype=torch.float64).expand(2, 3, 67, 67)
    weights, dropout = rg.weights(query, key), 0.3
    with tiles_of(32, 32):
        draws = [rg.attend(query, key, eye, dropout=dropout) / weights for _ in range(4)]
    drawn = torch.stack(draws)
    kept = drawn > 0
    torch.testing.assert_close(drawn[kept], torch.full_like(drawn[kept], 1 / (1 - dropout)))
    error = math.sqrt(dropout * (1 - dropout) / kept.numel())
    assert abs(kept.double().mean() - (1 - dropout)) < 4 * error
    for axis in range(1, 5):  # no row, key or head is dropped as a whole
        others = [i for i in range(5) if i != axis]
        share = kept.double().mean(others)
        assert (share - (1 - dropout)).abs().max() < 5 * error * math.sqrt(kept.shape[axis])
    flat = (
        kept.flatten(0, 2).flatten(1)[:, : 60 * 66].double()
    )  # heads, batch rows and calls draw for themselves
    same = torch.corrcoef(flat) - torch.eye(len(flat), dtype=torch.float64)
    assert same.abs().max() < 6 / math.sqrt(flat.shape[1])
    tiles = kept[0, 0, 0, :32, :32], kept[0, 0, 0, :32, 32:64], kept[0, 0, 0, 32:, :32][:29]
    assert not torch.equal(tiles[0], tiles[1]) and not torch.equal(tiles[0][:29], tiles[2])


def test_dropout_follows_the_seed_of_torch():
    query, key, value = draw_tensors(*PRIMES)

    def draw(seed, **keywords):
        torch.manual_seed(seed)
        return rg.attend(query, key, value, **keywords)

    assert torch.equal(draw(1, dropout=0.5), draw(1, dropout=0.5))
    assert not torch.equal(draw(1, dropout=0.5), draw(2, dropout=0.5))
    torch.manual_seed(1)
    first, second = (rg.attend(query, key, value, dropout=0.5) for _ in range(2))
    assert not torch.equal(first, second)
    torch.testing.assert_close(draw(1, dropout=0.0), draw(2))
    state = torch.get_rng_state()
    rg.observe(query, key, value)
    rg.attend(query, key, value)
    assert torch.equal(torch.get_rng_state(), state)  # without dropout nothing is drawn
