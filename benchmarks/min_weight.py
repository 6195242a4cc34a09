"""What does the smallest weight cost beside the other row statistics? Two engines, with it and without, in turns."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch

from benchmarks import common
from regard import observe
from regard.bench.contests import Setting
from regard.bench.machine import label
from regard.statistics import TABLE

# Tokens by engine: plain torch is several times as slow.
LENGTHS: dict[str, tuple[int, ...]] = {"native": (1024, 4096), "tiles": (1024, 2048)}
DIMS, HEADS, TURNS = (64, 128), 4, 25
ROWS = [name for name, statistic in TABLE.items() if statistic.kind == "row"]


def cost(engine: Any, setting: Setting, turns: int = TURNS) -> dict[str, Any]:
    """Time with the smallest weight as a multiple of that without, beside all other row statistics and beside lse."""
    query, key, value = setting.inputs()

    def reads(names: list[str]) -> Any:
        return lambda: observe(query, key, value, mask=setting.mask, statistics=names, engine=engine)

    others = [name for name in ROWS if name != "min_weight"]
    candidates = {
        "all but min_weight": reads(others),
        "all": reads(ROWS),
        "lse": reads(["lse"]),
        "lse and min_weight": reads(["lse", "min_weight"]),
    }
    times, used = common.timed(candidates, turns)
    found: dict[str, Any] = {}
    for name, (with_it, without) in {
        "all over all but min_weight": ("all", "all but min_weight"),
        "lse and min_weight over lse": ("lse and min_weight", "lse"),
    }.items():
        ratios = np.array(used[with_it]) / np.array(used[without])
        found[name] = {
            "time": common.over(times, with_it, without),
            "processor_time": statistics.median(used[with_it]) / statistics.median(used[without]),
            "quartiles_of_turns": np.quantile(ratios, [0.25, 0.75]).tolist(),
        }
    return found | {"heads": setting.heads, "turns": turns, "times": times}


def main() -> None:
    """Measure both engines and write the result."""
    common.prepare()
    # One thread: processor time is then that of the work alone, whatever else the machine does.
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"statistics": ROWS}
    for engine, lengths in LENGTHS.items():
        of_engine: dict[str, Any] = {}
        for length in lengths:
            for dim in DIMS:
                for causal in (True, False):
                    setting = Setting(length, dim, causal, heads=HEADS)
                    of_engine[str(setting)] = cost(engine, setting)
        figures[label(engine)] = of_engine
    common.write(
        "min_weight", "OMP_WAIT_POLICY=passive python -m benchmarks.min_weight",
        "none: time of row statistics with min_weight as a multiple of that without it, for each engine", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
