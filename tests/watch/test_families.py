"""Hugging Face families: outputs bit for bit, statistics against the eager weights of the same model in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from regard.record import Record, load
from watch.families import FAMILIES, LENGTH, Family, real
from watch.truth import assert_within_budget, recorded, statistics

OWN_WEIGHTS = {
    "Bloom",
    "GPTJ",
    "DebertaV2",
    "Mpt",
    "XLNet",
}  # one implementation only, which makes the weights itself
NO_SDPA = {"Gemma2", "GptOss"}
CASES = [
    (name, path, padding)
    for name, family in FAMILIES.items()
    for path in ("eager", "sdpa")
    for padding in (None, "left", "right")
    if not (path == "sdpa" and name in OWN_WEIGHTS | NO_SDPA)
    if not (padding and family.kind in ("image", "speech"))  # which have no padding
]


def run(
    family: Family, path: str, dtype: torch.dtype, padding: str | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs of the model, and the scores of its softmaxes if it has any."""
    with recorded() as scores, torch.no_grad():
        outputs = family.build(path).to(dtype)(**family.inputs(dtype, padding)).to_tuple()
    return [part for part in outputs if isinstance(part, Tensor)], scores


@pytest.mark.parametrize(("name", "path", "padding"), CASES)
def test_outputs_are_the_same_bits_and_statistics_those_of_the_eager_weights(
    name: str, path: str, padding: str | None, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    plain, _ = run(family, path, torch.float32, padding)
    model = family.build(path)
    with torch.no_grad(), regard.watch(model) as record:
        watched = [
            part for part in model(**family.inputs(padding=padding)).to_tuple() if isinstance(part, Tensor)
        ]
    assert len(plain) == len(watched) and all(map(torch.equal, plain, watched))
    record.save(tmp_path / "record")
    record = load(tmp_path / "record")

    _, exact = run(family, "eager", torch.float64, padding)
    _, naive = run(family, "eager", torch.float32, padding)
    assert len(record) == len(exact) >= 2
    # GPT-OSS takes the largest score off before its softmax, which only the lse shows.
    leave_out = ("lse",) if name == "GptOss" else ()
    for call, want, near in zip(record, exact, naive, strict=True):
        rows = real(padding) if call.sizes.queries == LENGTH else None
        keys = call.sizes.keys
        truth, rough = (statistics(scores, rows, keys=keys) for scores in (want, near))
        assert_within_budget(call, truth, rough, leave_out)


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_say_where_they_are_and_how_they_were_seen(name: str) -> None:
    family = FAMILIES[name]
    model = family.build()
    with torch.no_grad(), regard.watch(model) as record:
        model(**family.inputs())
    names = dict(model.named_modules())
    assert all(call.layer in names for call in record)
    assert {call.seen for call in record} == {"weights" if name in OWN_WEIGHTS else "query-key"}
    two = family.kind in ("encoder-decoder", "speech")
    assert [call.kind for call in record] == (
        ["self", "self"] + ["self", "cross"] * 2 if two else ["self"] * len(record)
    )


def test_the_record_says_where_it_comes_from() -> None:
    model = FAMILIES["Llama"].build()
    with regard.watch(model, layers=[0], top=2) as record, torch.no_grad():
        model(**FAMILIES["Llama"].inputs())
    assert record.info["model"] == "LlamaForCausalLM" and record.info["dtype"] == "float32"
    assert {"torch", "transformers", "regard"} == set(record.info["packages"])
    assert record.info["settings"]["layers"] == [0] and record.info["settings"]["top"] == 2


def test_grouped_heads_softcap_windows_and_sinks_are_read_as_such() -> None:
    def spec_of(name: str, layer: int) -> tuple[Record, object]:
        model = FAMILIES[name].build()
        with torch.no_grad(), regard.watch(model, keep="vectors") as record:
            model(**FAMILIES[name].inputs())
        return record, record[layer].spec

    record, spec = spec_of("Gemma2", 0)
    assert record[0].sizes.kv_heads == 2 and record[0].sizes.heads == 6
    assert spec.softcap == 3.0 and spec.mask.name == "near(4)" and spec.scale == pytest.approx(1 / 3)
    assert record[1].spec.mask.name == "causal()"
    record, spec = spec_of("GptOss", 0)
    assert spec.sink_logit.shape == (6,) and record[0].parameters["sink_logit"] is True
    record, spec = spec_of("T5", 0)
    assert type(spec.bias).__name__ == "Relative" and spec.scale == 1.0 and spec.mask is None
