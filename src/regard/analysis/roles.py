"""What each head does, in a word with its score: roles, for records, profiles and histories.

Knows scores and how strong they must be; how they are measured is in `regard.statistics.roles`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.checks.arguments import checked
from regard.errors import RecordError, require
from regard.record.call import Call
from regard.record.history import History
from regard.record.profile import Profile
from regard.record.record import Record
from regard.record.table import ROLE, frame, identity
from regard.statistics import roles as scoring
from regard.statistics.roles import ROLES, TOKEN_ROLES

if TYPE_CHECKING:
    from pandas import DataFrame

MIXED = "mixed"
# A specific role stands for a more general one that is stronger by less than this.
CLEARLY = 0.2
# Parts into which the queries of a text are cut, to see how far its score would vary.
BLOCKS = 16
CONFIDENCE = 0.95

NOT_JUDGED = "not_judged"
"""The entry of `attrs` of the table of roles that says which ones were not judged."""

WITH_OFFSETS = (
    'needs the statistic "by_offset", which is no default: statistics=list(regard.statistics.TABLE)'
)
WITH_TOKENS = (
    "needs groups of tokens: statistics=[*TABLE, *token_groups(ids, [tokens])], both of regard.statistics"
)
NEEDS = dict.fromkeys(TOKEN_ROLES, WITH_TOKENS) | {
    "diagonal": WITH_OFFSETS,
    "global": WITH_OFFSETS,
    "broadcast": 'needs the statistic "received"',
    "uniform": 'needs the statistics "effective_keys" and "allowed"',
    "first token": 'needs the statistic "first"',
    "previous token": 'needs the statistic "previous", of queries and keys of one text',
    "self": 'needs the statistic "self_mass", of queries and keys of one text',
    "local": 'needs the statistic "local", of queries and keys of one text',
}
UNTOLD = "no text tells it: too few queries have such keys, or chance gives as much as is possible"

Scores = dict[str, NDArray[np.float64]]
# The rows of some heads, and the roles of which the statistic was kept.
Rows = tuple[dict[str, NDArray[np.generic]], set[str]]


@checked
def roles(seen: Record | Profile | History) -> DataFrame:
    """The role of every head: what it does most, against what uniform weights under the same mask would do.

    A score is 0 where the head gives a pattern no more than uniform weights would, and 1 where it gives it all that the
    mask allows; `regard.statistics.roles.ROLES` says what each role means. A head is called by the strongest role that
    passes its threshold; a role that is special ("previous token") stands for those that follow from it ("diagonal",
    "local"). Where none passes, the head is "mixed".

    Args:
        seen: a record, a profile of many texts, or the history of a training. Roles told by tokens need the statistics
            of `regard.statistics.token_groups`.

    Returns:
        A row per head (in a history, per step and head): `layer`, `kind`, `head`, `role`, `score`, `low` and `high`
        (of a confidence interval of 95 %: over texts where there are several, else over parts of the text; NaN where
        neither is known), `offset` (of the best diagonal; −1 where not known), and a column for each role, NaN where it
        cannot be told. A record adds `call`, a history `step`. `attrs["not_judged"]` names the roles for which no head
        has a score, and says what each needs: a watch with default statistics judges neither those told by tokens nor
        "diagonal" and "global", which need "by_offset".

    Raises:
        RecordError: nothing was kept by which a role could be told.
        MissingPackageError: pandas or scipy is not installed.

    Example:
        >>> import torch, regard as rg
        >>> from transformers import GPT2Config, GPT2Model
        >>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50)).eval()
        >>> with rg.watch(model) as record:
        ...     _ = model(torch.arange(40)[None])
        >>> rg.analysis.roles(record).shape[0]
        2
    """
    number = {"call": 0}
    if isinstance(seen, History):
        number = {"step": 0}
        rows = list(_of_history(seen))
    elif isinstance(seen, Profile):
        number = {}
        rows = list(_of_profile(seen))
    else:
        rows = [_of_call(index, call) for index, call in enumerate(seen)]
    parts = [part for part, _ in rows]
    if parts and all(np.isnan(part[name]).all() for part in parts for name in ROLES):
        raise RecordError(
            "roles are told by statistics such as first, previous and by_offset, and what uniform weights would "
            "give; none was kept: watch with statistics=None"
        )
    empty = identity("", "", 0, **number) | {"role": np.empty(0, object)}
    numbers = dict.fromkeys(("score", "low", "high", "offset", *ROLES), np.empty(0))
    table = frame(parts, empty | numbers).astype({"role": "str"})
    known = {name for _, names in rows for name in names}
    table.attrs[NOT_JUDGED] = {
        name: _reason(name, known) for name in ROLES if len(table) and table[name].isna().all()
    }
    return table


def _reason(role: str, known: set[str]) -> str:
    """Why no head has a score for a role, given those of which the statistic was kept."""
    if role in known:
        return UNTOLD
    return NEEDS[role]


def labels(scores: Scores) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """What each head is called, the role that this is about, and its score: of a mixed head its best role.

    Args:
        scores: by name of the role, `(heads,)` each; NaN where a role cannot be told.
    """
    names = list(ROLES)
    table = np.stack([scores[name] for name in names], -1)
    known = np.nan_to_num(table, nan=-1.0)
    named = []
    for row in known:
        fits = [name for name, score in zip(names, row, strict=True) if score >= ROLES[name].threshold]
        named.append(_strongest(dict(zip(names, row, strict=True)), fits))
    about = [
        names[int(row.argmax())] if name == MIXED else name for name, row in zip(named, known, strict=True)
    ]
    return named, about, table[np.arange(len(table)), [names.index(name) for name in about]]


def _strongest(score: dict[str, np.float64], fits: list[str]) -> str:
    """Of the roles that fit, the strongest that no more special one accounts for."""
    explained = {
        general
        for special in fits
        for general in ROLES[special].explains
        if score[special] >= score[general] - CLEARLY
    } | {general for special in fits for general in ROLES[special].settles}
    left = [name for name in fits if name not in explained]
    return max(left, key=lambda name: score[name], default=MIXED)


def in_words(role: str, score: float, low: float, high: float) -> tuple[str, ...]:
    """A head's label for a reader, in several lengths: "self 0.93 (0.90–0.96)", "self 0.93", "self"; "" if unknown."""
    if math.isnan(score):
        return ("", "", "")
    # Of a mixed head the score is that of a role that it has not.
    if role == MIXED:
        return (MIXED, MIXED, MIXED)
    short = f"{role} {score:.2f}"
    if math.isnan(low) or math.isnan(high):
        return (short, short, role)
    return (f"{short} ({low:.2f}–{high:.2f})", short, role)


def by_layer(table: DataFrame) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """Layer and kind → what `in_words` says of each head, from the table of `roles` of a profile."""
    named: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    columns = (table[name].tolist() for name in ("layer", "kind", "role", "score", "low", "high"))
    for layer, kind, role, score, low, high in zip(*columns, strict=True):
        named.setdefault((layer, kind), []).append(in_words(role, score, low, high))
    return named


def of_call(call: Call) -> dict[str, NDArray[np.generic]]:
    """Role, score, low and high of each head of a call, as in `roles`: `(heads,)` each, without a table.

    Raises:
        MissingPackageError: scipy is not installed.
    """
    part, _ = _of_call(0, call)
    return {name: part[name] for name in ("role", "score", "low", "high")}


def _of_call(index: int, call: Call) -> Rows:
    """The rows of one call: scores are means over its texts."""
    heads = call.sizes.heads
    by_text = scoring.scores(call, call.uniform, call.offset)
    scores = {name: _mean(by_text[name].numpy()) if name in by_text else _unknown(heads) for name in ROLES}
    offset = np.full(heads, -1)
    if "diagonal" in by_text:
        best, where = scoring.diagonal(call, call.uniform, call.offset)
        # The text in which the diagonal is clearest says which it is.
        offset = where.gather(0, best.argmax(0, keepdim=True))[0].numpy()
    named, about, score = labels(scores)
    low, high = _interval(call, about, score)
    which = identity(call.layer, call.kind, heads, call=index)
    numbers = {"score": score, "low": low, "high": high, "offset": offset}
    return which | {"role": np.array(named, object)} | numbers | scores, set(by_text)


def _interval(
    call: Call, about: list[str], score: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The interval of each head's score: by leaving out one part of the queries after another, or as of a share."""
    parts = scoring.pieces(call, call.uniform)
    queries = call.valid().sum((0, 2)).double().clamp(min=1).numpy()
    half = np.full(len(about), np.nan)
    for head, name in enumerate(about):
        if name in parts:
            half[head] = _jackknife(*(piece[:, head] for piece in parts[name]))
        else:
            # A share of so many queries, as if each gave all or nothing: no share varies more.
            half[head] = _student(queries[head]) * np.sqrt(score[head] * (1 - score[head]) / queries[head])
    return (score - half).clip(0, 1), (score + half).clip(0, 1)


def _jackknife(part: Tensor, most: Tensor) -> float:
    """Half the width of the interval of Σ part / Σ most, of `(texts, queries)`, from blocks of queries."""
    # Those that count alone: where few do, each is a block of its own.
    used = (most > 0).any(0)
    blocks = min(BLOCKS, int(used.sum()))
    if blocks < 2:
        return float("nan")
    sums = [
        torch.stack([chunk.sum(-1) for chunk in tensor[:, used].tensor_split(blocks, -1)], -1).flatten()
        for tensor in (part, most)
    ]
    nonempty = sums[1] > 0
    numbers, weights = sums[0][nonempty].numpy(), sums[1][nonempty].numpy()
    if len(weights) < 2:
        return float("nan")
    without = (numbers.sum() - numbers) / np.maximum(weights.sum() - weights, 1e-300)
    spread = np.sqrt((len(weights) - 1) * np.var(without))
    return float(_student(len(weights)) * spread)


def _student(count: float) -> float:
    """The quantile of Student's t for an interval of a mean of so many numbers."""
    # Not scipy.stats, which takes longer to import than a page to write.
    special = require("scipy.special", extra="analysis")
    return float(special.stdtrit(max(1.0, count - 1), (1 + CONFIDENCE) / 2))


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over texts `(texts, heads)` of those that are known; NaN where none is."""
    known = ~np.isnan(values)
    return np.where(known.any(0), np.nansum(values, 0) / known.sum(0).clip(1), np.nan)


def _unknown(heads: int) -> NDArray[np.float64]:
    return np.full(heads, np.nan)


def _of_profile(profile: Profile) -> Iterator[Rows]:
    """The rows of each layer: scores are means over texts, and so are their intervals."""
    rows = profile.intervals(CONFIDENCE)
    rows = rows[rows["statistic"].str.startswith(ROLE)]
    for (layer, kind), seen in profile.layers.items():
        heads = len(seen.queries)
        mine = rows[(rows["layer"] == layer) & (rows["kind"] == kind)]
        scores, ends = {}, {}
        for name in ROLES:
            of_role = mine[mine["statistic"] == ROLE + name]
            # In the order of heads, as intervals are.
            scores[name] = of_role["mean"].to_numpy() if len(of_role) else _unknown(heads)
            ends[name] = of_role[["low", "high"]].to_numpy() if len(of_role) else np.full((heads, 2), np.nan)
        named, about, score = labels(scores)
        bounds = np.stack([ends[name][head] for head, name in enumerate(about)]).clip(0, 1)
        which = identity(layer, kind, heads) | {"role": np.array(named, object), "score": score}
        part = which | {"low": bounds[:, 0], "high": bounds[:, 1], "offset": np.full(heads, -1)} | scores
        yield part, {name for name in ROLES if (mine["statistic"] == ROLE + name).any()}


def _of_history(history: History) -> Iterator[Rows]:
    """The rows of each step and layer."""
    values = history.values.double().numpy()
    columns = {
        name: history.statistics.index(ROLE + name) for name in ROLES if ROLE + name in history.statistics
    }
    for row, step in enumerate(history.steps):
        for index, layer in enumerate(history.layers):
            mine = values[row][:, history.heads_of(index)]
            scores = {name: _unknown(layer.heads) for name in ROLES}
            scores |= {name: mine[column] for name, column in columns.items()}
            named, _, score = labels(scores)
            unknown = {
                "low": _unknown(layer.heads),
                "high": _unknown(layer.heads),
                "offset": np.full(layer.heads, -1),
            }
            which = identity(layer.name, layer.kind, layer.heads, step=step)
            yield which | {"role": np.array(named, object), "score": score} | unknown | scores, set(columns)
