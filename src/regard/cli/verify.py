"""`regard verify`: every engine of this machine against the float64 definition, on random inputs, within a budget.

The budget of a statistic is twice the error of the naive computation in the same precision, plus rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import regard
from regard import reference
from regard.axes import sizes_of, statistics_dtype
from regard.engines import ENGINES
from regard.errors import RegardError
from regard.spec import Spec

ROUNDING = 16  # units in the last place of the largest value
ORDER = ("engine", "case", "statistic", "error", "budget", "")
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Error:
    """The largest error of one statistic in one case, and what it may be."""

    engine: str
    case: str
    statistic: str
    error: float
    budget: float

    @property
    def within(self) -> bool:
        """Whether the error keeps to its budget; NaN does not."""
        return self.error <= self.budget


def verify(
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, mps …")] = "cpu",
    full: Annotated[bool, typer.Option("--full", help="Print every statistic of every case.")] = False,
) -> None:
    """Check every engine of this machine against the float64 definition."""
    console = Console()
    errors = list(measure(seed, device))
    table = Table(title=f"errors against float64 (torch {torch.__version__}, {device})", header_style="bold")
    for name in ORDER:
        table.add_column(name, justify="right" if name in ("error", "budget") else "left")
    for line in errors if full else _worst(errors):
        mark = "ok" if line.within else "[red]too large[/red]"
        table.add_row(line.engine, line.case, line.statistic, f"{line.error:.1e}", f"{line.budget:.1e}", mark)
    console.print(table)
    wrong = [line for line in errors if not line.within]
    console.print(
        f"{len(errors)} comparisons, {len(wrong)} beyond their budget"
        + ("" if full else "; --full shows all")
    )
    if wrong:
        raise typer.Exit(1)


def measure(seed: int = 0, device: str = "cpu") -> Iterator[Error]:
    """The errors of every engine in every case and precision."""
    generator = torch.Generator().manual_seed(seed)
    for case, arguments in _cases(generator).items():
        drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in _SHAPES]
        for name, dtype in DTYPES.items():
            query, key, value = (t.to(dtype) for t in drawn)
            spec = Spec.of(sizes_of(query, key, value), **arguments)
            truth = reference.observe(query, key, value, spec)
            naive = reference.observe(query, key, value, spec, dtype=statistics_dtype(dtype))
            for engine in ENGINES:
                seen = _observe(engine.name, query, key, value, arguments, device)
                picked = seen.pop("argmax").clamp(min=0).unsqueeze(-1)  # equal scores may round either way
                seen["argmax"] = reference.weights(query, key, spec).gather(-1, picked).squeeze(-1)
                for statistic, value64 in (truth | {"argmax": truth["max_weight"]}).items():
                    yield _error(
                        engine.name, f"{case}, {name}", statistic, seen[statistic], value64, naive, dtype
                    )


def _worst(errors: list[Error]) -> list[Error]:
    """The line of each case that comes closest to its budget, or passes it the most."""
    worst: dict[tuple[str, str], Error] = {}
    for line in errors:
        held = worst.setdefault((line.engine, line.case), line)
        if not line.error * held.budget <= held.error * line.budget:
            worst[line.engine, line.case] = line
    return list(worst.values())


_SHAPES = ((2, 6, 151, 31), (2, 3, 197, 31), (2, 3, 197, 37))


def _cases(generator: torch.Generator) -> dict[str, dict[str, Any]]:
    rg = regard
    return {
        "all keys": {},
        "causal": {"mask": rg.causal()},
        "window and padding": {"mask": rg.near(23) & rg.padding(torch.tensor([197, 89]))},
        "documents": {"mask": rg.documents(torch.arange(197) // 67) & rg.causal()},
        "softcap, sink, alibi": {
            "mask": rg.causal(),
            "softcap": 5.0,
            "sink_logit": torch.randn(6, generator=generator, dtype=torch.float64),
            "bias": rg.alibi(torch.rand(6, generator=generator, dtype=torch.float64)),
        },
    }


def _observe(
    engine: str, query: Tensor, key: Tensor, value: Tensor, arguments: dict[str, Any], device: str
) -> dict[str, Tensor]:
    try:
        query, key, value = (t.to(device) for t in (query, key, value))
        moved: dict[str, Any] = {
            n: a.to(device) if isinstance(a, Tensor) else a for n, a in arguments.items()
        }
    except (RuntimeError, AssertionError) as error:
        raise RegardError(f"the device must be one that torch has here, got {device!r}: {error}") from error
    seen = regard.observe(query, key, value, engine=engine, **moved)
    return {name: getattr(seen, name).cpu() for name in ("output", *regard.statistics.TABLE)}


def _error(
    engine: str,
    case: str,
    statistic: str,
    seen: Tensor,
    truth: Tensor,
    naive: dict[str, Tensor],
    dtype: torch.dtype,
) -> Error:
    plain = naive["max_weight" if statistic == "argmax" else statistic]
    if statistic == "spread":  # the root of a difference of moments: rounding enters under the root
        seen, truth, plain = seen.double().square(), truth.square(), plain.double().square()
        rounding = _rounding(torch.tensor(float(_SHAPES[1][2] ** 2)), dtype, statistic)
    else:
        rounding = _rounding(truth, dtype, statistic)
    return Error(engine, case, statistic, _gap(seen, truth), 2 * _gap(plain, truth) + rounding)


def _gap(seen: Tensor, truth: Tensor) -> float:
    """Largest difference; infinities must agree, and a NaN is infinitely wrong."""
    seen, truth = seen.double(), truth.double()
    return float(torch.where(seen == truth, 0.0, (seen - truth).abs()).nan_to_num(torch.inf).max())


def _rounding(truth: Tensor, dtype: torch.dtype, statistic: str) -> float:
    """What rounding alone may do: statistics are float32 or float64, the output has the inputs' precision."""
    kind = dtype if statistic == "output" else statistics_dtype(dtype)
    size = float(truth.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
    return ROUNDING * torch.finfo(kind).eps * max(1.0, size)
