"""Pruned models: equal to those with zeroed heads, smaller, saved and loaded; and what a budget allows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import regard as rg
from regard.analysis import load_pruned, prune
from regard.analysis.pruning.surgery import attentions
from regard.errors import ArgumentError, ModelError
from watch.families import FAMILIES, VOCAB

# Pairs of layer and head; where heads share keys, three at a time.
HEADS: dict[str, list[Any]] = {
    "Bert": [(0, 1), (1, 0), (1, 5)],
    "Roberta": [(0, 1)],
    "GPT2": [(0, 1), (0, 2), (1, 4)],
    "Llama": [(0, 0), (0, 1), (0, 2)],
    "Mistral": [(1, 3), (1, 4), (1, 5)],
    "Qwen3": [(1, 0), (1, 1), (1, 2)],
    "GptOss": [(1, 3), (1, 4), (1, 5)],
}


def tensors(result: Any) -> list[Tensor]:
    return [part for part in result.to_tuple() if isinstance(part, Tensor)]


def equal(smaller: nn.Module, model: nn.Module, heads: Any, inputs: dict[str, Any]) -> None:
    """The smaller model gives what the model gives with these heads zeroed, to rounding, and less than all heads."""
    with torch.no_grad():
        with rg.intervene(model, heads, output="zero"):
            want = tensors(model(**inputs))
        got, plain = tensors(smaller(**inputs)), tensors(model(**inputs))
    assert not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(plain, want, strict=True))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", HEADS)
def test_transformers(name: str, tmp_path: Path) -> None:
    family, heads = FAMILIES[name], HEADS[name]
    model = family.build("eager" if name == "GptOss" else "sdpa")
    inputs = family.inputs(padding="left")
    result = prune(model, heads)
    equal(result.model, model, heads, inputs)
    assert result.parameters[1] < result.parameters[0] == sum(p.numel() for p in model.parameters())
    assert result.loss is None and len(result.heads) == len(heads)
    result.model.save_pretrained(tmp_path / "smaller")
    loaded = load_pruned(tmp_path / "smaller").eval()
    assert type(loaded) is type(model)
    for ours, theirs in zip(tensors(loaded(**inputs)), tensors(result.model(**inputs)), strict=True):
        torch.testing.assert_close(ours, theirs)
    # Once more: numbers are those of the smaller model now.
    group = 3 if name in ("Llama", "Mistral", "Qwen3", "GptOss") else 1
    again = prune(loaded, [(1 if name == "Llama" else 0, head) for head in range(group)]).model
    again.save_pretrained(tmp_path / "smallest")
    twice = load_pruned(tmp_path / "smallest").eval()
    for ours, theirs in zip(tensors(twice(**inputs)), tensors(again(**inputs)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_llama_with_as_many_heads_less_in_every_layer_is_a_plain_llama(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    family = FAMILIES["Llama"]
    model, inputs = family.build("sdpa"), family.inputs()
    heads = [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    smaller = prune(model, heads).model
    equal(smaller, model, heads, inputs)
    smaller.save_pretrained(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert plain.config.num_key_value_heads == 1 and plain.config.num_attention_heads == 3
    torch.testing.assert_close(plain(**inputs).logits, smaller(**inputs).logits)
    torch.testing.assert_close(load_pruned(tmp_path).eval()(**inputs).logits, smaller(**inputs).logits)
    written = [m.generate(**inputs, max_new_tokens=4, do_sample=False) for m in (plain, smaller)]
    assert torch.equal(*written)


@pytest.mark.parametrize("positions", ["rotary", "alibi", "relative", "learned"])
def test_models_of_ours(positions: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = rg.models.DecoderConfig(
        vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3,
        positions=positions, max_position_embeddings=32,
    )  # fmt: skip
    model = rg.models.DecoderForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    inputs = {"input_ids": torch.randint(0, VOCAB, (2, 11))}
    heads = [(0, 2), (0, 3), (1, 0), (1, 1), (1, 4), (1, 5)]
    smaller = prune(model, heads).model
    equal(smaller, model, heads, inputs)
    smaller.save_pretrained(tmp_path)
    loaded = load_pruned(tmp_path).eval()
    torch.testing.assert_close(loaded(**inputs).logits, smaller(**inputs).logits)
    written = [
        one.generate(inputs["input_ids"], max_new_tokens=4, do_sample=False, use_cache=cache)
        for one in (smaller, loaded)
        for cache in (True, False)
    ]
    assert all(torch.equal(tokens, written[0]) for tokens in written)


def test_an_encoder_decoder_of_ours(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = rg.models.EncoderDecoderConfig(
        vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, decoder_start_token_id=1,
        pad_token_id=0,
    )  # fmt: skip
    model = rg.models.EncoderDecoderForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    ids = torch.randint(3, VOCAB, (2, 9))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": ids[:, :5]}
    smaller = prune(model, [(1, 2)]).model
    # Of a number, all attention of the blocks of that number: the encoder's, the decoder's, and that to its memory.
    equal(smaller, model, [(1, 2)], inputs)
    smaller.save_pretrained(tmp_path)
    torch.testing.assert_close(load_pruned(tmp_path).eval()(**inputs).logits, smaller(**inputs).logits)


@pytest.mark.parametrize("memory_dim", [None, 20])
def test_a_layer_with_everything(memory_dim: int | None) -> None:
    torch.manual_seed(1)
    layer = rg.nn.MultiHeadAttention(
        24, 6, num_kv_heads=3, head_dim=5, value_dim=7, qk_norm="rms", sink=True, memory_dim=memory_dim
    ).double()
    nn.init.normal_(layer.sink_logit)
    x, memory = torch.randn(2, 5, 24).double(), None
    if memory_dim is not None:
        memory = torch.randn(2, 9, memory_dim).double()
    smaller = prune(layer, [("MultiHeadAttention", 0), ("MultiHeadAttention", 1)]).model
    with rg.intervene(nn.ModuleDict({"a": layer}), [("a", 0), ("a", 1)], output="zero"):
        want = layer(x, memory)
    torch.testing.assert_close(smaller(x, memory), want)


# --- a budget ------------------------------------------------------------------------------------------------


def planted() -> nn.Module:
    """A decoder that learned nothing, of which heads 1 and 4 of layer 0 and head 2 of layer 1 matter much less."""
    family = FAMILIES["GPT2"]
    model = family.build("sdpa")
    with torch.no_grad():
        for layer, head in ((0, 1), (0, 4), (1, 2)):
            model.transformer.h[layer].attn.c_proj.weight[head * 4 : (head + 1) * 4] *= 1e-4
    return model


def other_than(model: nn.Module) -> Any:
    """A loss that grows with everything that a model gives other than this one does now."""
    wanted = {}
    with torch.no_grad():
        for batch in texts():
            wanted[batch["input_ids"]] = model(**batch).logits.double()

    def loss(result: Any, batch: Any) -> Tensor:
        return 1 + (result.logits.double() - wanted_of(wanted, batch["input_ids"])).square().mean((1, 2))

    return loss


def wanted_of(wanted: dict[Tensor, Tensor], ids: Tensor) -> Tensor:
    return next(logits for known, logits in wanted.items() if torch.equal(known, ids))


def texts(count: int = 4) -> list[dict[str, Tensor]]:
    torch.manual_seed(9)
    return [{"input_ids": ids, "labels": ids} for ids in torch.randint(3, VOCAB, (count, 1, 12))]


@pytest.mark.parametrize("method", ["gradient", "zero"])
def test_a_budget_is_kept_on_texts_that_chose_nothing(method: str) -> None:
    model, budget = planted(), 0.001
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss = None
    if method == "zero":
        loss = other_than(model)
    result = prune(model, budget=budget, batches=texts(), loss=loss, method=method)
    taken = {(int(layer.split(".")[2]), head) for layer, head in result.heads}
    idle = {(0, 1), (0, 4), (1, 2)}
    # By gradients these come first; of a loss of its own no head of a model that learned nothing is sure to be needed.
    assert taken == idle if method == "zero" else taken and (taken <= idle or len(taken) > len(idle))
    before, after = result.loss
    assert after <= (1 + budget) * before
    # The loss is that of every second text.
    if method == "gradient":
        with torch.no_grad():
            rows = torch.stack([model(**batch).loss for batch in texts()])
        torch.testing.assert_close(before, float(rows[1::2].mean()), rtol=1e-5, atol=0)
    assert result.parameters[1] < result.parameters[0] and min(result.seconds) > 0
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert "heads fewer, parameters" in repr(result) and "loss" in repr(result)


def test_loss_and_speed_of_heads_that_were_named() -> None:
    model = planted()
    result = prune(model, [(0, 1)], batches=texts(2))
    assert (
        result.loss is not None and abs(result.loss[1] - result.loss[0]) < 1e-3 and result.seconds is not None
    )


def test_the_growth_of_the_loss_has_the_interval_of_the_textbook() -> None:
    model = planted()
    result = prune(model, [(0, 2), (1, 0)], batches=texts(5))
    assert result.growth is not None and result.loss is not None
    with torch.no_grad():
        before, after = (
            np.array([float(one(**batch).loss) for batch in texts(5)]) for one in (model, result.model)
        )
    low, high = stats.t.interval(0.95, 4, (after - before).mean(), stats.sem(after - before))
    assert result.growth[0] == pytest.approx(result.loss[1] / result.loss[0] - 1, abs=1e-9)
    assert result.growth[1:] == pytest.approx((low / before.mean(), high / before.mean()), rel=1e-3, abs=1e-6)
    assert f"({result.growth[1]:+.2%} to" in repr(result)
    # One text has no variance.
    assert math.isnan(prune(model, [(0, 2)], batches=texts(1)).growth[1])


def test_with_a_confidence_the_whole_interval_keeps_the_budget() -> None:
    model = planted()
    batches = texts(12)
    result = prune(model, budget=0.001, batches=batches, confidence=0.9)
    with torch.no_grad():
        before, after = (
            np.array([float(one(**batch).loss) for batch in batches[1::2]]) for one in (model, result.model)
        )
    difference = after - before
    high = stats.t.interval(0.9, len(difference) - 1, difference.mean(), stats.sem(difference))[1]
    assert result.heads and high / before.mean() <= 0.001
    # Another text's loss is that of other words: the mean may keep what the interval does not.
    loud = [dict(batch) for batch in batches]
    rng = torch.Generator().manual_seed(3)
    count = iter(range(1000))

    def noisy(result: Any, batch: Any) -> Tensor:
        jump = 5 * torch.rand((), generator=rng.manual_seed(next(count)))
        return result.loss + jump

    with pytest.raises(ArgumentError, match="cannot be met"):
        prune(model, budget=1e-4, batches=loud, loss=noisy, method="zero", confidence=0.99)


def test_a_family_that_counts_heads_elsewhere_is_refused_by_the_first_batch() -> None:
    class Doubled(rg.nn.MultiHeadAttention):
        """Its output is that of all heads, but for a scale that knows how many there are."""

        def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(input) * self.num_heads

    torch.manual_seed(1)
    layer, batch = Doubled(16, 4).eval(), {"input": torch.randn(2, 5, 16)}
    loss = lambda result, _: result.square().mean((1, 2))  # noqa: E731
    with pytest.raises(
        ArgumentError, match="must give what it gives with them zeroed, and its output differs by"
    ):
        prune(layer, [("Doubled", 1)], batches=[batch], loss=loss)

    class Fixed(rg.nn.MultiHeadAttention):
        """It adds something for its four heads, and something else cannot be added to it."""

        def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(input) + torch.zeros(self.num_heads, 4).flatten()

    with pytest.raises(
        ArgumentError, match="more than its projections counts them, and without some of them"
    ):
        prune(Fixed(16, 4).eval(), [("Fixed", 1)], batches=[batch], loss=loss)


def test_modules_in_which_more_than_projections_counts_heads_are_not_taken() -> None:
    from transformers import Qwen3NextConfig, SwinConfig, SwinModel
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    small = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    # Its queries' projection holds a gate for each of them too.
    doubled = Qwen3NextAttention(Qwen3NextConfig(**small), 0)
    swin = SwinModel(SwinConfig(embed_dim=16, depths=[1], num_heads=[2], image_size=32, window_size=4))
    for model in (doubled, swin):
        assert not attentions(model)


@pytest.mark.parametrize(
    ("name", "heads", "words"),
    [
        (
            "Llama",
            [(0, 1)],
            "heads 0 to 2 of model.layers.0.self_attn share one head of keys and must go together",
        ),
        ("GPT2", [(0, head) for head in range(6)], "at least one head of transformer.h.0.attn must be left"),
        ("GPT2", [(0, 6)], "must have the head 6, it has 6 heads"),
        ("GPT2", [(5, 0)], "got 5; blocks: 0, 1"),
        ("GPT2", [("transformer.wte", 0)], "got 'transformer.wte'; this model has: transformer.h.0.attn"),
        ("GPT2", [(0,)], r"must be a pair \(layer, head\)"),
        ("T5", [(0, 0)], "this model has: none"),
    ],
)
def test_heads_that_cannot_be_taken(name: str, heads: Any, words: str) -> None:
    model = FAMILIES[name].build("sdpa")
    with pytest.raises(ArgumentError, match=words):
        prune(model, heads)


def test_clear_errors(tmp_path: Path) -> None:
    model = planted()
    for keywords, words in (
        ({}, "heads or a budget must be given"),
        ({"heads": [(0, 0)], "budget": 0.1}, "and not both"),
        ({"heads": [(0, 0)], "confidence": 0.9}, "confidence needs a budget"),
        ({"budget": 0.1, "batches": texts(), "confidence": 1.0}, "confidence must be"),
        (
            {"budget": 0.1, "batches": texts(2), "confidence": 0.9},
            "two texts or more on the half that proves",
        ),
        ({"budget": 0.1}, "two texts or more"),
        ({"budget": 0.1, "batches": []}, "at least one text"),
        ({"budget": -1.0, "batches": texts()}, "budget must be"),
        (
            {"budget": 1e-13, "batches": texts(), "loss": other_than(model), "method": "zero"},
            "cannot be met: every",
        ),
        ({"budget": 0.1, "batches": texts(), "loss": lambda result, _: -result.loss}, "loss must be above 0"),
    ):
        with pytest.raises(ArgumentError, match=words):
            prune(model, **keywords)
    scored = rg.nn.MultiHeadAttention(8, 2, score=rg.nn.Additive(4, 4, 3))
    with pytest.raises(ArgumentError, match="has Additive, whose heads cannot be taken"):
        prune(scored, [("MultiHeadAttention", 0)])
    with pytest.raises(ModelError, match="holds no config"):
        load_pruned(tmp_path)
    smaller = prune(model, [(0, 0)]).model
    smaller.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, words in (
        ({"architectures": ["Nothing"]}, "names the class 'Nothing'"),
        ({"regard_pruned_heads": [{"a": [0]}]}, "cannot be taken"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ModelError, match=words):
            load_pruned(tmp_path)
