"""Run every benchmark: `python -m benchmarks`, or some of them: `python -m benchmarks rows columns`."""

from __future__ import annotations

import importlib
import sys

QUESTIONS = (
    "imports", "rows", "columns", "backward", "bfloat16", "avx2", "sparse", "decode", "scaling", "memory",
    "gpt2", "long", "layers", "linear", "initialization", "mechanisms", "approximations", "gradient_flow",
    "scaling_by_d", "watching", "redundancy", "rollout", "monitor", "survey", "roles", "induction", "sparsify",
    "collapse", "remedies", "importance", "pruning", "min_weight", "explorer_tiles", "explorer_server", "scale",
    "million", "million_whole", "ledger", "corpus", "corpus_ray", "learners", "tiles", "explorer_browser",
)  # fmt: skip


def main() -> None:
    """Run the questions named on the command line, or all."""
    for name in sys.argv[1:] or QUESTIONS:
        if name not in QUESTIONS:
            sys.exit(f"a question must be one of {', '.join(QUESTIONS)}, got {name!r}")
        print(f"== {name}")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
