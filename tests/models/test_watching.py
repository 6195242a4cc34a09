"""What a watch sees of the models: layers by name, self and cross, with the entropies of float64."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import regard as rg
from models.small import BATCH, DEPTH, HEADS, SOURCE, TARGET, given, ids, labeled, model_of, padded
from regard.nn import MultiHeadAttention

LENGTHS = (SOURCE, 4, 7)
OWN = [f"decoder.stack.layers.{i}.attention" for i in range(DEPTH)]
CROSSING = [f"decoder.stack.layers.{i}.crossing" for i in range(DEPTH)]
ENCODER = [f"encoder.stack.layers.{i}.attention" for i in range(DEPTH)]
BOTH = [(name, "self") for name in ENCODER] + [
    (f"decoder.stack.layers.{i}.{name}", kind)
    for i in range(DEPTH)
    for name, kind in (("attention", "self"), ("crossing", "cross"))
]


def entropy(scores: Tensor, keep: Tensor) -> Tensor:
    """Of the softmax in float64; 0 where nothing may be attended."""
    weights = scores.double().masked_fill(~keep, -torch.inf).softmax(-1).nan_to_num()
    return -torch.special.xlogy(weights, weights).sum(-1)


class Truth:
    """Entropies of a model with positions added to its embeddings, from what its attention layers are given."""

    def __init__(self, model) -> None:
        self.rows: dict[str, Tensor] = {}
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                module.register_forward_pre_hook(self.hook(name), with_kwargs=True)

    def hook(self, name):
        def look(module, args, kwargs):
            x, source = args[0].double(), (args[1] if len(args) > 1 else args[0]).double()
            weight, bias = module.qkv.weight.double(), module.qkv.bias.double()
            width = module.embed_dim
            q = (x @ weight[:width].T + bias[:width]).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            k = source @ weight[width : 2 * width].T + bias[width : 2 * width]
            k = k.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
            for mask in (module.mask, kwargs.get("mask")):
                if mask is not None:
                    keep = keep & mask.dense(q.shape[2], k.shape[2], offset=0, batch=BATCH)
            self.rows[name] = entropy(q @ k.mT / q.shape[3] ** 0.5, keep)

        return look


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "kind, want",
    [
        ("masked", [(f"encoder.{name}", "self") for name in (e.removeprefix("encoder.") for e in ENCODER)]),
        ("decoder", [(name, "self") for name in OWN]),
        ("text", BOTH),
        ("image", BOTH),
    ],
)
def test_every_head_with_the_entropies_of_float64(kind, want, side):
    model, inputs = model_of(kind), labeled(kind)
    if kind != "image":
        inputs["attention_mask"] = padded(LENGTHS, side)
    plain = model(**inputs).logits
    truth = Truth(model)
    with rg.watch(model) as record:
        assert torch.equal(model(**inputs).logits, plain)
    assert [(call.layer, call.kind) for call in record.calls] == want
    assert len(record.heads) == len(want) * HEADS
    for name, _ in want:
        assert_close(record[name].rows("entropy").double(), truth.rows[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
def test_steps_of_generation_are_one_text(positions):
    model, read = model_of("decoder", position_embedding_type=positions), ids(SOURCE)
    mask = padded(LENGTHS, "left")
    with rg.watch(model) as steps:
        said = model.generate(read, attention_mask=mask, max_new_tokens=6, do_sample=False, eos_token_id=None)
    with rg.watch(model) as once:
        model(said[:, :-1], attention_mask=torch.cat((mask, torch.ones(BATCH, 5).long()), 1))
    assert [call.layer for call in steps.calls] == OWN
    for name in OWN:
        for statistic in ("entropy", "distance", "max_weight"):
            got, want = (record[name].rows(statistic) for record in (steps, once))
            assert_close(got, want, rtol=1e-3, atol=1e-4)
        assert_close(steps[name].received, once[name].received, rtol=1e-3, atol=1e-3)


def test_generation_from_a_source_is_seen():
    model, read = model_of("text"), given("text")
    with rg.watch(model) as steps:
        said = model.generate(**read, max_new_tokens=6, do_sample=False, eos_token_id=None)
    with rg.watch(model) as once:
        model(**read, decoder_input_ids=said[:, :-1])
    assert {(call.layer, call.kind) for call in steps.calls} == set(BOTH)
    for name in (*ENCODER, *OWN, *CROSSING):
        assert_close(steps[name].rows("entropy"), once[name].rows("entropy"), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("order", ["bahdanau", "luong"])
@pytest.mark.parametrize("score", ["additive", "concat", "general", "dot"])
def test_alignments_of_recurrent_models(score, order):
    model = model_of("recurrent", score=score, order=order, bidirectional=score != "dot")
    read, mask = ids(SOURCE), padded(LENGTHS, "right")
    targets = ids(TARGET)
    source = model.encoder(read, mask).last_hidden_state.double()
    asking = []

    class Kept(torch.nn.Module):
        """The score function, with the states that asked it."""

        def __init__(self, inner):
            super().__init__()
            self.inner, self.prepare = inner, inner.prepare

        def project(self, key):
            return self.inner.project(key)

        def compare(self, query, projected):
            asking.append(query.detach())
            return self.inner.compare(query, projected)

    inner = model.decoder.score
    model.decoder.score = Kept(inner)
    model(read, mask, targets)
    model.decoder.score = inner
    with rg.watch(model) as record:
        model(read, mask, targets)
    assert [(call.layer, call.kind) for call in record.calls] == [("decoder", "cross")]
    assert len(record.heads) == 1
    scores = inner.double()(torch.cat(asking, 2).double(), source[:, None])
    want = entropy(scores, mask[:, None, None].bool())
    assert want.shape == (BATCH, 1, TARGET)
    assert_close(record["decoder"].rows("entropy").double(), want, rtol=1e-4, atol=1e-4)


def test_without_attention_there_is_nothing_to_see():
    model = model_of("recurrent", score=None)
    with pytest.raises(rg.RegardError, match="no attention call was seen"), rg.watch(model):
        model(**labeled("recurrent"))
