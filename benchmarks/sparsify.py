"""Do masks chosen from measured mass save the time that they promise? Three models at 8 192 tokens.

Attention alone is timed, under the model's own mask and under the plan's, in turns; then whole passes; and the loss
under the plan. The embedded decoder reads Python sources. The GPT-2 shape has heads with roles written by hand, or
random weights, of which neither can predict a text: beside their losses stands how far the plan moves predictions.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard as rg
from benchmarks import common, constructed_gpt2, gpt2
from regard import embedded
from regard.analysis import SparsePlan, eviction_loss, sparsify
from regard.masks import Mask, block_sparse
from regard.record import Record
from regard.watch import Change

TOKENS = 8192
COMMAND = "OMP_WAIT_POLICY=passive python -m benchmarks.sparsify"
BAR = "8 192 tokens, keep = 0.99: attention under the plan measurably faster than full in the same run, loss within 1 %"
# Of the GPT-2 shape: its layers are all alike, and more of them only take longer.
LAYERS = (0, 5, 11)
# Shares of the pairs that a mask of each kind spares, for the least one at which it is faster than full.
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)
DIM, HEADS = 64, 2


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


def roles(tokens: int) -> tuple[torch.nn.Module, Tensor]:
    """GPT-2 small whose heads have roles, and the tokens of the sources."""
    return constructed_gpt2.model(tokens), decoder(tokens)[1]


# The models, which of their layers are looked at, and the shares that are to be kept.
MODELS: dict[str, tuple[Callable[[int], tuple[torch.nn.Module, Tensor]], Any, tuple[float, ...]]] = {
    "embedded decoder": (decoder, None, (0.99, 0.9)),
    "GPT-2 small, heads with roles": (roles, LAYERS, (0.99,)),
    "GPT-2 small, random weights": (gpt2_shape, LAYERS, (0.99,)),
}


def watched(network: torch.nn.Module, ids: Tensor, layers: Any) -> Record:
    """One pass, of which the vectors stay."""
    with (
        torch.no_grad(),
        rg.watch(network, keep="vectors", layers=layers, statistics=["lse"], map=None) as record,
    ):
        network(ids, use_cache=False)
    return record


def costs(record: Record, plan: SparsePlan) -> dict[str, Any]:
    """Seconds of all attention under both kinds of masks, and the savings that were promised and that came."""

    def run(sparse: bool) -> Callable[[], None]:
        def attend() -> None:
            for call in record:
                assert call.query is not None and call.key is not None and call.value is not None
                assert call.spec is not None
                vectors = call.query, call.key, call.value
                if sparse:
                    plan.attend(call.layer, *vectors, mask=call.spec.mask, scale=call.spec.scale)
                else:
                    rg.attend(*vectors, mask=call.spec.mask, scale=call.spec.scale)

        return attend

    with torch.no_grad():
        times, seconds = timed({"full": run(False), "plan": run(True)}, 5)
    return {
        "pairs_saved": plan.saved,
        "predicted_saving": 1 - plan.cost,
        "measured_saving": 1 - common.over(times, "plan", "full"),
        "measured_saving_of_processor_time": 1 - seconds["plan"] / seconds["full"],
        "times": times,
        "processor_s": seconds,
    }


def timed(candidates: dict[str, Callable[[], None]], repetitions: int) -> tuple[Any, dict[str, float]]:
    """Times in turns, and medians of the processor time."""
    times, used = common.timed(candidates, repetitions)
    return times, {name: statistics.median(seconds) for name, seconds in used.items()}


def passes(network: torch.nn.Module, ids: Tensor, plan: SparsePlan) -> dict[str, Any]:
    """Seconds of whole passes: plain, within an intervention that changes nothing, and under the plan.

    The first pass of a block and those after it are told apart: it also runs the model's own attention, to compare.
    """
    nothing = Change(mask=rg.near(ids.shape[1], ids.shape[1]))
    blocks = {"plain": None, "changes nothing": nothing, "plan": plan.changes()}
    times: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    # In turns, as in `timed`; what is timed stands within a block here, and the first turn warms up.
    for turn in range(4):
        for name, changes in blocks.items():
            block: Any = nullcontext()
            if changes is not None:
                block = rg.intervene(network, changes)
            with torch.no_grad(), block:
                for which in ("first", "second"):
                    begin, start = time.perf_counter(), time.process_time()
                    network(ids, use_cache=False, logits_to_keep=1)
                    if turn:
                        times.setdefault(f"{name}, {which}", []).append(time.perf_counter() - begin)
                        seconds.setdefault(f"{name}, {which}", []).append(time.process_time() - start)
    used = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {
        f"{name} over plain, processor time": value / used["plain, second"] for name, value in used.items()
    }
    medians = {
        name: {"median_s": statistics.median(values), "min_s": min(values), "max_s": max(values)}
        for name, values in times.items()
    }
    return ratios | {"times": medians, "processor_s": used}


def losses(network: torch.nn.Module, ids: Tensor, plan: SparsePlan) -> dict[str, float]:
    """Mean cross entropy of the next token in nats, without and with the plan, and how far predictions move."""
    with torch.no_grad():
        before = network(ids, use_cache=False).logits[0, :-1]
        found = {"full": _loss(before, ids)}
        if not any(mask is not None for *_, mask in plan):
            return found
        with rg.intervene(network, plan.changes()):
            after = network(ids, use_cache=False).logits[0, :-1]
    found["plan"] = _loss(after, ids)
    found["change"] = found["plan"] / found["full"] - 1
    # Some rows, for both predictions as float64 would not fit.
    rows = [part[::16].double().log_softmax(-1) for part in (before, after)]
    found["divergence_nats"] = float((rows[0].exp() * (rows[0] - rows[1])).sum(-1).mean())
    return found


def _loss(logits: Tensor, ids: Tensor) -> float:
    parts = zip(logits.split(512), ids[0, 1:].split(512), strict=True)
    # A few at a time: in one go the logarithms would take as much memory as the logits again.
    return sum(float(torch.nn.functional.cross_entropy(*part, reduction="sum")) for part in parts) / len(
        logits
    )


def measured(name: str) -> dict[str, Any]:
    """Plans for one model, what they cost to make, and what they save."""
    make, layers, keeps = MODELS[name]
    network, ids = make(TOKENS)
    record = watched(network, ids, layers)
    found: dict[str, Any] = {"tokens": ids.shape[1], "layers": len(record)}
    for keep in keeps:
        start = time.perf_counter()
        plan = sparsify(record, keep)
        seconds = time.perf_counter() - start
        errors = plan.heads["error"]
        found[f"keep {keep}"] = {
            "families": plan.heads["family"].value_counts().to_dict(),
            "least_mass": min(one.mass for one in plan.chosen),
            "output_error": {"mean": errors.mean(), "most": errors.max()},
            "sparsify_s": seconds,
            "losses": losses(network, ids, plan),
        } | costs(record, plan)
        print(name, keep, found[f"keep {keep}"], flush=True)
        # Once for each model of which all layers are in the plan.
        if layers is None and keep == keeps[0]:
            found[f"keep {keep}"]["whole_passes"] = passes(network, ids, plan)
    return found


def forgetting(tokens: int, texts: int, budgets: tuple[int, ...]) -> list[dict[str, Any]]:
    """What caches of limited size cost the embedded decoder, on so many texts of so many tokens."""
    network, ids = decoder(tokens * texts)

    def loss(result: Any, batch: Any) -> Tensor:
        rows = zip(result.logits, batch["input_ids"], strict=True)
        return torch.tensor([_loss(logits[:-1], row[None]) for logits, row in rows], dtype=torch.float64)

    batch = {"input_ids": ids.view(texts, tokens), "use_cache": False}
    return eviction_loss(network, batch, budgets, loss).to_dict("records")


def kinds(saved: float) -> dict[str, Mask]:
    """A mask of each kind that spares about so many pairs; strides and columns are as they come."""
    grid = -(-TOKENS // 64)
    # Of a causal mask; a window of w keys leaves w · n − w² / 2 pairs.
    window = int(TOKENS * (1 - saved**0.5))
    generator = torch.Generator().manual_seed(2)
    blocks = torch.rand(grid, grid, generator=generator) < 1 - saved
    blocks |= torch.eye(grid, dtype=torch.bool)
    return {
        "window": rg.near(window),
        "window and first": rg.near(window) | rg.prefix(16),
        "block": block_sparse(blocks),
    }


def crossings() -> dict[str, Any]:
    """Processor time of masks as a multiple of that of full attention, by kind and by the share of pairs spared.

    Processor time, in one thread: what else runs on the machine delays it, and adds little to it.
    """
    shape = (1, HEADS, TOKENS, DIM)
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(shape, generator=generator) for _ in range(3))
    random = torch.randperm(TOKENS, generator=generator)
    masks: dict[str, dict[str, Mask]] = {}
    for saved in SHARES:
        for kind, mask in kinds(saved).items():
            masks.setdefault(kind, {})[f"saves {saved:g}"] = mask
    masks["strided"] = {f"step {step}": rg.near(64) | rg.strided(step) for step in (2, 4, 8, 16, 64)}
    masks["columns"] = {
        f"{n} columns": rg.near(64) | rg.global_tokens(random[:n]) for n in (4, 16, 64, 256, 1024)
    }
    runs = {
        (kind, name): rg.causal() & mask for kind, of_kind in masks.items() for name, mask in of_kind.items()
    }
    runs["full", ""] = rg.causal()
    seconds: dict[tuple[str, str], list[float]] = {name: [] for name in runs}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(5):
        for name, mask in runs.items():
            start = time.process_time()
            rg.attend(query, key, value, mask=mask)
            seconds[name].append(time.process_time() - start)
    torch.set_num_threads(threads)
    full = statistics.median(seconds.pop(("full", "")))
    found: dict[str, Any] = {"full_s": full, "dim": DIM, "tokens": TOKENS}
    for (kind, name), times in seconds.items():
        found.setdefault(kind, {})[name] = statistics.median(times) / full
    return found


# What is measured, by name.
PARTS: dict[str, Callable[[], Any]] = {
    "crossings": crossings,
    **{name: partial(measured, name) for name in MODELS},
    "caches that forget, embedded decoder": partial(forgetting, TOKENS, 1, (256, 1024, 4096)),
    # As long as the texts that it was trained on.
    "caches that forget, 16 texts of 512 tokens": partial(forgetting, 512, 16, (32, 64, 128, 256)),
}


def main(parts: Sequence[str] = ()) -> None:
    """Measure all, or the parts with these names beside the figures that are there, and write the result."""
    common.prepare()
    figures: dict[str, Any] = {}
    if parts:
        figures = json.loads((common.RESULTS / "sparsify.json").read_text())["figures"]
    for name in parts or PARTS:
        figures[name] = PARTS[name]()
        # After each: a run that is cut off leaves what it has measured.
        common.write("sparsify", COMMAND, BAR, figures)


if __name__ == "__main__":
    main(sys.argv[1:])
