"""The whole causal square of a million tokens, one head: how fast beside 131 072 tokens, in what memory?

    python -m benchmarks.million_whole [FOLDER]

It takes about twenty minutes of two cores. Stopped, it goes on where it was when it is given its folder again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks import common
from benchmarks.million import DIM, LENGTHS, SHORT, whole

THREADS = {"OMP_NUM_THREADS": str(common.THREADS)}


def main(place: str | None = None) -> None:
    """The short square in a process of its own, the long one in this one, and the result file."""
    common.prepare()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        short = common.fresh("benchmarks.million", "whole", str(SHORT), f"{name}/short", environment=THREADS)
        long = whole(LENGTHS[-1], Path(place or f"{name}/long"))
    rates = ("million_pairs_per_s", "million_pairs_per_processor_s")
    figures = {
        "heads": 1,
        "dim": DIM,
        "short": short,
        "long": long,
        "long over short": {rate: long[rate] / short[rate] for rate in rates},
        "load_average": {"before": load, "after": os.getloadavg()},
    }
    common.write(
        "million_whole",
        "python -m benchmarks.million_whole",
        "it finishes, at ≥ 0.90 of the pairs a second of 131 072 tokens, ≤ 1 000 MB above the inputs",
        figures,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
