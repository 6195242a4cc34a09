"""A recipe says everything about a training, as JSON too, and Trainer does what it says."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.training import Recipe, train
from training import tiny

WARMUP, STEPS, PEAK = 3, 17, 0.007


def decayed(schedule: str, step: int) -> float:
    """The part of the learning rate that is left for the update after `step` of them, by the textbook."""
    if step < WARMUP:
        return step / WARMUP
    part = (step - WARMUP) / (STEPS - WARMUP)
    return {
        "cosine": (1 + math.cos(math.pi * part)) / 2,
        "linear": 1 - part,
        "inverse_sqrt": math.sqrt(WARMUP / step),
        "constant_with_warmup": 1.0,
    }[schedule]


@pytest.mark.parametrize("schedule", ["cosine", "linear", "inverse_sqrt", "constant_with_warmup"])
def test_the_learning_rate_follows_the_schedule(schedule, tmp_path):
    recipe = tiny.recipe(
        lr_scheduler_type=schedule, warmup_ratio=WARMUP / STEPS, learning_rate=PEAK, save_steps=None
    )
    run = train(tiny.gpt(layers=1), recipe, tiny.texts(23), folder=tmp_path, progress=False)
    expected = {step + 1: PEAK * decayed(schedule, step) for step in range(STEPS)}
    assert run.rates == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_the_arguments_say_what_the_recipe_says(tmp_path):
    recipe = Recipe(
        max_steps=101, batch_size=22, gradient_accumulation_steps=2, weight_decay=0.03,
        adam_beta1=0.8, adam_beta2=0.97, max_grad_norm=None, label_smoothing_factor=0.2,
        precision="bfloat16", gradient_checkpointing=True, seed=11, logging_steps=7, save_steps=13, eval_steps=5,
        save_total_limit=3,
    )  # fmt: skip
    made = recipe.arguments(tmp_path, evaluate=True, tensorboard=True)
    wanted = {
        "max_steps": 101, "per_device_train_batch_size": 11, "gradient_accumulation_steps": 2, "weight_decay": 0.03,
        "adam_beta1": 0.8, "adam_beta2": 0.97, "max_grad_norm": 0.0, "label_smoothing_factor": 0.2, "bf16": True,
        "activation_checkpointing": True, "seed": 11, "logging_steps": 7, "save_steps": 13,
        "eval_steps": 5, "save_total_limit": 3, "report_to": ["tensorboard"], "warmup_steps": 5,
    }  # fmt: skip
    assert {name: getattr(made, name) for name in wanted} == wanted
    assert "adamw" in made.optim


def test_a_recipe_is_saved_as_json_and_loaded(tmp_path):
    recipe = tiny.recipe(lr_scheduler_type="linear", max_grad_norm=None, monitor_steps=7)
    recipe.save(tmp_path / "recipe.json")
    assert Recipe.load(tmp_path / "recipe.json") == recipe
    assert json.loads((tmp_path / "recipe.json").read_text())["learning_rate"] == recipe.learning_rate


@given(steps=st.integers(1, 10**6), every=st.integers(1, 10**5))
def test_looks_begin_at_0_and_end_at_the_end(steps, every):
    for looks in (
        Recipe(max_steps=steps).monitored_steps,
        Recipe(max_steps=steps, monitor_steps=max(every, steps // 99)).monitored_steps,
    ):
        assert looks[0] == 0 and looks[-1] == steps
        assert list(looks) == sorted(set(looks))


def test_the_log_grid_is_four_while_the_steps_double():
    looks = Recipe(max_steps=1000).monitored_steps
    assert looks[:9] == (0, 1, 2, 3, 4, 5, 6, 7, 8)
    for low in (8, 16, 32, 64, 128, 256):
        assert sum(low < monitor <= 2 * low for monitor in looks) == 4


def test_an_even_grid_is_even():
    assert Recipe(max_steps=17, monitor_steps=5).monitored_steps == (0, 5, 10, 15, 17)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1, got 0"),
        ({"max_steps": True}, "max_steps must be a whole number of at least 1, got True"),
        ({"batch_size": 2.0}, "batch_size must be a whole number of at least 1, got 2.0"),
        (
            {"batch_size": 7, "gradient_accumulation_steps": 2},
            "batch_size must be a multiple of gradient_accumulation_steps, got 7 in 2 parts",
        ),
        ({"learning_rate": 0}, "learning_rate must be a number, positive, got 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a number, positive, got nan"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, positive, got 'fast'"),
        (
            {"lr_scheduler_type": "cosin"},
            "lr_scheduler_type must be one of 'cosine', 'linear', .*, got 'cosin'",
        ),
        ({"warmup_ratio": 1.0}, "warmup_ratio must be a number, 0 ≤ warmup_ratio < 1, got 1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be a number, 0 ≤ weight_decay < inf, got -0.1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be a number, positive or None, got 0.0"),
        (
            {"label_smoothing_factor": 1},
            "label_smoothing_factor must be a number, 0 ≤ label_smoothing_factor < 1, got 1",
        ),
        ({"precision": "float16"}, "precision must be one of 'float32', 'bfloat16', got 'float16'"),
        ({"gradient_checkpointing": 1}, "gradient_checkpointing must be True or False, got 1"),
        ({"save_steps": 0}, "save_steps must be a whole number of at least 1 or None, got 0"),
        (
            {"monitor_steps": "often"},
            "monitor_steps must be a whole number of at least 1 or \"log\", got 'often'",
        ),
        ({"save_total_limit": 1}, "save_total_limit must be a whole number of at least 2, got 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_bad_values_are_named(changed, message):
    with pytest.raises(ArgumentError, match=message):
        tiny.recipe(**changed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no recipe that can be read"),
        ("[1]", "is no recipe of Regard"),
        ('{"format": "regard-recipe", "version": 2}', "has format version 2, this Regard reads 1"),
        (
            '{"format": "regard-recipe", "version": 1, "max_step": 3}',
            "no setting 'max_step'; did you mean 'max_steps'",
        ),
        ('{"format": "regard-recipe", "version": 1, "seed": 3}', "max_steps must be there, got seed"),
        ('{"format": "regard-recipe", "version": 1, "max_steps": -3}', "max_steps must be a whole number"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, message):
    path = tmp_path / "recipe.json"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=f"recipe.json: {message}"):
        Recipe.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ArgumentError, match="none.json: there is no such file"):
        Recipe.load(tmp_path / "none.json")


def test_a_batch_that_devices_cannot_share_is_an_error(tmp_path, monkeypatch):
    from transformers import TrainingArguments

    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda _: 5))
    with pytest.raises(
        ArgumentError,
        match="batch_size must be a multiple of devices × gradient_accumulation_steps, got 6 for 5 × 2",
    ):
        tiny.recipe(gradient_accumulation_steps=2).arguments(tmp_path)


def test_biases_and_norms_have_no_weight_decay(tmp_path):
    """One update without a gradient of the loss would shrink what decays and nothing else: read it off the groups."""
    from transformers import Trainer

    for model in (tiny.gpt(), tiny.bert()):
        trainer = Trainer(model=model, args=tiny.recipe(weight_decay=0.3).arguments(tmp_path))
        groups = trainer.create_optimizer().param_groups
        decaying = {id(p) for group in groups if group["weight_decay"] == 0.3 for p in group["params"]}
        still = {id(p) for group in groups if group["weight_decay"] == 0.0 for p in group["params"]}
        norms = {id(p) for m in model.modules() if isinstance(m, torch.nn.LayerNorm) for p in m.parameters()}
        biases = {id(p) for name, p in model.named_parameters() if name.endswith("bias")}
        assert still == norms | biases
        assert decaying == {id(p) for p in model.parameters()} - still
