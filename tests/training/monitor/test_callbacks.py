"""A monitor as a callback of transformers' Trainer, of Lightning, and of our own runs."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from regard.errors import TrainingError
from regard.training import History, Monitor, train
from training import tiny


def trainer(folder, callbacks=(), **settings):
    model = tiny.gpt()
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=7, per_device_train_batch_size=3, gradient_accumulation_steps=2,
        learning_rate=1e-2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, eval_strategy="steps",
        eval_steps=2, **settings,
    )  # fmt: skip
    Trainer(
        model=model, args=arguments, train_dataset=tiny.texts(23), eval_dataset=tiny.texts(4, 1),
        callbacks=list(callbacks),
    ).train()  # fmt: skip
    return tiny.weights(model)


def test_trainer(tmp_path):
    plain = trainer(tmp_path / "plain")
    monitor = Monitor(every=3)
    assert tiny.same(plain, trainer(tmp_path / "monitored", [monitor.trainer_callback()]))
    assert monitor.history.steps == (0, 3, 6)


def lightning_run(folder, callbacks=(), **settings):
    import lightning.pytorch as lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = tiny.gpt()

        def training_step(self, batch, _):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    module = Module()
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(tiny.texts(23), batch_size=3)
    lightning.Trainer(
        max_steps=7, accumulate_grad_batches=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, callbacks=list(callbacks),
        **settings,
    ).fit(module, loader)  # fmt: skip
    return tiny.weights(module.model)


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path):
    plain = lightning_run(tmp_path)
    monitor = Monitor(every=3)
    assert tiny.same(plain, lightning_run(tmp_path, [monitor.lightning_callback()]))
    assert monitor.history.steps == (0, 3, 6)
    assert [layer.name for layer in monitor.history.layers] == [
        f"model.transformer.h.{i}.attn" for i in (0, 1)
    ]


def test_our_own_runs(tmp_path):
    model, monitor = tiny.gpt(), Monitor()
    run = train(
        model, tiny.recipe(monitor_steps=6), tiny.texts(23), folder=tmp_path, monitor=monitor, progress=False
    )
    # Watched are the passes before an update, of which the last one has none after it.
    assert run.history.steps == (0, 6, 12) and run.history is monitor.history
    assert History.load(tmp_path / "history.safetensors").steps == (0, 6, 12)
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_an_alarm_ends_a_run_and_leaves_no_hook(tmp_path):
    model = tiny.gpt()
    monitor = Monitor(on_alarm="raise", rules=[rule()])
    with pytest.raises(TrainingError, match="step 0: any score in transformer.h.0.attn, head 0"):
        train(model, tiny.recipe(), tiny.texts(23), folder=tmp_path, monitor=monitor, progress=False)
    assert not model._forward_hooks


def rule():
    from regard.training import Rule

    return Rule("any score", "largest_score", -1e9)
