"""What does the backward pass cost with the gradient of the entropy? Beside SDPA's backward pass without it."""

from __future__ import annotations

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting


def main() -> None:
    """Measure the backward passes alone and write the result."""
    common.prepare()
    figures = {}
    for dim in (64, 128):
        for causal in (True, False):
            setting = Setting(2048, dim, causal)
            figures[str(setting)] = common.run(contests.backward(setting), 5)
    longer = Setting(4096)
    figures[str(longer)] = common.run(contests.backward(longer, with_stored=False), 5)
    common.write("backward", "python -m benchmarks.backward", "≤ 0.90 × SDPA's backward", figures)


if __name__ == "__main__":
    main()
