"""Remedies that change a model or its loss, against dense code and against what the formulas promise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import regard as rg
from regard.analysis import remedies
from regard.errors import ArgumentError, WatchError

SIZE, HEADS, TOKENS, VOCAB = 12, 3, 11, 53


def small(name: str, head: str, implementation: str = "sdpa", **config: Any) -> Any:
    """A small model of transformers, without any dropout."""
    import transformers

    torch.manual_seed(4)
    kind = getattr(transformers, f"{name}Config")
    made = kind(**config)
    made._attn_implementation = implementation
    model = getattr(transformers, f"{name}{head}")(made)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


SMALL = dict(
    vocab_size=VOCAB, hidden_size=SIZE, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=17
)
NONE = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
FAMILIES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "bert": ("Bert", "Model", SMALL | NONE, 2),
    "gpt2": ("GPT2", "LMHeadModel", dict(vocab_size=VOCAB, n_embd=SIZE, n_layer=2, n_head=HEADS), 2),
    "llama": ("Llama", "ForCausalLM", SMALL | dict(num_attention_heads=6, num_key_value_heads=3), 2),
    "t5": (
        "T5", "EncoderModel",
        dict(
            vocab_size=VOCAB, d_model=SIZE, d_kv=4, num_layers=2, num_heads=3, d_ff=17, dropout_rate=0.0,
        ), 2,
    ),
    "distilbert": ("DistilBert", "Model", dict(vocab_size=VOCAB, dim=SIZE, n_layers=2, n_heads=3, hidden_dim=17), 2),
    "bart": (
        "Bart", "Model",
        dict(
            vocab_size=VOCAB, d_model=SIZE, encoder_layers=1, decoder_layers=1, encoder_attention_heads=3,
            decoder_attention_heads=3, encoder_ffn_dim=17, decoder_ffn_dim=17, dropout=0.0,
        ), 3,
    ),
}  # fmt: skip


# --- dropout -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_dropped_in_training_and_nothing_else(family: str) -> None:
    name, head, config, layers = FAMILIES[family]
    model = small(name, head, **config)
    tokens = torch.randint(3, VOCAB, (2, TOKENS))
    quiet = [model.train()(input_ids=tokens)[0] for _ in range(2)]
    assert torch.equal(*quiet)
    changed = remedies.dropout(model, 0.5)
    assert len(changed) == layers and set(changed) <= dict(model.named_modules()).keys()
    assert not torch.allclose(*(model(input_ids=tokens)[0] for _ in range(2)))
    torch.testing.assert_close(model.eval()(input_ids=tokens)[0], quiet[0])
    # Taken back, nothing is dropped: it was attention's weights alone.
    assert remedies.dropout(model, 0.0) == changed
    assert torch.equal(model.train()(input_ids=tokens)[0], quiet[0])


def test_dropout_is_saved_with_the_config(tmp_path: Any) -> None:
    name, head, config, _ = FAMILIES["llama"]
    model = small(name, head, **config)
    remedies.dropout(model, 0.25)
    model.save_pretrained(tmp_path)
    assert type(model).from_pretrained(tmp_path).model.layers[1].self_attn.attention_dropout == 0.25


def test_dropout_of_torch_and_of_regard() -> None:
    model = nn.ModuleDict(
        {"torch": nn.MultiheadAttention(SIZE, HEADS), "regard": rg.nn.Encoder(1, SIZE, HEADS)}
    )
    assert remedies.dropout(model, 0.1) == ("torch", "regard.layers.0.attention")
    assert model["torch"].dropout == model["regard"].layers[0].attention.dropout == 0.1
    with pytest.raises(ArgumentError, match="attention modules whose dropout is known, got Linear"):
        remedies.dropout(nn.Linear(2, 2), 0.1)
    with pytest.raises(ArgumentError, match="at least 0 and below 1"):
        remedies.dropout(model, 1.0)


# --- norms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.0, 1e3, 1e6])
def test_normalized_scores_are_bounded(factor: float) -> None:
    torch.manual_seed(0)
    layer = rg.nn.MultiHeadAttention(SIZE, HEADS)
    with torch.no_grad():
        layer.qkv.weight.mul_(factor)
    assert remedies.query_key_norm(layer) == ("MultiHeadAttention",)
    assert remedies.query_key_norm(layer) == ()
    with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        layer(torch.randn(2, TOKENS, SIZE))
    call = record[0]
    scores = call.spec.scale * torch.einsum("bhqd, bhkd -> bhqk", call.query.double(), call.key.double())
    assert scores.abs().max() <= math.sqrt(layer.head_dim) * (1 + 1e-6)


def test_norms_are_those_of_the_layer() -> None:
    torch.manual_seed(0)
    built = rg.nn.MultiHeadAttention(SIZE, HEADS, qk_norm="rms")
    given_later = rg.nn.MultiHeadAttention(SIZE, HEADS)
    remedies.query_key_norm(given_later, gains=True)
    given_later.load_state_dict(built.state_dict())
    x = torch.randn(2, TOKENS, SIZE)
    assert torch.equal(built(x), given_later(x))
    assert remedies.query_key_norm(rg.nn.Encoder(1, SIZE, HEADS).double())
    name, head, config, _ = FAMILIES["bert"]
    with pytest.raises(ArgumentError, match=r"layers of regard\.nn\.MultiHeadAttention, got BertModel"):
        remedies.query_key_norm(small(name, head, **config))


# --- initialization ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [1.0, 0.25])
@pytest.mark.parametrize("arguments", [{}, {"scale": 1.0}, {"num_kv_heads": 2, "head_dim": 29}])
def test_scores_begin_with_the_variance(arguments: dict[str, Any], variance: float) -> None:
    torch.manual_seed(0)
    layer = rg.nn.MultiHeadAttention(256, 8, **arguments)
    with torch.no_grad():
        layer.qkv.bias.normal_()
    before = layer.qkv.weight.detach().clone()
    remedies.initialization(layer, variance=variance)
    query, key, _ = layer.projected_dims
    assert torch.equal(layer.qkv.weight[query + key :], before[query + key :])
    assert not layer.qkv.bias[: query + key].any() and layer.qkv.bias[query + key :].all()
    with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        layer(torch.randn(2, 101, 256))
    call = record[0]
    keys = call.key.repeat_interleave(8 // layer.num_kv_heads, 1)
    scores = call.spec.scale * call.query @ keys.mT
    assert float(scores.var(-1).mean()) == pytest.approx(variance, rel=0.2)


def projections(family: str, model: Any) -> tuple[Tensor, Tensor, int]:
    """Query and key weights `(outputs, inputs)` of the last layer, and the size of a head."""
    if family == "bert":
        layer = model.encoder.layer[1].attention.self
        return layer.query.weight, layer.key.weight, layer.attention_head_size
    if family == "gpt2":
        query, key, _ = model.transformer.h[1].attn.c_attn.weight.mT.chunk(3)
        return query, key, 24
    layer = model.model.layers[1].self_attn
    return layer.q_proj.weight, layer.k_proj.weight, layer.head_dim


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_models_of_transformers_begin_with_the_variance(family: str) -> None:
    name, head, _, layers = FAMILIES[family]
    config = SMALL | dict(hidden_size=192, num_attention_heads=8, intermediate_size=17)
    if family == "gpt2":
        config = dict(vocab_size=VOCAB, n_embd=192, n_layer=2, n_head=8)
    if family == "llama":
        config |= dict(num_key_value_heads=2)
    model = small(name, head, **config)
    assert len(remedies.initialization(model)) == layers
    query, key, dim = projections(family, model)
    # Of inputs of variance 1 a number of q has the variance Σ w² of its row; d such products are added and scaled.
    variances = [weight.detach().double().square().sum(1).mean() for weight in (query, key)]
    assert float(variances[0] * variances[1]) == pytest.approx(1.0, rel=0.1)
    assert dim == 24


def test_initialization_of_other_layers() -> None:
    torch.manual_seed(0)
    for layer in (nn.MultiheadAttention(160, 5), nn.MultiheadAttention(160, 5, kdim=320, vdim=7)):
        assert remedies.initialization(layer) == ("MultiheadAttention",)
    for weight in (layer.q_proj_weight, layer.k_proj_weight):
        assert float(weight.detach().square().sum(1).mean()) == pytest.approx(1.0, rel=0.1)
    crossing = rg.nn.MultiHeadAttention(160, 5, memory_dim=96)
    value = crossing.key_value.weight[160:].detach().clone()
    remedies.initialization(crossing)
    assert torch.equal(crossing.key_value.weight[160:], value)
    assert float(crossing.key_value.weight[:160].detach().square().sum(1).mean()) == pytest.approx(
        1.0, rel=0.1
    )


def test_depth_makes_last_projections_small() -> None:
    torch.manual_seed(0)
    model = rg.nn.Encoder(8, 64, 4)
    before = model.layers[3].feedforward.outer.weight.std()
    remedies.initialization(model, depth=True)
    for weight in (model.layers[3].feedforward.outer.weight, model.layers[3].attention.output.weight):
        # Xavier's bound, √(6 / (inputs + outputs)), over √16.
        assert float(weight.detach().abs().max()) == pytest.approx(
            math.sqrt(6 / sum(weight.shape)) / 4, rel=0.02
        )
    assert model.layers[3].feedforward.outer.weight.std() < before / 3
    with pytest.raises(ArgumentError, match="depth must be of Regard's own layers"):
        remedies.initialization(nn.MultiheadAttention(8, 2), depth=True)


def test_what_has_no_such_projections_is_refused() -> None:
    with pytest.raises(ArgumentError, match="got Linear without one"):
        remedies.initialization(nn.Linear(2, 2))
    scored = rg.nn.MultiHeadAttention(SIZE, HEADS, score=rg.nn.Additive(4, 4, 8))
    with pytest.raises(ArgumentError, match=r"must score by q·k, got Additive"):
        remedies.initialization(scored)
    flat = rg.nn.MultiHeadAttention(SIZE, HEADS, scale=0.0)
    before = flat.qkv.weight.detach().clone()
    with pytest.raises(ArgumentError, match="scale above 0, got 0"):
        remedies.initialization(flat)
    assert torch.equal(flat.qkv.weight, before)
    with pytest.raises(ArgumentError, match="variance must be positive"):
        remedies.initialization(flat, variance=0.0)


# --- entropy regularization ----------------------------------------------------------------------------------


def outside(weights: Tensor, choices: Tensor, low: float, high: float) -> Tensor:
    """The mean penalty of heads with these weights `(batch, heads, queries, keys)`."""
    # The derivative of w ln w at 0 is infinite; of a blocked key, it is none.
    entropy = -(weights * weights.where(weights > 0, 1.0).log()).sum(-1)
    values, known = entropy / choices.clamp(min=2).log(), choices > 1
    means = (values * known).sum((0, 2)) / known.sum((0, 2))
    return ((low - means).clamp(min=0) ** 2 + (means - high).clamp(min=0) ** 2).mean()


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.0), (0.0, 0.3), (0.6, 0.7)])
def test_the_penalty_is_that_of_dense_weights(low: float, high: float) -> None:
    torch.manual_seed(6)
    layer = rg.nn.MultiHeadAttention(SIZE, HEADS, mask=rg.causal()).double()
    with torch.no_grad():
        layer.qkv.weight.mul_(2)
    x, lengths = torch.randn(2, TOKENS, SIZE).double(), torch.tensor([TOKENS, 7])
    plain = layer(x, mask=rg.padding(lengths))
    with remedies.entropy_regularization(layer, low=low, high=high, weight=3.0) as penalty:
        output = layer(x, mask=rg.padding(lengths))
        value = penalty()
    assert torch.equal(output, plain)
    (got,) = torch.autograd.grad(value, layer.qkv.weight)
    query, key, _ = layer.qkv(x).unflatten(-1, (3, HEADS, SIZE // HEADS)).unbind(2)
    scores = torch.einsum("bqhd, bkhd -> bhqk", query, key) / math.sqrt(SIZE // HEADS)
    real = torch.arange(TOKENS) < lengths[:, None]
    allowed = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril() & real[:, None] & real[:, :, None]
    weights = scores.masked_fill(~allowed[:, None], -1e9).softmax(-1) * allowed[:, None]
    choices = allowed.sum(-1)[:, None]
    dense = 3.0 * outside(weights, choices, low, high)
    (want,) = torch.autograd.grad(dense, layer.qkv.weight)
    assert value > 0 and float(value.detach()) == pytest.approx(float(dense.detach()), rel=1e-6)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_the_penalty_of_models_of_transformers(family: str, implementation: str) -> None:
    name, head, config, _ = FAMILIES[family]
    model = small(name, head, implementation, **config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    remedies.dropout(model, 0.0)
    tokens = torch.randint(VOCAB, (2, TOKENS))
    with remedies.entropy_regularization(model, low=0.99) as penalty:
        model(input_ids=tokens)
        value = penalty()
    grads = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    model.set_attn_implementation("eager")
    attentions = model(input_ids=tokens, output_attentions=True).attentions
    parts = []
    for weights in attentions:
        choices = (weights > 0).sum(-1)
        parts.append(outside(weights, choices, 0.99, 1.0))
    dense = torch.stack(parts).mean()
    want = torch.autograd.grad(dense, list(model.parameters()), allow_unused=True)
    assert float(value.detach()) == pytest.approx(float(dense.detach()), rel=1e-4)
    for one, other in zip(grads, want, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert sum(grad is not None and bool(grad.any()) for grad in grads) > 4


def test_the_penalty_raises_the_entropy_of_a_sharp_layer() -> None:
    torch.manual_seed(0)
    layer, x = rg.nn.MultiHeadAttention(SIZE, HEADS), torch.randn(2, TOKENS, SIZE)
    with torch.no_grad():
        layer.qkv.weight.mul_(2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    with remedies.entropy_regularization(layer, low=0.8) as penalty:
        for _ in range(100):
            layer(x)
            optimizer.zero_grad()
            value = penalty()
            value.backward()
            optimizer.step()
    with torch.no_grad(), rg.watch(layer) as record:
        layer(x)
    assert float(value.detach()) < 1e-3 and record.heads.entropy_fraction.min() > 0.77


def test_passes_without_gradients_are_left_alone() -> None:
    layer, x = rg.nn.MultiHeadAttention(SIZE, HEADS), torch.randn(2, TOKENS, SIZE)
    with remedies.entropy_regularization(layer) as penalty:
        with torch.no_grad():
            layer(x)
        with pytest.raises(WatchError, match="got none in which attention was seen"):
            penalty()
        layer(x)
        layer(x)
        assert penalty().ndim == 0
        with pytest.raises(WatchError, match="since the last one"):
            penalty()
    layer(x)
    with pytest.raises(WatchError):
        penalty()


def test_frozen_layers_and_heads_without_choice_cost_nothing() -> None:
    layer = rg.nn.MultiHeadAttention(SIZE, HEADS).requires_grad_(False)
    with remedies.entropy_regularization(layer, low=0.5) as penalty:
        layer(torch.randn(2, 1, SIZE))
        assert penalty() == 0


def test_gradient_checkpointing_is_refused() -> None:
    model = rg.nn.Encoder(1, SIZE, HEADS, checkpoint=True).train()
    x = torch.randn(2, TOKENS, SIZE)
    with remedies.entropy_regularization(model):
        with pytest.raises(WatchError, match=r"layers\.0 is under gradient checkpointing"):
            model(x)
        with torch.no_grad():
            model(x)
    model(x).sum().backward()


def test_bounds_of_the_penalty() -> None:
    layer = rg.nn.MultiHeadAttention(SIZE, HEADS)
    for low, high in ((0.5, 0.5), (0.2, 1.5), (0.7, 0.3)):
        wrong = remedies.entropy_regularization(layer, low=low, high=high)
        with pytest.raises(ArgumentError, match="0 ≤ low < high ≤ 1"), wrong:
            pass
    missing = remedies.entropy_regularization(layer, layers="missing")
    with pytest.raises(ArgumentError, match="layers must name modules"), missing:
        pass


# --- length curriculum ---------------------------------------------------------------------------------------


@given(st.integers(1, 99), st.integers(0, 500), st.integers(1, 300), st.integers(1, 20))
def test_lengths_grow_from_the_shortest_to_the_longest(
    shortest: int, more: int, steps: int, multiple: int
) -> None:
    lengths = [
        remedies.length_curriculum(
            step, shortest=shortest, longest=shortest + more, steps=steps, multiple=multiple
        )
        for step in range(steps + 3)
    ]
    assert lengths == sorted(lengths) and lengths[steps:] == [shortest + more] * 3
    assert all(length % multiple == 0 or length in (shortest, shortest + more) for length in lengths)
    exact = [shortest + more * step / steps for step in range(steps)]
    assert all(-multiple < length - line <= multiple for length, line in zip(lengths, exact, strict=False))
    if shortest % multiple == 0:
        assert lengths[0] == shortest


def test_lengths_that_cannot_be() -> None:
    with pytest.raises(ArgumentError, match="at least the shortest, 9, got 8"):
        remedies.length_curriculum(0, shortest=9, longest=8, steps=1)
    with pytest.raises(ArgumentError, match="step must be at least 0"):
        remedies.length_curriculum(-1, shortest=1, longest=8, steps=1)
