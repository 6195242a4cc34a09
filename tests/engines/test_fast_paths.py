"""Which path `attend` takes, and that each one is exact."""

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

import regard as rg
from regard import reference
from regard.engines import fast_paths
from regard.engines.choice import choose_for_output
from regard.engines.fast_paths import FastPath
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.table import Wanted


def tensors(queries=37, keys=53, heads=6, kv_heads=3, dim=16, value_dim=16):
    return (
        torch.randn(2, heads, queries, dim),
        torch.randn(2, kv_heads, keys, dim),
        torch.randn(2, kv_heads, keys, value_dim),
    )


def taken(query, key, value, dropout=0.0, **arguments):
    sizes = sizes_of(query, key, value)
    spec = Spec.of(sizes, **arguments)
    chosen = choose_for_output(query, key, value, spec, sizes, Wanted(dropout=dropout))
    return chosen.output(query, key, value, spec, sizes) if isinstance(chosen, FastPath) else None


@pytest.mark.parametrize(
    "arguments",
    [{}, {"mask": rg.causal(), "align": "start"}, {"scale": 0.3}],
    ids=["no mask", "causal from the start", "scale"],
)
@pytest.mark.parametrize("value_dim", [7, 16, 23])
def test_sdpa_is_taken_where_it_is_exact(arguments, value_dim):
    inputs = tensors(value_dim=value_dim)
    output = taken(*inputs, **arguments)
    truth = reference.observe(*inputs, Spec.of(sizes_of(*inputs), **arguments))["output"]
    assert output is not None
    torch.testing.assert_close(output.double(), truth, atol=2e-6, rtol=0)


def test_causal_without_scores_is_the_mean_of_the_values_so_far():
    value = torch.randn(1, 2, 37, 5)
    output = rg.attend(value, value, value, mask=rg.causal(), scale=0.0)
    torch.testing.assert_close(output, value.cumsum(2) / torch.arange(1, 38).view(-1, 1))


def test_one_query_at_the_end_needs_no_mask():
    inputs = tensors(queries=1)
    torch.testing.assert_close(taken(*inputs, mask=rg.causal()), taken(*inputs))


@pytest.mark.parametrize(
    "arguments",
    [
        {"mask": rg.causal()},
        {"mask": rg.near(5)},
        {"softcap": 3.0},
        {"bias": rg.alibi(torch.rand(6))},
        {"sink_logit": torch.zeros(6)},
        {"dropout": 0.1},
        {"mask": rg.causal(), "align": "start", "scale": 0.0},
    ],
    ids=["causal at the end", "window", "softcap", "bias", "sink", "dropout", "causal without scores"],
)
def test_the_tiles_are_left_where_no_path_is_exact(arguments):
    assert taken(*tensors(), **arguments) is None


def test_flex_attention_gets_the_same_mask(monkeypatch):
    monkeypatch.setattr(
        fast_paths, "_kernel", lambda: flex_attention
    )  # uncompiled: the kernel itself is torch's
    inputs = tensors()
    sizes = sizes_of(*inputs)
    spec = Spec.of(sizes, mask=rg.near(11) & rg.padding(torch.tensor([53, 41])))
    output = fast_paths._flex(*inputs, spec, sizes)
    torch.testing.assert_close(output.double(), reference.observe(*inputs, spec)["output"], atol=2e-6, rtol=0)
