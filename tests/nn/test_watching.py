"""What a watch sees of the layers: every attention call, with the layer's own mask, bias and positions."""

import pytest
import torch

import regard as rg

TOKENS, WIDTH, HEADS = 11, 20, 4


def tokens(count=TOKENS):
    return torch.randn(2, count, WIDTH)


def seen(module, *args, **kwargs):
    """A record with vectors, once the outputs were found to be the same bits."""
    want = module(*args, **kwargs)
    with rg.watch(module, keep="vectors") as record:
        got = module(*args, **kwargs)
    assert torch.equal(got, want)
    return record


SCHEMES = {
    "plain": lambda: {},
    "causal": lambda: {"mask": rg.causal(), "num_kv_heads": 2},
    "sparse": lambda: {
        "mask": rg.causal() & (rg.near(2) | rg.strided(3) | rg.global_tokens([0]) | rg.random_blocks(1, 4))
    },
    "rotary": lambda: {"positions": rg.nn.Rotary(4), "qk_norm": "rms"},
    "alibi": lambda: {"positions": rg.nn.Alibi(HEADS), "sink": True},
    "relative": lambda: {"positions": rg.nn.Relative(HEADS), "softcap": 3.0, "scale": 0.7},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_weights_that_are_seen_make_the_output(scheme):
    module = rg.nn.MultiHeadAttention(WIDTH, HEADS, **SCHEMES[scheme]())
    x = tokens()
    record = seen(module, x, mask=rg.padding([TOKENS, 7]))
    assert [call.kind for call in record.calls] == ["self"]
    rows, columns = slice(None), slice(None)
    windows = [
        [record[0].weights(head, rows, columns, batch=row) for head in range(HEADS)] for row in range(2)
    ]
    weights = torch.stack([torch.stack(each) for each in windows])
    value = module._value(module.qkv(x).split(module.projected_dims, 2)[2]).repeat_interleave(
        HEADS // module.num_kv_heads, 1
    )
    output = module.output((weights.to(value.dtype) @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(output, module(x, mask=rg.padding([TOKENS, 7])))


def test_every_layer_is_named():
    model = rg.nn.Decoder(2, WIDTH, HEADS, attention={"positions": rg.nn.Alibi(HEADS)})
    record = seen(model, tokens(), tokens(7))
    assert [(call.layer, call.kind) for call in record.calls] == [
        (f"layers.{i}.{name}", kind)
        for i in range(2)
        for name, kind in (("attention", "self"), ("crossing", "cross"))
    ]
    assert record["layers.1.crossing"].sizes.keys == 7


def test_steps_of_decoding_are_one_call():
    model = rg.nn.Decoder(
        2, WIDTH, HEADS, cross_attention=False, attention={"positions": rg.nn.Rotary(4), "num_kv_heads": 2}
    )
    x = tokens()
    whole = seen(model, x)
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        cache = rg.nn.Cache(model)
        for part in x.split((5, 1, 1, 4), 1):
            model(part, cache=cache)
    assert len(record.calls) == 2
    for step, once in zip(record.calls, whole.calls, strict=True):
        torch.testing.assert_close(step.rows("entropy"), once.rows("entropy"), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(step.received, once.received, atol=1e-5, rtol=1e-5)


def test_given_heads_are_seen_as_one_call():
    eye = torch.eye(6)
    module = rg.nn.MultiHeadAttention.from_projections([(eye[:d],) * 3 for d in (1, 2, 3)])
    x = torch.randn(1, TOKENS, 6)
    record = seen(module, x)
    for head, d in enumerate((1, 2, 3)):
        want = torch.softmax(x[0, :, :d] @ x[0, :, :d].T / d**0.5, 1)
        got = record[0].weights(head, slice(None), slice(None))
        torch.testing.assert_close(got.reshape(TOKENS, TOKENS).to(want), want)


def test_checkpointed_layers_are_seen_once():
    model = rg.nn.Encoder(2, WIDTH, HEADS, checkpoint=True)
    with rg.watch(model) as record:
        model(tokens()).sum().backward()
    assert [call.layer for call in record.calls] == ["layers.0.attention", "layers.1.attention"]
