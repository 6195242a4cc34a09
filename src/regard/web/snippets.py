"""Python that gives the numbers of a view again. Knows the public names of Regard; it computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from regard.errors import ArgumentError
from regard.statistics.observation import COLUMNS
from regard.web.series import GROUP

What = Literal["heads", "window", "cells", "lines", "series", "check", "changes", "picture"]
Pool = Literal["mean", "max"]
WEIGHTS, ROLE = "weights", "role:"
# As the lines between two columns of tokens are drawn.
LEAST, MOST_LINES = 0.01, 16
# Words whose pictures are shown.
MOST_WORDS = 512
SCALES = {"linear": "linear", "root": "sqrt"}

CELLS = '''
def cells(record, call, head, batch, cell, pool, rows, columns):
    """Weights of cells of so many tokens a side, as the map shows them; NaN where the mask allows no pair."""
    tiles = RecordTiles(record).head(call, head, batch)
    # Tiles have 256 cells a side, and hold logarithms.
    across = range(columns.start // 256, -(-columns.stop // 256))
    down = range(rows.start // 256, -(-rows.stop // 256))
    logs = torch.cat([torch.cat([tiles.tile(cell, i, j, pool) for j in across], 1) for i in down])
    top, left = 256 * down.start, 256 * across.start
    return logs[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left].float().exp()

'''
DRAW = "from regard import draw"
TILES = ["import torch", "from regard.web.tiles import RecordTiles"]


@dataclass(frozen=True)
class Snippet:
    """What a view shows of a record.

    Attributes:
        what: "heads", the table of heads; "window", weights of one head; "cells", its map in cells of `cell` tokens;
            "lines", the largest weights of a window; "series", a statistic along the tokens; "check", the findings;
            "changes", what became of the heads of a record with changes; "picture", the weights that all heads of a
            call have on or from the patches of a picture, and those of the first queries of one head.
        call, head, batch: which head.
        q0, q1, k0, k1: queries `q0 ≤ q < q1` and keys `k0 ≤ k < k1`; of "cells" cells; of "picture" one query and all
            keys, or all queries and one key.
        name: the statistic of a series, or of the changes: "weights" is the distance of the weights.
        scale: of the colors.
    """

    what: What = "heads"
    call: int = 0
    head: int = 0
    batch: int = 0
    q0: int = 0
    q1: int | None = None
    k0: int = 0
    k1: int | None = None
    name: str = "entropy"
    cell: int = 1
    pool: Pool = "max"
    scale: str = "root"


def code(view: Snippet, record: str, base: str = "") -> str:
    """Python that gives the numbers of a view.

    Args:
        view: what is looked at.
        record: lines after which `record` is the record. base: the same of the record without the changes.

    Raises:
        ArgumentError: cells without an end; changes without a base.
    """
    if view.what == "changes":
        imports, lines = _changes(view, record, base)
    else:
        imports, lines = _LINES[view.what](view)
        lines = [record, "", *lines]
    return joined(imports, lines)


def joined(imports: Sequence[str], lines: Sequence[str]) -> str:
    """The imports that the lines do not have, and the lines."""
    text = "\n".join(lines)
    missing = [line for line in imports if line not in text.splitlines()]
    if missing:
        text = "\n".join([*missing, "", text])
    return text.rstrip() + "\n"


def codes(views: Sequence[tuple[Snippet, str]]) -> str:
    """Python that gives the weights of several heads, in the order of the views: `weights`, a list.

    Args:
        views: windows or cells, each with the lines after which `record` is its record. A record that several views
            have is made once.

    Raises:
        ArgumentError: none at all, a view of another kind, cells without an end.
    """
    if not views:
        raise ArgumentError("views must have at least one, got none")
    for view, _ in views:
        if view.what not in ("window", "cells"):
            raise ArgumentError(f"views of several heads must be windows or cells, got {view.what!r}")
    numbers = {record: number for number, record in enumerate(dict.fromkeys(record for _, record in views))}
    imports, lines = list[str](), list[str]()
    for record, number in numbers.items():
        collected = "records.append(record)"
        if number == 0:
            collected = "records = [record]"
        lines += [record, collected, ""]
    if any(view.what == "cells" for view, _ in views):
        imports = TILES
        lines.append(CELLS)
    heads = [f"    {_expression(view, f'records[{numbers[record]}]')}," for view, record in views]
    return joined(imports, [*lines, "weights = [", *heads, "]"])


def _expression(view: Snippet, record: str = "record") -> str:
    if view.what == "cells":
        if view.q1 is None or view.k1 is None:
            raise ArgumentError("cells must have an end: q1 and k1")
        rows, columns = f"range({view.q0}, {view.q1})", f"range({view.k0}, {view.k1})"
        which = f"{view.call}, {view.head}, {view.batch}, {view.cell}, {view.pool!r}"
        return f"cells({record}, {which}, {rows}, {columns})"
    rows, columns = f"slice({view.q0}, {view.q1})", f"slice({view.k0}, {view.k1})"
    return f"{record}[{view.call}].weights({view.head}, {rows}, {columns}, batch={view.batch})"


Lines: TypeAlias = tuple[list[str], list[str]]


def _heads(_view: Snippet) -> Lines:
    return [], ["heads = record.heads"]


def _window(view: Snippet) -> Lines:
    scale = SCALES.get(view.scale, "sqrt")
    figure = f"figure = draw.heatmap(weights, scale={scale!r})"
    return [DRAW], [f"weights = {_expression(view)}", figure]


def _cells(view: Snippet) -> Lines:
    return TILES, [CELLS, f"weights = {_expression(view)}"]


def _lines(view: Snippet) -> Lines:
    query, key = _from(view.q0, "query"), _from(view.k0, "key")
    return [], [
        f"weights = {_expression(view)}",
        "# Query, key and weight of the lines: of each query the largest weights, and none that is too small.",
        "lines = [",
        f"    ({query}, {key}, float(weights[query, key]))",
        "    for query in range(len(weights))",
        f"    for key in weights[query].argsort(descending=True, stable=True)[:{MOST_LINES}].tolist()",
        f"    if weights[query, key] >= {LEAST}",
        "]",
    ]


def _from(first: int, name: str) -> str:
    if first == 0:
        return name
    return f"{first} + {name}"


def _series(view: Snippet) -> Lines:
    call = f"record[{view.call}]"
    # Statistics of columns are attributes, those of rows have a reader that knows groups too.
    if view.name in COLUMNS:
        return [], [f"values = {call}.{view.name}[{view.batch}]"]
    return [], [f"values = {call}.rows({view.name.removeprefix(GROUP)!r})[{view.batch}]"]


def _picture(view: Snippet) -> Lines:
    rows, columns = f"slice({view.q0}, {view.q1})", f"slice({view.k0}, {view.k1})"
    call = f"record[{view.call}]"
    return ["import torch", "from regard.record import picture_of"], [
        f"call, picture = {call}, picture_of(record)",
        f"heads = [call.weights(head, {rows}, {columns}).flatten() for head in range(call.sizes.heads)]",
        "# (heads, tokens), and of these the patches: (heads, rows, columns).",
        "weights = torch.stack(heads)",
        "patches = weights[:, picture.start : picture.start + picture.patches]",
        "patches = patches.reshape(-1, picture.rows, picture.columns)",
        "# Of one head the first queries, such as words: (queries, keys).",
        f"table = call.weights({view.head}, slice(0, {MOST_WORDS}))",
    ]


def _check(_view: Snippet) -> Lines:
    lines = [
        "diagnosis = diagnose(record)",
        "findings = diagnosis.table",
        "figure = draw.findings(diagnosis)",
    ]
    return [DRAW, "from regard.analysis import diagnose"], lines


def _changes(view: Snippet, record: str, base: str) -> Lines:
    if not base:
        raise ArgumentError("changes must be of a record with changed heads")
    lines = [base, "before = record", "", record, "after = record", ""]
    if view.name == WEIGHTS:
        # For each call a number for each head.
        imports = ["from regard.web.changes import distances"]
        return imports, [*lines, "difference = distances(before, after)"]
    column = view.name.replace(ROLE, "role.")
    return [], [*lines, f"difference = after.heads[{column!r}] - before.heads[{column!r}]"]


_LINES = {
    "heads": _heads,
    "window": _window,
    "cells": _cells,
    "lines": _lines,
    "series": _series,
    "check": _check,
    "picture": _picture,
}
