"""Why are scores divided by √d? Variance of q·k, largest weight and gradient of the softmax, d = 4 … 1024."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks import common
from regard import draw
from regard.analysis import Softmax, softmax_by_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = 64
NAMES = {False: "raw q·k", True: "q·k / √d"}


def drawn(found: tuple[Softmax, ...]) -> Figure:
    """Three panels over d, raw and scaled."""

    def lines(field: str) -> dict[str, tuple[list[int], list[float]]]:
        chosen = {name: [s for s in found if s.scaled is scaled] for scaled, name in NAMES.items()}
        return {
            name: ([s.dim for s in each], [getattr(s, field) for s in each]) for name, each in chosen.items()
        }

    panels = [
        draw.Panel("variance of the scores", "width d", "variance, nats²", lines("variance"), "xy"),
        draw.Panel(
            "largest weight", "width d", "mean over queries, fraction of 1", lines("largest_weight"), "x"
        ),
        draw.Panel("gradient ∂ weights / ∂ scores", "width d", "median norm", lines("gradient"), "xy"),
    ]
    note = f"Standard normal queries and keys, {KEYS} keys for each query, 2048 queries, float64."
    return draw.series(panels, title="A softmax over raw and over scaled scores", note=note)


def main() -> None:
    """Compute, draw, and write the result."""
    common.prepare()
    found = softmax_by_width(keys=KEYS)
    common.picture("scaling_by_d", drawn(found))
    common.write(
        "scaling_by_d", "python -m benchmarks.scaling_by_d",
        "variance d raw and 1 scaled; raw: largest weight towards 1, gradient towards 0; scaled: the same at every d",
        {"keys": KEYS, "widths": [asdict(each) for each in found]},
    )  # fmt: skip


if __name__ == "__main__":
    main()
