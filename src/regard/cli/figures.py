"""Writes the figures of a record or a history to a folder. Knows file names; `regard.draw` knows how to draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard import files
from regard.errors import ModelError
from regard.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")


def write(named: Iterable[tuple[str, Figure]], folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Save every figure in every format, under its name.

    Returns:
        The paths written.

    Raises:
        ModelError: the folder cannot be written to.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"--figures must be a folder that can be written to, got {str(folder)!r}: {error.strerror}"
        ) from error
    for name, figure in named:
        for suffix in formats:
            path = folder / f"{name}.{suffix}"
            # A figure that was there stays as it was until the new one is whole.
            with files.replacing(path, error=ModelError, what="figure") as unfinished:
                figure.savefig(unfinished, dpi=160)
            written.append(path)
    return written


def of_record(record: Record) -> Iterator[tuple[str, Figure]]:
    """All heads, their entropy, the shape of the model, and the head with the least entropy."""
    from regard import draw

    yield "heads", draw.heads(record)
    yield "entropy", draw.entropy(record)
    # The first call stands for the model: the diagram has one kind of layer.
    sizes = record.calls[0].sizes
    yield "structure", draw.structure(sizes.heads, sizes.heads * sizes.dim, kv_heads=sizes.kv_heads)
    # The head with the least entropy has the clearest pattern, and is the best first look.
    head = record.heads.sort_values("entropy_fraction").iloc[0]
    call = record.calls[int(head["call"])]
    tokens = None
    if record.tokens and call.steps == 1:
        tokens = record.tokens[0]
    keys = None
    if record.source_tokens and call.kind == "cross":
        keys = record.source_tokens[0]
    yield (
        "sharpest-head",
        draw.heatmap(
            call,
            head=int(head["head"]),
            tokens=tokens,
            key_tokens=keys,
            title=f"{head['layer']}, head {head['head']}",
        ),
    )
