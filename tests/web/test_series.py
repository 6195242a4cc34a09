"""Numbers along the tokens: pooled by whole cells, over the queries that attend something."""

import pytest
import torch

import regard as rg
from regard.web.series import series


@pytest.fixture
def call():
    """A call in which the first two queries attend nothing, and query 4 neither."""
    keep = torch.ones(7, 5, dtype=torch.bool)
    keep[[0, 1, 4]] = False
    layer = rg.nn.MultiHeadAttention(8, 2)
    with rg.watch(layer) as record, torch.no_grad():
        layer(torch.randn(1, 7, 8), memory=torch.randn(1, 5, 8), mask=rg.dense(keep=keep, offset=0))
    return record[0]


def test_queries_that_attend_nothing_do_not_count(call):
    shown, info = series(call, "entropy", most=4)
    assert info == {"cell": 2} and shown["mean"].shape == (2, 4)
    entropy = call.entropy[0]
    assert shown["mean"][:, 0].isnan().all() and shown["max"][:, 0].isnan().all()
    assert torch.allclose(shown["mean"][:, 1], entropy[:, 2:4].mean(1))
    assert torch.allclose(shown["mean"][:, 2], entropy[:, 5]), "query 4 does not count"
    assert torch.allclose(shown["max"][:, 3], entropy[:, 6])


def test_one_row_stands_for_heads_that_share_a_mask(call):
    shown, _ = series(call, "allowed")
    assert shown["mean"].shape == (2, 7) and shown["mean"][1, 2] == 5


def test_columns_count_all(call):
    shown, info = series(call, "received", most=2)
    assert info == {"cell": 4}
    assert torch.allclose(shown["mean"][:, 0], call.received[0, :, :4].mean(-1))
    assert torch.allclose(shown["max"][:, 1], call.received[0, :, 4])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("entropi", "did you mean 'entropy'"),
        ("group.nouns", "no group 'nouns'"),
        ("by_offset", "no row statistic"),
        ("", "no row statistic"),
    ],
)
def test_what_is_no_series_is_told(call, name, reason):
    with pytest.raises(rg.RegardError, match=reason):
        series(call, name)


def test_numbers_out_of_range_are_told(call):
    for most, batch in ((0, 0), (1 << 17, 0), (1, 1)):
        with pytest.raises(rg.RegardError, match="most|batch"):
            series(call, "entropy", most, batch)
