"""Calls drawn for the proof of the engines: who runs them, in which precision and memory, and what is asked.

Knows which engines and builds run here; the calls themselves are drawn by `cases`, which also judges the answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.cases import BIASES, TILINGS, Case, cases, found, small, tiles_of
from regard.attention import Observation
from regard.engines import native

LOW = (torch.float32, torch.bfloat16, torch.float16)
COMPILED_BIASES = tuple(kind for kind in BIASES if kind != "score_mod")  # Python cannot run in C++
LAYOUTS = ("contiguous", "tokens first", "sliced", "strided", "one batch row", "one head")


@dataclass(frozen=True)
class Runner:
    """An engine, and the build of it."""

    engine: str
    build: str = ""

    def __str__(self) -> str:
        return f"{self.engine}-{self.build}" if self.build else self.engine

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return (torch.float64, *LOW) if self.engine == "tiles" else LOW

    @contextmanager
    def running(self, tiling: tuple[int, int] = TILINGS[-1], threads: int = 1) -> Iterator[None]:
        """This build, this many threads; for the tiles engine, tiles of this shape."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with pytest.MonkeyPatch.context() as patch, tiles_of(*tiling):
                patch.setenv("REGARD_CPU", self.build)
                yield
        finally:
            torch.set_num_threads(before)


TILES = Runner("tiles")
NATIVE = [Runner("native", name) for name, (_, runs) in native.builds().items() if runs]
RUNNERS = [TILES, *NATIVE]


def examples(count: int, proof: int | None = None) -> settings:
    """So many examples, under the profile `proof` (tests/conftest.py) twenty times as many, or `proof`."""
    most = count
    if settings.default.max_examples > settings.get_profile("regard").max_examples:
        most = proof or 20 * count
    return settings(
        max_examples=most, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Small calls; calls over several tiles and blocks of every build; few queries against many keys."""
    profile = draw(st.sampled_from(["small", "small", "tiles", "tiles", "few"]))
    if profile == "small":
        return draw(small())
    kv_heads, group = draw(st.sampled_from([(1, 1), (1, 3), (2, 1)]))
    if profile == "tiles":
        tokens = st.sampled_from([3, 31, 53, 101, 199]), st.sampled_from([61, 67, 131, 193, 257])
        widths = st.sampled_from([1, 7, 16, 31, 64, 96]), st.sampled_from([1, 3, 17, 32, 33])
    else:
        tokens = st.sampled_from([1, 2, 5]), st.sampled_from([1031, 2053, 4099])
        widths = st.sampled_from([1, 5, 32, 64]), st.sampled_from([1, 5, 33])
    return 1, kv_heads * group, kv_heads, *map(draw, tokens), *map(draw, widths)


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The tensor in other memory, as views of caches, packed projections and repeated rows have it."""
    batch, heads, tokens, width = tensor.shape
    if layout == "one batch row":
        return tensor[:1].expand(batch, -1, -1, -1)
    if layout == "one head":
        return tensor[:, :1].expand(-1, heads, -1, -1)
    room = tensor.new_full(
        (batch, heads + 1, tokens + 2, 2 * width + 3), torch.nan
    )  # what lies beside is never read
    views = {
        "contiguous": tensor.new_empty(batch, heads, tokens, width),
        "tokens first": tensor.new_empty(batch, tokens, heads, width).transpose(1, 2),
        "sliced": room[:, 1:, 1:-1, 2 : 2 + width],
        "strided": room[:, 1:, 1:-1, 2 : 2 + 2 * width : 2],
    }
    return views[layout].copy_(tensor)


@dataclass(frozen=True)
class Drawn:
    """A call, what is asked of it, and how it is run."""

    case: Case
    names: tuple[str, ...]
    top: int
    grid: int | None
    tiling: tuple[int, int]
    threads: int

    def observe(self, runner: Runner) -> Observation:
        with runner.running(self.tiling, self.threads):
            asked = [self.case.choices[name] for name in self.names]
            return self.case.observe(statistics=asked, top=self.top, map=self.grid, engine=runner.engine)

    def found(self, observation: Observation) -> dict[str, Tensor]:
        """What is there: all that was asked, and nothing else."""
        got = found(observation)
        there = {"output", *self.names, *(["map total", "map peak"] if self.grid else [])}
        assert got.keys() == there and (observation.top is None) == (self.top == 0)
        return got


@st.composite
def drawn(draw: st.DrawFn, runner: Runner, dtypes: tuple[torch.dtype, ...] | None = None) -> Drawn:
    """Any call that this engine takes, in any precision and memory, and any part of what can be asked."""
    case = draw(cases(shapes(), BIASES if runner.engine == "tiles" else COMPILED_BIASES))
    case = case.to(draw(st.sampled_from(dtypes or runner.dtypes)))
    query, key, value = (
        laid_out(t, draw(st.sampled_from(LAYOUTS))) for t in (case.query, case.key, case.value)
    )
    case = replace(case, query=query, key=key, value=value)
    everything = st.just(tuple(case.choices))
    some = st.lists(st.sampled_from(list(case.choices)), max_size=4, unique=True).map(tuple)
    small_tiles = case.query.shape[2] * case.key.shape[2] < 1000
    return Drawn(
        case=case,
        names=draw(everything | some),
        top=draw(st.sampled_from([0, 0, 1, 2, 5, 40])),
        grid=draw(st.sampled_from([None, None, 1, 3, 16, 100])),
        tiling=draw(st.sampled_from(TILINGS if small_tiles else TILINGS[-1:])),
        threads=draw(st.sampled_from([1, 1, 1, 2, 3])),
    )
