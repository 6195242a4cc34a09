"""What was measured on each kind of processor, beside the bars: the table of docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import common

# Questions whose answers depend on the processor: one result file for each kind.
QUESTIONS = ("rows", "columns", "bfloat16", "gpt2", "sparse", "tiles")
Figures = dict[str, Any]


@dataclass(frozen=True)
class Bar:
    """A ratio that must not be above a bar.

    Attributes:
        asks: in words. question: whose result file has it. most: the bar.
        ratios: those of a result's figures; None where the result is older than what is asked.
    """

    asks: str
    question: str
    most: float
    ratios: Callable[[Figures], list[float] | None]


def _named(ratio: str, *parts: str, without: tuple[str, ...] = ()) -> Callable[[Figures], list[float]]:
    """The ratio of every setting whose name has all the parts, and none of the others."""

    def ratios(figures: Figures) -> list[float]:
        return [
            each[ratio]
            for name, each in figures.items()
            if isinstance(each, dict)
            and all(part in name for part in parts)
            and not any(part in name for part in without)
        ]

    return ratios


def _over(ratio: str, *parts: str, **named: Any) -> Callable[[Figures], list[float]]:
    return _named(f"regard_over_{ratio}", *parts, **named)


def _share(mask: str) -> Callable[[Figures], list[float] | None]:
    def ratios(figures: Figures) -> list[float] | None:
        if not any(mask in part for part in figures.values()):
            return None
        return [part[mask]["fold_time_over_its_share"] for part in figures.values()]

    return ratios


def _rest_of_rows(figures: Figures) -> list[float]:
    # Every setting but causal ones of width 64, whose bar is another.
    return _over("sdpa", "full")(figures) + _over("sdpa", "causal", "dim 128")(figures)


BARS = (
    Bar("output and row statistics, float32, causal, dim 64", "rows", 0.80, _over("sdpa", "causal", "dim 64")),
    Bar("the same, no mask or dim 128", "rows", 0.90, _rest_of_rows),
    Bar("all row statistics beside output and lse alone, 1 024 tokens", "rows", 1.10, _over("plain", "n 1024")),
    Bar("the same, 4 096 and 16 384 tokens", "rows", 1.05, _over("plain", without=("n 1024",))),
    Bar("second fold, float32", "columns", 0.45, _over("sdpa")),
    Bar("output and row statistics, bfloat16", "bfloat16", 0.80, _over("sdpa", "rows")),
    Bar("second fold, bfloat16", "bfloat16", 0.60, _over("sdpa", "second fold")),
    Bar(
        "default `watch` with everything, GPT-2-small shape, 2 048 tokens, beside the plain pass", "gpt2", 1.15,
        lambda figures: [figures["2048"]["default, columns and maps over plain"]],
    ),
    Bar(
        "the same with `fused=True`", "gpt2", 1.05,
        lambda figures: [figures["2048"]["fused, columns and maps over plain"]],
    ),
    Bar("the tiles engine, rows, float32", "tiles", 2.6, _over("sdpa")),
    Bar("window of 256 at 16 384 tokens, time beside its share of the pairs", "sparse", 1.3, _share("window of 256")),
    Bar("strided 128 and local 128, the same", "sparse", 1.3, _share("strided 128 and local 128")),
    Bar("strided 128 and local 64, the same", "sparse", 1.3, _share("strided and local")),
)  # fmt: skip


def lines() -> Iterator[str]:
    """The table: a line for each bar, a column for each kind of processor."""
    results = {question: common.by_processor(question) for question in QUESTIONS}
    kinds = sorted({kind for by_kind in results.values() for kind in by_kind})
    yield f"| question | bar | {' | '.join(kinds)} |"
    yield "|---" * (2 + len(kinds)) + "|"
    for bar in BARS:
        cells = []
        for kind in kinds:
            ratios = None
            if kind in results[bar.question]:
                ratios = bar.ratios(results[bar.question][kind]["figures"])
            cells.append(_cell(ratios, bar.most))
        yield f"| {bar.asks} | ≤ {bar.most:.2f} | {' | '.join(cells)} |"


def _cell(ratios: list[float] | None, most: float) -> str:
    """The smallest and the largest ratio, and whether all are within the bar."""
    if ratios is None:
        return "not measured"
    assert ratios, "a bar has settings"
    least, largest = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
    span = least
    if least != largest:
        span = f"{least} to {largest}"
    if max(ratios) <= most:
        return f"{span} ✓"
    over = sum(ratio > most for ratio in ratios)
    return f"{span} ✗ ({over} of {len(ratios)} above)"


def main() -> None:
    """Print the table."""
    print("\n".join(lines()))


if __name__ == "__main__":
    main()
