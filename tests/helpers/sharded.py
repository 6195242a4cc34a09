"""Drawn calls over several processes, each held to the truth of one device by the error budget of `cases`.

What runs in the processes is here, as they import it by name; the tests start them and read what they wrote.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from hypothesis import HealthCheck, Phase, given, seed, settings
from torch import Tensor

from helpers.cases import SMOOTH, Case, cases, faults, found, top_faults
from regard import scale
from regard.spec.bias import Bias, ScoreMod
from regard.spec.bias import Dense as DenseBias
from regard.statistics.observation import Top

PROCESSES = 4
# For which a process waits for another one.
SECONDS = 90
WHOLE = ("by_offset", "map total", "map peak")
BY_KEY = ("received", "received_max")
PLANS = ("ring", "gather", "states")


def start(function: Any, folder: Path, *args: Any, processes: int = PROCESSES) -> list[Any]:
    """Run `function(rank, group_of, *args)` in so many processes; what each returned, as JSON holds it."""
    running = torch.multiprocessing.spawn(
        _process, (processes, str(folder), function, args), processes, join=False
    )
    # Once one has died the others have time to say what they were told, and are ended only then.
    while not running.join(grace_period=SECONDS):
        pass
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


def _process(rank: int, processes: int, folder: str, function: Any, args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=processes,
        timeout=timedelta(seconds=SECONDS),
    )
    result = function(rank, *args)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def drawn(count: int, number: int) -> list[Case]:
    """So many calls, the same in every process."""
    calls: list[Case] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @given(cases())
    def draw(case: Case) -> None:
        calls.append(case)

    draw()
    return calls[:count]


@dataclass(frozen=True)
class Split:
    """A call cut over the processes of a group."""

    case: Case
    plan: str
    keys: scale.Layout
    queries: scale.Layout
    group: Any
    rank: int

    @property
    def rows(self) -> slice | Tensor:
        """Which of the call's queries this process holds."""
        if self.plan == "states":
            return slice(None)
        return self.queries.positions(self.rank) - self.queries.start

    def keywords(self, case: Case) -> dict[str, Any]:
        """What the call is on this process; a dense bias has its rows."""
        keywords = {name: value for name, value in case.keywords.items() if name != "align"}
        bias = keywords["bias"]
        if isinstance(bias, DenseBias):
            bias = bias.values
        if isinstance(bias, Tensor) and bias.shape[-2] > 1:
            bias = bias[..., self.rows, :]
        return keywords | {
            "bias": bias,
            "keys": self.keys,
            "queries": self.queries,
            "plan": self.plan,
            "group": self.group,
        }

    def tensors(self, case: Case) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of this process."""
        key, value = (self.keys.shard(t, self.rank) for t in (case.key, case.value))
        return case.query[:, :, self.rows], key, value

    def observe(self, case: Case, **more: Any) -> Any:
        return scale.observe(*self.tensors(case), **more, **self.keywords(case))

    def joined(self, tables: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """The statistics of the whole sequence from those of the processes."""
        whole = {}
        for name in tables[0]:
            parts = [table[name] for table in tables]
            if name in BY_KEY:
                whole[name] = self.keys.join(parts)
            elif name in WHOLE or self.plan == "states":
                assert all(torch.equal(part, parts[0]) for part in parts), f"{name} differs between processes"
                whole[name] = parts[0]
            else:
                whole[name] = self.queries.join(parts)
        return whole


def layout(tokens: int, processes: int, kind: str, start: int = 0) -> scale.Layout:
    """A layout of one of the kinds that are tested."""
    if kind == "zigzag":
        return scale.zigzag(tokens, processes, start=start)
    if kind == "contiguous":
        return scale.contiguous(tokens, processes, start=start)
    # Torch's generator was seeded by the case: every process draws the same cuts.
    cuts = sorted([0, tokens, *torch.randint(tokens + 1, (5,)).tolist()])
    stretches: list[list[range]] = [[] for _ in range(processes)]
    for before, after in itertools.pairwise(cuts):
        stretches[int(torch.randint(processes, ()))].append(range(start + before, start + after))
    return scale.Layout(tuple(tuple(reversed(parts)) for parts in stretches))


def split(case: Case, number: int, groups: dict[int, Any]) -> Split | None:
    """How the case of this number is cut; None for a process that has no part in it."""
    torch.manual_seed(number)
    size, plan = (2, 3, 4)[number % 3], PLANS[number // 3 % 3]
    kind = ("zigzag", "contiguous", "scattered")[number // 9 % 3]
    offset = case.spec.offset
    keys = layout(case.key.shape[2], size, kind)
    queries = layout(case.query.shape[2], size, kind, offset)
    # An empty sequence has no first position to say.
    rank = dist.get_rank(groups[size])
    if rank < 0:
        return None
    return Split(case, plan, keys, queries, groups[size], rank)


def group_of() -> dict[int, Any]:
    """Groups of two, three and four processes; the smaller ones are the last processes."""
    return {2: dist.new_group([2, 3]), 3: dist.new_group([1, 2, 3]), 4: dist.new_group([0, 1, 2, 3])}


def check_cases(rank: int, count: int, number: int) -> list[str]:
    """What is wrong with drawn calls over processes: statistics, and for every third one gradients."""
    groups, wrong = group_of(), []
    for index, case in enumerate(drawn(count, number)):
        # Python's code cannot be seen by the native engine, and float64 is not its own.
        if index % 2:
            case = case.to(torch.float32)
        parts = split(case, index, groups)
        if parts is None:
            continue
        for fault in _faults(parts):
            wrong.append(f"case {index} ({parts.plan}, {parts.keys.stretches}, {case}): {fault}")
        if index % 3 == 0:
            wrong += [f"case {index} ({parts.plan}, {case}): {fault}" for fault in gradient_faults(parts)]
    return wrong


def _faults(parts: Split) -> list[str]:
    case = parts.case
    seen = parts.observe(case, statistics=case.choices.values(), map=4, top=3)
    table = found(seen) | {"top weights": seen.top.weights, "top keys": seen.top.keys}
    tables: list[Any] = [None] * dist.get_world_size(parts.group)
    dist.all_gather_object(tables, table, parts.group)
    if parts.rank:
        return []
    whole = parts.joined(tables)
    top = Top(whole.pop("top weights"), whole.pop("top keys"))
    dtype = case.query.dtype
    cell = seen.map.cell
    naive = None if dtype == torch.float64 else case.truth(torch.float32, cell)
    missing = set(table) - {"top weights", "top keys"} - set(whole)
    assert not missing
    return faults(whole, case, naive, cell) + top_faults(top, case, dtype)


def gradient_faults(parts: Split) -> list[str]:
    """Gradients against those of one device, in float64."""
    case = parts.case.to(torch.float64)
    bias = case.keywords["bias"]
    if isinstance(bias, ScoreMod):
        return []
    leaves = {name: getattr(case, name).detach().requires_grad_() for name in ("query", "key", "value")}
    if case.keywords["sink_logit"] is not None:
        leaves["sink_logit"] = case.keywords["sink_logit"].double().detach().requires_grad_()
    parameter = bias.parameter if isinstance(bias, Bias) else bias
    if parameter is not None:
        leaves["bias"] = parameter.double().detach().requires_grad_()
        bias = bias.with_values(leaves["bias"]) if isinstance(bias, Bias) else leaves["bias"]
    keywords = case.keywords | {"bias": bias, "sink_logit": leaves.get("sink_logit")}
    tensors = {name: leaves[name] for name in ("query", "key", "value")}
    case = replace(case, **tensors, keywords=keywords)
    want_of = {"statistics": case.choices.values()}
    whole = found(case.observe(**want_of))
    names = [name for name in SMOOTH if name in whole]
    factors = {name: torch.randn_like(whole[name]) for name in names}
    truth = _grads(whole, factors, leaves)
    mine = found(parts.observe(case, **want_of))
    got = _grads(mine, {name: factor[:, :, parts.rows] for name, factor in factors.items()}, leaves)
    result = []
    for name, grad in got.items():
        total = grad.clone()
        # With whole queries every process has the whole gradient but of its keys' shards, which lie in zeros.
        if parts.plan != "states" or name in ("key", "value"):
            dist.all_reduce(total, group=parts.group)
        size = 1 + truth[name].abs().max().item() if truth[name].numel() else 1.0
        # A spread of one part in 1e9 of sums that grow with the keys.
        if total.numel() and not (total - truth[name]).abs().max() <= 1e-8 * size * case.key.shape[2]:
            result.append(f"gradient of {name}: {total} instead of {truth[name]}")
    return result


def _grads(
    results: dict[str, Tensor], factors: dict[str, Tensor], leaves: dict[str, Tensor]
) -> dict[str, Tensor]:
    lse = results["lse"]
    results = results | {"lse": lse.where(lse != -torch.inf, 0.0)}
    loss = sum((factor * results[name]).sum() for name, factor in factors.items())
    grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True, retain_graph=True)
    return dict(zip(leaves, grads, strict=True))
