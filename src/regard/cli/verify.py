"""`regard verify`: every engine of this machine against the float64 definition, with an error budget.

The budget of each statistic is twice the error of the naive computation in the same precision, plus rounding.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import regard
from regard import reference
from regard.engines import ENGINES, native
from regard.engines.native.library import ENVIRONMENT
from regard.engines.protocol import Engine
from regard.errors import RegardError
from regard.shapes import sizes_of, statistics_dtype
from regard.spec import Spec
from regard.spec.bias import Bias
from regard.statistics.table import wanted

# Units in the last place of the largest value.
ROUNDING = 16
# Cells a side of the map, strongest keys.
GRID, TOP = 13, 3
DIFFERENTIATED = (
    "output",
    "lse",
    "entropy",
    "sum_squares",
    "distance",
    "local",
    "self_mass",
)  # results that a loss is made of
ORDER = ("engine", "precision", "case", "statistic", "error", "budget", "")
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
Numbers = dict[str, Tensor]


@dataclass(frozen=True)
class Error:
    """The largest error of one statistic in one case, and what it may be."""

    engine: str
    precision: str
    case: str
    statistic: str
    error: float
    budget: float

    @property
    def within(self) -> bool:
        """Whether the error keeps to its budget; NaN does not."""
        return self.error <= self.budget


@dataclass(frozen=True)
class Refusal:
    """What an engine does not take here, and why."""

    engine: str
    precision: str
    reason: str


@dataclass(frozen=True)
class Call:
    """Inputs in one precision, the keywords of their spec, and the factors of a loss."""

    tensors: tuple[Tensor, Tensor, Tensor]
    arguments: dict[str, Any]
    factors: Numbers

    @property
    def spec(self) -> Spec:
        """The keywords as a spec."""
        return Spec.of(sizes_of(*self.tensors), **self.arguments)

    def gradients(self, results: Numbers, leaves: Iterable[Tensor]) -> Numbers:
        """Gradients of Σ factor · result, over the results that are there, with respect to query, key and value."""
        loss = torch.zeros((), dtype=torch.float64)
        for name in DIFFERENTIATED:
            if name not in results:
                continue
            result = results[name].double().cpu()
            # Empty rows have an lse of −inf, whose gradient would be NaN.
            loss = loss + (self.factors[name] * result.where(result.isfinite(), 0.0)).sum()
        gradients = torch.autograd.grad(loss, list(leaves))
        return dict(zip(("d query", "d key", "d value"), gradients, strict=True))


def verify(
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, mps …")] = "cpu",
    full: Annotated[bool, typer.Option("--full", help="Print every statistic of every case.")] = False,
) -> None:
    """Check every engine of this machine against the float64 definition."""
    console = Console()
    lines = list(measure(seed, device))
    # A refusal is no error: an engine says what it does not take.
    errors = [line for line in lines if isinstance(line, Error)]
    table = Table(title=f"errors against float64 (torch {torch.__version__}, {device})", header_style="bold")
    for name in ORDER:
        table.add_column(name, justify="right" if name in ("error", "budget") else "left")
    for line in errors if full else _worst(errors):
        mark = "[red]too large[/red]"
        if line.within:
            mark = "ok"
        table.add_row(
            line.engine,
            line.precision,
            line.case,
            line.statistic,
            f"{line.error:.1e}",
            f"{line.budget:.1e}",
            mark,
        )
    console.print(table)
    for (engine, reason), precisions in _refused(lines).items():
        console.print(
            f"not checked: {engine} in {', '.join(precisions)}: {reason}", markup=False, soft_wrap=True
        )
    for trial in _trials():
        console.print(trial, markup=False, soft_wrap=True)
    wrong = [line for line in errors if not line.within]
    console.print(
        f"{len(errors)} comparisons, {len(wrong)} beyond their budget"
        + ("" if full else "; --full shows all")
    )
    if wrong:
        raise typer.Exit(1)


def measure(seed: int = 0, device: str = "cpu") -> Iterator[Error | Refusal]:
    """The errors of every engine and build in every case and precision, and what they do not take."""
    generator = torch.Generator().manual_seed(seed)
    for case, (shapes, arguments) in _cases(generator).items():
        # In double precision once, so that every precision sees the same numbers.
        drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        rows = (*shapes[0][:3],)
        factors = {
            name: torch.randn(rows, generator=generator, dtype=torch.float64) for name in DIFFERENTIATED
        }
        factors["output"] = (
            torch.randn((*rows, shapes[2][3]), generator=generator).to(torch.bfloat16).double()
        )
        for precision, dtype in DTYPES.items():
            # Rounded before the truth is computed, so that rounding of the inputs is no engine's error.
            query, key, value = (t.to(dtype) for t in drawn)
            yield from _compare(case, precision, Call((query, key, value), arguments, factors), device)


def _compare(case: str, precision: str, call: Call, device: str) -> Iterator[Error | Refusal]:
    dtype = call.tensors[0].dtype
    tables: dict[frozenset[str], list[Numbers]] = {}
    for engine, build in _runners():
        label = f"{engine.name} {build}".strip()
        with _using(build):
            refused = _refused_of(engine, call, device)
            for reason in sorted(set(refused.values())):
                what = [name for name in refused if refused[name] == reason]
                yield Refusal(
                    label, precision, reason if "output" in refused else f"{', '.join(what)}: {reason}"
                )
            if "output" in refused:
                continue
            seen, cell = _observe(engine.name, call, device, refused)
        names = frozenset(seen)
        # The float64 computation costs most: engines that give the same results share it.
        if names not in tables:
            tables[names] = [
                _dense(call, exact, cell, names) for exact in (torch.float64, statistics_dtype(dtype))
            ]
        truth, naive = tables[names]
        # Equal scores may come in either order.
        for statistic, named in (("argmax", 1), ("top keys", TOP)):
            if statistic not in seen:
                continue
            picked = seen[statistic].view(*seen["lse"].shape, named)
            weights = reference.weights(*call.tensors[:2], call.spec)
            seen[statistic] = torch.where(picked < 0, 0.0, weights.gather(-1, picked.clamp(min=0)))
        for statistic, value in truth.items():
            yield _error(label, precision, case, statistic, seen[statistic], value, naive[statistic], dtype)


def _runners() -> Iterator[tuple[Engine, str]]:
    """Every engine, with each of its builds that computes right here; without any, alone: it will say why."""
    for engine in ENGINES:
        builds = {}
        if engine is native:
            builds = native.builds()
        running = [name for name, (_, runs) in builds.items() if runs]
        for build in [name for name in running if native.verdict(name).good] or [""]:
            yield engine, build


def _trials() -> Iterator[str]:
    """What each build of an engine did in its trial, a line for each engine that has builds."""
    for engine in ENGINES:
        builds = {}
        if engine is native:
            builds = native.builds()
        verdicts = [
            f"{name} {native.verdict(name).said if runs else 'not for this processor'}"
            for name, (_, runs) in builds.items()
        ]
        if verdicts:
            yield f"builds of {engine.name}: {', '.join(verdicts)}"


@contextmanager
def _using(build: str) -> Iterator[None]:
    """The environment names this build, and then what it named before."""
    before = os.environ.get(ENVIRONMENT)
    # The engine reads it at each call, so builds can be changed within one process.
    os.environ[ENVIRONMENT] = build
    try:
        yield
    finally:
        os.environ.pop(ENVIRONMENT)
        if before is not None:
            os.environ[ENVIRONMENT] = before


def _refused(lines: Iterable[Error | Refusal]) -> dict[tuple[str, str], dict[str, None]]:
    """The precisions that an engine refuses for one reason, by engine and reason."""
    precisions: dict[tuple[str, str], dict[str, None]] = {}
    for line in lines:
        if isinstance(line, Refusal):
            precisions.setdefault((line.engine, line.reason), {})[line.precision] = None
    return precisions


def _worst(errors: list[Error]) -> list[Error]:
    """The line of each engine and precision that comes closest to its budget, or passes it the most."""
    # Compared crosswise, as a budget may be 0 and a NaN must win.
    worst: dict[tuple[str, str], Error] = {}
    for line in errors:
        held = worst.setdefault((line.engine, line.precision), line)
        if not line.error * held.budget <= held.error * line.budget:
            worst[line.engine, line.precision] = line
    return sorted(worst.values(), key=lambda line: line.engine)


Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_MANY: Shapes = ((2, 4, 127, 32), (2, 2, 149, 32), (2, 2, 149, 37))
_SQUARE: Shapes = ((2, 4, 149, 32), (2, 2, 149, 32), (2, 2, 149, 37))
_FEW: Shapes = ((1, 4, 2, 31), (1, 2, 2099, 31), (1, 2, 2099, 5))


def _cases(generator: torch.Generator) -> dict[str, tuple[Shapes, dict[str, Any]]]:
    rg = regard

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    # A bias of −inf at about a third of the pairs: a mask in the form that models often give it.
    holes = draw(1, 4, 127, 149)
    return {
        "all keys": (_MANY, {}),
        "causal": (_MANY, {"mask": rg.causal()}),
        "window and padding": (_MANY, {"mask": rg.near(23) & rg.padding(torch.tensor([149, 89]))}),
        "documents": (_MANY, {"mask": rg.documents(torch.arange(149) // 53) & rg.causal()}),
        "strided and window": (_MANY, {"mask": rg.causal() & (rg.strided(8) | rg.near(13))}),
        "softcap, sink, alibi": (
            _MANY,
            {
                "mask": rg.causal(),
                "softcap": 5.0,
                "sink_logit": draw(4),
                "bias": rg.alibi(torch.rand(4, generator=generator, dtype=torch.float64)),
            },
        ),
        "relative bias": (_MANY, {"bias": rg.relative(draw(4, 31)), "align": "start"}),
        "dense bias with −inf": (_MANY, {"bias": holes.masked_fill(holes > 0.5, -torch.inf)}),
        "few queries": (_FEW, {"mask": rg.causal()}),
        "causal from the start": (_SQUARE, {"mask": rg.causal()}),
    }


def _refused_of(engine: Engine, call: Call, device: str) -> dict[str, str]:
    """What an engine refuses of a call on this device, with the reasons; "output" stands for the whole of it."""
    moved = _moved(call, device)

    def reason(*statistics: str, top: int = 0, cell: int = 0) -> str | None:
        return engine.refuses(*moved.tensors, moved.spec, wanted(statistics, top=top, cell=cell))

    if whole := reason():
        return {"output": whole}
    reasons = {name: reason(name) for name in regard.statistics.TABLE}
    reasons |= {"map": reason(cell=1), "top": reason(top=TOP)}
    return {name: why for name, why in reasons.items() if why is not None}


def _moved(call: Call, device: str) -> Call:
    def move(item: Any) -> Any:
        if isinstance(item, Bias) and item.parameter is not None:
            return item.with_values(item.parameter.to(device))
        if isinstance(item, Tensor):
            return item.to(device)
        return item

    try:
        query, key, value = (t.to(device) for t in call.tensors)
        arguments = {name: move(item) for name, item in call.arguments.items()}
    except (RuntimeError, AssertionError) as error:
        raise RegardError(f"the device must be one that torch has here, got {device!r}: {error}") from error
    return Call((query, key, value), arguments, call.factors)


def _observe(engine: str, call: Call, device: str, refused: Collection[str]) -> tuple[Numbers, int]:
    """What an engine does not refuse, its gradients, and how many tokens a cell of its map has, 0 for none."""
    moved = _moved(call, device)
    leaves = [t.detach().requires_grad_() for t in moved.tensors]
    names = [name for name in regard.statistics.TABLE if name not in refused]
    grid, top = None, TOP
    if "map" not in refused:
        grid = GRID
    if "top" in refused:
        top = 0
    result = regard.observe(*leaves, engine=engine, statistics=names, map=grid, top=top, **moved.arguments)
    rows = {name: getattr(result, name) for name in ("output", *names)}
    rows |= moved.gradients(rows, leaves)
    if result.map is not None:
        rows |= {"map": result.map.total, "map peak": result.map.peak}
    if result.top is not None:
        rows |= {"top": result.top.weights, "top keys": result.top.keys}
    seen = {name: tensor.detach().cpu() for name, tensor in rows.items()}
    if result.map is None:
        return seen, 0
    return seen, result.map.cell


def _dense(call: Call, dtype: torch.dtype, cell: int, names: Collection[str]) -> Numbers:
    """What has these names by the definition in this precision, with everything stored; keys told by their weights."""
    query, key, value = (t.to(dtype).detach().requires_grad_() for t in call.tensors)
    rows = reference.observe(query, key, value, call.spec, dtype=dtype)
    rows |= call.gradients({name: row for name, row in rows.items() if name in names}, (query, key, value))
    weights = reference.weights(query, key, call.spec, dtype)[..., : key.shape[2]]
    if cell:
        rows["map"], rows["map peak"] = reference.pooled(weights, cell, call.spec.offset)
    rows["top"] = rows["top keys"] = weights.topk(TOP).values
    rows["argmax"] = rows["max_weight"].unsqueeze(-1)
    return {name: rows[name].detach() for name in rows if name in names}


def _error(
    engine: str,
    precision: str,
    case: str,
    statistic: str,
    seen: Tensor,
    truth: Tensor,
    naive: Tensor,
    dtype: torch.dtype,
) -> Error:
    size = float(truth.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
    # The root of a difference of moments: rounding enters under the root.
    if statistic == "spread":
        seen, truth, naive = seen.double().square(), truth.square(), naive.double().square()
        keys = _MANY[1][2]
        if case == "few queries":
            keys = _FEW[1][2]
        size = float(keys**2)
    rounding = ROUNDING * torch.finfo(statistics_dtype(dtype)).eps
    # The naive computation is the truth itself: rounding is all there is.
    if dtype == torch.float64:
        rounding *= 16
    # They have the inputs' precision.
    if statistic == "output" or statistic.startswith("d "):
        rounding += torch.finfo(dtype).eps
    return Error(
        engine,
        precision,
        case,
        statistic,
        _gap(seen, truth),
        2 * _gap(naive, truth) + rounding * max(1.0, size),
    )


def _gap(seen: Tensor, truth: Tensor) -> float:
    """Largest difference; infinities must agree, and a NaN is infinitely wrong."""
    seen, truth = seen.double(), truth.double()
    return float(torch.where(seen == truth, 0.0, (seen - truth).abs()).nan_to_num(torch.inf).max())
