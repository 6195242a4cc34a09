"""`regard bench`: Regard beside torch's SDPA and stored weights on this machine. Knows how results are told.

What is asked is in `contests`, how it is timed in `timing`, what the machine is in `machine`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from torch.nn.functional import scaled_dot_product_attention

import regard
from regard import files
from regard.bench import contests
from regard.bench.contests import Contest, Setting
from regard.bench.machine import machine, peak
from regard.bench.timing import MATMUL, MATMUL_FLOP, Times, interleaved, over
from regard.draw.complexity import Point, growth
from regard.errors import ArgumentError, RegardError

# Tokens up to which weights are stored: several matrices of 8 heads must fit.
MOST_STORED = 4096
HEADS = 8
WAYS = {
    "regard": "Regard: output and all row statistics",
    "sdpa": "torch's SDPA: output only",
    "stored": "stored weights: output and row statistics",
}
NOTE = (
    "Medians of interleaved runs. Rates count 4 · pairs · dim operations forward, 10 backward and 2 for columns, "
    f"masked pairs not counted; the share is of torch's own {MATMUL} × {MATMUL} matrix product in the same run and "
    "type. Decoding: bytes of keys and values, beside a plain read of them. SDPA gives the output only."
)


@dataclass(frozen=True)
class Sizes:
    """How long the inputs are.

    Attributes:
        length: tokens of the dense questions, in every combination of width and mask where `all_kinds`.
        others: further lengths for the rows.
        sparse: tokens under sparse masks. keys: of decoding. growth: lengths of the figure. rounds: repetitions.
    """

    length: int
    others: tuple[int, ...]
    sparse: int
    keys: int
    growth: tuple[int, ...]
    rounds: int
    all_kinds: bool


SIZES = {
    False: Sizes(2048, (), 4096, 32768, (256, 512, 1024, 2048), 5, False),
    True: Sizes(4096, (1024, 16384), 16384, 131072, (512, 1024, 2048, 4096, 8192, 16384), 9, True),
}


@dataclass(frozen=True)
class Line:
    """One line of the table: a contest that was run."""

    name: str
    engine: str
    unit: str
    rate: float  # of Regard, in `unit` per second
    best: float  # of torch's matrix product or of a plain read, in the same unit and run
    times: Times
    share: float | None = None

    def over(self, other: str) -> float | None:
        """Regard's time as a multiple of another candidate's; None where that one did not run."""
        if other in self.times:
            return over(self.times, "regard", other)
        return None

    @property
    def remark(self) -> str:
        """What else the contest tells."""
        if (plain := self.over("plain")) is not None:
            return f"{plain:.2f} × without statistics"
        if self.share is not None and (full := self.over("full")) is not None:
            return f"{self.share:.1%} of the pairs in {full:.1%} of the full time"
        return ""


def bench(
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="Longer inputs, more of them; or done within a minute or so."),
    ] = False,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, mps …")] = "cpu",
    threads: Annotated[
        int | None, typer.Option(help="Threads on the CPU; without it, as torch has them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Draw time and memory against length into this folder (PNG, SVG).")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Keep every figure in this file.")] = None,
) -> None:
    """Measure Regard on this machine: time beside torch's SDPA and stored weights, rates, memory."""
    if threads is not None and threads < 1:
        raise ArgumentError(f"--threads must be at least 1, got {threads}")
    _check(device, out, json_file)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        _run(Console(), SIZES[full], device, out, json_file)
    finally:
        torch.set_num_threads(before)


def _run(console: Console, sizes: Sizes, device: str, out: Path | None, json_file: Path | None) -> None:
    facts = machine(device)
    lines = []
    with console.status("measuring") as status:
        for make in _questions(sizes, device):
            contest = make()
            status.update(contest.name)
            lines.append(measure(contest, sizes.rounds, device))
        status.update("time and memory against length")
        curves = grown(sizes.growth, device)
    _print(console, lines, facts)
    _print_growth(console, curves)
    if out is not None:
        for path in _draw(curves, facts, out):
            console.print(f"A figure: {path}", highlight=False)
    if json_file is not None:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        measured = {
            "date": date,
            "machine": facts,
            "lines": [asdict(line) for line in lines],
            "growth": {name: [asdict(point) for point in curve] for name, curve in curves.items()},
        }
        files.write(json_file, json.dumps(measured, indent=2) + "\n", error=ArgumentError, what="figures")
        console.print(f"The figures: {json_file}", highlight=False)


def measure(contest: Contest, rounds: int = 5, device: str = "cpu") -> Line:
    """Run the candidates of a contest in turns."""
    times = interleaved(contest.candidates, rounds, device)
    limits = [t["median_s"] for name, t in times.items() if name == "matmul" or name.startswith("read ")]
    most: float = MATMUL_FLOP
    if contest.unit == "B":
        most = contest.work
    return Line(
        contest.name,
        contest.engine,
        contest.unit,
        rate=contest.work / times["regard"]["median_s"],
        best=most / min(limits),
        times=times,
        share=contest.share,
    )


def grown(lengths: tuple[int, ...], device: str = "cpu") -> dict[str, list[Point]]:
    """Time and peak memory of each way against length, causal, dim 64; stored weights stop where they get too large."""
    curves: dict[str, list[Point]] = {name: [] for name in WAYS.values()}
    for length in lengths:
        setting = Setting(length, heads=HEADS, device=device)
        inputs = setting.inputs()
        runs: dict[str, Callable[[], object]] = {
            "regard": partial(regard.observe, *inputs, mask=setting.mask, statistics="rows"),
            "sdpa": partial(scaled_dot_product_attention, *inputs, is_causal=True),
        }
        if length <= MOST_STORED:
            runs["stored"] = partial(contests.stored, *inputs, causal=True)
        times = interleaved(runs, 3, device)
        for way, run in runs.items():
            curves[WAYS[way]].append(Point(length, times[way]["median_s"], peak(run, device)))
    return curves


def _questions(sizes: Sizes, device: str) -> Iterator[Callable[[], Contest]]:
    """The contests of the table, each made when its turn comes, so that one set of inputs is there at a time."""
    plain = Setting(sizes.length, heads=HEADS, device=device)
    kinds = [(64, True), (64, False), (128, True), *([(128, False)] if sizes.all_kinds else [])]
    dense = [replace(plain, dim=dim, causal=causal) for dim, causal in kinds]
    dense += [
        replace(plain, length=length, causal=causal) for length in sizes.others for causal in (True, False)
    ]
    for case in dense:
        yield partial(contests.rows, case, with_stored=case.length <= MOST_STORED)
    yield partial(contests.rows, replace(plain, dtype=torch.bfloat16), with_stored=False)
    yield partial(contests.columns, plain)
    yield partial(contests.backward, plain)
    long = replace(plain, length=sizes.sparse, causal=False, heads=2)
    for name, mask in contests.masks(sizes.sparse, device).items():
        yield partial(contests.sparse, long, name, mask)
    yield partial(contests.decoding, replace(plain, length=sizes.keys, dim=128, causal=False))


def _check(device: str, out: Path | None, json_file: Path | None) -> None:
    """Raise for a device or a place that cannot be used, before anything is measured."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise RegardError(f"the device must be one that torch has here, got {device!r}: {error}") from error
    for option, path, file in (("--out", out, False), ("--json", json_file, True)):
        if path is None:
            continue
        try:
            (path.parent if file else path).mkdir(parents=True, exist_ok=True)
            if file:
                files.check_writable(path)
        except OSError as error:
            raise ArgumentError(
                f"{option} must be a place that can be written to, got {str(path)!r}: {error.strerror}"
            ) from error


def _print(console: Console, lines: list[Line], facts: dict[str, Any]) -> None:
    title = (
        f"{facts['processor'] if facts['device'] == 'cpu' else facts['device']}, threads: {facts['threads']}, "
        f"torch {facts['torch']}, engines: {', '.join(facts['engines'])}"
    )
    table = _table(
        title, ("question", "engine", "Regard", "rate", "of product", "SDPA", "stored", "÷ SDPA", "")
    )
    for line in lines:
        share = f"{line.rate / line.best:.0%}" + (" of a read" if line.unit == "B" else "")
        others = [_ms(line.times, "sdpa"), _ms(line.times, "stored"), _ratio(line.over("sdpa"))]
        rate = f"{line.rate / 1e9:.0f} G{line.unit}/s"
        table.add_row(line.name, line.engine, _ms(line.times, "regard"), rate, share, *others, line.remark)
    console.print(table)
    console.print(f"[dim]{NOTE}[/dim]", highlight=False)


def _print_growth(console: Console, curves: dict[str, list[Point]]) -> None:
    table = _table(
        f"causal, {HEADS} heads, dim 64: time and peak memory above the inputs", ("tokens", *curves)
    )
    lengths = sorted({point.tokens for curve in curves.values() for point in curve})
    for length in lengths:
        points = [next((p for p in curve if p.tokens == length), None) for curve in curves.values()]
        table.add_row(str(length), *(_point(point) for point in points))
    console.print(table)


def _table(title: str, columns: tuple[str, ...]) -> Table:
    look: dict[str, Any] = {
        "title_justify": "left",
        "header_style": "bold",
        "box": box.SIMPLE_HEAD,
        "pad_edge": False,
    }
    table = Table(title=title, **look)
    for name in columns:
        table.add_column(name, justify="left" if name in ("question", "engine", "") else "right")
    return table


def _ms(times: Times, name: str) -> str:
    if name in times:
        return f"{times[name]['median_s'] * 1e3:.1f} ms"
    return "–"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:.2f}"


def _point(point: Point | None) -> str:
    if point is None:
        return "–"
    memory = ""
    if point.bytes is not None:
        memory = f", {point.bytes / 1e6:.1f} MB"
    return f"{point.seconds * 1e3:.1f} ms{memory}"


def _draw(curves: dict[str, list[Point]], facts: dict[str, Any], folder: Path) -> list[Path]:
    """Save the figure of time and memory against length."""
    figure = growth(
        curves,
        title="Time and memory of causal attention against length",
        note=f"{HEADS} heads, dim 64, float32; {facts['processor']}, threads: {facts['threads']}, "
        f"torch {facts['torch']}. Stored weights are measured up to {MOST_STORED} tokens.",
    )
    written = [folder / f"growth.{suffix}" for suffix in ("png", "svg")]
    for path in written:
        with files.replacing(path, error=ArgumentError, what="figure") as unfinished:
            figure.savefig(unfinished)
    return written
