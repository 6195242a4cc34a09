"""Training as a whole: looking leaves no trace, settings do what they say, what does not fit is said."""

import pytest
import torch
from transformers import GPT2LMHeadModel

import regard
from regard.errors import ArgumentError, TrainingError
from regard.training import History, Monitor, train
from training import tiny


def trained(folder, model=None, data=None, **settings):
    """A model, and how it was trained."""
    model = tiny.gpt() if model is None else model
    own = {"monitor", "evaluation", "tensorboard", "resume", "collate", "progress"} & settings.keys()
    given = {"progress": False} | {name: settings.pop(name) for name in own}
    return model, train(
        model, tiny.recipe(**settings), tiny.texts(23) if data is None else data, folder=folder, **given
    )


def test_looking_changes_nothing(tmp_path):
    """Weights and losses are the same bits with a monitor at every step and without one; dropout is on."""
    plain, one = trained(tmp_path / "plain", evaluation=tiny.texts(7, 1))
    monitored, other = trained(
        tmp_path / "monitored", monitor=tiny.monitor(), monitor_steps=1, evaluation=tiny.texts(7, 1)
    )
    assert tiny.same(tiny.weights(plain), tiny.weights(monitored))
    assert (one.losses, one.norms, one.evaluations) == (other.losses, other.norms, other.evaluations)
    assert one.history is None and other.history.steps == tuple(range(18))


def test_a_look_leaves_modes_and_random_states(tmp_path):
    model = tiny.gpt().train()
    model.transformer.h[0].eval()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    tiny.monitor().look(model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_the_history_is_that_of_the_model(tmp_path):
    before = tiny.monitor().look(tiny.gpt())
    model, run = trained(tmp_path, monitor=tiny.monitor())
    after = tiny.monitor().look(model)
    assert torch.equal(run.history.values[0], before.values[0])
    assert torch.equal(run.history.values[-1], after.values[0])
    kept = History.load(tmp_path / "history.safetensors")
    assert kept.steps == run.history.steps and torch.equal(kept.values, run.history.values)


def test_it_learns(tmp_path):
    _, run = trained(
        tmp_path,
        tiny.gpt(0.0),
        tiny.texts(5),
        max_steps=150,
        batch_size=5,
        learning_rate=1e-2,
        logging_steps=50,
        save_steps=None,
    )
    assert run.losses[1] > 3 > 0.3 > run.losses[150]


@pytest.mark.parametrize("changed", [{"gradient_accumulation_steps": 3}, {"gradient_checkpointing": True}])
def test_saving_memory_changes_nothing_but_rounding(tmp_path, changed):
    _, one = trained(tmp_path / "plain", tiny.gpt(0.0), max_steps=7)
    _, other = trained(tmp_path / "changed", tiny.gpt(0.0), max_steps=7, **changed)
    assert other.losses == pytest.approx(one.losses, rel=1e-5)


def test_bfloat16_is_near_float32_and_leaves_the_model_as_it_was(tmp_path):
    _, one = trained(tmp_path / "float32", tiny.gpt(0.0))
    model, other = trained(tmp_path / "bfloat16", tiny.gpt(0.0), precision="bfloat16", monitor=tiny.monitor())
    assert one.losses != other.losses
    assert other.losses == pytest.approx(one.losses, rel=0.02)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert "forward" not in vars(model) and "_original_forward" not in vars(model)
    assert model(**tiny.batch(2)).logits.dtype == torch.float32
    _, third = trained(tmp_path / "again", tiny.gpt(0.0))
    assert third.losses == one.losses


class OwnForCausalLM(GPT2LMHeadModel):
    """A model whose class transformers does not know."""


@pytest.mark.parametrize("kind", [GPT2LMHeadModel, OwnForCausalLM])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_is_that_of_the_formula(tmp_path, kind, smoothing):
    examples, model = tiny.texts(6), kind(tiny.gpt(0.0).config)
    model.load_state_dict(tiny.weights(tiny.gpt(0.0)))
    _, run = trained(tmp_path, model, examples, max_steps=1, label_smoothing_factor=smoothing)
    tokens = torch.stack([each["input_ids"] for each in examples])
    with torch.no_grad():
        logits = tiny.gpt(0.0).double()(tokens).logits[:, :-1].flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten(), label_smoothing=smoothing)
    assert run.losses[1] == pytest.approx(expected.item(), rel=1e-5)


def test_evaluation_is_the_mean_over_every_example(tmp_path):
    held = tiny.texts(7, 1)  # one more than a batch
    model, run = trained(tmp_path, evaluation=held, eval_steps=8)
    tokens = torch.stack([each["input_ids"] for each in held])
    with torch.no_grad():
        expected = model(input_ids=tokens, labels=tokens).loss.item()
    assert list(run.evaluations) == [8, 16, 17]
    assert run.evaluations[17] == pytest.approx(expected, rel=1e-5)


def test_decay_shrinks_matrices_and_nothing_else(tmp_path):
    """Where no gradient comes (the positions past every text), AdamW's decay is all there is."""
    short = [{name: x[:7] for name, x in text.items()} for text in tiny.texts(23)]
    settings = {
        "max_steps": 7,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_ratio": 0,
        "learning_rate": 0.01,
    }
    model, _ = trained(tmp_path, data=short, weight_decay=0.5, **settings)
    before, after = (each.transformer.wpe.weight[7:].detach() for each in (tiny.gpt(), model))
    assert torch.allclose(after, before * (1 - 0.5 * 0.01) ** 7, rtol=1e-5, atol=0)


def test_curves_are_written_for_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, run = trained(tmp_path, max_steps=7, tensorboard=True)
    (folder,) = (tmp_path / "runs").iterdir()
    events = EventAccumulator(str(folder)).Reload()
    assert {e.step: e.value for e in events.Scalars("train/loss")} == pytest.approx(run.losses)


def test_the_bar_is_one_line(tmp_path, capsys):
    trained(tmp_path, max_steps=7, progress=True)
    shown = capsys.readouterr().err
    assert "7/7" in shown and "loss 3." in shown and "{" not in shown and "shards" not in shown
    trained(tmp_path / "quiet", max_steps=7)
    quiet = capsys.readouterr()
    assert "7/7" not in quiet.err and "loss" not in quiet.out


def test_the_configuration_stays(tmp_path):
    model = tiny.gpt(use_cache=True)
    trained(tmp_path, model, max_steps=2, gradient_checkpointing=True)
    assert model.config.use_cache and not model.is_activation_checkpointing and not model.training


def test_any_module_that_returns_a_loss_will_do(tmp_path):
    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, features, labels):
            return {"loss": (self.layer(features)[:, 0] - labels).square().mean()}

    features = torch.randn(24, 3)
    data = [{"features": x, "labels": x.sum()} for x in features]
    settings = {
        "max_steps": 101,
        "learning_rate": 0.1,
        "logging_steps": 101,
        "save_steps": None,
        "weight_decay": 0.0,
    }
    _, run = trained(tmp_path, Linear(), data, **settings)
    assert run.losses[101] < run.losses[1]
    _, again = trained(tmp_path, Linear(), data, **settings)
    assert again.resumed == 101 and again.losses == run.losses


def test_an_encoder_trains_on_padded_texts_with_hidden_tokens(tmp_path):
    """As BERT does: the loss is over hidden tokens alone, and the history over real ones."""

    def collate(examples):
        lengths = torch.tensor([5 + int(each["input_ids"][0]) % 7 for each in examples])
        mask = (torch.arange(tiny.LENGTH) < lengths[:, None]).long()
        tokens = torch.stack([each["input_ids"] for each in examples])
        hidden = (torch.rand(tokens.shape) < 0.3) & mask.bool()
        labels = tokens.masked_fill(~hidden, -100)
        return {"input_ids": tokens.masked_fill(hidden, 0) * mask, "attention_mask": mask, "labels": labels}

    inputs = {name: x for name, x in collate(tiny.texts(5, 3)).items() if name != "labels"}
    _, run = trained(
        tmp_path, tiny.bert(), collate=collate, monitor=Monitor(inputs), evaluation=tiny.texts(7, 1)
    )
    assert len(run.losses) == 17 and 17 in run.evaluations
    lengths = inputs["attention_mask"].sum(1).double()
    most = (lengths * lengths.log()).sum() / lengths.sum()  # of each real query, over the real keys
    assert run.history.of_statistic("entropy")[0].mean().item() == pytest.approx(most.item(), rel=0.01)
    assert all(run.history.maps[0][0, :, -1].sum(-1) == 0)


def test_the_package_is_found_when_it_is_asked_for():
    assert regard.training.train is train


def test_printing_is_short(tmp_path):
    _, run = trained(tmp_path, max_steps=2, evaluation=tiny.texts(7, 1))
    assert repr(run).startswith("Run of 2 steps: loss 3.4") and ", evaluation 3." in repr(run)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"data": ()}, ArgumentError, "data must have at least one example, got none"),
        ({"evaluation": ()}, ArgumentError, "evaluation must have at least one example, got none"),
        ({"data": iter([1])}, ArgumentError, "data must have a length, got list_iterator"),
        ({"evaluation": iter([1])}, ArgumentError, "evaluation must have a length, got list_iterator"),
        (
            {"eval_steps": 3},
            ArgumentError,
            "must be given when eval_steps is set, got eval_steps=3",
        ),
        (
            {"resume": "none"},
            TrainingError,
            'resume must be "auto", "never" or the folder of a checkpoint, got \'none\'',
        ),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, settings, error, message):
    with pytest.raises(error, match=message):
        trained(tmp_path, **settings)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inputs": [1]}, "inputs must be a mapping such as a dict, got \\[1\\]"),
        ({"inputs": {}}, "inputs must be the keyword arguments of the model, tensors among them, got dict"),
        ({"cells": -1}, "cells must be at least 0, got -1"),
        ({"pictures": 1}, "pictures must be at least 2, the first and the last, got 1"),
        ({"statistics": ("entrop",)}, "unknown statistic 'entrop'; did you mean 'entropy'"),
    ],
)
def test_a_bad_monitor_is_said(changed, message):
    with pytest.raises(ArgumentError, match=message):
        Monitor(**({"inputs": tiny.batch(2)} | changed))
