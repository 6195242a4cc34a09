"""Attention rollout of one token (Abnar and Zuidema 2020, arXiv 2005.00928), at any length.

With Â = residual · I + (1 − residual) · (mean over heads of W) for each layer, the rollout is the product of all Â.
From one token back it is a row of that product, from one token forward a column: a vector times the weights, layer
after layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.analysis.flow.chain import Chain, chain_of
from regard.analysis.flow.steps import back, forward, uniform
from regard.checks.arguments import checked, share
from regard.errors import ArgumentError, RecordError
from regard.record.record import Record

DIRECTIONS = ("back", "forward")


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
        residual: weight of the residual connection, from 0 to 1.
        corrected: also compute what equal weights under the same masks would give: `Rollout.corrected`.

    Returns:
        A `Rollout`. A token's shares add up to 1, both texts together, less what learned sinks take; going forward
        they need not.

    Raises:
        RecordError: no calls, no vectors, or layers that do not follow each other on the same tokens.
        ArgumentError: there is no such token, direction or text.

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
    token = chain.token(token, text)
    result = _rolled(chain, token, direction, text, residual)
    # The same masks and the same rule for empty rows, so that only the weights differ.
    if corrected:
        equal = Chain(tuple(map(uniform, chain.target)), tuple(map(uniform, chain.source)))
        result = replace(result, baseline=_rolled(equal, token, direction, text, residual))
    return result


def _rolled(chain: Chain, token: int, direction: str, text: str, residual: float) -> Rollout:
    # Always float64: a share is a product over all layers, whose rounding errors add up.
    x = torch.zeros(chain.batch, chain.tokens, dtype=torch.float64)
    other = torch.zeros(chain.batch, chain.source_tokens or 0, dtype=torch.float64)
    if text == "target":
        x[:, token] = 1
    else:
        other[:, token] = 1
    if direction == "back":
        rows, source = _back(chain, x, other, residual)
    else:
        rows, source = _forward(chain, x, other, residual)
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


def _back(chain: Chain, x: Tensor, other: Tensor, residual: float) -> tuple[list[Tensor], list[Tensor]]:
    rows = [x]
    for call in reversed(chain.target):
        # The second part is what empty queries have: they pass nothing on, and it stays with the token.
        got, lost = back(call, x)
        x = residual * x + (1 - residual) * lost
        # The keys of cross-attention are the last states of the source: its share waits there.
        if call.kind == "cross":
            other = other + (1 - residual) * got
        else:
            x = x + (1 - residual) * got
        rows.append(x)
    # After the whole target, as any of its layers may add to the last states of the source.
    source = [other]
    for call in reversed(chain.source):
        got, lost = back(call, other)
        other = residual * other + (1 - residual) * (got + lost)
        source.append(other)
    # Computed from the last layer down, but `shares` counts layers from the input up.
    return rows[::-1], source[::-1]


def _forward(chain: Chain, x: Tensor, other: Tensor, residual: float) -> tuple[list[Tensor], list[Tensor]]:
    # The source first: cross-attention reads its last states.
    source = [other]
    for call in chain.source:
        other = residual * other + (1 - residual) * forward(call, other, other)
        source.append(other)
    rows = [x]
    for call in chain.target:
        attended = x
        if call.kind == "cross":
            attended = other
        x = residual * x + (1 - residual) * forward(call, attended, x)
        rows.append(x)
    return rows, source
