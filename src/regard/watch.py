"""`watch(model)`: see every attention call of a model while it runs, reduce it at once, keep nothing n × n.

Knows which calls belong to the model and how they become a record; where calls are caught is in `seams`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import torch
from torch import nn

from regard.errors import ArgumentError, WatchError
from regard.observation import close_to
from regard.record import Record
from regard.seams.place import ATTENTION
from regard.seams.session import Session, Settings
from regard.statistics import Choice, wanted

Tokens = Sequence[str] | Sequence[Sequence[str]]


@contextmanager
def watch(
    model: nn.Module,
    *,
    tokens: Tokens | None = None,
    source_tokens: Tokens | None = None,
    layers: str | int | Iterable[str | int] | None = None,
    keep: Literal["statistics", "vectors"] = "statistics",
    statistics: str | Iterable[str | Choice] | None = None,
    map: int | None = 128,
    top: int = 0,
    fused: bool = False,
) -> Iterator[Record]:
    """See every attention call of a model while it runs.

        with regard.watch(model) as record:
            model(**inputs)
        record.heads

    Whatever calls `attend`, torch or Hugging Face's attention interface is seen, in this thread, and what the
    mechanisms of `regard.nn` hand over. The steps of a generation are merged into one call, whose rows are the rows of
    the batch (with beams, as they come). Statistics are of the weights before dropout. Padding counts nowhere. What is
    read of a call is compared with its output. The model's outputs are the same bits as without watching, and on exit
    everything is as it was.

    Args:
        model: any module; not one that `torch.compile` made.
        tokens: the tokens of the text, one list, or one for each row of the batch.
        source_tokens: the tokens that cross-attention looks at, likewise.
        layers: which modules to watch, with all inside them: names, patterns with `*`, numbers of blocks (the first
            number in a module's name). None: all.
        keep: "vectors" also keeps query and key, so that any window of weights can be computed later.
        statistics: what to keep of each call, as for `observe`; None: everything.
        map: at most this many cells a side of the picture of the weights; None: no picture.
        top: how many of the largest weights of each query to keep.
        fused: let the observed output stand where it can, for speed; within its error budget, not bit for bit.

    Yields:
        The `Record`, complete on exit.

    Raises:
        WatchError: a call that cannot be read exactly, a module of attention in which no call was seen, a compiled
            model; names the module and the way out.
        ArgumentError: a layer that does not exist, tokens that do not fit what was seen.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if keep not in ("statistics", "vectors"):
        raise ArgumentError(f'keep must be "statistics" or "vectors", got {keep!r}')
    if map is not None and map < 1:
        raise ArgumentError(f"map must be at least 1 cell a side, got {map}")
    chosen = statistics if statistics is None or isinstance(statistics, str) else tuple(statistics)
    wanted(chosen, top=top)
    settings = Settings(keep == "vectors", chosen, map, top, fused)
    record = Record(tokens=_rows("tokens", tokens), source_tokens=_rows("source_tokens", source_tokens))
    record.info = _info(model, settings, layers)
    session = Session(model, settings, record, _selected(model, layers))
    _refuse_compiled(session)
    with session.watching():
        yield record
    _check_seen(session)
    _check_tokens(record)


def _rows(name: str, tokens: Tokens | None) -> list[list[str]] | None:
    """Tokens as one list for each row of the batch."""
    if tokens is None:
        return None
    rows = [tokens] if all(isinstance(token, str) for token in tokens) else list(tokens)
    if isinstance(tokens, str) or any(
        isinstance(row, str) or not all(isinstance(t, str) for t in row) for row in rows
    ):
        raise ArgumentError(f"{name} must be a list of strings, or one such list for each row of the batch")
    return [[str(token) for token in row] for row in rows]


def _info(model: nn.Module, settings: Settings, layers: Any) -> dict[str, Any]:
    """Where a record comes from, as JSON."""
    dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    packages = {"torch": str(torch.__version__)}
    if (transformers := sys.modules.get("transformers")) is not None:
        packages["transformers"] = str(transformers.__version__)
    try:
        packages["regard"] = version("regard")
    except PackageNotFoundError:  # run from its sources
        packages["regard"] = "0"
    chosen = settings.statistics
    return {
        "model": type(model).__name__,
        "dtype": ", ".join(sorted(dtypes)),
        "packages": packages,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {
            "keep": "vectors" if settings.vectors else "statistics",
            "statistics": chosen if chosen is None or isinstance(chosen, str) else [
                item if isinstance(item, str) else item.name for item in chosen
            ],
            "map": settings.map,
            "top": settings.top,
            "fused": settings.fused,
            "layers": None if layers is None else [layers] if isinstance(layers, str | int) else list(layers),
        },
    }  # fmt: skip


def _selected(model: nn.Module, layers: str | int | Iterable[str | int] | None) -> set[str] | None:
    """Names of the watched modules; None for all."""
    if layers is None:
        return None
    names = [name for name, _ in model.named_modules() if name]
    selected: set[str] = set()
    for layer in [layers] if isinstance(layers, str | int) else layers:
        if isinstance(layer, int):
            found = [
                name
                for name in names
                if next(iter(re.findall(r"(?<![^.])\d+(?![^.])", name)), None) == str(layer)
            ]
            blocks = sorted(
                {int(number) for name in names for number in re.findall(r"(?<![^.])\d+(?![^.])", name)[:1]}
            )
            known = f"blocks: {', '.join(map(str, blocks)) or 'none'}"
        else:
            heads = [name for name in names if fnmatchcase(name, layer)]
            found = [
                name for name in names if any(name == head or name.startswith(f"{head}.") for head in heads)
            ]
            known = close_to(layer, names)
        if not found:
            raise ArgumentError(f"layers must name modules of {type(model).__name__}, got {layer!r}; {known}")
        selected.update(found)
    return selected


def _refuse_compiled(session: Session) -> None:
    """Raise for modules whose calls do not pass through Python."""
    for module, layer in session.modules.names.items():
        if type(module).__name__ == "OptimizedModule":
            raise WatchError(
                f"{layer} is compiled by torch.compile, which hides its calls: watch and run model._orig_mod"
            )
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise WatchError(
                f"{layer} was compiled in place, which hides its calls: call model.compile() after watching"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise WatchError(
                f"{layer} is TorchScript, which hides its calls: watch the module that it was made from"
            )


def _check_seen(session: Session) -> None:
    """Raise where attention ran that was not seen."""
    seen, ran = session.layers, session.modules.ran
    if not ran:
        raise WatchError(
            f"{session.modules.names[session.modules.root]} must be run inside the with block, in the same thread "
            f"and not through torch.compile, but was not called there"
        )
    names = {
        layer: ATTENTION.search(type(module).__name__) for module, layer in session.modules.names.items()
    }
    for module, layer in ran.items():
        if not names[layer] or not session.watches(layer) or _idle(module, ran):
            continue
        inside = any(other == layer or other.startswith(f"{layer}.") for other in seen)
        around = any(layer.startswith(f"{other}.") and names.get(other) for other in seen)
        if not inside and not around:
            raise WatchError(
                f"{layer} ({type(module).__name__}) ran, but no attention call was seen in it: its kernel shows "
                f"neither query and key nor weights. {session.way_out}"
            )
    if not seen:
        raise WatchError(
            f"{session.modules.names[session.modules.root]} ran, but no attention call was seen: a kernel of its own "
            f"may hide them, or layers=… leaves all of them out. {session.way_out}"
        )


def _idle(module: nn.Module, ran: dict[nn.Module, str]) -> bool:
    """Whether a module was called but used none of what it has: a branch that this input does not take."""
    learned = [
        child
        for child in module.modules()
        if child is not module and next(child.parameters(), None) is not None
    ]
    return bool(learned) and not any(child in ran for child in learned)


def _check_tokens(record: Record) -> None:
    """Raise unless there is one token for each query or key of some call, in every row of the batch."""
    for name, rows in (("tokens", record.tokens), ("source_tokens", record.source_tokens)):
        if rows is None:
            continue
        batches = {call.sizes.batch for call in record}
        if len(rows) not in batches:
            raise ArgumentError(
                f"{name} must have one list for each of {sorted(batches)} rows, got {len(rows)} lists"
            )
        lengths = {size for call in record for size in (call.sizes.queries, call.sizes.keys)}
        wrong = [len(row) for row in rows if len(row) not in lengths]
        if wrong:
            raise ArgumentError(
                f"{name} must be as many as queries or keys, {sorted(lengths)}, got {wrong[0]}"
            )
