"""The arguments of a call that many processes make together, checked on each of them and compared between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from regard.checks.arguments import shown
from regard.checks.transforms import tracing, transforming
from regard.engines import ENGINES
from regard.engines.protocol import Engine
from regard.errors import ArgumentError, EngineError, ShapeError
from regard.masks import Mask
from regard.scale.described import described_bias, described_column, described_mask, described_tensor, digest
from regard.scale.layout import Layout
from regard.scale.links import Links
from regard.scale.plans import PLANS
from regard.scale.runner import Sharded
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec
from regard.spec.bias import Bias, as_bias
from regard.statistics.table import Wanted

# Engines whose formulas need all keys of a call at once, so that they cannot compute a part of one.
WHOLE_CALLS = ("sdpa",)


class ShardArguments(TypedDict, total=False):
    """The keywords that `attend` and `observe` of this module share.

    queries: which process holds which queries; None for the layout of the keys. With plan "states" every process
        holds all queries, and None means that they are the last positions.

    plan: "ring" (default): keys and values travel from process to process, and each process needs O(n / p) memory.
        "gather": every process receives all keys and values at once, in O(n) memory. "states": keys stay, every process
        has all queries, and their states are merged; for decoding.

    group: torch's process group; None for all processes.

    mask, bias, scale, softcap, sink_logit: as for `regard.attend`. A mask is that of the whole sequence; the rows of a
        dense bias are this process's queries, its columns all keys.
    """

    queries: Layout | None
    plan: Literal["ring", "gather", "states"]
    group: Any
    mask: Mask | None
    bias: Bias | Tensor | None
    scale: float | None
    softcap: float | None
    sink_logit: Tensor | None


@dataclass(frozen=True)
class Call:
    """A process's part of a call that every process of the group makes."""

    runner: Sharded
    spec: Spec
    want: Wanted


def prepared(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    keys: Layout,
    arguments: ShardArguments,
    wanted: Callable[[Sizes, int], Wanted],
    engine: str,
) -> Call:
    """Check a process's part of a call, and that the others make the same one.

    Args:
        wanted: what is asked of a call of these sizes whose first query has this position.
    """
    keywords: dict[str, Any] = dict(arguments)
    links = Links.of(keywords.pop("group", None))
    calls: list[Call] = []

    def describe() -> Mapping[str, Any]:
        calls.append(_checked((query, key, value), keys, keywords, links, wanted, engine))
        return {
            "engine asked for": engine,
            **_card(calls[0], query, key, value, keywords.get("plan", "ring")),
        }

    device = torch.device("cpu")
    if isinstance(query, Tensor):
        device = query.device
    cards = links.agree(describe, device, free=("engine",))
    # One engine for all processes: the most general that one of them needs.
    names = [card["engine"] for card in cards]
    # The list goes from the fastest to the most general.
    chosen = next(candidate for candidate in reversed(ENGINES) if candidate.name in names)
    return replace(calls[0], runner=replace(calls[0].runner, engine=chosen))


def announce(query: Tensor, key: Tensor, value: Tensor | None) -> None:
    """Say to whoever watches that a call over many processes begins, of which it cannot see all; else nothing."""
    inputs = tuple(tensor for tensor in (query, key, value) if tensor is not None)
    # Overridable as torch's functions are: a watch refuses the call, and raises.
    if not torch.compiler.is_compiling() and has_torch_function(inputs):
        handle_torch_function(announce, inputs, query, key, value)


def _checked(
    tensors: tuple[Tensor, Tensor, Tensor | None],
    keys: Layout,
    keywords: Mapping[str, Any],
    links: Links,
    wanted: Callable[[Sizes, int], Wanted],
    engine: str,
) -> Call:
    """The call of this process alone."""
    query, key, value = tensors
    unknown = sorted(set(keywords) - set(ShardArguments.__annotations__))
    if unknown:
        known = ", ".join(ShardArguments.__annotations__)
        raise ArgumentError(
            f"keywords of a call over many processes must be {known} (there is no dropout, and positions are those of "
            f"the layouts), got {', '.join(unknown)}"
        )
    spec_arguments = dict(keywords)
    plan_name, queries = spec_arguments.pop("plan", "ring"), spec_arguments.pop("queries", None)
    if not isinstance(plan_name, str) or plan_name not in PLANS:
        raise ArgumentError(f"plan must be one of {list(PLANS)}, got {shown(plan_name)}")
    plan, local = PLANS[plan_name], sizes_of(query, key, value)
    if tracing(*tensors) or transforming(*tensors):
        raise EngineError(
            "a call over many processes cannot stand in a graph or below a transform of torch.func"
        )
    announce(query, key, value)
    _check_layout("keys", keys, links)
    if keys.start != 0:
        raise ArgumentError(f"the positions of keys must begin at 0, got {keys.start}")
    if queries is not None:
        _check_layout("queries", queries, links)
    first, count, stretches = _queries(queries, keys, local, plan.whole_queries, links.rank)
    _check_count("query", sum(map(len, stretches)), local.queries, links.rank)
    _check_count("key", keys.count(links.rank), local.keys, links.rank)
    # Heads and dims are those of every shard; tokens those of all.
    sizes = replace(local, queries=count, keys=keys.tokens)
    spec = _spec(sizes, local, first, spec_arguments).on(query.device)
    want = wanted(sizes, first)
    runner = Sharded(links, plan, stretches, first, keys, sizes, ENGINES[-1])
    chosen = _engine(engine, runner, query, value, spec, want)
    return Call(replace(runner, engine=chosen), spec, want)


def _check_layout(name: str, layout: object, links: Links) -> None:
    if not isinstance(layout, Layout):
        raise ArgumentError(
            f"{name} must be a layout such as scale.zigzag(tokens, processes), got {shown(layout)}"
        )
    if layout.processes != links.processes:
        raise ArgumentError(
            f"{name} must lie on the {links.processes} processes of the group, got a layout for {layout.processes}"
        )


def _check_count(name: str, count: int, got: int, rank: int) -> None:
    if count != got:
        raise ShapeError(f"process {rank} must hold {count} tokens of {name}, as its layout says, got {got}")


def _queries(
    queries: Layout | None, keys: Layout, local: Sizes, everywhere: bool, rank: int
) -> tuple[int, int, tuple[range, ...]]:
    """Position of the first query of the sequence, how many there are, and the stretches of this process."""
    if not everywhere:
        queries = queries or keys
        return queries.start, queries.tokens, queries.stretches[rank]
    first, count = keys.tokens - local.queries, local.queries
    if queries is not None:
        first, count = queries.start, queries.tokens
    stretches: tuple[range, ...] = ()
    if count:
        stretches = (range(first, first + count),)
    return first, count, stretches


def _spec(sizes: Sizes, local: Sizes, first: int, arguments: Mapping[str, Any]) -> Spec:
    """The spec of the whole sequence, but for a dense bias, which has this process's rows."""
    plain = dict(arguments)
    bias = as_bias(plain.pop("bias", None))
    spec = Spec.of(sizes, **plain, align=first)
    if bias is not None:
        bias.check(replace(sizes, queries=local.queries))
        bias = bias.at(first)
    return replace(spec, bias=bias)


def _engine(
    name: str, runner: Sharded, query: Tensor, value: Tensor | None, spec: Spec, want: Wanted
) -> Engine:
    """The first engine that takes every block of this process.

    Raises:
        EngineError: there is none, or the one asked for refuses a block.
    """
    known = [engine for engine in ENGINES if engine.name not in WHOLE_CALLS]
    names = [engine.name for engine in known]
    if name != "auto" and name not in names:
        raise EngineError(f'engine must be "auto" or one of {names}, got {name!r}')
    # An engine looks at types and at what is asked, not at numbers.
    sample = query[:, :, :0]
    values = None
    if value is not None:
        values = value[:, :, :0]
    blocks = [block for block in runner.blocks(spec, want) if not block.empty]
    reasons = []
    for engine in known:
        if name not in ("auto", engine.name):
            continue
        calls = [(spec, replace(want, columns=())), *((block.local, block.local_want) for block in blocks)]
        refusals = (engine.refuses(sample, sample, values, *call) for call in calls)
        reason = next((reason for reason in refusals if reason is not None), None)
        if reason is None:
            return engine
        reasons.append(f"{engine.name}: {reason}")
    raise EngineError(f"no engine takes this case: {'; '.join(reasons)}")


def _card(call: Call, query: Tensor, key: Tensor, value: Tensor | None, plan: str) -> dict[str, Any]:
    """What must be the same on every process."""
    sizes, spec, want, runner = call.runner.sizes, call.spec, call.want, call.runner
    graded = torch.is_grad_enabled()
    tensors = {"query": query, "key": key, "value": value, "bias": spec.parameter}
    return {
        "engine": runner.engine.name,
        "plan": plan,
        "dtype": str(query.dtype),
        **vars(sizes),
        "position of the first query": runner.first,
        "layout of keys": digest(str(runner.keys.stretches).encode()),
        "with values": value is not None,
        "what requires a gradient": [
            n for n, t in tensors.items() if graded and t is not None and t.requires_grad
        ],
        "mask": described_mask(spec.mask),
        "bias": described_bias(spec.bias),
        "scale": spec.scale,
        "softcap": spec.softcap,
        "sink": described_tensor(spec.sink_logit),
        "statistics": sorted([*want.names, *map(described_column, want.columns)]),
        "top": want.top,
        "tokens per cell of the map": want.cell,
    }
