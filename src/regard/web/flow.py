"""How one token flows through all layers of a record, for a viewer: what can be asked, grids of shares, the largest.

Knows `regard.analysis.flow.rollout`, which computes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.analysis.flow import Rollout, rollout
from regard.analysis.flow.chain import Chain, chain_of
from regard.checks.arguments import share, whole
from regard.errors import ArgumentError, RecordError
from regard.record import Call, Record
from regard.record.layers import short_names
from regard.web.describe import number
from regard.web.snippets import joined
from regard.web.tiles import CanceledError
from regard.web.words import section_of, texts_of

# Points of a grid that may be asked for, and tokens of a list.
MOST_POINTS = 1 << 14
MOST_LARGEST = 1000

Text = Literal["target", "source"]
Direction = Literal["back", "forward"]
By = Literal["weights", "norms"]

TITLES: dict[By, str] = {"weights": "rollout of the weights", "norms": "rollout by value norms"}
MEANINGS: dict[By, str] = {
    "weights": "Each layer hands on the mean over its heads of the weights.",
    "norms": "Each layer hands on in proportion to Σ over heads of weight · ‖value‖: a large weight on a short value "
    "moves little. A record holds no output projection, so the lengths are those of the values themselves.",
}
NO_VALUES = (
    "{layer} has no values, so how long they are is not known: watch(model, keep='vectors') keeps them where the "
    "model hands them to its attention."
)


@dataclass
class MethodLine:
    """A way to compute a flow; `why` says why the record does not allow it, None where it does."""

    name: By
    title: str
    meaning: str
    why: str | None


@dataclass
class TextLine:
    """One of the texts through which tokens flow.

    Attributes:
        name: "target", or "source", the text that cross-attention looks at.
        tokens: how many. text: which of the record's texts they are: "tokens" or "source".
        layers: short names, first to last; those of another part of the model have its name before them.
        calls: their numbers in the record.
    """

    name: Text
    tokens: int
    text: str
    layers: list[str]
    calls: list[int]


@dataclass
class FlowDescription:
    """What can be asked of a record: no texts where nothing can, and `methods` say why."""

    batch: int
    texts: list[TextLine]
    methods: list[MethodLine]


@dataclass(frozen=True)
class FlowOf:
    """What is asked.

    Attributes:
        token, text, direction, by, residual, corrected: as for `regard.analysis.flow.rollout`.
    """

    token: int
    text: Text = "target"
    direction: Direction = "back"
    by: By = "weights"
    residual: float = 0.5
    corrected: bool = False


@dataclass
class ShareLine:
    """How much of a token: `corrected` against equal weights, None where that was not asked for."""

    token: int
    share: float
    corrected: float | None


@dataclass
class LargestShares:
    """The largest shares of one row of a flow, the largest first, and what they all add up to."""

    total: float
    largest: list[ShareLine] = field(default_factory=list)


def describe_flow(record: Record) -> FlowDescription:
    """What flows through a record, and by which methods.

    Example:
        >>> import torch, regard as rg
        >>> layer = rg.nn.MultiHeadAttention(8, 2)
        >>> with rg.watch(layer) as record:
        ...     _ = layer(torch.zeros(1, 3, 8))
        >>> describe_flow(record).methods[0].why
        'MultiHeadAttention: the flow needs query and key vectors, which were not kept: watch with keep="vectors"'
    """
    # The chain says itself what a record lacks.
    try:
        chain = chain_of(record)
    except RecordError as error:
        return FlowDescription(0, [], [_method("weights", str(error)), _method("norms", str(error))])
    # A model that makes its weights itself may hand over no values.
    missing = next((call.layer for call in (*chain.target, *chain.source) if call.value is None), None)
    why = None
    if missing is not None:
        why = NO_VALUES.format(layer=missing)
    texts = [_text(record, "target", chain.target, chain.tokens)]
    if chain.source_tokens is not None:
        texts.append(_text(record, "source", chain.source, chain.source_tokens, chain))
    return FlowDescription(chain.batch, texts, [_method("weights", None), _method("norms", why)])


def flow(record: Record, wanted: FlowOf, cancel: Event | None = None) -> Rollout:
    """The flow of one token, for `grid` and `largest`.

    Args:
        record: whose calls have vectors. wanted: which token, and how.
        cancel: set, the work ends with CanceledError.

    Raises:
        RecordError, ArgumentError: see `regard.analysis.flow.rollout`.
        CanceledError: the flag was set.
    """

    # Called between stretches of queries, every second or two.
    def look(_share: float) -> None:
        if cancel is not None and cancel.is_set():
            raise CanceledError("nobody waits for the flow any more")

    return rollout(
        record,
        wanted.token,
        direction=wanted.direction,
        text=wanted.text,
        residual=wanted.residual,
        corrected=wanted.corrected,
        by=wanted.by,
        progress=look,
    )


def grid(
    result: Rollout, text: Text, first: int = 0, end: int | None = None, most: int = 2048, batch: int = 0
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Shares of all layers along the tokens, summed over cells of a power of two of tokens.

    Args:
        result: of `flow`.
        text: of which text's tokens.
        first, end: the tokens `first ≤ token < end`; None: to the last one.
        most: cells, at most.
        batch: which row of the batch.

    Returns:
        `shares`, float32 `(layers + 1, cells)`, row 0 before the first layer; of a corrected flow also `equal`, the
        same for equal weights: their quotient is how many times as much a cell has; and `{"cell": tokens a cell,
        "first": …, "end": …}`.

    Raises:
        ArgumentError: no such text, tokens or row of the batch, or too many cells.
    """
    shares, equal = _tables(result, text, batch)
    tokens = shares.shape[-1]
    first = whole("first", first, 0, max(0, tokens - 1))
    last = tokens
    if end is not None:
        last = whole("end", end, first + 1, tokens)
    most = whole("most", most, 1, MOST_POINTS)
    cell = 1
    # Powers of two, so that cells of two zooms lie on each other.
    while -(-(last - first) // cell) > most:
        cell *= 2
    # Sums and not means: shares of several tokens add up.
    arrays = {"shares": _summed(shares[:, first:last], cell)}
    if equal is not None:
        arrays["equal"] = _summed(equal[:, first:last], cell)
    return arrays, {"cell": cell, "first": first, "end": last}


def largest(result: Rollout, text: Text, row: int, count: int = 20, batch: int = 0) -> LargestShares:
    """The tokens with the largest shares in one row of a flow; by how many times equal weights' where it was corrected.

    Args:
        result: of `flow`. text: of which text's tokens.
        row: 0 before the first layer, i after layer i.
        count: tokens, at most; those with no share are left out.
        batch: which row of the batch.

    Raises:
        ArgumentError: no such text, row or row of the batch.
    """
    shares, equal = _tables(result, text, batch)
    row = whole("row", row, 0, len(shares) - 1)
    count = min(whole("count", count, 1, MOST_LARGEST), shares.shape[-1])
    # A corrected flow is ranked by its multiples, which is what it was asked for.
    values = ranked = shares[row]
    if equal is not None:
        ranked = torch.where(equal[row] > 0, values / torch.where(equal[row] > 0, equal[row], 1.0), 0.0)
    lines = []
    # Of equal ones the first, so that an answer is the same every time.
    for token in ranked.argsort(descending=True, stable=True)[:count].tolist():
        # Masked tokens have none, and would fill up a short list.
        if not values[token] > 0:
            continue
        corrected = None
        if equal is not None:
            corrected = number(float(ranked[token]))
        lines.append(ShareLine(token, float(values[token]), corrected))
    return LargestShares(float(values.sum()), lines)


def check_flow(record: Record, wanted: FlowOf) -> None:
    """Raise where a flow cannot be computed, without computing it.

    Raises:
        RecordError: the record lacks what the method needs.
        ArgumentError: no such text or token, or a residual weight of 1.
    """
    described = describe_flow(record)
    why = next(method.why for method in described.methods if method.name == wanted.by)
    if why is not None:
        raise RecordError(why)
    tokens = next((text.tokens for text in described.texts if text.name == wanted.text), None)
    if tokens is None:
        raise ArgumentError("text='source' needs cross-attention, and the record has none")
    whole("token", wanted.token, 0, tokens - 1)
    share("residual", wanted.residual)


def flow_code(wanted: FlowOf, record: str) -> str:
    """Python that gives the numbers of a flow: `shares`, `source`, and of a corrected flow `times`.

    Args:
        wanted: which flow. record: lines after which `record` is the record.
    """
    # All of them, so that the code stays right if a default changes.
    options: dict[str, object] = {
        "direction": wanted.direction,
        "text": wanted.text,
        "residual": wanted.residual,
    }
    options |= {"corrected": wanted.corrected, "by": wanted.by}
    words = "".join(f", {name}={value!r}" for name, value in options.items())
    lines = [
        record,
        "",
        f"flow = rg.analysis.flow.rollout(record, {wanted.token}{words})",
        "# (batch, layers + 1, tokens): row 0 is before the first layer.",
        "shares = flow.shares",
        "# The same of the text that is looked at; None without cross-attention.",
        "source = flow.source",
    ]
    if wanted.corrected:
        lines.append("times = flow.corrected")
    return joined(["import regard as rg"], lines)


def _method(name: By, why: str | None) -> MethodLine:
    return MethodLine(name, TITLES[name], MEANINGS[name], why)


def _text(
    record: Record, name: Text, calls: tuple[Call, ...], tokens: int, chain: Chain | None = None
) -> TextLine:
    """A text and its layers; one that was not watched itself has none."""
    names = short_names([call.layer for call in calls], [call.kind for call in calls])
    numbers = {id(call): index for index, call in enumerate(record)}
    # Where the other text's own layers were not watched, cross-attention says whose its keys are.
    text = "source"
    if calls:
        text = texts_of(record, section_of(record, calls[0]))[0]
    elif chain is not None:
        cross = next(call for call in chain.target if call.kind == "cross")
        text = texts_of(record, section_of(record, cross))[1]
    return TextLine(name, tokens, text, names, [numbers[id(call)] for call in calls])


def _tables(result: Rollout, text: Text, batch: int) -> tuple[Tensor, Tensor | None]:
    """Shares of one text and one row of the batch, and those of equal weights."""

    def of(one: Rollout) -> Tensor:
        # Both have the same layers and tokens, whatever the weights.
        shares = one.shares
        if text == "source":
            if one.source is None:
                raise ArgumentError("text='source' needs cross-attention, and the record has none")
            shares = one.source
        return shares[whole("batch", batch, 0, len(shares) - 1)]

    equal = None
    if result.baseline is not None:
        equal = of(result.baseline)
    return of(result), equal


def _summed(values: Tensor, cell: int) -> Tensor:
    return pad(values, (0, -values.shape[-1] % cell)).unflatten(-1, (-1, cell)).sum(-1).float()
