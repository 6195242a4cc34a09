"""A number that is not finite stops the run and is named, with the step and the tensor where it began."""

import pytest
import torch

from regard.errors import TrainingError
from regard.training import train
from training import tiny

POISON = tiny.VOCABULARY - 1  # a token that no text has


class Watched:
    """Stacks examples, and remembers in which batches there was poison."""

    def __init__(self):
        self.poisoned = []

    def __call__(self, examples):
        batch = {name: torch.stack([each[name] for each in examples]) for name in examples[0]}
        self.poisoned.append(bool((batch["input_ids"] == POISON).any()))
        return batch


def texts():
    """Texts of which the last has poison in it."""
    examples = tiny.texts(23)
    for example in examples:
        example["input_ids"] = example["labels"] = example["input_ids"].clamp(max=POISON - 1)
    examples[-1]["input_ids"] = examples[-1]["labels"] = examples[-1]["input_ids"].index_fill(
        0, torch.tensor([4]), POISON
    )
    return examples


def stopped(model, tmp_path, examples=None, **settings):
    """What is said, and at which step the first poison came."""
    collate = Watched()
    with pytest.raises(TrainingError) as error:
        train(
            model,
            tiny.recipe(**settings),
            texts() if examples is None else examples,
            collate=collate,
            folder=tmp_path,
            progress=False,
        )
    step = collate.poisoned.index(True) + 1 if True in collate.poisoned else 1
    return str(error.value), step


def poisoned(number):
    """A model in which the poison's embedding is `number`."""
    model = tiny.gpt(tie_word_embeddings=False)
    with torch.no_grad():
        model.transformer.wte.weight[POISON] = number
    return model


def test_an_activation_is_named_with_its_step(tmp_path):
    message, step = stopped(poisoned(3e38), tmp_path)
    assert message.startswith(
        f"step {step}: the loss must be finite, got nan; the first tensor that is not is "
    )
    assert "the output of transformer.h.0.ln_1 (LayerNorm): 24 NaN of 1,872 numbers" in message


def test_the_same_dropout_is_used_to_find_it(tmp_path):
    """A module that fails by chance fails again."""
    model = tiny.gpt()
    model.transformer.h[1].mlp.register_forward_hook(
        lambda _, __, out: out * (torch.nan if torch.rand(()) < 0.2 else 1.0) if model.training else out
    )
    message, _ = stopped(model, tmp_path, tiny.texts(23))
    assert "the first tensor that is not is the output of transformer.h.1.mlp (GPT2MLP): 1,872 NaN" in message


def test_a_gradient_is_named_with_its_step(tmp_path):
    """√|0 · x| is 0, and its derivative is 0/0."""
    model = tiny.gpt()
    model.transformer.h[1].mlp.act.register_forward_hook(lambda _, __, out: out + (out * 0).abs().sqrt())
    message, step = stopped(model, tmp_path, tiny.texts(23))
    assert message.startswith(
        f"step {step}: gradients must be finite, and are not; the first tensor that is not is "
    )
    assert "the gradient of the output of transformer.h.1.mlp.c_fc (Conv1D): 7,488 NaN of 7,488" in message


def test_a_part_of_a_split_batch_is_found(tmp_path):
    message, step = stopped(poisoned(3e38), tmp_path, gradient_accumulation_steps=2)
    assert message.startswith(f"step {(step + 1) // 2}: ")
    assert "the output of transformer.h.0.ln_1" in message


def test_gradient_checkpointing_and_mixed_precision_are_searched_too(tmp_path):
    settings = {"gradient_checkpointing": True, "precision": "bfloat16"}
    message, step = stopped(poisoned(3e38), tmp_path, **settings)
    assert message.startswith(f"step {step}: ") and "the output of transformer.h.0.ln_1" in message


def test_a_parameter_is_named(tmp_path):
    model = poisoned(torch.inf)
    message, step = stopped(model, tmp_path)
    assert message.startswith(
        f"step {step}: the loss must be finite, got nan; the parameter transformer.wte.weight is not"
    )
    assert message.endswith("24 infinite of 744 numbers. The update before made it so")


def test_a_learning_rate_that_is_too_large_is_found_in_the_parameters(tmp_path):
    message, _ = stopped(
        tiny.gpt(), tmp_path, tiny.texts(23), learning_rate=1e38, warmup_ratio=0, max_grad_norm=None
    )
    assert "step 2: the loss must be finite" in message


def test_an_input_is_named(tmp_path):
    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, features, labels):
            return {"loss": (self.layer(features)[:, 0] - labels).square().mean()}

    examples = [{"features": torch.ones(3), "labels": torch.tensor(1.0)} for _ in range(23)]
    examples[7]["features"] = torch.tensor([1.0, torch.nan, 1.0])
    with pytest.raises(
        TrainingError, match=r"step \d: the loss must .*; the input features is not: 1 NaN of 18"
    ):
        train(Regression(), tiny.recipe(), examples, folder=tmp_path, progress=False)


def test_a_run_that_stops_leaves_whole_checkpoints_and_no_trace(tmp_path):
    from regard.training import checkpoints

    model = tiny.gpt()
    seen = []
    model.transformer.h[0].register_forward_hook(
        lambda _, __, out: (seen.append(1), out * torch.nan if len(seen) > 7 else out)[1]
    )
    message, _ = stopped(model, tmp_path, tiny.texts(23))
    assert message.startswith("step 8: the loss must be finite")
    assert (
        list(checkpoints.steps(tmp_path)) == [5] and checkpoints.latest(tmp_path) == tmp_path / "checkpoint-5"
    )
    hooks = [len(module._forward_hooks) for module in model.modules()]
    assert sum(hooks) == 1 and not model.training
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
