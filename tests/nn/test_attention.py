"""`MultiHeadAttention` against dense formulas, `nn.MultiheadAttention` and laws; and what it refuses."""

import copy
import io
import math

import pytest
import torch
from torch import nn

import regard as rg
from regard.errors import ArgumentError, MaskError, ShapeError
from regard.nn import MultiHeadAttention

BATCH, TOKENS, SOURCE, WIDTH = 2, 11, 7, 20


def tokens(count=TOKENS, width=WIDTH, dtype=torch.float64):
    return torch.randn(BATCH, count, width, dtype=dtype)


def layer(*sizes, **options):
    made = MultiHeadAttention(*(sizes or (WIDTH, 4)), **options).double()
    for name, parameter in made.named_parameters():
        if parameter.ndim == 1:  # norms, biases and sinks start at 1 or 0, where mistakes would not show
            nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.3)
    return made


def textbook(module, x, source, allowed, bias=0.0, rotate=lambda q, k: (q, k)):
    """The formula with every score stored."""
    source = x if source is None else source
    own, others = (module.inputs * 2)[:2]
    q, k, v = module.projected_dims
    rows = ((own, 0, q), *((others, a - q * (own is not others), b) for a, b in ((q, k), (q + k, v))))
    dims = (module.head_dim, module.head_dim, module.value_dim)
    q, k, v = (
        (t @ p.weight[a : a + size].T + p.bias[a : a + size]).unflatten(2, (-1, d)).transpose(1, 2)
        for t, (p, a, size), d in zip((x, source, source), rows, dims, strict=True)
    )
    if module.query_norm is not None:
        q, k = module.query_norm(q), module.key_norm(k)
    q, k = rotate(q, k)
    k, v = (t.repeat_interleave(module.num_heads // module.num_kv_heads, 1) for t in (k, v))
    scores = (
        q @ k.transpose(2, 3) * (1 / math.sqrt(module.head_dim) if module.scale is None else module.scale)
    )
    if module.softcap is not None:
        scores = module.softcap * torch.tanh(scores / module.softcap)
    scores = (scores + bias).masked_fill(~allowed, -torch.inf)
    if module.sink_logit is not None:
        sink = module.sink_logit.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sink), 3)
    shares = scores.softmax(3)[..., : k.shape[2]].nan_to_num(0.0)
    return module.output((shares @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_kv_heads": 2},
        {"num_kv_heads": 1, "head_dim": 7, "value_dim": 3},
        {"qk_norm": "rms"},
        {"qk_norm": "layer", "num_kv_heads": 2, "softcap": 2.0},
        {"scale": 0.3, "sink": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("memory_dim", [None, 13])
@pytest.mark.parametrize(
    "mask", [None, rg.causal(), rg.near(2, 1) | rg.global_tokens([3])], ids=lambda m: m and m.name
)
def test_against_the_textbook(options, memory_dim, mask):
    module = layer(memory_dim=memory_dim, mask=mask, **options)
    x, source = tokens(), tokens(SOURCE, memory_dim or WIDTH)
    allowed = torch.ones(TOKENS, TOKENS, dtype=torch.bool) if mask is None else mask.dense(TOKENS, TOKENS)
    if memory_dim is None:
        torch.testing.assert_close(module(x), textbook(module, x, None, allowed))
    torch.testing.assert_close(module(x, source), textbook(module, x, source, allowed[..., :SOURCE]))


def test_gradients_against_the_textbook():
    module = layer(
        num_kv_heads=2,
        qk_norm="rms",
        sink=True,
        positions=rg.nn.Relative(4, 3, num_buckets=None),
        mask=rg.causal(),
    )
    x, pull = tokens().requires_grad_(), tokens()
    inputs = (x, *module.parameters())
    table = module.positions.table()
    place = (torch.arange(TOKENS) - torch.arange(TOKENS)[:, None]).clamp(-3, 3) + 3
    want = textbook(module, x, None, rg.causal().dense(TOKENS, TOKENS), table[:, place])
    got = module(x)
    torch.testing.assert_close(got, want)
    pairs = (torch.autograd.grad((t * pull).sum(), inputs) for t in (got, want))
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_positions_against_the_textbook():
    x, every = tokens(), torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    rotary = rg.nn.Rotary(4)
    module = layer(positions=rotary, qk_norm="rms", num_kv_heads=2)
    torch.testing.assert_close(module(x), textbook(module, x, None, every, rotate=rotary.rotate))
    module = layer(positions=rg.nn.Alibi(4))
    distance = (torch.arange(TOKENS) - torch.arange(TOKENS)[:, None]).abs()
    slopes = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256], dtype=torch.float64).view(4, 1, 1)
    torch.testing.assert_close(module(x), textbook(module, x, None, every, -slopes * distance))


def test_masks_of_layer_and_call_are_both_held():
    module, x = layer(mask=rg.causal()), tokens()
    mask = rg.padding([5, 11])
    allowed = (rg.causal() & mask).dense(TOKENS, TOKENS)
    torch.testing.assert_close(module(x, mask=mask), textbook(module, x, None, allowed))


def test_padding_changes_no_real_token():
    module, x = layer(positions=rg.nn.Rotary(4)), tokens()
    want = module(x[:1, :5])
    torch.testing.assert_close(module(x, mask=rg.padding([5, 11]))[:1, :5], want)
    left = torch.cat((tokens(6)[:1], x[:1, :5]), 1)
    torch.testing.assert_close(module(left, mask=rg.padding(5, start=6))[:, 6:], want)


def test_a_query_that_sees_nothing_gives_the_output_bias():
    module, x = layer(), tokens()
    got = module(x, mask=rg.padding([5, 11]))
    assert torch.equal(got[0, 5:], module.output.bias.expand(6, -1))


def test_dropout_only_in_training():
    module, x = layer(dropout=0.5, output_dropout=0.5), tokens()
    want = module.eval()(x)
    torch.testing.assert_close(want, textbook(module, x, None, torch.ones(TOKENS, TOKENS, dtype=torch.bool)))
    module.train()
    torch.manual_seed(1)
    first = module(x)
    assert 0.3 < (first == 0).double().mean() < 0.7
    assert not torch.equal(first, module(x))
    torch.manual_seed(1)
    assert torch.equal(first, module(x))


def test_dropped_weights_keep_their_mean():
    module, x = layer(dropout=0.3, output_dropout=0.0), tokens(3)
    runs = torch.stack([module(x).detach() for _ in range(400)])
    error = (runs.mean(0) - module.eval()(x)).abs()
    assert (error < 6 * runs.std(0) / math.sqrt(400)).all()


def test_the_projection_is_one_product_and_its_views_are_not_copied(monkeypatch):
    module, x = layer(mask=rg.causal()), tokens()
    seen = []

    def attend(query, key, value, **spec):
        seen.extend((query, key, value))
        return rg.attend(query, key, value, **spec)

    monkeypatch.setattr("regard.nn.attention.attend", attend)
    module(x)
    assert len({tensor.untyped_storage().data_ptr() for tensor in seen}) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"mask": rg.causal(), "num_kv_heads": 2, "qk_norm": "rms"},
        {"positions": rg.nn.Rotary(4), "mask": rg.near(9) | rg.strided(7)},
        {"positions": rg.nn.Relative(4, 20, num_buckets=16), "mask": rg.causal()},
        {"positions": rg.nn.Alibi(4), "sink": True, "softcap": 5.0},
    ],
    ids=str,
)
def test_float32_and_its_gradients_on_the_fast_paths(options):
    """The inputs are views of one product: the engine must read their strides."""
    module = layer(**options)
    fast = copy.deepcopy(module).float()
    x, pull = tokens(131), tokens(131)
    found = []
    for each, dtype in ((module, torch.float64), (fast, torch.float32)):
        start = x.to(dtype).requires_grad_()
        output = each(start)
        found.append((output, *torch.autograd.grad((output * pull).sum(), (start, *each.parameters()))))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(
            got.double(), want, rtol=1e-4, atol=2e-5 * float(want.detach().abs().max())
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    module, x = layer(num_kv_heads=2, qk_norm="rms", positions=rg.nn.Rotary(4), mask=rg.causal()), tokens()
    want = module(x)
    got = copy.deepcopy(module).to(dtype)(x.to(dtype))
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want, rtol=0, atol=0.05)


def test_autocast():
    module, x = (
        layer(num_kv_heads=2, qk_norm="layer", positions=rg.nn.Rotary(4), mask=rg.causal()).float(),
        tokens().float(),
    )
    want = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        got, crossed = module(x), layer().float()(x, tokens(SOURCE).float())
    assert got.dtype == crossed.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, rtol=0, atol=0.05)
    got.float().sum().backward()
    assert module.qkv.weight.grad.dtype == torch.float32


def test_copies_and_files_keep_everything():
    module = layer(num_kv_heads=2, qk_norm="rms", sink=True, positions=rg.nn.Relative(4), mask=rg.causal())
    x, file = tokens(), io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(x), module(x)) and torch.equal(copy.deepcopy(module)(x), module(x))
    assert list(layer().state_dict()) == ["qkv.weight", "qkv.bias", "output.weight", "output.bias"]
    assert list(layer(memory_dim=3, bias=False).state_dict()) == [
        "query.weight",
        "key_value.weight",
        "output.weight",
    ]
    assert "num_heads=4, num_kv_heads=2" in repr(module)


class Double(nn.Module):
    """A score function: half the query, twice as much scale."""

    def __init__(self, bias=None):
        super().__init__()
        self.bias = bias

    def prepare(self, query, key):
        return (
            query / 2,
            key,
            {"scale": 2 / math.sqrt(query.shape[3])} | ({} if self.bias is None else {"bias": self.bias}),
        )


def test_a_score_function_decides_the_scores():
    module, x = layer(score=Double()), tokens()
    plain = layer()
    plain.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(x), plain(x))


def test_a_score_and_positions_that_are_both_biases():
    module = layer(score=Double(torch.zeros(1, 1, TOKENS, TOKENS)), positions=rg.nn.Alibi(4))
    with pytest.raises(ArgumentError, match="Double and Alibi are both added to the scores"):
        module(tokens())


@pytest.mark.parametrize(
    "sizes, options, message",
    [
        ((20, 3), {}, "num_heads must divide embed_dim, got 3 heads for an embed_dim of 20: give head_dim"),
        ((0, 3), {}, "embed_dim and num_heads must be at least 1, got 0 and 3"),
        ((20, 0), {}, "embed_dim and num_heads must be at least 1, got 20 and 0"),
        ((20, 4), {"num_kv_heads": 3}, "num_kv_heads must divide num_heads, got 3 for 4 heads"),
        ((20, 4), {"num_kv_heads": 0}, "num_kv_heads must divide num_heads, got 0 for 4 heads"),
        ((20, 4), {"head_dim": 0}, "head_dim must be at least 1, got 0"),
        ((20, 4), {"value_dim": 0}, "value_dim must be at least 1, got 0"),
        ((20, 4), {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ((20, 4), {"output_dropout": -0.5}, "output_dropout must be at least 0 and below 1, got -0.5"),
        ((20, 4), {"qk_norm": "batch"}, 'qk_norm must be "rms", "layer" or None, got \'batch\''),
        ((20, 4), {"init": "he"}, "init must be one of 'xavier', 'small', 'zero', got 'he'"),
        ((20, 4), {"score": Double(), "scale": 1.0}, "give score or scale, got both"),
        ((20, 4), {"positions": rg.nn.Learned(5, 20)}, "must be Rotary, Alibi or Relative, .* got Learned"),
        ((20, 4), {"positions": rg.nn.Alibi(3)}, "a slope for each of 4 heads, got 3"),
        ((20, 4), {"positions": rg.nn.Relative(3)}, "a row for each of 4 heads, got 3"),
        ((20, 4), {"positions": rg.nn.Rotary(6)}, "rotate 6 numbers of each head, which has only 5"),
        ((20, 4), {"positions": rg.nn.Rotary(4), "memory_dim": 3}, "a layer with memory_dim has none"),
    ],
)
def test_layers_that_cannot_be(sizes, options, message):
    with pytest.raises(ArgumentError, match=message):
        MultiHeadAttention(*sizes, **options)


def test_a_raw_mask_is_refused():
    with pytest.raises(MaskError, match="a raw tensor does not say"):
        layer(mask=torch.ones(3, 3))
    with pytest.raises(MaskError, match="a raw tensor does not say"):
        layer()(tokens(), mask=torch.ones(3, 3))


@pytest.mark.parametrize(
    "options, x, source, error, message",
    [
        ({}, (2, 5, 19), None, ShapeError, r"x must be \(batch, tokens, 20\), got \(2, 5, 19\)"),
        ({}, (5, 20), None, ShapeError, r"x must be \(batch, tokens, 20\), got \(5, 20\)"),
        ({}, (0, 5, 20), None, ShapeError, r"x must hold at least one row and one token, got \(0, 5, 20\)"),
        ({}, (2, 0, 20), None, ShapeError, r"x must hold at least one row and one token, got \(2, 0, 20\)"),
        ({}, (2, 5, 20), (2, 0, 20), ShapeError, "memory must hold at least one row and one token"),
        ({}, (2, 5, 20), (2, 7, 13), ShapeError, r"memory must be \(batch, tokens, 20\), got \(2, 7, 13\)"),
        ({}, (2, 5, 20), (3, 7, 20), ShapeError, "must have one batch, got 2 and 3 rows"),
        (
            {"memory_dim": 13},
            (2, 5, 20),
            None,
            ArgumentError,
            "attends to a memory of embedding size 13: give memory",
        ),
        (
            {"positions": rg.nn.Rotary(4)},
            (2, 5, 20),
            (2, 7, 20),
            ArgumentError,
            "Rotary relates the tokens of one text",
        ),
    ],
)
def test_inputs_that_do_not_fit(options, x, source, error, message):
    with pytest.raises(error, match=message):
        layer(**options)(
            torch.zeros(x, dtype=torch.float64),
            None if source is None else torch.zeros(source, dtype=torch.float64),
        )
