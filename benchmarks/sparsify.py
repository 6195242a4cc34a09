"""Do masks chosen from measured mass save the time that they promise? Two models at 8 192 tokens, keep = 0.99.

Attention alone is timed, by `attend`, under the model's own mask and under the plan's, in turns; heads with one mask
are one call. The embedded decoder reads Python sources; the GPT-2 shape has random weights, and no pattern to be found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard as rg
from benchmarks import common, gpt2
from regard import embedded
from regard.analysis import SparsePlan, sparsify
from regard.masks import Mask
from regard.record import Call, Record

TOKENS, KEEP = 8192, 0.99
COMMAND = "OMP_WAIT_POLICY=passive python -m benchmarks.sparsify"
BAR = "attention under the plan measurably faster than full in the same run, loss within 1 %, at 8 192 tokens"
# Of the GPT-2 shape: its layers have the same random weights, all of them only take longer.
LAYERS = (0, 5, 11)


def decoder(tokens: int) -> tuple[torch.nn.Module, Tensor]:
    """The embedded decoder and so many tokens of the sources of Regard."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(embedded.folder())
    network = AutoModelForCausalLM.from_pretrained(folder).eval()
    sources = sorted(Path(rg.__file__).parent.rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources[:60])
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    return network, ids[:, :tokens]


def gpt2_shape(tokens: int) -> tuple[torch.nn.Module, Tensor]:
    """GPT-2 small with random weights and random tokens."""
    return gpt2.model(tokens), torch.randint(50257, (1, tokens), generator=torch.Generator().manual_seed(0))


MODELS: dict[str, tuple[Callable[[int], tuple[torch.nn.Module, Tensor]], Any]] = {
    "embedded decoder": (decoder, None),
    "GPT-2 small, random weights": (gpt2_shape, LAYERS),
}


def watched(network: torch.nn.Module, ids: Tensor, layers: Any) -> Record:
    """One pass, of which the vectors stay."""
    with (
        torch.no_grad(),
        rg.watch(network, keep="vectors", layers=layers, statistics=["lse"], map=None) as record,
    ):
        network(ids, use_cache=False)
    return record


def attention(call: Call, masks: dict[int, Mask | None], value: Tensor) -> None:
    """The attention of one call, its heads under these masks besides the model's own."""
    assert call.query is not None and call.key is not None and call.spec is not None
    by_mask: dict[Mask | None, list[int]] = {}
    for head, mask in masks.items():
        by_mask.setdefault(mask, []).append(head)
    group = call.sizes.group
    for mask, heads in by_mask.items():
        own = call.spec.mask
        if mask is not None and own is not None:
            own = own & mask
        keys = [head // group for head in heads]
        rg.attend(call.query[:, heads], call.key[:, keys], value[:, keys], mask=own, scale=call.spec.scale)


def costs(record: Record, plan: SparsePlan) -> dict[str, Any]:
    """Seconds of all attention under both kinds of masks, and the savings that were promised and that came."""
    values = {call.layer: torch.randn_like(call.key) for call in record}
    full = {call.layer: dict.fromkeys(range(call.sizes.heads)) for call in record}
    plans = {call.layer: plan.masks_of(call.layer) for call in record}

    def run(masks: dict[str, dict[int, Mask | None]]) -> Callable[[], None]:
        return lambda: [attention(call, masks[call.layer], values[call.layer]) for call in record][-1]

    with torch.no_grad():
        times = common.interleaved({"full": run(full), "plan": run(plans)}, 5)
    return {
        "predicted_saving": plan.saved,
        "measured_saving": 1 - common.over(times, "plan", "full"),
        "times": times,
    }


def losses(network: torch.nn.Module, ids: Tensor, plan: SparsePlan) -> dict[str, float]:
    """Mean cross entropy of the next token in nats, of the model and of the model under the plan."""
    found = {}
    with torch.no_grad():
        found["full"] = _loss(network, ids)
        if any(mask is not None for *_, mask in plan):
            with rg.intervene(network, plan.changes()):
                found["plan"] = _loss(network, ids)
    return found


def _loss(network: torch.nn.Module, ids: Tensor) -> float:
    logits = network(ids, use_cache=False).logits[0, :-1]
    parts = zip(logits.split(512), ids[0, 1:].split(512), strict=True)
    # A few at a time: in one go the logarithms would take as much memory as the logits again.
    return sum(float(torch.nn.functional.cross_entropy(*part, reduction="sum")) for part in parts) / len(
        logits
    )


def measured(name: str) -> dict[str, Any]:
    """A plan for one model and what it costs to make and saves."""
    make, layers = MODELS[name]
    network, ids = make(TOKENS)
    record = watched(network, ids, layers)
    start = time.perf_counter()
    plan = sparsify(record, KEEP)
    seconds = time.perf_counter() - start
    families = plan.heads["family"].value_counts().to_dict()
    found = {"tokens": ids.shape[1], "families": families, "least_mass": min(one.mass for one in plan.chosen)}
    return found | {"sparsify_s": seconds} | {"losses": losses(network, ids, plan)} | costs(record, plan)


def main() -> None:
    """Measure both models and write the result."""
    common.prepare()
    figures: dict[str, Any] = {}
    for name in MODELS:
        figures[name] = measured(name)
        # After each model: a run that is cut off leaves what it has measured.
        common.write("sparsify", COMMAND, BAR, figures)


if __name__ == "__main__":
    main()
