"""Is time proportional to what a mask keeps? Sparse masks at n = 16 384 beside no mask at all."""

from __future__ import annotations

from typing import Any

import regard as rg
from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting
from regard.engines import choose
from regard.masks import Mask
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.table import wanted

LENGTH, HEADS = 16384, 2


def measured(setting: Setting, masks: dict[str, Mask | None]) -> dict[str, Any]:
    """Every mask in turns: the fold alone, and `observe`, which also reads the statistics from the states."""
    query, key, value = setting.inputs()
    sizes, want = sizes_of(query, key, value), wanted("rows")
    specs = {name: Spec.of(sizes, mask=mask) for name, mask in masks.items()}
    engine = choose("auto", query, key, value, specs["full"], want)
    folds = {
        name: lambda spec=spec: engine.rows(query, key, value, spec, want) for name, spec in specs.items()
    }
    whole = {
        f"observe, {name}": lambda mask=mask: rg.observe(query, key, value, mask=mask, statistics="rows")
        for name, mask in masks.items()
    }
    times = common.interleaved(folds | whole, 11)
    figures: dict[str, Any] = {"engine": engine.name, "times": times}
    for name in specs:
        seen = rg.observe(query, key, value, mask=masks[name], statistics=("allowed",))
        assert seen.allowed is not None
        share = int(seen.allowed.sum()) / (HEADS * LENGTH**2)
        figures[name] = {
            "pairs_share": share,
            "fold_time_over_its_share": common.over(times, name, "full") / share,
            "observe_time_over_its_share": common.over(times, f"observe, {name}", "observe, full") / share,
        }
    return figures


def main() -> None:
    """Measure both widths and write the result."""
    common.prepare()
    masks: dict[str, Mask | None] = {"full": None, **contests.masks(LENGTH)}
    figures = {f"dim {dim}": measured(Setting(LENGTH, dim, False, heads=HEADS), masks) for dim in (64, 128)}
    common.write(
        "sparse", "python -m benchmarks.sparse",
        "fold's time ≤ 1.3 × (pairs ÷ all pairs) of the full time (fold_time_over_its_share)", figures,
        each_processor=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
