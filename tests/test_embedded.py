"""The embedded model fits, loads without network, has learned what its card says; the card is consistent."""

import importlib
import json
import math
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from regard import embedded, watch
from regard.embedded import llama
from regard.embedded.tokenizer import Tokenizer
from regard.record.table import columns

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[Any, Any]]:
    """`embedded_data` and `embedded_measure`, which made the card: the same split, the same measures."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("embedded_data"), importlib.import_module("embedded_measure")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    text = (embedded.folder() / "card.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(embedded.folder(), local_files_only=True)


@pytest.fixture(scope="module")
def model() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(embedded.folder(), local_files_only=True).eval()


def test_folder_is_small_and_whole() -> None:
    files = [f for f in embedded.folder().iterdir() if f.is_file()]
    model = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert model | {"CARD.md", "card.json"} <= {f.name for f in files}
    assert sum(f.stat().st_size for f in files) <= 8_000_000
    assert (embedded.folder() / "card.json").stat().st_size <= 50_000


def test_loads_as_an_ordinary_model_in_float32(model: Any, card: dict[str, Any]) -> None:
    assert model.dtype == torch.float32
    config = model.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (4, 8, 256)
    assert sum(p.numel() for p in model.parameters()) == card["parameters"]


@pytest.mark.parametrize(
    "text", [embedded.TEXT, "\n\n\tx = 'é'  \r\n 🙂", "    if a:\n\n        b_1__c\n", "   "]
)
def test_tokenizer_loses_nothing(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id == 0
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("length", [1, 2, 7, 131, 512])
def test_on_torch_alone_it_has_the_bits_of_transformers(model: Any, length: int) -> None:
    ids = torch.randint(0, model.config.vocab_size, (3, length))
    with torch.inference_mode():
        assert torch.equal(llama.load()(ids), model(input_ids=ids).logits)


def test_on_torch_alone_a_record_is_the_same(model: Any, tokenizer: Any) -> None:
    ids = tokenizer(embedded.TEXT, return_tensors="pt")["input_ids"]
    records = []
    for either in (llama.load(), model):
        with torch.inference_mode(), watch(either, keep="vectors") as record:
            either(input_ids=ids)
        records.append(record)
    ours, theirs = records
    for call, expected in zip(ours, theirs, strict=True):
        for name in ("layer", "kind", "seen", "sizes", "parameters"):
            assert getattr(call, name) == getattr(expected, name)
        assert torch.equal(call.map.mean, expected.map.mean)
        assert torch.equal(call.query, expected.query) and torch.equal(call.key, expected.key)
    for name, column in columns(theirs.calls).items():
        # Roles that a text of this length cannot tell are NaN in both.
        np.testing.assert_array_equal(columns(ours.calls)[name], column, name)
    assert ours.info["settings"] == theirs.info["settings"] and ours.info["dtype"] == theirs.info["dtype"]


def test_loading_on_torch_alone_draws_nothing() -> None:
    state = torch.get_rng_state()
    llama.load()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("text", [embedded.TEXT, "", "é 🙂\n\n  x\t<|file|> a"])
def test_its_own_tokenizer_is_that_of_transformers(tokenizer: Any, text: str) -> None:
    same = Tokenizer()
    ids = same(text)["input_ids"]
    assert torch.equal(ids, tokenizer(text, return_tensors="pt")["input_ids"])
    assert same.all_special_ids == tokenizer.all_special_ids
    numbers = ids[0].tolist()
    assert same.convert_ids_to_tokens(numbers) == tokenizer.convert_ids_to_tokens(numbers)
    assert [same.decode([number]) for number in numbers] == [tokenizer.decode([number]) for number in numbers]


def test_default_text_uses_its_names_again(tokenizer: Any, model: Any) -> None:
    ids = tokenizer(embedded.TEXT)["input_ids"]
    assert len(ids) < 100 < model.config.max_position_embeddings
    compile(embedded.TEXT, "text", "exec")
    for name in ("text", "counts", "word"):
        assert embedded.TEXT.count(name) >= 3


def test_held_out_split_never_changes(scripts: tuple[Any, Any], card: dict[str, Any]) -> None:
    data, _ = scripts
    paths = ("ast.py", "json/decoder.py", "typing.py", "types.py")
    assert [p for p in paths if data.is_held_out(p)] == ["ast.py", "types.py"]
    assert all(data.is_held_out(p) for p in card["data"]["held_out_files"])


def test_loss_on_held_out_files_is_far_below_the_baselines(
    scripts: tuple[Any, Any], card: dict[str, Any], model: Any, tokenizer: Any
) -> None:
    data, measure = scripts
    _, held_out = data.standard_library()
    rows = data.rows(data.stream(tokenizer, held_out))[::8]
    assert len(rows) > 20
    loss = measure.loss(model, rows)
    assert loss < card["held_out"]["bigram_loss"] - 1
    # Other rows, and perhaps another Python, than the card's: near it, not equal to it.
    assert math.isclose(loss, card["held_out"]["loss"], abs_tol=0.5)


def test_loss_by_hand(scripts: tuple[Any, Any], model: Any, tokenizer: Any) -> None:
    _, measure = scripts
    ids = torch.tensor([tokenizer(embedded.TEXT)["input_ids"]])
    with torch.no_grad():
        probabilities = model(input_ids=ids).logits[0].double().softmax(-1)
    losses = [-math.log(probabilities[i, token]) for i, token in enumerate(ids[0, 1:].tolist())]
    assert math.isclose(measure.loss(model, ids), sum(losses) / len(losses), rel_tol=1e-5)


def test_a_head_does_induction_on_fresh_random_tokens(model: Any, card: dict[str, Any]) -> None:
    length, sequences = 83, 31
    generator = torch.Generator().manual_seed(4_711)
    span = torch.randint(1, model.config.vocab_size, (sequences, length), generator=generator)
    ids = torch.cat([torch.zeros(sequences, 1, dtype=torch.long), span, span], dim=1)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(input_ids=ids, output_attentions=True, use_cache=False).attentions
    layer, head = card["induction"]["layer"], card["induction"]["head"]
    weights = layers[layer][:, head]
    second = range(1 + length, 1 + 2 * length)
    score = torch.stack([weights[:, query, query - length + 1] for query in second]).mean().item()
    assert score > 0.4
    assert math.isclose(score, card["induction"]["score"], abs_tol=0.1)


def test_induction_is_absent_without_learning(scripts: tuple[Any, Any], model: Any) -> None:
    _, measure = scripts
    torch.manual_seed(0)
    fresh = type(model)(model.config)
    assert measure.induction(fresh, seed=1, sequences=4, length=67).max() < 0.05


def test_renaming_is_consistent_and_keeps_the_program(scripts: tuple[Any, Any]) -> None:
    data, _ = scripts
    source = data.Source("words.py", embedded.TEXT)
    after = data.rename(source, ["alpha", "beta", "gamma", "delta"], random.Random(1)).text
    compile(after, "words.py", "exec")
    names: dict[str, set[str]] = {}
    for old, new in zip(embedded.TEXT.split(), after.split(), strict=True):
        for a, b in zip(re.findall(r"\w+", old), re.findall(r"\w+", new), strict=True):
            names.setdefault(a, set()).add(b)
    changed = {old for old, new in names.items() if new != {old}}
    assert changed and changed <= {"text", "counts", "word"}
    assert all(len(names[name] - {name}) == 1 for name in changed)
    assert "Count how often each word occurs in the text." in after


def test_first_copy_of_a_repeated_span_is_not_counted(scripts: tuple[Any, Any]) -> None:
    data, _ = scripts
    for seed in range(20):
        row, labels = data.repeated(torch.Generator().manual_seed(seed))
        length = int((labels == -100).sum()) - 1
        assert row.shape == labels.shape == (data.CONTEXT,)
        assert 16 <= length < data.CONTEXT / 2
        assert row[0] == data.FILE_ID and torch.equal(row[1 + length :], row[1:-length])
        assert torch.equal(labels[1 + length :], row[1 + length :])


def test_rows_cut_a_stream_and_drop_the_remainder(scripts: tuple[Any, Any]) -> None:
    data, _ = scripts
    width = data.CONTEXT - 1
    cut = data.rows(torch.arange(1, 2 * width + 8), start=5)
    assert cut.shape == (2, data.CONTEXT)
    assert cut[:, 0].tolist() == [data.FILE_ID] * 2
    assert cut[:, 1].tolist() == [6, 6 + width] and cut[1, -1] == 5 + 2 * width


def test_bigram_baseline_is_a_distribution(scripts: tuple[Any, Any]) -> None:
    _, measure = scripts
    table = measure.bigram(torch.tensor([0, 1, 2, 1, 2, 0, 3, 1]), vocabulary=5)
    assert torch.allclose(table.sum(1), torch.ones(5, dtype=torch.float64))
    # c(1,2) = 2, c(1) = 2, one kind after 1, and P(2) = (2 + 1) / (8 + 5).
    assert math.isclose(table[1, 2].item(), (2 + 3 / 13) / 3)


def test_card_is_consistent(card: dict[str, Any]) -> None:
    held, heads, last = card["held_out"], card["induction"], card["curve"][-1]
    assert held["loss"] < held["bigram_loss"] < held["unigram_loss"] < held["uniform_loss"]
    every = heads["all_heads"]
    assert heads["score"] == every[heads["layer"]][heads["head"]] == max(max(row) for row in every)
    assert (last["held_out_loss"], last["induction"]) == (held["loss"], heads["score"])
    assert last["tokens"] == card["training"]["tokens"]
    assert card["training"]["fraction_of_schedule"] > 0.99
    page = (embedded.folder() / "CARD.md").read_text(encoding="utf-8")
    for number in (held["loss"], held["bigram_loss"], held["unigram_loss"], heads["score"]):
        assert f"{number:.3f}" in page
