"""How fast are the tiles of a head of 131 072 tokens, and how soon is there a first picture of a saved record?"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard as rg
from benchmarks import common
from regard import engines
from regard.record import Call, Record
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.observation import Observation
from regard.statistics.table import Wanted
from regard.web.tiles import RecordTiles, Tiles, tiles_of
from regard.web.tiles.head import HeadTiles

TOKENS, HEADS, DIM = 131_072, 12, 64
# Tiles of each size of cell.
MANY = 40
CELLS = (1, 2, 4, 8, 16, 32)


def vectors(heads: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Query and key whose scores spread by a nat and a half."""
    generator = torch.Generator().manual_seed(tokens)
    query, key = (torch.randn(1, heads, tokens, DIM, generator=generator) for _ in range(2))
    return 1.5 * query, key


def call_of(query: torch.Tensor, key: torch.Tensor, **more: Any) -> Call:
    """A causal call of these vectors."""
    sizes = sizes_of(query, key, more.get("value"))
    place = {"layer": "layer.0", "kind": "self", "sizes": sizes, "offset": 0}
    return Call(**place, query=query, key=key, spec=Spec.of(sizes, mask=rg.causal()), **more)


def with_lse(query: torch.Tensor, key: torch.Tensor) -> Call:
    """A causal call that knows its lse, as every record does."""
    spec = Spec.of(sizes_of(query, key), mask=rg.causal())
    state = engines.choose("auto", query, key, None, spec, Wanted(output=False)).rows(
        query, key, None, spec, Wanted(output=False)
    )
    return call_of(query, key, lse=(state.m + state.l.log()).float(), max_weight=(1 / state.l).float())


def clock(run: Callable[[], object]) -> dict[str, float]:
    """Seconds by the clock, and of the processor, which other work changes less."""
    begun, busy = time.perf_counter(), time.process_time()
    run()
    return {"s": time.perf_counter() - begun, "processor_s": time.process_time() - busy}


def spread(times: list[dict[str, float]]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {
        f"{name[:-1]}p{share}_ms": round(1e3 * float(np.percentile([each[name] for each in times], share)), 2)
        for name in ("s", "processor_s")
        for share in (50, 95)
    }


def places(cell: int, seed: int) -> Iterator[tuple[int, int]]:
    """Different tiles of the lower triangle, at random; half of them on the diagonal where the mask has to be asked."""
    random, many = np.random.default_rng(seed), TOKENS // (256 * cell)
    seen = set()
    while len(seen) < min(MANY, many * (many + 1) // 2):
        row = int(random.integers(many))
        column = row
        if random.random() < 0.5:
            column = int(random.integers(row + 1))
        if (row, column) not in seen:
            seen.add((row, column))
            yield row, column


def cold(tiles: Tiles, cell: int) -> dict[str, float]:
    """Tiles that nobody has asked for before."""
    return spread(
        [
            clock(lambda row=row, column=column: tiles.tile(cell, row, column))
            for row, column in places(cell, cell)
        ]
    )


def child_tiles() -> None:
    """One head: cold tiles, its pyramid, tiles from that, and the largest weights; the memory it takes."""
    common.prepare()
    call = with_lse(*vectors(1, TOKENS))
    tiles_of(with_lse(*vectors(1, 512)), 0).tile(2, 0, 0)
    tiles = tiles_of(call, 0)
    assert isinstance(tiles, HeadTiles)
    before = common.memory_kib("VmRSS")
    figures: dict[str, Any] = {f"cold, cells of {cell}": cold(tiles, cell) for cell in CELLS}
    figures["cold, peak_mb"] = (common.memory_kib("VmHWM") - before) * 1024 / 1e6
    figures["a view of 20 tiles, cells of 16"] = clock(
        lambda: [tiles.tile(16, 10 + row, 2 + column) for row in range(5) for column in range(4)]
    )
    fresh = HeadTiles(call, 0, 0)
    figures["pyramid"] = clock(fresh.prepare)
    for cell in (32, 128, 512):
        figures[f"from the pyramid, cells of {cell}"] = cold(fresh, cell)
    figures["20 largest weights, 64 tokens away"] = clock(lambda: fresh.peaks(20, away=64, first=4))
    for name, run in {
        "row": lambda: tiles.row(TOKENS - 9),
        "column": lambda: tiles.column(9),
        "window of 1024 x 1024": lambda: tiles.window(TOKENS - 2048, TOKENS - 1024, 0, 1024),
    }.items():
        figures[name] = clock(run)
    figures["peak_above_inputs_mb"] = (common.memory_kib("VmHWM") - before) * 1024 / 1e6
    print(json.dumps(figures))


def child_save(folder: str) -> None:
    """A record of 12 heads with vectors, row statistics and a kept map, as `watch` makes it."""
    common.prepare()
    query, key = vectors(1, TOKENS)
    found: list[Observation] = []
    watched = clock(lambda: found.append(rg.observe(query, key, mask=rg.causal(), map=128)))
    (seen,) = found
    assert seen.map is not None

    # Twelve times the same head: what is measured here does not depend on the numbers.
    def many(tensor: torch.Tensor | None) -> torch.Tensor:
        assert tensor is not None
        return tensor.repeat_interleave(HEADS, 1)

    grid = replace(seen.map, total=many(seen.map.total), peak=many(seen.map.peak), rows=many(seen.map.rows))
    rows = {name: many(getattr(seen, name)) for name in seen.row_names()}
    Record([call_of(many(query), many(key), value=many(key), map=grid, **rows)]).save(folder)
    print(json.dumps({"statistics and map of one head": watched}))


def child_open(folder: str) -> None:
    """A first picture of every head of a saved record, and what the process holds in memory then."""
    common.prepare()
    before = common.memory_kib("RssAnon"), common.memory_kib("VmRSS")
    figures: dict[str, Any] = {}
    opened: list[RecordTiles] = []
    figures["open"] = clock(lambda: opened.append(RecordTiles.open(folder)))
    # What a view of the whole map asks for first: a tile of 128 × 128 cells from the kept map.
    figures["first picture of one head"] = clock(lambda: opened[0].head(0, 0).tile(1024, 0, 0))
    figures["of all heads"] = clock(
        lambda: [opened[0].head(0, head).tile(1024, 0, 0) for head in range(HEADS)]
    )
    figures["first exact tile, cells of 16"] = clock(lambda: opened[0].head(0, 1).tile(16, 20, 7))
    figures["first picture, cells of 512"] = clock(lambda: opened[0].head(0, 0).tile(512, 0, 0))
    figures["anonymous_mb"] = (common.memory_kib("RssAnon") - before[0]) * 1024 / 1e6
    figures["resident_mb"] = (common.memory_kib("VmRSS") - before[1]) * 1024 / 1e6
    print(json.dumps(figures))


def child_prepare(folder: str) -> None:
    """The pyramid of the first head, made and kept."""
    common.prepare()
    figures = clock(lambda: RecordTiles.open(folder).prepare([(0, 0, 0)]))
    (kept,) = (Path(folder) / "pyramids").glob("*.safetensors")
    print(json.dumps({"prepare": figures, "file_mb": kept.stat().st_size / 1e6}))


CHILDREN: dict[str, Callable[..., None]] = {
    "tiles": child_tiles,
    "save": child_save,
    "open": child_open,
    "prepare": child_prepare,
}


def main() -> None:
    """Measure everything, each in a process of its own, and write the result."""
    common.prepare()
    module, folder = "benchmarks.explorer_tiles", tempfile.mkdtemp()
    try:
        saved = str(Path(folder) / "record")
        record = common.fresh(module, "save", saved)
        record |= common.fresh(module, "prepare", saved)
        record |= common.fresh(module, "open", saved)
        size = sum(path.stat().st_size for path in Path(saved).glob("statistics-*"))
        record["record_mb"] = size / 1e6
    finally:
        shutil.rmtree(folder)
    common.write(
        "explorer_tiles",
        "OMP_WAIT_POLICY=passive python -m benchmarks explorer_tiles",
        "131 072 tokens on 2 cores: a first picture of a saved record of 12 heads ≤ 1 s after it is asked for; a cold "
        "tile of 256 × 256 cells ≤ 100 ms (95 of 100) where a cell is ≤ 16 tokens or comes from the pyramid; "
        "20 of them ≤ 1 s; memory O(n) and the pyramid",
        {"one head": common.fresh(module, "tiles"), "a saved record of 12 heads": record},
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        CHILDREN[sys.argv[1]](*sys.argv[2:])
    else:
        main()
