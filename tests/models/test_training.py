"""Checkpoints, Trainer with its collators and label smoothing, pipelines, other types."""

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch.testing import assert_close

import regard as rg
from models.small import (
    BATCH,
    IGNORED,
    KINDS,
    PAD,
    SOURCE,
    VOCABULARY,
    given,
    ids,
    labeled,
    model_of,
    padded,
)


@pytest.mark.parametrize("kind", ["masked", "decoder", "text", "image"])
def test_checkpoints_change_no_gradient(kind):
    model, inputs = model_of(kind, dropout=0.1).train(), labeled(kind)

    def gradients():
        model.zero_grad()
        torch.manual_seed(7)
        model(**inputs).loss.backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    want = gradients()
    model.activation_checkpointing_enable()
    layers = [part for part in model.modules() if isinstance(part, rg.nn.EncoderLayer | rg.nn.DecoderLayer)]
    assert layers and all(layer.checkpoint for layer in layers) and model.is_activation_checkpointing
    for name, gradient in gradients().items():
        assert_close(gradient, want[name], rtol=1e-4, atol=1e-5)
    model.activation_checkpointing_disable()
    assert not any(layer.checkpoint for layer in layers) and not model.is_activation_checkpointing


def test_every_second_layer_may_be_checkpointed():
    model = model_of("decoder", num_hidden_layers=3)
    model.activation_checkpointing_enable(every_n_layers=2)
    assert [layer.checkpoint for layer in model.decoder.stack.layers] == [True, False, True]


def test_states_have_no_layers_to_checkpoint():
    with pytest.raises(ValueError, match="does not support activation checkpointing"):
        model_of("recurrent").activation_checkpointing_enable()


# --- Trainer -----------------------------------------------------------------------------------------------


def rows(inputs):
    """A batch as a list of examples."""
    return [{name: tensor[i] for name, tensor in inputs.items()} for i in range(BATCH)]


def trainer(model, folder, data, collate=None, **how):
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        **({"max_steps": 4, "learning_rate": 1e-3} | how),
    )
    return transformers.Trainer(model, arguments, collate, train_dataset=data, eval_dataset=data)


@pytest.mark.parametrize("kind", KINDS)
def test_trainer_trains_and_evaluates(kind, tmp_path):
    made = trainer(
        model_of(kind).train(), tmp_path, rows(labeled(kind)), activation_checkpointing=kind != "recurrent"
    )
    before = made.evaluate()["eval_loss"]
    made.train()
    assert made.evaluate()["eval_loss"] < before


@pytest.mark.parametrize("kind", ["masked", "decoder", "text", "image", "recurrent"])
def test_trainer_smooths_labels(kind, tmp_path):
    model, inputs = model_of(kind), labeled(kind)
    inputs["labels"][1, 5:] = IGNORED
    logits, labels = model(**inputs).logits, inputs["labels"]
    if kind in ("text", "image", "recurrent"):
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
    if kind == "decoder":
        logits, labels = logits[:, :-1], labels[:, 1:]
    want = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=0.2)
    made = trainer(model, tmp_path, rows(inputs), label_smoothing_factor=0.2)
    assert_close(made.compute_loss(model, inputs), want, rtol=1e-4, atol=1e-4)


def test_accumulated_batches_are_one_batch(tmp_path):
    """Batches with unequal numbers of labels weigh by their labels, not by their number."""
    losses = []
    inputs = labeled("text")
    inputs["labels"][1, 2:] = IGNORED
    data = [{name: tensor[i] for name, tensor in inputs.items()} for i in (0, 1)]
    for size, steps in ((2, 1), (1, 2)):
        torch.manual_seed(3)
        model = model_of("text").train()
        how = {"gradient_accumulation_steps": steps, "max_steps": 1, "optim": "sgd", "learning_rate": 0.1}
        made = trainer(model, tmp_path, data, **how)
        made.args.per_device_train_batch_size = size
        made.train()
        losses.append(model.lm_head.weight.detach().clone())
    assert_close(*losses, rtol=1e-4, atol=1e-5)


def tokenizer():
    """A tokenizer of words w0 to w25, with the special tokens first."""
    tokenizers = pytest.importorskip("tokenizers")
    special = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
    words = {word: i for i, word in enumerate((*special, *(f"w{i}" for i in range(VOCABULARY - 5))))}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        padding_side="left",
    )


@pytest.mark.parametrize("kind", ["decoder", "masked"])
def test_the_collator_of_language_models(kind, tmp_path):
    collate = transformers.DataCollatorForLanguageModeling(tokenizer(), mlm=kind == "masked")
    data = [{"input_ids": ids(length, 1)[0].tolist()} for length in (5, SOURCE, 7, 3)]
    batch = collate(data)
    assert batch["labels"].eq(IGNORED).any() and batch["attention_mask"].eq(0).any()
    made = trainer(model_of(kind).train(), tmp_path, data, collate)
    made.train()
    assert made.evaluate()["eval_loss"] > 0


def test_the_collator_of_sequences_to_sequences(tmp_path):
    model = model_of("text").train()
    collate = transformers.DataCollatorForSeq2Seq(tokenizer(), model=model)
    data = [
        {"input_ids": ids(length, 1)[0].tolist(), "labels": ids(12 - length, 1)[0].tolist()}
        for length in (5, 9)
    ]
    batch = collate(data)
    assert (
        batch["decoder_input_ids"].shape == batch["labels"].shape
        and (batch["decoder_input_ids"] >= PAD).all()
    )
    made = trainer(model, tmp_path, data, collate, label_smoothing_factor=0.1)
    made.train()
    assert made.evaluate()["eval_loss"] > 0


def test_pipelines_run():
    words = tokenizer()
    writer = transformers.pipeline("text-generation", model=model_of("decoder"), tokenizer=words)
    assert writer("w1 w2", max_new_tokens=3, do_sample=False)[0]["generated_text"].startswith("w1 w2")
    filler = transformers.pipeline("fill-mask", model=model_of("masked"), tokenizer=words)
    assert len(filler("w1 <mask> w3", top_k=2)) == 2


def test_generation_in_other_types():
    for kind in ("decoder", "text", "image", "recurrent"):
        model, read = model_of(kind).bfloat16(), given(kind)
        if kind != "image":
            read["attention_mask"] = padded((SOURCE, 4, 7), "right" if kind == "recurrent" else "left")
        assert model.generate(**read, max_new_tokens=3, do_sample=False).dtype == torch.int64
