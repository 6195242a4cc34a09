"""Attention rollout of one token (Abnar and Zuidema 2020, arXiv 2005.00928), at any length.

With Â = residual · I + (1 − residual) · (mean over heads of W) for each layer, the rollout is the product of all Â.
From one token back it is a row of that product, from one token forward a column: a vector times the weights, layer
after layer. By norms, W is replaced by what moves along the weights: Σ over heads of w · ‖f(v)‖ (Kobayashi et al. 2020,
arXiv 2004.10102), divided by its sum over the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.analysis.flow.chain import Chain, chain_of
from regard.analysis.flow.steps import back, forward, uniform
from regard.analysis.flow.value_norms import attended_norms, value_norms_of
from regard.checks.arguments import checked, share
from regard.errors import ArgumentError, RecordError
from regard.record.record import Record

DIRECTIONS = ("back", "forward")
BY = ("weights", "norms")
# A call by its identity, as a layer that is used twice has two calls of one name → `(batch, heads, keys)`.
NormsOf = Mapping[int, Tensor]
Progress = Callable[[float], object]


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout:
    """How much of one token is in each token, layer by layer.

    Attributes:
        shares: `(batch, layers + 1, tokens)`, float64. Row 0 is what goes into the first layer, row i what comes out
            of layer i. Back: how much of the token at the end comes from each; forward: how much of the token at the
            beginning is in each.
        source: the same of the text that cross-attention looks at, `(batch, layers + 1, tokens)` with its own layers;
            None without cross-attention.
        layers, source_layers: names of the layers.
        token: which token, counted from 0. text: "target", or "source" where it is of the other text.
        direction: "back" or "forward".
        residual: the weight of the residual connection.
        baseline: the rollout with equal weights under the same masks, where it was asked for.
        by: "weights" or "norms". projected: whether the output projections of all layers are in the norms.
    """

    shares: Tensor
    source: Tensor | None
    layers: tuple[str, ...]
    source_layers: tuple[str, ...]
    token: int
    text: str
    direction: str
    residual: float
    baseline: Rollout | None = None
    by: str = "weights"
    projected: bool = False

    @property
    def corrected(self) -> Tensor:
        """`(batch, layers + 1, tokens)`: shares divided by those of equal weights, 0 where no path leads.

        Under a causal mask all paths lead to the early tokens, which collect mass whatever the weights are. In this
        ratio that is gone: 1 is as much as equal attention gives, 2 twice as much.

        Raises:
            RecordError: the rollout was computed without `corrected=True`.
        """
        return self._ratio("shares")

    @property
    def corrected_source(self) -> Tensor:
        """The same for the text that cross-attention looks at.

        Raises:
            RecordError: there is none, or the rollout was computed without `corrected=True`.
        """
        return self._ratio("source")

    def _ratio(self, name: str) -> Tensor:
        shares = getattr(self, name)
        if shares is None:
            raise RecordError("the rollout has no other text: its layers have no cross-attention")
        if self.baseline is None:
            raise RecordError("the rollout has nothing to be compared with: ask for it with corrected=True")
        equal = getattr(self.baseline, name)
        # The inner `where` avoids 0 / 0: where no path leads, the ratio is 0 and not NaN.
        ratio: Tensor = torch.where(equal > 0, shares / torch.where(equal > 0, equal, 1.0), 0.0)
        return ratio


@checked
def rollout(
    record: Record,
    token: int,
    *,
    direction: str = "back",
    text: str = "target",
    residual: float = 0.5,
    corrected: bool = False,
    by: str = "weights",
    model: nn.Module | None = None,
    progress: Progress | None = None,
) -> Rollout:
    """Attention rollout of one token through all layers of a record, in O(n) memory.

    For each layer Â = residual · I + (1 − residual) · (mean over heads of W); a row that may attend nothing, or is
    padding, is that of the identity. Back, the shares after layer i are row `token` of Â_L · … · Â_(i+1); forward they
    are column `token` of Â_i · … · Â_1. Where layers look at another text, back a cross-attention moves (1 − residual)
    of what a token has to the other text's last layer, from where it goes on through that text's layers.

    Args:
        record: of one pass, made by `watch(model, keep="vectors")`.
        token: which token of the text; negative counts from the end.
        direction: "back", from where the token's last state comes; "forward", where its first state goes to.
        text: "target", the text itself, or "source", the text that its cross-attention looks at.
        residual: weight of the residual connection, at least 0 and below 1.
        corrected: also compute what equal weights under the same masks would give: `Rollout.corrected`.
        by: "weights", the mean over heads of the weights, or "norms": Σ over heads of w · ‖f(v)‖, how long what a key
            gives is, divided by its sum over the keys; a query that is given nothing keeps what it has.
        model: for "norms" the model that was watched, for its output projections; None: the values' own norms.
        progress: is called again and again with the share of the work that is done, from 0 to 1; what it raises ends
            the work.

    Returns:
        A `Rollout`. A token's shares add up to 1, both texts together, less what learned sinks take; going forward
        they need not.

    Raises:
        RecordError: no calls, no vectors, or layers that do not follow each other on the same tokens; by norms, also
            calls without values, or an attended value that is not finite.
        ArgumentError: there is no such token, direction or text; a model without norms, or not the one watched.

    Example:
        >>> import regard as rg
        >>> config = rg.models.DecoderConfig(
        ...     vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = rg.models.DecoderForCausalLM(config).eval()
        >>> with rg.watch(model, keep="vectors") as record:
        ...     _ = model(torch.tensor([[1, 2, 3, 4, 5]]))
        >>> rg.analysis.flow.rollout(record, -1).shares.shape
        torch.Size([1, 3, 5])
    """
    chain = chain_of(record)
    residual = share("residual", residual)
    if direction not in DIRECTIONS:
        raise ArgumentError(f"direction must be {' or '.join(map(repr, DIRECTIONS))}, got {direction!r}")
    if by not in BY:
        raise ArgumentError(f"by must be {' or '.join(map(repr, BY))}, got {by!r}")
    if model is not None and by != "norms":
        raise ArgumentError("model must be left out where by is not 'norms': weights need no projections")
    token = chain.token(token, text)
    # None of a call: its weights alone count.
    norms: NormsOf = {}
    projected = False
    if by == "norms":
        calls = (*chain.target, *chain.source)
        values = value_norms_of(calls, model)
        norms = {id(call): attended_norms(call, one) for call, one in zip(calls, values, strict=True)}
        # One layer without its projection, and the lengths of all are no longer of one kind.
        projected = all(one.projected for one in values)
    passes = 1 + corrected
    result = _rolled(chain, norms, token, direction, text, residual, _part_of(progress, 0, passes))
    # The same masks, norms and rule for empty rows, so that only the weights differ.
    if corrected:
        equal = Chain(tuple(map(uniform, chain.target)), tuple(map(uniform, chain.source)))
        pairs = zip((*chain.target, *chain.source), (*equal.target, *equal.source), strict=True)
        same = {id(other): norms[id(call)] for call, other in pairs if id(call) in norms}
        look = _part_of(progress, 1, passes)
        result = replace(result, baseline=_rolled(equal, same, token, direction, text, residual, look))
    return replace(result, by=by, projected=projected)


def _part_of(progress: Progress | None, index: int, count: int) -> Progress:
    """Says how far one of several passes is as a share of all of them."""

    def part(share: float) -> None:
        if progress is not None:
            progress((index + share) / count)

    return part


def _rolled(
    chain: Chain, norms: NormsOf, token: int, direction: str, text: str, residual: float, progress: Progress
) -> Rollout:
    # Always float64: a share is a product over all layers, whose rounding errors add up.
    x = torch.zeros(chain.batch, chain.tokens, dtype=torch.float64)
    other = torch.zeros(chain.batch, chain.source_tokens or 0, dtype=torch.float64)
    if text == "target":
        x[:, token] = 1
    else:
        other[:, token] = 1
    steps = _Steps(chain, norms, residual, progress)
    if direction == "back":
        rows, source = steps.back(x, other)
    else:
        rows, source = steps.forward(x, other)
    return Rollout(
        shares=torch.stack(rows, 1),
        source=torch.stack(source, 1) if chain.source_tokens is not None else None,
        layers=tuple(call.layer for call in chain.target),
        source_layers=tuple(call.layer for call in chain.source),
        token=token,
        text=text,
        direction=direction,
        residual=residual,
    )


@dataclass(frozen=True, eq=False)
class _Steps:
    """The layers of a chain, one after the other."""

    chain: Chain
    norms: NormsOf
    residual: float
    progress: Progress

    def back(self, x: Tensor, other: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """From the last layer down: what is in each text, from the input up."""
        residual, rows = self.residual, [x]
        for call in reversed(self.chain.target):
            # The second part is what empty queries have: they pass nothing on, and it stays with the token.
            got, lost = back(call, x, self.norms.get(id(call)), self._look(len(rows) - 1))
            x = residual * x + (1 - residual) * lost
            # The keys of cross-attention are the last states of the source: its share waits there.
            if call.kind == "cross":
                other = other + (1 - residual) * got
            else:
                x = x + (1 - residual) * got
            rows.append(x)
        # After the whole target, as any of its layers may add to the last states of the source.
        source = [other]
        for call in reversed(self.chain.source):
            done = len(rows) + len(source) - 2
            got, lost = back(call, other, self.norms.get(id(call)), self._look(done))
            other = residual * other + (1 - residual) * (got + lost)
            source.append(other)
        # Computed from the last layer down, but `shares` counts layers from the input up.
        return rows[::-1], source[::-1]

    def forward(self, x: Tensor, other: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """From the input up."""
        residual = self.residual
        # The source first: cross-attention reads its last states.
        source = [other]
        for call in self.chain.source:
            moved = forward(call, other, other, self.norms.get(id(call)), self._look(len(source) - 1))
            other = residual * other + (1 - residual) * moved
            source.append(other)
        rows = [x]
        for call in self.chain.target:
            attended = x
            if call.kind == "cross":
                attended = other
            done = len(rows) + len(source) - 2
            moved = forward(call, attended, x, self.norms.get(id(call)), self._look(done))
            x = residual * x + (1 - residual) * moved
            rows.append(x)
        return rows, source

    def _look(self, done: int) -> Callable[[], object]:
        """Says how many layers are done."""
        share = done / (len(self.chain.target) + len(self.chain.source))
        return lambda: self.progress(share)
