"""`generate` with a cache: its steps are one call each, equal to one pass over the whole text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.record import Call
from watch.families import BATCH, FAMILIES, LENGTH, Family, real
from watch.truth import assert_within_budget, recorded, statistics

NEW = 7
GREEDY = dict(max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
GENERATING = [name for name, family in FAMILIES.items() if family.generates]


def whole(family: Family, generated: Tensor, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of one pass over everything that the steps saw."""
    if family.kind == "encoder-decoder":
        return given | {"decoder_input_ids": generated[:, :-1]}
    attended = torch.cat([given["attention_mask"], torch.ones(BATCH, NEW - 1, dtype=torch.long)], 1)
    inputs = {"input_ids": generated[:, :-1], "attention_mask": attended}
    if family.name in ("GPT2", "GPTJ"):  # generate counts the positions of real tokens
        inputs["position_ids"] = (attended.cumsum(1) - 1).clamp(min=0)
    return inputs


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padding", [None, "left"])
@pytest.mark.parametrize("name", GENERATING)
def test_steps_merge_into_one_call_per_layer(name: str, padding: str | None, cache: str) -> None:
    family = FAMILIES[name]
    model, given = family.build(), family.inputs(padding=padding)
    given.pop("decoder_input_ids", None)
    options: dict[str, Any] = GREEDY if cache == "dynamic" else GREEDY | {"cache_implementation": "static"}
    with torch.no_grad():
        want = model.generate(**given, **options)
        with regard.watch(model, keep="vectors") as record:
            got = model.generate(**given, **options)
        assert torch.equal(want, got)
        inputs, scores = whole(family, got, given), []
        for dtype in (torch.float64, torch.float32):
            with recorded() as found:
                family.build("eager").to(dtype)(**inputs)
            scores.append(found)

    assert len(record) == len(scores[0])
    for call, exact, naive in zip(record, *scores, strict=True):
        rows = _real_rows(family, call, inputs, padding)
        keys = call.sizes.keys
        truth, rough = (statistics(part, rows, keys=keys) for part in (exact, naive))
        assert call.steps == (1 if call.layer.startswith(("encoder", "model.encoder")) else NEW)
        assert_within_budget(call, truth, rough, ("lse",) if name == "GptOss" else ())
        if call.seen == "query-key":
            _assert_window(call, exact, rows)


def _real_rows(family: Family, call: Call, inputs: dict[str, Tensor], padding: str | None) -> Tensor | None:
    if family.kind == "decoder":
        return inputs["attention_mask"].bool()
    return real(padding) if call.sizes.queries == LENGTH else None


def _assert_window(call: Call, scores: Tensor, rows: Tensor | None) -> None:
    """Weights computed from the kept vectors, across the steps."""
    head, batch = 2, 1
    joint = torch.softmax(scores.masked_fill(~(scores > -5e3), -torch.inf)[batch, head], -1).nan_to_num()
    want = joint[:, : call.sizes.keys]
    want = want if rows is None else want * rows[batch, :, None]
    torch.testing.assert_close(call.weights(head, batch=batch).double(), want, atol=1e-5, rtol=0)


def test_a_new_prompt_starts_new_calls_and_beams_are_rows() -> None:
    model, given = FAMILIES["Llama"].build(), FAMILIES["Llama"].inputs()
    with torch.no_grad(), regard.watch(model) as record:
        model.generate(**given, **GREEDY)
        model.generate(**given, **GREEDY, num_beams=2)
    assert [call.steps for call in record] == [NEW] * 4
    assert [call.sizes.batch for call in record] == [BATCH] * 2 + [2 * BATCH] * 2


class OwnCache(nn.Module):
    """Attention with a cache of its own, of which its arguments say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(6, 18)
        self.keys = self.values = torch.zeros(1, 2, 0, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(2, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        self.keys, self.values = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        causal = torch.ones(q.shape[2], self.keys.shape[2], dtype=torch.bool).tril(
            self.keys.shape[2] - q.shape[2]
        )
        return nn.functional.scaled_dot_product_attention(q, self.keys, self.values, causal)


def test_a_cache_of_the_models_own() -> None:
    x = torch.randn(1, 11, 6)
    stepwise = OwnCache()
    at_once = OwnCache()
    at_once.load_state_dict(stepwise.state_dict())
    with torch.no_grad(), regard.watch(stepwise) as steps:
        for part in x.split([5, 3, 1, 1, 1], 1):
            stepwise(part)
    with torch.no_grad(), regard.watch(at_once) as whole:
        at_once(x)
    assert len(steps) == 1 and steps[0].kind == "self" and steps[0].steps == 5
    for name in ("entropy", "distance", "received"):
        torch.testing.assert_close(getattr(steps[0], name), getattr(whole[0], name), atol=1e-6, rtol=0)
    torch.testing.assert_close(steps[0].map.total, whole[0].map.total, atol=1e-6, rtol=0)
