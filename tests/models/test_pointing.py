"""The model that points: its expected gain and gradient against a softmax in float64, and what a watch sees of it."""

import copy

import pytest
import torch
import transformers
from torch.testing import assert_close

import regard as rg
from models.small import BATCH, PAD, POSITIONS, SOURCE, VOCABULARY, ids, labeled, model_of, padded
from regard.errors import MaskError, ShapeError
from regard.models import EncoderConfig, EncoderForPointing

LENGTHS = (SOURCE, 4, 7)


def weights(model, hidden, places):
    """The softmax that the pointer stands for, `(batch, tokens)`."""
    scores = model.pointer.key(hidden) @ model.pointer.query / hidden.shape[2] ** 0.5
    return scores.masked_fill(~places, -torch.inf).softmax(-1)


def by_hand(model, inputs):
    """A float64 copy of a model, its hidden states and its weights."""
    double = copy.deepcopy(model).double()
    hidden = double.encoder(inputs["input_ids"], inputs.get("attention_mask")).last_hidden_state
    return double, hidden, weights(double, hidden, inputs["places"])


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_gain_loss_and_gradients_are_those_of_a_softmax(dtype, near):
    model, inputs = model_of("point").to(dtype), labeled("point")
    double, _, weight = by_hand(model, inputs)
    gained = (weight * inputs["labels"]).sum(1)
    out = model(**inputs)
    assert_close(out.gained.double(), gained, rtol=near, atol=near)
    assert_close(out.loss.double(), -gained.mean(), rtol=near, atol=near)
    assert gained.std() > 0.01
    out.loss.backward()
    (-gained.mean()).backward()
    for (name, parameter), other in zip(model.named_parameters(), double.parameters(), strict=True):
        largest = other.grad.abs().max().item()
        assert largest > 0, name
        assert_close(parameter.grad.double(), other.grad, rtol=10 * near, atol=near * max(largest, 1))


def test_without_gains_the_states_are_read():
    model, inputs = model_of("point"), labeled("point")
    _, hidden, weight = by_hand(model, inputs)
    del inputs["labels"]
    out = model(**inputs)
    assert out.loss is None and out.gained is None
    assert_close(out.pooled.double(), (weight[..., None] * hidden).sum(1), rtol=1e-4, atol=1e-4)


def test_places_alone_are_chosen_from():
    model, inputs = model_of("point"), labeled("point")
    want = model(**inputs).gained
    elsewhere = inputs["labels"] + ~inputs["places"] * 1e6
    assert torch.equal(model(**inputs | {"labels": elsewhere}).gained, want)
    only = torch.zeros(BATCH, SOURCE, dtype=torch.bool)
    only[range(BATCH), [0, 4, 9]] = True
    assert_close(model(**inputs | {"places": only}).gained, inputs["labels"][only])
    assert_close(
        model(**inputs | {"labels": torch.full((BATCH, SOURCE), 0.25)}).gained, torch.full((BATCH,), 0.25)
    )


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_changes_nothing(positions, side):
    model, inputs = model_of("point", position_embedding_type=positions), labeled("point")
    mask = padded(LENGTHS, side)
    real = mask.bool()
    inputs["places"] = (inputs["places"] | (torch.arange(SOURCE) % 3 == 0)) & real
    gained = model(**inputs, attention_mask=mask).gained
    changed = inputs | {"input_ids": inputs["input_ids"].masked_fill(~real, PAD)}
    assert torch.equal(model(**changed, attention_mask=mask).gained, gained)
    for row in range(BATCH):
        alone = {name: tensor[row, real[row]][None] for name, tensor in inputs.items()}
        assert_close(gained[row], model(**alone).gained[0], rtol=1e-4, atol=1e-4)


def test_a_watch_sees_one_query_that_crosses():
    model, inputs = model_of("point"), labeled("point")
    _, _, weight = by_hand(model, inputs)
    plain = model(**inputs).gained
    with rg.watch(model, statistics=("entropy", "argmax"), keep="vectors") as record:
        assert torch.equal(model(**inputs).gained, plain)
    last = record.calls[-1]
    assert [call.kind for call in record.calls] == ["self", "self", "cross"]
    assert (last.layer, last.sizes.heads, last.sizes.queries, last.sizes.keys) == ("pointer", 1, 1, SOURCE)
    for row in range(BATCH):
        assert_close(last.weights(0, batch=row)[0].double(), weight[row], rtol=1e-4, atol=1e-6)
    assert torch.equal(last.argmax[:, 0, 0].long(), weight.argmax(1))
    want = -torch.special.xlogy(weight, weight).sum(1)
    assert_close(record["pointer"].rows("entropy")[:, 0, 0].double(), want, rtol=1e-4, atol=1e-4)
    with rg.watch(model, layers="pointer") as without:
        model(inputs["input_ids"], inputs["places"])
    assert_close(without["pointer"].rows("entropy"), record["pointer"].rows("entropy"))


def test_accumulated_batches_are_one_batch(tmp_path):
    pytest.importorskip("accelerate")
    inputs, found = labeled("point"), []
    data = [{name: tensor[i] for name, tensor in inputs.items()} for i in (0, 1)]
    for size, parts in ((2, 1), (1, 2)):
        torch.manual_seed(3)
        model = model_of("point").train()
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=parts,
            max_steps=1,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            logging_strategy="no",
        )
        transformers.Trainer(model, arguments, train_dataset=data).train()
        found.append(model.pointer.key.weight.detach().clone())
    assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"places": torch.ones(BATCH, 5, dtype=torch.bool)},
            ShapeError,
            r"places must be \(3, 11\), got \(3, 5\)",
        ),
        ({"labels": torch.ones(BATCH, SOURCE, 1)}, ShapeError, r"labels must be \(3, 11\), got \(3, 11, 1\)"),
        ({"input_ids": torch.ones(SOURCE, dtype=torch.long)}, ShapeError, r"places must be \(11,\), got"),
        ({"places": torch.ones(BATCH, SOURCE)}, MaskError, "bool"),
    ],
)
def test_what_must_hold(changed, error, message):
    with pytest.raises(error, match=message):
        model_of("point")(**labeled("point") | changed)


def test_it_learns_to_point_at_a_marked_token():
    marked, rows, tokens = 3, 64, 13
    model = EncoderForPointing(
        EncoderConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_attention_heads=4,
            num_hidden_layers=1,
            dropout=0.0,
            pad_token_id=PAD,
        )
    )

    def batch():
        read, places = ids(tokens, rows), torch.rand(rows, tokens) < 0.5
        read[read == marked] += 1
        where = torch.randint(0, tokens, (rows,))
        read[range(rows), where] = marked
        places[range(rows), where] = True
        return {"input_ids": read, "places": places, "labels": (read == marked).float()}, where

    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    first = model(**batch()[0]).gained.mean().item()
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch()[0]).loss.backward()
        optimizer.step()
    fresh, where = batch()
    with rg.watch(model.eval(), layers="pointer", statistics=("argmax",)) as record:
        gained = model(**fresh).gained
    assert first < 0.4 and gained.mean() > 0.9
    assert torch.equal(record.calls[0].argmax[:, 0, 0].long(), where)
