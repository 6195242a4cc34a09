"""Torch's layers and Regard's: the same weights give the same outputs, both ways."""

import pytest
import torch
from torch import nn

import regard as rg
from regard.errors import ArgumentError

WIDTH, HEADS, HIDDEN = 15, 3, 23


def tokens(count=7, width=WIDTH, batch=2):
    return torch.randn(batch, count, width, dtype=torch.float64)


def causal(count):
    return nn.Transformer.generate_square_subsequent_mask(count, dtype=torch.float64)


def shaken(module):
    """Norms and biases start at 1 and 0, where a swap of two would not show."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kdim", [None, 11])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(bias, kdim, batch_first):
    options = {"bias": bias, "kdim": kdim, "vdim": kdim, "dtype": torch.float64, "batch_first": batch_first}
    theirs = shaken(nn.MultiheadAttention(WIDTH, HEADS, dropout=0.3, **options)).eval()
    ours = rg.nn.from_torch(theirs)
    assert ours.dropout == 0.3 and not ours.training
    x, source = tokens(), tokens(5, kdim or WIDTH)
    inputs = (x, source, source) if batch_first else [t.transpose(0, 1) for t in (x, source, source)]
    want = theirs(*inputs)[0]
    torch.testing.assert_close(ours(x, source), want if batch_first else want.transpose(0, 1))
    back = rg.nn.to_torch(ours)
    assert back.batch_first
    torch.testing.assert_close(back(x, source, source)[0], ours(x, source))
    assert all(torch.equal(t, back.state_dict()[name]) for name, t in theirs.state_dict().items())
    if kdim is None:
        torch.testing.assert_close(ours(x), back(x, x, x)[0])


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", nn.GELU(), nn.GELU("tanh"), nn.functional.gelu])
def test_encoder_layer(norm_first, activation):
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, HIDDEN, 0.2, activation, 1e-3, True, norm_first, dtype=torch.float64
    )
    ours = rg.nn.from_torch(shaken(theirs).eval())
    x = tokens()
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x, mask=rg.causal()), theirs(x, src_mask=causal(7), is_causal=True))
    back = rg.nn.to_torch(ours)
    torch.testing.assert_close(back(x), theirs(x))
    assert {m.p for m in back.modules() if isinstance(m, nn.Dropout)} == {0.2} == {back.self_attn.dropout}
    assert all(torch.equal(t, back.state_dict()[name]) for name, t in theirs.state_dict().items())


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_decoder_layer(norm_first, bias):
    theirs = nn.TransformerDecoderLayer(
        WIDTH, HEADS, HIDDEN, 0.0, norm_first=norm_first, bias=bias, batch_first=True, dtype=torch.float64
    )
    ours = rg.nn.from_torch(shaken(theirs))
    x, source = tokens(), tokens(5)
    want = theirs(x, source, tgt_mask=causal(7), tgt_is_causal=True)
    torch.testing.assert_close(ours(x, source), want)
    back = rg.nn.to_torch(ours)
    torch.testing.assert_close(back(x, source, tgt_mask=causal(7), tgt_is_causal=True), want)
    assert all(torch.equal(t, back.state_dict()[name]) for name, t in theirs.state_dict().items())


def test_states_of_whole_stacks():
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, HIDDEN, 0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    theirs = shaken(
        nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH, dtype=torch.float64), enable_nested_tensor=False)
    )
    ours = rg.nn.Encoder(2, WIDTH, HEADS, HIDDEN, activation="relu").double()
    ours.load_state_dict(rg.nn.state_from_torch(theirs.state_dict()))
    x = tokens()
    torch.testing.assert_close(ours(x), theirs(x))
    again = rg.nn.state_to_torch(ours.state_dict())
    assert all(torch.equal(tensor, again[name]) for name, tensor in theirs.state_dict().items())
    deep = nn.TransformerDecoderLayer(
        WIDTH, HEADS, HIDDEN, 0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    theirs = shaken(nn.TransformerDecoder(deep, 2, nn.LayerNorm(WIDTH, dtype=torch.float64)))
    ours = rg.nn.Decoder(2, WIDTH, HEADS, HIDDEN, activation="relu").double()
    ours.load_state_dict(rg.nn.state_from_torch(theirs.state_dict()))
    want = theirs(x, x[:, :5], tgt_mask=causal(7), tgt_is_causal=True)
    torch.testing.assert_close(ours(x, x[:, :5]), want)


def test_gradients_agree():
    theirs = shaken(
        nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, 0.0, dtype=torch.float64, batch_first=True)
    )
    ours = rg.nn.from_torch(theirs)
    x = tokens()
    for module in (ours, theirs):
        module(x).square().sum().backward()
    ours_grads = rg.nn.state_to_torch({name: p.grad for name, p in ours.named_parameters()})
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(ours_grads[name], parameter.grad)


@pytest.mark.parametrize(
    "module, message",
    [
        (nn.MultiheadAttention(6, 2, add_bias_kv=True), "must have no add_bias_kv"),
        (nn.MultiheadAttention(6, 2, add_zero_attn=True), "must have no add_zero_attn"),
        (nn.MultiheadAttention(6, 2, kdim=4, vdim=5), "one embedding size of key and value, .* got 4 and 5"),
        (nn.TransformerEncoderLayer(6, 2, activation=torch.tanh), "must be ReLU or GELU, got .*tanh"),
        (nn.Linear(2, 2), "module must be nn.MultiheadAttention, .* got Linear"),
    ],
)
def test_what_regard_does_not_have(module, message):
    with pytest.raises(ArgumentError, match=message):
        rg.nn.from_torch(module)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: rg.nn.MultiHeadAttention(6, 2, num_kv_heads=1), "num_kv_heads = num_heads"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, value_dim=2), "one head_dim"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, head_dim=2), "num_heads · head_dim = embed_dim, .* got 4"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, mask=rg.causal()), "must have no mask"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, positions=rg.nn.Alibi(2)), "must have no positions"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, qk_norm="rms"), "must have no query_norm"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, softcap=3.0), "must have no softcap"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, scale=3.0), "must have no scale"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, sink=True), "must have no sink_logit"),
        (lambda: rg.nn.MultiHeadAttention(6, 2, output_dropout=0.5), "must have no output_dropout"),
        (lambda: rg.nn.EncoderLayer(6, 2, activation="swiglu"), "no gate, .* got swiglu"),
        (lambda: rg.nn.EncoderLayer(6, 2, norm_type="rms"), 'norms of type "layer", .* got RMSNorm'),
        (lambda: rg.nn.DecoderLayer(6, 2, cross_attention=False), "must have cross-attention"),
        (lambda: rg.nn.DecoderLayer(6, 2, memory_dim=4), "a memory of its own embedding size, .* got 4"),
        (lambda: rg.nn.EncoderLayer(6, 2, attention={"mask": rg.causal()}), "must have no mask"),
        (lambda: nn.Linear(2, 2), "module must be MultiHeadAttention, .* got Linear"),
    ],
)
def test_what_torch_does_not_have(make, message):
    with pytest.raises(ArgumentError, match=message):
        rg.nn.to_torch(make())
