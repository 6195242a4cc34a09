"""`regard check` on real models and on ill ones: what it prints, its exit status, JSON, pages and mistakes."""

import json

import pytest
import torch

import regard as rg
from helpers.ill_heads import Layer, Model, batches, noise

TEXTS = "def add(a, b):\n    return a + b\n\nfor name in names:\n    print(name, len(name))\n"


@pytest.fixture(scope="module")
def uniform(tmp_path_factory):
    """A decoder all of whose heads are uniform, as its queries are zero."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(rg.embedded.folder())
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, intermediate_size=31, max_position_embeddings=128,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    folder = tmp_path_factory.mktemp("uniform")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_the_embedded_model_is_healthy(regard):
    status, out, err = regard("check")
    assert (status, err) == (0, "")
    assert "32 attention heads, 1 text" in out and "sink" in out
    assert "severe" not in out and "warning" not in out
    assert "Looked for: broken causality" in out


def test_an_ill_model_ends_with_status_1(regard, uniform):
    status, out, _ = regard("check", uniform)
    assert status == 1 and "vanishing" in out and "severe" in out
    assert regard("check", uniform, "--fail-on", "never")[0] == 0


def test_fail_on_is_a_bound(regard):
    assert [regard("check", "language", "--fail-on", bound)[0] for bound in ("warning", "note")] == [0, 1]


def test_json_stands_alone_on_standard_output(regard, tmp_path):
    (tmp_path / "texts.txt").write_text(TEXTS)
    status, out, err = regard("check", "language", "--texts", "texts.txt", "--json", "-")
    body = json.loads(out)
    assert status == 0 and body["texts"] == 2 and body["heads"] == 32
    assert "Looked for" in err
    assert regard("check", "language", "--texts", "texts.txt", "--json", "deep/f.json")[0] == 0
    again = json.loads((tmp_path / "deep" / "f.json").read_text())
    assert again["findings"] == body["findings"]


def test_a_report_is_written(regard, uniform, tmp_path):
    regard("check", uniform, "a text of some tokens, more than eight of them", "--report", "deep/page.html")
    page = (tmp_path / "deep" / "page.html").read_text()
    assert "Vanishing" in page and page.count("<img") >= 3 and "<script" not in page


def test_records_and_profiles_are_checked(regard, tmp_path):
    model = Model(Layer(noise(2, 61), rg.causal()), Layer(noise(2, 61), rg.causal()), Layer(noise(2, 61)))
    with rg.watch(model) as record:
        model(batches(lengths=(53,))[0]["input_ids"])
    record.save(tmp_path / "kept")
    rg.survey(model, batches()).save(tmp_path / "profile")
    for name, texts in (("kept", "1 text"), ("profile", "3 texts")):
        status, out, _ = regard("check", name)
        assert status == 1 and "broken causality" in out and texts in out


def test_a_task_is_checked(regard):
    status, out, err = regard("check", "translate")
    assert (status, err) == (0, "") and "24 attention heads" in out


def test_only_some_layers(regard):
    out = regard("check", "language", "--layers", "1")[1]
    assert "8 attention heads" in out


def test_heads_that_are_safe_to_prune_are_found(regard, uniform, tmp_path):
    (tmp_path / "texts.txt").write_text(TEXTS)
    out = regard("check", uniform, "--texts", "texts.txt", "--ablate", "--json", "-", "--fail-on", "never")[1]
    body = json.loads(out)
    assert "head safe to prune" in body["applied"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["language", "--texts", "empty.txt"], "at least one text"),
        (["language", "--texts", "absent.txt"], "can be read"),
        (["language", ""], "at least one token"),
        (["language", "--layers", "nowhere"], "nowhere"),
        (["language", "--fail-on", "terrible"], "--fail-on must be one of severe, warning, note, never"),
        (["language", "--max-tokens", "0"], "at least 1"),
        (["language", "a text", "--texts", "empty.txt"], "got both"),
        (["language", "--column", "text"], "--column"),
        (["./absent"], "no folder './absent'"),
        (["nothing"], "config.json"),
        (["translate", "--ablate"], "left out for a task"),
        (["language", "--only", "encoder"], "--only must be left out"),
        (["translate", "--only", "nobody"], "nobody"),
        (["language", "--report", "nothing"], "must be a file that can be written"),
    ],
)
def test_mistakes_are_told_in_a_line(regard, tmp_path, command, message):
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "nothing").mkdir()
    status, out, err = regard("check", *command)
    assert status == 2 and message in err and len(err.strip().splitlines()) == 1, err
    assert out.strip() == ""


def test_a_model_without_attention_is_an_error(regard, tmp_path):
    from transformers import AutoTokenizer, MambaConfig, MambaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(rg.embedded.folder())
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, state_size=3)
    MambaForCausalLM(config).save_pretrained(tmp_path / "mamba")
    tokenizer.save_pretrained(tmp_path / "mamba")
    status, _, err = regard("check", "mamba", "one two three")
    assert status == 2 and "no attention call was seen" in err
