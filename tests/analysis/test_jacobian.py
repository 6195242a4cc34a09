"""Exact Jacobians: against autograd's and finite differences, and what they say of attention and of recurrence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd.functional import jacobian

import regard as rg
from regard.analysis import by_distance, jacobian_norms
from regard.errors import ArgumentError, ShapeError


def by_definition(module, x):
    """The whole Jacobian of one text, and the norm of each block."""
    module = module.double().eval()
    whole = jacobian(lambda text: first(module(text[None]))[0], x.double())
    return whole.square().sum((1, 3)).sqrt()


def first(output):
    return output[0] if isinstance(output, tuple) else output


def layers(width):
    return {
        "attention": rg.nn.MultiHeadAttention(width, 1, value_dim=3),
        "causal": rg.nn.MultiHeadAttention(width, 1, mask=rg.causal()),
        "linear": rg.nn.LinearAttention(width, 1, causal=True),
        "gru": nn.GRU(width, 7, batch_first=True),
        "both ways": rg.nn.RecurrentEncoder(width, 3),
        "torch": nn.MultiheadAttention(width, 1, batch_first=True),
    }


class Called(nn.Module):
    """torch's layer takes query, key and value."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x, x) if isinstance(self.inner, nn.MultiheadAttention) else self.inner(x)


@given(st.sampled_from(sorted(layers(2))), st.sampled_from([1, 2, 5]), st.sampled_from([1, 3, 11]))
def test_norms_are_those_of_the_whole_jacobian(name, width, tokens):
    module, x = Called(layers(width)[name]), torch.randn(tokens, width)
    got = jacobian_norms(module, x)
    assert got.shape == (tokens, tokens) and got.dtype == torch.float64
    torch.testing.assert_close(got, by_definition(module, x), atol=1e-12, rtol=1e-10)


def test_norms_are_finite_differences():
    module, x, step = nn.GRU(3, 5, batch_first=True).double(), torch.randn(7, 3, dtype=torch.float64), 1e-6
    squares = torch.zeros(7, 7, dtype=torch.float64)
    with torch.no_grad():
        for token in range(7):
            for number in range(3):
                moved = torch.zeros_like(x)
                moved[token, number] = step
                slope = (module((x + moved)[None])[0] - module((x - moved)[None])[0])[0] / (2 * step)
                squares[:, token] += slope.square().sum(1)
    torch.testing.assert_close(jacobian_norms(module, x), squares.sqrt(), atol=1e-8, rtol=1e-6)


def test_nothing_flows_from_the_future_of_a_causal_layer():
    norms = jacobian_norms(
        rg.nn.MultiHeadAttention(12, 3, mask=rg.causal() & rg.near(4)), torch.randn(13, 12)
    )
    distance = torch.arange(13)[:, None] - torch.arange(13)
    allowed = (distance >= 0) & (distance <= 4)
    assert (norms[~allowed] == 0).all() and (norms[allowed] > 0).all()


def test_a_gru_forgets_and_attention_does_not():
    x = torch.randn(61, 32)
    attention = by_distance(jacobian_norms(rg.nn.MultiHeadAttention(32, 4, mask=rg.causal()), x))
    recurrent = by_distance(jacobian_norms(nn.GRU(32, 32, batch_first=True), x))
    assert attention[40] > 0.1 * attention[1]
    assert recurrent[40] < 1e-6 * recurrent[1]


def test_the_module_is_left_as_it_is():
    module = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5))
    norms = jacobian_norms(module, torch.randn(3, 5))
    assert module.training and module[0].weight.dtype == torch.float32 and module[0].weight.requires_grad
    weight = module[0].weight.detach().double()
    torch.testing.assert_close(norms, weight.norm() * torch.eye(3, dtype=torch.float64))  # without dropout
    assert module[0].weight.grad is None


def test_gradients_are_computed_under_no_grad_too():
    module, x = nn.GRU(3, 5, batch_first=True), torch.randn(7, 3)
    with torch.no_grad():
        got = jacobian_norms(module, x)
    assert torch.equal(got, jacobian_norms(module, x)) and not got.requires_grad


def test_means_of_diagonals():
    table = torch.tensor([[1.0, 99.0, 99.0], [2.0, 3.0, 99.0], [5.0, 4.0, 8.0]])
    assert by_distance(table).tolist() == [4.0, 3.0, 5.0]


def test_errors_say_what_must_hold():
    gru = nn.GRU(3, 5, batch_first=True)
    with pytest.raises(ShapeError, match=r"one text, \(tokens, embed_dim\), no axis empty, got \(2, 7, 3\)"):
        jacobian_norms(gru, torch.randn(2, 7, 3))
    with pytest.raises(ArgumentError, match=r"real numbers, got torch.int64: give the embeddings"):
        jacobian_norms(gru, torch.ones(7, 3, dtype=torch.int64))
    with pytest.raises(ShapeError, match=r"must return \(batch, tokens, …\) for \(1, 7, 3\), got \(1, 21\)"):
        jacobian_norms(nn.Flatten(), torch.randn(7, 3))
    with pytest.raises(ShapeError, match=r"norms must be \(tokens, tokens\), got \(2, 3\)"):
        by_distance(torch.ones(2, 3))
