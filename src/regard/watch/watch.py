"""`watch(model)`: see every attention call of a model while it runs, reduce it at once, keep nothing n × n.

Knows which calls belong to the model and how they become a record; where calls are caught is in `watch.hooks`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

from torch import Tensor, nn

from regard.checks.arguments import checked, listed, whole
from regard.errors import ArgumentError, UnseenWarning, WatchError
from regard.files.versions import versions
from regard.record import Record
from regard.statistics.table import Choice, wanted
from regard.watch.captured import eager_instead
from regard.watch.modules import ATTENTION
from regard.watch.recorder import Recorder
from regard.watch.selection import layers_of, refuse_compiled, selected_modules
from regard.watch.settings import Settings

Tokens = Sequence[str] | Sequence[Sequence[str]]


@checked
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
    padding: Tensor | None = None,
    source_padding: Tensor | None = None,
) -> Iterator[Record]:
    """See every attention call of a model while it runs.

        with regard.watch(model) as record:
            model(**inputs)
        record.heads

    Whatever calls `attend`, torch or Hugging Face's attention interface is seen, in this thread, and what the
    mechanisms of `regard.nn` hand over. The steps of a generation are merged into one call, whose rows are the rows of
    the batch (with beams, as they come). Statistics are of the weights before dropout. Queries that the model's own
    arguments (`attention_mask`, `key_padding_mask` …) or `padding` say are padding count nowhere; where nothing is
    said, every query counts that may attend something. What is read of a call is compared with its output. The model's
    outputs are the same bits as without watching, and on exit everything is as it was.

    Args:
        model: any module; not one that `torch.compile` made.
        tokens: the tokens of the text, one list, or one for each row of the batch.
        source_tokens: the tokens that cross-attention looks at, likewise.
        layers: which modules to watch, with all inside them: names, patterns with `*`, numbers of blocks (the first
            number in a module's name). With `!` before it, a name or pattern is left out: `"!encoder.mamba.*"`.
            None: all.
        keep: "vectors" also keeps query, key and value, so that any window of weights can be computed later.
        statistics: what to keep of each call, as for `observe`; None: everything.
        map: at most this many cells a side of the picture of the weights; None: no picture.
        top: how many of the largest weights of each query to keep.
        fused: let the observed output stand where it can, for speed; within its error budget, not bit for bit.
        padding: which tokens are real, `(batch, tokens)`, True or 1 for real ones as in transformers' `attention_mask`,
            where the model is not told or takes it under a name of its own. Of the queries' tokens.
        source_padding: the same of the other sequence's tokens, where the model has two.

    Yields:
        The `Record`, complete on exit. `record.unseen` names modules that did what may be attention and could not be
        read, each with a reason; a warning says so too.

    Raises:
        WatchError: a call that cannot be read exactly, a model in which no call was seen, a compiled model; names the
            module and the way out.
        ArgumentError: a layer that does not exist, tokens that do not fit what was seen.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if keep not in ("statistics", "vectors"):
        raise ArgumentError(f'keep must be "statistics" or "vectors", got {keep!r}')
    if map is not None and whole("map", map) < 1:
        raise ArgumentError(f"map must be at least 1 cell a side, got {map}")
    chosen: Any = statistics
    if statistics is not None and not isinstance(statistics, str | Choice):
        chosen = tuple(listed("statistics", statistics, lambda _, item: item))
    wanted(chosen, top=top)
    said = [_real(name, mask) for name, mask in (("padding", padding), ("source_padding", source_padding))]
    settings = Settings(keep == "vectors", chosen, map, top, fused, *said)
    record = Record(tokens=_rows("tokens", tokens), source_tokens=_rows("source_tokens", source_tokens))
    named = layers_of(layers)
    record.info = _info(model, settings, named)
    recorder = Recorder(model, settings, record, selected_modules(model, named))
    refuse_compiled(recorder.modules)
    with recorder.watching():
        yield record
    check_seen(recorder)
    _check_tokens(record)
    _check_padding(record, settings)


def _rows(name: str, tokens: Tokens | None) -> list[list[str]] | None:
    """Tokens as one list for each row of the batch."""
    if tokens is None:
        return None
    fault = ArgumentError(f"{name} must be a list of strings, or one such list for each row of the batch")
    # A string is a list of its letters to Python, and surely meant as a text.
    if isinstance(tokens, str):
        raise fault
    rows: list[Any] = listed(name, tokens, lambda _, item: item)
    if all(isinstance(token, str) for token in rows):
        rows = [rows]
    if any(not isinstance(row, list | tuple) or not all(isinstance(t, str) for t in row) for row in rows):
        raise fault
    return [[str(token) for token in row] for row in rows]


def _info(model: nn.Module, settings: Settings, layers: Any) -> dict[str, Any]:
    """Where a record comes from, as JSON."""
    held = {
        parameter.dtype
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None
    }
    dtypes = {str(dtype).removeprefix("torch.") for dtype in held}
    statistics: Any = settings.statistics
    if statistics is not None and not isinstance(statistics, str):
        statistics = [item if isinstance(item, str) else item.name for item in statistics]
    return {
        "model": type(model).__name__,
        "dtype": ", ".join(sorted(dtypes)),
        "packages": versions("torch", "transformers", "regard"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {
            "keep": "vectors" if settings.vectors else "statistics",
            "statistics": statistics,
            "map": settings.map,
            "top": settings.top,
            "fused": settings.fused,
            "layers": layers,
        },
    }


def _real(name: str, mask: Tensor | None) -> Tensor | None:
    """A mask of real tokens, once it is known to be one."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise ArgumentError(f"{name} must be a tensor (batch, tokens), got {type(mask).__name__}")
    if mask.ndim != 2:
        raise ArgumentError(f"{name} must be a tensor (batch, tokens), got {tuple(mask.shape)}")
    # A float mask is one that is added to scores: 0 means real there, the opposite.
    if mask.is_floating_point() or mask.is_complex() or not bool(((mask == 0) | (mask == 1)).all()):
        raise ArgumentError(f"{name} must hold True or 1 for real tokens, else False or 0, got {mask.dtype}")
    return mask.bool()


def check_seen(recorder: Recorder) -> None:
    """Name the modules in which attention ran that was not seen; raise where none was seen at all."""
    seen, ran, names = recorder.layers, recorder.modules.ran, recorder.modules.names
    # Nothing ran: nothing can be said about attention.
    if not ran:
        raise WatchError(
            f"{names[recorder.modules.root]} must be run inside the with block, in the same thread "
            f"and not through torch.compile, but was not called there"
        )
    unseen = recorder.record.unseen
    kinds = {kind: ATTENTION.search(kind.__name__) is not None for kind in {*map(type, names)}}
    attends = {layer: kinds[type(module)] for module, layer in names.items()}
    for module, layer in ran.items():
        if not attends[layer] or not recorder.watches(layer):
            continue
        known = {*seen, *unseen}
        # Wrappers around a call that was seen, and projections inside a module that was, are explained by it.
        inside = layer in known or any(other.startswith(f"{layer}.") for other in known)
        around = any(layer.startswith(f"{other}.") and attends.get(other) for other in known)
        if not inside and not around and not _idle(module, ran) and _mixes(module):
            unseen[layer] = _hidden(recorder, layer)
    if not seen:
        first = next(iter(unseen), None)
        why = "a kernel of its own may hide them"
        if first is not None:
            why = f"{first} shows {unseen[first]}"
        raise WatchError(
            f"{names[recorder.modules.root]} ran, but no attention call was seen: {why}, or layers=… leaves all "
            f"of them out{_instead(recorder.modules.root)}"
        )
    if unseen:
        reasons = "; ".join(f"{layer}: {reason}" for layer, reason in list(unseen.items())[:4])
        more = ""
        if len(unseen) > 4:
            more = f" and {len(unseen) - 4} more"
        warnings.warn(
            f"not in the record are {len(unseen)} modules that may attend ({reasons}{more}); record.unseen names all",
            UnseenWarning,
            stacklevel=4,
        )


def _hidden(recorder: Recorder, layer: str) -> str:
    """What a module showed instead of a product of weights with values."""
    if any(gate == layer or gate.startswith(f"{layer}.") for gate in recorder.gates):
        return "a softmax that multiplies values one by one, in no product of weights with values"
    return "neither query and key nor weights that can be followed to the values"


def _check_padding(record: Record, settings: Settings) -> None:
    """Raise unless a mask of real tokens was about the queries of some call."""
    for name, mask in (("padding", settings.padding), ("source_padding", settings.source_padding)):
        fits = any(
            mask is None or (call.sizes.batch == len(mask) and call.sizes.queries <= mask.shape[1])
            for call in record
        )
        if mask is not None and not fits:
            raise ArgumentError(f"{name} must be of the queries of some call, got {tuple(mask.shape)}")


def _instead(model: nn.Module) -> str:
    """The end of an error: the advice that fits the model, if there is one."""
    ways = eager_instead(model)
    if not ways:
        return ""
    return f". Way out: {ways[0]}"


def _mixes(module: nn.Module) -> bool:
    """Whether a module has what makes queries, keys and values: more than one projection, or a joint one."""
    weights = [parameter for parameter in module.parameters() if parameter.ndim >= 2]
    joint = any(max(w.shape[:2]) >= 2 * min(w.shape[:2]) for w in weights)
    return not weights or len(weights) > 1 or joint


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
