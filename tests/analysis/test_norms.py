"""Value-weighted norms against dense weights and whole projected vectors of short texts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard as rg
from regard.analysis.flow import norms, rollout, token_norms
from regard.errors import ArgumentError, RecordError
from regard.record import Call, Record
from regard.record.segments import Part
from regard.shapes import sizes_of
from regard.spec import Spec


def call_of(queries: int = 13, keys: int = 13, *, kind: str = "self", layer: str = "layer", **spec) -> Call:
    query = torch.randn(2, 6, queries, 5, dtype=torch.float64)
    key = torch.randn(2, 2, keys, 5, dtype=torch.float64)
    value = torch.randn(2, 2, keys, 7, dtype=torch.float64)
    sizes = sizes_of(query, key, value)
    full = Spec.of(sizes, **spec)
    place = {"layer": layer, "kind": kind, "sizes": sizes, "offset": full.offset}
    return Call(**place, query=query, key=key, value=value, spec=full)


def dense(call: Call) -> Tensor:
    """`(batch, heads, queries, keys)`: all weights, those of padding 0."""
    size = call.sizes
    weights = torch.stack(
        [torch.stack([call.weights(h, batch=b) for h in range(size.heads)]) for b in range(size.batch)]
    ).double()
    if call.padded is not None:
        weights = weights * ~call.padded[:, None, :, None]
    return weights


def given(call: Call, weight: Tensor | None) -> Tensor:
    """`(batch, heads, queries, keys)`: the norm of each w · f(v), as a whole vector, one pair after the other."""
    weights, size = dense(call), call.sizes
    result = torch.zeros_like(weights)
    for head in range(size.heads):
        vectors = call.value[:, head // size.group].double()
        if weight is not None:
            vectors = vectors @ weight.double()[:, head * size.value_dim : (head + 1) * size.value_dim].T
        pairs = weights[:, head, :, :, None] * vectors[:, None].nan_to_num(posinf=0.0, neginf=0.0)
        result[:, head] = pairs.square().sum(-1).sqrt()
    return result


def check(found, call: Call, weight: Tensor | None, rounding: float = 1e-12) -> None:
    want, weights = given(call, weight), dense(call)
    near = {"atol": rounding, "rtol": rounding}
    torch.testing.assert_close(found.received, want.sum(2), **near)
    torch.testing.assert_close(found.by_query, want.sum(3), **near)
    torch.testing.assert_close(found.mass, weights.sum(2), **near)
    torch.testing.assert_close(found.valid, weights.sum(3) > 0)
    for shares, table in ((found.mass_shares, weights), (found.norm_shares, want)):
        torch.testing.assert_close(shares, table.sum(2) / table.sum((2, 3))[..., None], **near)
    assert found.projected == (weight is not None)


CALLS = {
    "both ways": {},
    "causal": {"mask": rg.causal()},
    "near, with a bias": {"mask": rg.near(4), "bias": rg.alibi(torch.rand(6, dtype=torch.float64))},
    "empty rows and a sink": {"mask": ~rg.prefix(3) & rg.causal(), "sink_logit": torch.randn(6).double()},
    "softcap": {"mask": rg.causal(), "softcap": 2.0, "scale": 3.0},
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("sizes", [(13, 13), (7, 11)])
def test_norms_without_a_model_are_of_the_values(name, sizes):
    call = call_of(*sizes, **CALLS[name])
    (found,) = norms(Record([call]), map=4).calls
    check(found, call, None)
    # The picture, cell by cell.
    want, first, cell = given(call, None), call.offset // found.cell, found.cell
    assert max(found.map.shape[2:]) <= 4 and found.map.shape[3] == -(-sizes[1] // cell)
    for i in range(found.map.shape[2]):
        rows = [q for q in range(sizes[0]) if (call.offset + q) // cell - first == i]
        for j in range(found.map.shape[3]):
            part = want[:, :, rows, j * cell : (j + 1) * cell]
            count = found.valid[:, :, rows].sum(-1).clamp(min=1) * part.shape[3]
            torch.testing.assert_close(found.map[:, :, i, j], part.sum((2, 3)) / count)


def test_padding_counts_nowhere():
    padded = torch.arange(13) >= torch.tensor([13, 7])[:, None]
    call = replace(call_of(mask=rg.padding([13, 7])), padded=padded)
    (found,) = norms(Record([call])).calls
    check(found, call, None)
    assert not found.by_query[1, :, 7:].any() and not found.received[1, :, 7:].any()


def test_the_steps_of_a_generation_are_one_pass():
    call = call_of(11, 11, mask=rg.causal())
    parts = [Part(stop - start, stop, replace(call.spec, offset=start)) for start, stop in ((0, 7), (7, 11))]
    split = replace(call, parts=tuple(parts), spec=parts[0].spec)
    one, two = (norms(Record([each]), map=4).calls[0] for each in (call, split))
    for name in ("received", "by_query", "mass", "valid", "map"):
        torch.testing.assert_close(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_a_masked_key_holds_does_not_leak(bad):
    call = call_of(mask=rg.causal() & rg.padding([13, 7]))
    call.value[1, :, 9] = bad
    record = Record([call])
    (found,) = norms(record, map=4).calls
    check(found, call, None)
    assert found.received.isfinite().all() and found.map.isfinite().all()
    assert token_norms(record, -1, batch=1)["norm"].notna().all()
    call.value[1, 1, 3] = bad
    with pytest.raises(
        RecordError, match="layer: values that are attended to must be finite, got NaN or inf"
    ):
        norms(record)


# --- models --------------------------------------------------------------------------------------------------


def transformers_models() -> dict[str, tuple[nn.Module, str]]:
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 16}
    bert = transformers.BertConfig(**small, num_attention_heads=4)
    decoder = transformers.BertConfig(
        **small, num_attention_heads=4, is_decoder=True, add_cross_attention=True
    )
    llama = transformers.LlamaConfig(**small, num_attention_heads=6, num_key_value_heads=2)
    gpt2 = transformers.GPT2Config(vocab_size=31, n_embd=24, n_layer=2, n_head=4)
    crossed = transformers.GPT2Config(vocab_size=31, n_embd=24, n_layer=2, n_head=4, add_cross_attention=True)
    qwen = transformers.Qwen3Config(**small, num_attention_heads=6, num_key_value_heads=3, head_dim=10)
    return {
        "BERT": (transformers.BertModel(bert), ""),
        "BERT, cross": (transformers.BertModel(decoder), "cross"),
        "Llama": (transformers.LlamaModel(llama), ""),
        "Qwen 3": (transformers.Qwen3Model(qwen), ""),
        "GPT-2": (transformers.GPT2Model(gpt2), ""),
        "GPT-2, cross": (transformers.GPT2Model(crossed), "cross"),
    }


def output_weight(model: nn.Module, layer: str) -> Tensor:
    """`(outputs, inputs)`, found by its name."""
    module = model.get_submodule(layer)
    for name in ("o_proj", "output"):
        if hasattr(module, name):
            return getattr(module, name).weight.detach()
    if hasattr(module, "c_proj"):
        return module.c_proj.weight.detach().T
    return model.get_submodule(layer.removesuffix("self") + "output.dense").weight.detach()


NAMES = ("BERT", "BERT, cross", "Llama", "Qwen 3", "GPT-2", "GPT-2, cross")


@pytest.mark.parametrize("name", NAMES)
def test_projections_of_families_are_known(name):
    model, crossing = transformers_models()[name]
    model = model.double().eval()
    inputs = {"input_ids": torch.randint(31, (2, 11)), "attention_mask": torch.ones(2, 11)}
    inputs["attention_mask"][1, 7:] = 0
    if crossing:
        inputs["encoder_hidden_states"] = torch.randn(2, 5, 24, dtype=torch.float64)
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(**inputs)
    found = norms(record, model)
    assert found.projected and {call.kind for call in found.calls} == (
        {"self", "cross"} if crossing else {"self"}
    )
    for call, seen in zip(found.calls, record, strict=True):
        check(call, seen, output_weight(model, seen.layer), 1e-10)


@pytest.mark.parametrize(
    "options", [{}, {"num_kv_heads": 2}, {"memory_dim": 17}, {"value_dim": 3, "qk_norm": "rms"}]
)
def test_projections_of_regards_layers(options):
    layer = rg.nn.MultiHeadAttention(24, 4, **options).double()
    memory = torch.randn(2, 11, 17, dtype=torch.float64) if "memory_dim" in options else None
    with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        layer(torch.randn(2, 13, 24, dtype=torch.float64), memory)
    (found,) = norms(record, layer).calls
    check(found, record[0], layer.output.weight.detach())
    assert not norms(record).projected


def test_what_a_head_gives_is_what_the_model_adds():
    """The outputs of a layer are sums of the vectors whose norms are measured; of one key each, it is theirs."""
    layer = rg.nn.MultiHeadAttention(24, 1, bias=False).double()
    x = torch.randn(1, 13, 24, dtype=torch.float64)
    with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        output = layer(x, mask=rg.near(0))
    (found,) = norms(record, layer).calls
    torch.testing.assert_close(found.by_query[0, 0], output[0].norm(dim=-1))


def test_what_is_unknown_between_heads_and_projection_is_not_projected():
    transformers = pytest.importorskip("transformers")
    config = transformers.BitNetConfig(
        vocab_size=31, hidden_size=24, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    model = transformers.BitNetModel(config).double().eval()
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(torch.randint(31, (1, 11)))
    found = norms(record, model)
    assert not found.projected
    check(found.calls[0], record[0], None, 1e-10)


def test_a_sink_with_short_values_is_told_by_its_ratio():
    call = call_of(mask=rg.causal())
    call.query[:], call.key[:] = 1.0, 0.0
    call.key[:, :, 0] = 2.0
    call.value[:, 0, 0] *= 1e-3 / call.value[:, 0, 0].norm(dim=-1, keepdim=True)
    table = norms(Record([call])).heads
    assert (table["first_mass"] > 0.9).all()
    short = table["head"] < 3
    assert (table.loc[short, "ratio"] < 0.05).all() and (table.loc[~short, "ratio"] > 0.5).all()
    want, weights = given(call, None), dense(call)
    share = want[..., 0].sum(2) / want.sum((2, 3))
    assert np.allclose(table["first_norm"], share.mean(0))
    assert np.allclose(table["ratio"], share.mean(0) / (weights[..., 0].sum(2) / weights.sum((2, 3))).mean(0))
    assert np.allclose(table["value_norm"], want.sum(3).mean((0, 2)))
    assert np.allclose(norms(Record([call])).table(-1)["first_mass"], (weights[..., -1].sum(2) / 13).mean(0))


def test_a_key_that_gets_nothing_has_no_ratio():
    call = call_of(mask=rg.causal() & ~rg.prefix(1))
    table = norms(Record([call])).heads
    assert (table["first_mass"] == 0).all() and table["ratio"].isna().all()


# --- one token -----------------------------------------------------------------------------------------------


def test_the_top_keys_of_a_token():
    calls = [call_of(layer=f"layers.{i}", mask=rg.causal()) for i in range(2)]
    record = Record(calls)
    for token in (0, 5, -1):
        table = token_norms(record, token, batch=1, top=4)
        for call in calls:
            want = given(call, None)[1, :, token]
            for head in range(6):
                rows = table[(table["layer"] == call.layer) & (table["head"] == head)]
                most = want[head].topk(min(4, token % 13 + 1))
                assert rows["key"].tolist() == most.indices.tolist()
                assert rows["rank"].tolist() == list(range(len(rows)))
                assert np.allclose(rows["norm"], most.values) and np.allclose(
                    rows["share"], most.values / want[head].sum()
                )
                assert np.allclose(rows["weight"] * rows["value_norm"], rows["norm"])


def test_the_other_text_has_keys_of_its_own():
    source = [call_of(11, 11, layer=f"encoder.layers.{i}.attention") for i in range(2)]
    target = [
        call_of(7, keys, kind=kind, layer=f"decoder.layers.0.{name}")
        for name, kind, keys in (("own", "self", 7), ("other", "cross", 11))
    ]
    record = Record([*source, *target])
    assert set(token_norms(record, -1)["layer"]) == {call.layer for call in target}
    found = token_norms(record, 10, text="source", top=11)
    assert set(found["layer"]) == {call.layer for call in source} and len(found) == 2 * 6 * 11
    assert np.allclose(found.groupby(["layer", "head"])["share"].sum(), 1)
    with pytest.raises(RecordError, match="no layers of the text that its cross-attention looks at"):
        token_norms(Record(target), 0, text="source")
    with pytest.raises(ArgumentError, match="text must be 'target' or 'source', got 'both'"):
        token_norms(record, 0, text="both")


def test_what_cannot_be_weighed_is_said():
    call = call_of()
    with pytest.raises(RecordError, match="no calls: there is nothing to weigh"):
        norms(Record())
    with pytest.raises(RecordError, match=r'were not kept: watch with keep="vectors"'):
        norms(Record([replace(call, query=None, key=None, value=None, spec=None)]))
    with pytest.raises(RecordError, match="layer: norms need the values, and this call has none"):
        norms(Record([replace(call, value=None)]))
    with pytest.raises(
        ArgumentError, match="model must be the one that was watched, and Linear has no module layer"
    ):
        norms(Record([call]), nn.Linear(2, 2))
    with pytest.raises(ArgumentError, match="map must be at least 1 cell a side, got 0"):
        norms(Record([call]), map=0)
    with pytest.raises(ArgumentError, match="key must be"):
        norms(Record([call])).table(13)
    with pytest.raises(ArgumentError, match="top must be"):
        token_norms(Record([call]), 0, top=0)


def test_values_are_kept_saved_and_merged(tmp_path):
    model = rg.models.DecoderForCausalLM(
        rg.models.DecoderConfig(
            vocab_size=11, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=16,
        )
    ).eval()  # fmt: skip
    ids = torch.randint(11, (1, 9))
    with torch.no_grad(), rg.watch(model, keep="vectors") as steps:
        written = model.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    with torch.no_grad(), rg.watch(model, keep="vectors") as whole:
        model(written[:, :-1])
    steps.save(tmp_path / "record")
    loaded = rg.load(tmp_path / "record")
    for call, other, again in zip(steps, whole, loaded, strict=True):
        torch.testing.assert_close(call.value, other.value)
        assert torch.equal(call.value, again.value)
    for one, two in zip(norms(steps, model).calls, norms(whole, model).calls, strict=True):
        assert one.projected
        torch.testing.assert_close(one.received, two.received, atol=1e-4, rtol=1e-4)
    assert rollout(loaded, -1).shares.shape == (1, 3, 13)


def test_values_that_a_sliding_cache_dropped_are_kept():
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        vocab_size=31, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=16, sliding_window=5,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(config).eval()
    with torch.no_grad(), rg.watch(model, keep="vectors") as steps:
        written = model.generate(
            torch.randint(31, (1, 7)), max_new_tokens=6, min_new_tokens=6, do_sample=False
        )
    with torch.no_grad(), rg.watch(model, keep="vectors") as whole:
        model(written[:, :-1])
    for call, other in zip(steps, whole, strict=True):
        assert call.steps == 6
        torch.testing.assert_close(call.value, other.value, atol=1e-5, rtol=1e-5)
    for one, two in zip(norms(steps, model).calls, norms(whole, model).calls, strict=True):
        torch.testing.assert_close(one.received, two.received, atol=1e-4, rtol=1e-4)


def test_long_texts_take_little_memory():
    call = call_of(4099, 4099, mask=rg.causal())
    (found,) = norms(Record([call]), map=16).calls
    torch.testing.assert_close(found.by_query.sum(-1), found.received.sum(-1))
    torch.testing.assert_close(found.mass.sum(-1), torch.full((2, 6), 4099.0, dtype=torch.float64))
