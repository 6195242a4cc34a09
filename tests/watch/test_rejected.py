"""Tokens that were drafted and rejected are not in the record: the steps are those of the text that is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from watch.families import FAMILIES
from watch.truth import recorded, statistics

NEW = 9
NAMES = ["Llama", "GPT2", "Mistral", "Qwen3", "OPT"]


def agree(model: nn.Module, record: regard.record.Record, text: Tensor) -> None:
    """The record holds the statistics of one pass over the text, in one call for each layer."""
    scores: list[Tensor] = []
    with torch.no_grad(), recorded() as found:
        model(text[:, :-1])
        scores = [part.double() for part in found]
    assert len(record) == len(scores)
    for call, exact in zip(record, scores, strict=True):
        assert call.sizes.queries == call.sizes.keys == text.shape[1] - 1, call
        for name in ("entropy", "received", "distance", "first", "received_max", "allowed"):
            want = statistics(exact)[name]
            torch.testing.assert_close(getattr(call, name).double(), want.double(), atol=2e-5, rtol=2e-5)
        assert float(call.map.total.sum()) == pytest.approx(float(call.received.sum()), rel=1e-5)


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_assisted_generation(name: str, vectors: bool) -> None:
    family = FAMILIES[name]
    torch.manual_seed(1)
    model, assistant = family.build(), family.build()
    with torch.no_grad():  # mostly right, so that drafts are taken in part
        for parameter in assistant.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    ids = family.inputs()["input_ids"][:1]
    options: dict[str, Any] = dict(max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    with torch.no_grad():
        want = model.generate(ids, assistant_model=assistant, **options)
        with regard.watch(model, keep="vectors" if vectors else "statistics") as record:
            got = model.generate(ids, assistant_model=assistant, **options)
    assert torch.equal(want, got)
    agree(family.build("eager"), record, got)
    if vectors:
        window = record[0].weights(2)
        torch.testing.assert_close(window.sum(-1), torch.ones(len(window)), atol=1e-5, rtol=0)


def test_the_assistant_itself_is_watched() -> None:
    family = FAMILIES["Llama"]
    torch.manual_seed(1)
    model, assistant = family.build(), family.build()
    with torch.no_grad():
        for parameter in assistant.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    ids = family.inputs()["input_ids"][:1]
    with torch.no_grad(), regard.watch(assistant) as record:
        text = model.generate(
            ids, assistant_model=assistant, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
        )
    for call in record:
        assert call.sizes.queries <= text.shape[1]
        assert float(call.received.sum()) == pytest.approx(call.sizes.queries * call.sizes.heads, rel=1e-4)


def test_drafts_by_looking_up_the_prompt() -> None:
    family = FAMILIES["Llama"]
    model = family.build()
    torch.manual_seed(2)
    ids = torch.randint(3, 20, (1, 6)).repeat(1, 3)
    with torch.no_grad(), regard.watch(model) as record:
        text = model.generate(
            ids, prompt_lookup_num_tokens=3, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
        )
    agree(family.build("eager"), record, text)


def test_a_cache_that_is_cropped_by_hand() -> None:
    from transformers import DynamicCache

    family = FAMILIES["Llama"]
    model, cache = family.build(), DynamicCache()
    torch.manual_seed(3)
    first, second = torch.randint(3, 97, (1, 11)), torch.randint(3, 97, (1, 5))
    with torch.no_grad(), regard.watch(model, keep="vectors") as record:
        model(first, past_key_values=cache)
        cache.crop(-4)
        model(second, past_key_values=cache)
    agree(family.build("eager"), record, torch.cat([first[:, :7], second, second[:, :1]], 1))
    assert record[0].weights(1).shape == (12, 12)


def test_two_prompts_are_two_calls() -> None:
    family = FAMILIES["Llama"]
    model = family.build()
    ids = family.inputs()["input_ids"]
    with torch.no_grad(), regard.watch(model) as record:
        model.generate(ids, max_new_tokens=3, do_sample=False)
        model.generate(ids, max_new_tokens=3, do_sample=False)
    assert [call.steps for call in record] == [3] * 4


def test_many_steps_are_merged_as_they_come() -> None:
    family = FAMILIES["Llama"]
    model = family.build()
    with torch.no_grad(), regard.watch(model) as record:
        text = model.generate(
            family.inputs()["input_ids"][:1], max_new_tokens=150, min_new_tokens=150, do_sample=False
        )
    assert [call.steps for call in record] == [150] * 2
    agree(family.build("eager"), record, text)
