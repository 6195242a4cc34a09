"""What changed between two models, checkpoints or texts: their heads matched, the most changed first.

Knows records, profiles and histories; two models are watched with the same inputs first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.analysis.redundancy import distances
from regard.checks.arguments import checked, shown
from regard.errors import ArgumentError, RecordError, require
from regard.record import Call, History, Profile, Record
from regard.watch import watch
from regard.watch.undisturbed import undisturbed

if TYPE_CHECKING:
    from pandas import DataFrame

Seen = nn.Module | Record | Profile | History
COMPARED = (
    "entropy_fraction",
    "max_weight",
    "first",
    "self_mass",
    "previous",
    "local",
    "sink",
    "received_share",
)
"""Statistics from 0 to 1, by which heads are matched where weights are not known; named groups of keys besides."""
COLUMNS = ("layer", "kind", "head", "other", "distance", "statistic", "before", "after")


@dataclass(frozen=True)
class _Heads:
    """The heads of one layer: its name and kind, and each statistic `(heads,)`."""

    name: str
    kind: str
    count: int
    statistics: dict[str, NDArray[np.float64]]
    parameters: Mapping[str, Any]
    call: Call | None = None


@checked
def compare(a: Seen, b: Seen, *, inputs: Mapping[str, Any] | None = None) -> DataFrame:
    """What each head became, the most changed first: two models, records of one text, profiles, or ends of histories.

    Heads have no names, and two trainings may give the same work to heads of other numbers. So each head of `a` is
    matched with one of `b` in the same layer, all of a layer together with the least sum of distances (Kuhn 1955,
    `scipy.optimize.linear_sum_assignment`). Where both records have vectors (`watch(keep="vectors")`, and so for two
    models), the distance of two heads is Hellinger's between their weights, √(mean over queries of 1 − Σ √(w·w′)); else
    the root of the mean square difference of the statistics that are known of both. Either is from 0 to 1.

    Args:
        a, b: what is compared, both of one kind. Layers are matched by their order.
        inputs: keyword arguments of both models' forward; not for anything else.

    Returns:
        One row for each head: `layer`, `kind`, `head` (of `a`), `other` (its match in `b`), `distance`, and the
        statistic that changed most, with its mean `before` and `after`.

    Raises:
        RecordError: other layers, other numbers of heads, other tokens, statistics with other parameters, nothing to
            compare.
        ArgumentError: two things that cannot be compared, models of other vocabularies, inputs missing or too many.
        MissingPackageError: pandas or scipy is not installed.

    Example:
        >>> import regard as rg, torch
        >>> layers = [rg.nn.MultiHeadAttention(8, 2) for _ in range(2)]
        >>> compare(*layers, inputs={"x": torch.ones(1, 5, 8)})["head"].tolist()
        [0, 1]
    """
    if isinstance(a, nn.Module) and isinstance(b, nn.Module):
        if inputs is None:
            raise ArgumentError("inputs must be given for two models: what both are run with, got None")
        _check_vocabularies(a, b)
        a, b = _watched(a, inputs), _watched(b, inputs)
    elif inputs is not None:
        raise ArgumentError("inputs must be left out unless two models are compared")
    pairs = _pairs(_heads(a, b), _heads(b, a))
    if isinstance(a, Record) and isinstance(b, Record):
        _check_tokens(a, b)
    rows: list[tuple[Any, ...]] = []
    for one, other in pairs:
        rows += _matched(one, other)
    # Stable: of equal distances the first layer comes first.
    rows.sort(key=lambda row: -row[4])
    return require("pandas", extra="analysis").DataFrame(rows, columns=list(COLUMNS))


def _heads(seen: object, beside: object) -> list[_Heads]:
    """The heads of what was seen, layer by layer."""
    if type(seen) is not type(beside) or not isinstance(seen, Record | Profile | History):
        raise ArgumentError(
            "what is compared must be two models, two records, two profiles or two histories, "
            f"got {type(seen).__name__} and {type(beside).__name__}"
        )
    if isinstance(seen, Profile):
        return list(_of_profile(seen))
    if isinstance(seen, History):
        return list(_of_history(seen))
    # A layer that is called twice has no one call, whose weights could be compared.
    calls: dict[tuple[str, str], list[Call]] = {}
    for call in seen:
        calls.setdefault((call.layer, call.kind), []).append(call)
    single = {key: several[0] for key, several in calls.items() if len(several) == 1}
    return list(_of_history(History.of(0, seen), single))


def _of_profile(profile: Profile) -> Iterator[_Heads]:
    for key, layer in profile.layers.items():
        values = {name: layer.mean(name).numpy() for name in layer.names if _counts(name)}
        yield _Heads(*key, len(layer.queries), values, layer.parameters)


def _of_history(history: History, calls: Mapping[tuple[str, str], Call] | None = None) -> Iterator[_Heads]:
    if not history.steps:
        return
    names = [name for name in history.statistics if _counts(name)]
    for index, layer in enumerate(history.layers):
        heads = history.heads_of(index)
        values = {name: history.of_statistic(name)[-1, heads].double().numpy() for name in names}
        call = (calls or {}).get((layer.name, layer.kind))
        yield _Heads(layer.name, layer.kind, layer.heads, values, history.parameters, call)


def _counts(name: str) -> bool:
    return name in COMPARED or name.startswith("group.")


def _pairs(a: Sequence[_Heads], b: Sequence[_Heads]) -> list[tuple[_Heads, _Heads]]:
    """The layers of both, once they can be compared."""
    if not a or not b:
        raise RecordError(f"what is compared must have at least one layer, got {len(a)} and {len(b)}")
    # Names are not compared: two models of one shape may call their layers differently.
    shapes = [[(layer.kind, layer.count) for layer in layers] for layers in (a, b)]
    if shapes[0] != shapes[1]:
        words = [", ".join(f"{kind} {heads}" for kind, heads in shape[:8]) for shape in shapes]
        raise RecordError(
            f"what is compared must have the same layers of as many heads, got {words[0]} and {words[1]}"
        )
    for one, other in zip(a, b, strict=True):
        for name in one.parameters.keys() & other.parameters.keys():
            if one.parameters[name] != other.parameters[name]:
                raise RecordError(
                    f"{one.name}: {name} must be of one parameter, got {one.parameters[name]} and "
                    f"{other.parameters[name]}"
                )
    return list(zip(a, b, strict=True))


def _matched(a: _Heads, b: _Heads) -> Iterator[tuple[Any, ...]]:
    """A row for each head of a layer."""
    names = [name for name in a.statistics if _known(name, a) and _known(name, b)]
    if a.call is not None and b.call is not None and a.call.query is not None and b.call.query is not None:
        apart = _weights_apart(a.call, b.call)
    elif names:
        table = [np.stack([layer.statistics[name] for name in names], 1) for layer in (a, b)]
        apart = np.sqrt(((table[0][:, None] - table[1][None]) ** 2).mean(-1))
    else:
        raise RecordError(f"{a.name}: one of {', '.join(COMPARED)} must be known of both, and none is")
    # Of equals the head of the same number, or copies of a head would seem to have changed places.
    ties = 1e-9 * (1 - np.eye(a.count))
    assign = require("scipy.optimize", extra="analysis").linear_sum_assignment
    for head, other in zip(*assign(apart + ties), strict=True):
        change = {name: abs(a.statistics[name][head] - b.statistics[name][other]) for name in names}
        most = max(change, key=lambda name: change[name], default="")
        # With vectors alone there is a distance, and no statistic that would say what it is.
        before = after = np.nan
        if most:
            before, after = float(a.statistics[most][head]), float(b.statistics[most][other])
        yield a.name, a.kind, int(head), int(other), float(apart[head, other]), most, before, after


def _known(name: str, heads: _Heads) -> bool:
    """Whether a statistic was kept of a layer, and has a number for every head."""
    return name in heads.statistics and bool(np.isfinite(heads.statistics[name]).all())


def _weights_apart(a: Call, b: Call) -> NDArray[np.float64]:
    """The distance between the weights of every head of one call and every head of another: `(heads, heads)`."""
    sizes = [(call.sizes.batch, call.sizes.queries, call.sizes.keys) for call in (a, b)]
    if sizes[0] != sizes[1]:
        raise RecordError(
            f"{a.layer}: weights that are compared must have one size (batch, queries, keys), "
            f"got {sizes[0]} and {sizes[1]}"
        )
    return distances(Record([a]), Record([b]))


def _watched(model: nn.Module, inputs: Mapping[str, Any]) -> Record:
    """One pass of a model in evaluation mode, which is left as it was."""
    with undisturbed(model), watch(model, keep="vectors", map=None) as record:
        model(**inputs)
    return record


def _check_vocabularies(a: nn.Module, b: nn.Module) -> None:
    """Raise where the same numbers are other tokens."""
    sizes = [getattr(getattr(model, "config", None), "vocab_size", None) for model in (a, b)]
    if None not in sizes and sizes[0] != sizes[1]:
        raise ArgumentError(
            f"models that are run with the same inputs must have one vocabulary, got {sizes[0]} and {sizes[1]} "
            f"tokens: watch each with its own tokens, and compare Profile.of([record]) of both"
        )


def _check_tokens(a: Record, b: Record) -> None:
    """Raise where two records are of other texts."""
    for name in ("tokens", "source_tokens"):
        one, other = getattr(a, name), getattr(b, name)
        if one is None or other is None or one == other:
            continue
        words = [shown([token for row in rows for token in row][:6]) for rows in (one, other)]
        raise RecordError(
            f"records that are compared must be of the same {name}, got {words[0]} and {words[1]}: of two texts, "
            f"compare Profile.of([record]) of both"
        )
