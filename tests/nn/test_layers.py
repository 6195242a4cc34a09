"""Blocks, layers and stacks against their formulas; checkpointing, dropout, and what is refused."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard as rg
from regard.errors import ArgumentError, ShapeError

WIDTH, HEADS, HIDDEN = 20, 4, 29


def tokens(count=11, width=WIDTH):
    return torch.randn(2, count, width, dtype=torch.float64)


def shaken(module):
    """Norms and biases start at 1 and 0, where a swap of two would not show."""
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


# --- feed-forward ------------------------------------------------------------------------------------------

FORMULAS = {
    "relu": lambda a: a.clamp(min=0),
    "gelu": lambda a: a * torch.special.ndtr(a),
    "gelu_tanh": lambda a: a / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (a + 0.044715 * a**3))),
    "swiglu": lambda a: a / (1 + torch.exp(-a)),
    "geglu": lambda a: a * torch.special.ndtr(a),
}


@pytest.mark.parametrize("activation", FORMULAS)
@pytest.mark.parametrize("bias", [True, False])
def test_feedforward_is_its_formula(activation, bias):
    module, x = shaken(rg.nn.FeedForward(WIDTH, HIDDEN, activation=activation, bias=bias)), tokens()
    inner = x @ module.inner.weight.T + (module.inner.bias if bias else 0)
    hidden = FORMULAS[activation](inner[..., :HIDDEN])
    if activation in ("swiglu", "geglu"):
        hidden = hidden * inner[..., HIDDEN:]
    want = hidden @ module.outer.weight.T + (module.outer.bias if bias else 0)
    torch.testing.assert_close(module(x), want)
    assert activation in repr(module)


def test_feedforward_drops_hidden_and_output_in_training():
    module, x = rg.nn.FeedForward(WIDTH, output_dropout=0.5).double(), tokens()
    assert 0.3 < (module(x) == 0).double().mean() < 0.7
    hidden = rg.nn.FeedForward(WIDTH, dropout=0.5).double()
    assert not torch.equal(hidden(x), hidden(x)) and torch.equal(hidden.eval()(x), hidden(x))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dim_feedforward": 0}, "embed_dim and dim_feedforward must be at least 1, got 20 and 0"),
        ({"activation": "selu"}, "activation must be one of 'relu', .*, got 'selu'"),
        ({"dropout": 1.5}, "dropout must be at least 0 and below 1, got 1.5"),
        ({"output_dropout": 1.0}, "output_dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_feedforward_that_cannot_be(options, message):
    with pytest.raises(ArgumentError, match=message):
        rg.nn.FeedForward(WIDTH, **options)


# --- layers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_order_of_norms_and_residuals(kind):
    x, source = tokens(), tokens(7, 13)
    for norm_first in (True, False):
        layer = shaken(
            rg.nn.DecoderLayer(
                WIDTH, HEADS, HIDDEN, norm_first=norm_first, norm_type=kind, memory_dim=13, layer_norm_eps=0.1
            )
        )
        want = x
        for block, scaled in (
            (layer.attention, layer.attention_norm),
            (lambda t, cross=layer.crossing: cross(t, source), layer.crossing_norm),
            (layer.feedforward, layer.feedforward_norm),
        ):
            if kind == "rms":
                normed = lambda t, n=scaled: t / (t.square().mean(-1, True) + 0.1).sqrt() * n.weight  # noqa: E731
            else:
                normed = lambda t, n=scaled: F.layer_norm(t, (WIDTH,), n.weight, n.bias, 0.1)  # noqa: E731
            want = want + block(normed(want)) if norm_first else normed(want + block(want))
        torch.testing.assert_close(layer(x, source), want)


def test_a_decoder_layer_is_causal():
    layer, x = (
        rg.nn.DecoderLayer(WIDTH, HEADS, cross_attention=False, attention={"mask": rg.near(3)}).double(),
        tokens(),
    )
    want = layer(x)
    other = torch.cat((x[:, :6], tokens(5)), 1)
    torch.testing.assert_close(layer(other)[:, :6], want[:, :6])
    alike = rg.nn.EncoderLayer(WIDTH, HEADS, attention={"mask": rg.causal() & rg.near(3)}).double()
    alike.load_state_dict(layer.state_dict())
    assert torch.equal(alike(x), want)


def test_stacks_are_their_layers_in_order():
    x, source = tokens(), tokens(7)
    mask, memory_mask = rg.padding([11, 6]), rg.prefix(torch.tensor([7, 3]))
    encoder = shaken(rg.nn.Encoder(3, WIDTH, HEADS))
    want = x
    for layer in encoder.layers:
        want = layer(want, mask=mask)
    torch.testing.assert_close(encoder(x, mask=mask), encoder.norm(want))
    decoder = shaken(rg.nn.Decoder(2, WIDTH, HEADS, norm_first=False))
    assert isinstance(decoder.norm, nn.Identity)
    want = x
    for layer in decoder.layers:
        want = layer(want, source, mask=mask, memory_mask=memory_mask)
    torch.testing.assert_close(decoder(x, source, mask=mask, memory_mask=memory_mask), want)


def test_a_stack_shares_its_positions():
    stack = rg.nn.Encoder(3, WIDTH, HEADS, attention={"positions": rg.nn.Relative(HEADS, 5, num_buckets=8)})
    assert len({id(layer.attention.positions) for layer in stack.layers}) == 1
    assert sum(name.endswith("positions.weight") for name, _ in stack.named_parameters()) == 1


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_checkpointing_changes_no_number(share):
    options = {"dropout": share, "inner_dropout": share, "attention": {"positions": rg.nn.Rotary(4)}}
    plain = shaken(rg.nn.Decoder(2, WIDTH, HEADS, **options))
    saving = rg.nn.Decoder(2, WIDTH, HEADS, checkpoint=True, **options).double()
    saving.load_state_dict(plain.state_dict())
    x, source, found = tokens(), tokens(7), []
    for stack in (plain, saving):
        torch.manual_seed(3)
        output = stack(x, source, memory_mask=rg.prefix(5))
        found.append((output, *torch.autograd.grad(output.square().sum(), list(stack.parameters()))))
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs)


def test_checkpointing_keeps_less():
    def saved(checkpoint):
        stack, sizes = rg.nn.Encoder(2, WIDTH, HEADS, checkpoint=checkpoint), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            stack(torch.randn(2, 97, WIDTH))
        return sum(sizes)

    assert saved(True) < saved(False) / 5


def test_checkpointing_with_a_cache_appends_once():
    stack = rg.nn.Encoder(2, WIDTH, HEADS, checkpoint=True, attention={"mask": rg.causal()}).double()
    x, cache = tokens(), rg.nn.Cache(stack)
    got = torch.cat((stack(x[:, :5], cache=cache), stack(x[:, 5:], cache=cache)), 1)
    torch.testing.assert_close(got, stack(x))
    got.sum().backward()
    assert len(cache) == 11


def test_copies_and_files_keep_everything():
    stack = rg.nn.Decoder(
        2, WIDTH, HEADS, activation="geglu", attention={"positions": rg.nn.Alibi(HEADS)}
    ).double()
    x, source, file = tokens(), tokens(7), io.BytesIO()
    torch.save(stack, file)
    file.seek(0)
    want = stack(x, source)
    assert torch.equal(torch.load(file, weights_only=False)(x, source), want)
    assert torch.equal(copy.deepcopy(stack)(x, source), want)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: rg.nn.EncoderLayer(20, 3), "num_heads must divide embed_dim, got 3 heads"),
        (
            lambda: rg.nn.EncoderLayer(20, 4, norm_first="middle"),
            "norm_first must be True or False, got 'middle'",
        ),
        (
            lambda: rg.nn.EncoderLayer(20, 4, norm_type="batch"),
            'norm_type must be "layer" or "rms", got \'batch\'',
        ),
        (
            lambda: rg.nn.DecoderLayer(20, 4, cross_attention=False, memory_dim=3),
            "has no memory, got memory_dim 3",
        ),
        (lambda: rg.nn.Encoder(0, 20, 4), "num_layers must be at least 1, got 0"),
        (lambda: rg.nn.Decoder(0, 20, 4), "num_layers must be at least 1, got 0"),
    ],
)
def test_layers_that_cannot_be(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_sources_that_do_not_fit():
    x, source = tokens().float(), tokens(7).float()
    with pytest.raises(ArgumentError, match="a decoder layer must be given a memory, got none"):
        rg.nn.DecoderLayer(WIDTH, HEADS)(x)
    with pytest.raises(ArgumentError, match="without cross-attention must get no memory, got one"):
        rg.nn.DecoderLayer(WIDTH, HEADS, cross_attention=False)(x, source)
    with pytest.raises(ArgumentError, match="memory_mask must come with a memory, got a mask alone"):
        rg.nn.DecoderLayer(WIDTH, HEADS, cross_attention=False)(x, memory_mask=rg.prefix(3))
    with pytest.raises(ShapeError, match="x must hold at least one row"):
        rg.nn.Encoder(1, WIDTH, HEADS)(x[:0])
