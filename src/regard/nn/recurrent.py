"""Recurrent encoder and decoder with attention between them: the models that attention was invented for.

Knows cells and their order; how well a key answers a query is the score function's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import attend
from regard.checks.arguments import checked, share, sized
from regard.errors import ArgumentError, ShapeError
from regard.masks import Mask, prefix
from regard.nn.scores import Score
from regard.spec import SpecArguments
from regard.watch.hooks.own import Handed, hand_over

Cell = Literal["gru", "lstm"]
NETWORKS = {"gru": nn.GRU, "lstm": nn.LSTM}
CELLS = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}


class RecurrentEncoder(nn.Module):
    """A GRU (Cho et al. 2014) or LSTM (Hochreiter and Schmidhuber 1997) over a text, in one direction or in both.

    Args:
        width: of the tokens.
        hidden: of each direction's state.
        cell: "gru" or "lstm".
        layers: how many on top of each other.
        bidirectional: whether a second one reads backwards.
        dropout: between the layers, in training.

    Attributes:
        width_out: width of its outputs, 2 · hidden with two directions.

    Raises:
        ArgumentError: an unknown cell, or a size below 1.
    """

    @sized
    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        cell: Cell = "gru",
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check(cell, width=width, hidden=hidden, layers=layers)
        dropout = share("dropout", dropout)
        self.width, self.hidden, self.bidirectional = width, hidden, bidirectional
        self.width_out = hidden * (2 if bidirectional else 1)
        self.network = NETWORKS[cell](
            width, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=dropout
        )

    @checked
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read texts.

        Args:
            x: `(batch, tokens, width)`.
            lengths: how many tokens of each row are real, at least 1; None: all.

        Returns:
            outputs `(batch, tokens, width_out)`, 0 behind a row's end; and the last layer's final states, those of both
            directions side by side, `(batch, width_out)`, with which a decoder may start.

        Raises:
            ShapeError: other axes or another width.
        """
        if x.ndim != 3 or x.shape[2] != self.width:
            raise ShapeError(f"x must be (batch, tokens, {self.width}), got {tuple(x.shape)}")
        if lengths is None:
            outputs, final = self.network(x)
        else:
            if lengths.shape != x.shape[:1]:
                raise ShapeError(
                    f"lengths must be one for each of {x.shape[0]} rows, got {tuple(lengths.shape)}"
                )
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            outputs, final = self.network(packed)
            outputs = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])[0]
        states = final[0] if isinstance(final, tuple) else final
        return outputs, torch.cat(states[-2:].unbind() if self.bidirectional else states[-1:].unbind(), -1)


@dataclass(frozen=True, eq=False)
class DecoderState:
    """Where a recurrent decoder stands.

    Attributes:
        hidden: `(batch, hidden)`. memory: the same, the memory cell of an LSTM; None for a GRU.
        fed: `(batch, …)`, what the next step is fed beside its token: the last attentional output; None at the start.
        position: of the next token.
    """

    hidden: Tensor
    memory: Tensor | None = None
    fed: Tensor | None = None
    position: int = 0


@dataclass(eq=False)
class _Run:
    """The outputs of some steps, and what their attention did."""

    outputs: Tensor
    state: DecoderState
    queries: Tensor | None = None
    contexts: Tensor | None = None


class RecurrentDecoder(nn.Module):
    """A recurrent cell that looks at a source before each step or after it.

    - "bahdanau" (Bahdanau et al. 2015): the last state asks, and the context enters the cell beside the token:
      `c = attend(s₋₁)`, `s = cell([x; c], s₋₁)`; the output is `tanh(W [s; c])`.
    - "luong" (Luong et al. 2015): the cell goes first and the new state asks: `s = cell([x; fed], s₋₁)`,
      `c = attend(s)`; the output is `tanh(W [s; c])`, and is fed to the next step.

    Without a score there is no attention: the output is the state (Sutskever et al. 2014).

    Args:
        width: of the tokens.
        hidden: of the state and of the outputs.
        source_width: of the source.
        score: any of `regard.nn.scores`, between states of `hidden` and sources of `source_width`; None for none.
        order: "bahdanau" or "luong".
        cell: "gru" or "lstm".

    Raises:
        ArgumentError: an unknown cell or order, or a size below 1.
    """

    @sized
    def __init__(
        self,
        width: int,
        hidden: int,
        source_width: int,
        *,
        score: Score | None,
        order: Literal["bahdanau", "luong"] = "luong",
        cell: Cell = "gru",
    ) -> None:
        super().__init__()
        _check(cell, width=width, hidden=hidden, source_width=source_width)
        if order not in ("bahdanau", "luong"):
            raise ArgumentError(f'order must be "bahdanau" or "luong", got {order!r}')
        self.width, self.hidden, self.source_width = width, hidden, source_width
        self.score, self.order = score, order
        beside = source_width if order == "bahdanau" else hidden
        beside = 0 if score is None else beside
        self.cell = CELLS[cell](width + beside, hidden)
        self.combine = None if score is None else nn.Linear(hidden + source_width, hidden)

    @checked
    def forward(
        self,
        x: Tensor,
        source: Tensor,
        state: DecoderState | Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState]:
        """Take steps, one for each token that is given: all of a text in training, one in decoding.

        Args:
            x: `(batch, tokens, width)`.
            source: `(batch, keys, source_width)`.
            state: where to go on; a tensor `(batch, hidden)` to start with; zeros by default.
            lengths: how many keys of each row are real; None: all.

        Returns:
            outputs `(batch, tokens, hidden)`, and the state after the last step.

        Raises:
            ShapeError: inputs that do not fit together.
        """
        for name, tensor, width in (("x", x, self.width), ("source", source, self.source_width)):
            if tensor.ndim != 3 or tensor.shape[2] != width or tensor.shape[0] != x.shape[0]:
                raise ShapeError(
                    f"{name} must be (batch, tokens, {width}) with batch {x.shape[0]}, got {tuple(tensor.shape)}"
                )
        begin = self._begin(x, state)
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.hidden), begin
        if self.score is None:
            run = self._steps(x, source, begin, None)
            return run.outputs, run.state
        mask = None if lengths is None else prefix(lengths)
        done = hand_over(
            (x, source),
            lambda: self._steps(x, source, begin, mask),
            lambda run: self._tell(run, source, begin, mask),
        )
        return done.outputs, done.state

    def _begin(self, x: Tensor, state: DecoderState | Tensor | None) -> DecoderState:
        shape = (x.shape[0], self.hidden)
        if not isinstance(state, DecoderState):
            state = DecoderState(x.new_zeros(shape) if state is None else state)
        if tuple(state.hidden.shape) != shape:
            raise ShapeError(f"the state must be {shape}, got {tuple(state.hidden.shape)}")
        if isinstance(self.cell, nn.LSTMCell) and state.memory is None:
            state = replace(state, memory=torch.zeros_like(state.hidden))
        return state

    def _steps(self, x: Tensor, source: Tensor, state: DecoderState, mask: Mask | None) -> _Run:
        value = source[:, None]
        projected = None if self.score is None else self.score.project(value)
        outputs, queries, contexts = [], [], []
        for token in x.unbind(1):
            query = state.hidden
            if projected is None:
                state = self._moved(token, state)
                outputs.append(state.hidden)
                continue
            if self.order == "luong":
                fed = torch.zeros_like(query) if state.fed is None else state.fed
                state = self._moved(torch.cat((token, fed), -1), state)
                query = state.hidden
                context = self._look(query, projected, value, mask)
            else:
                context = self._look(query, projected, value, mask)
                state = self._moved(torch.cat((token, context), -1), state)
            assert self.combine is not None
            output = torch.tanh(self.combine(torch.cat((state.hidden, context), -1)))
            if self.order == "luong":
                state = replace(state, fed=output)
            outputs.append(output)
            queries.append(query)
            contexts.append(context)
        if projected is None:
            return _Run(torch.stack(outputs, 1), state)
        return _Run(torch.stack(outputs, 1), state, torch.stack(queries, 1), torch.stack(contexts, 1))

    def _moved(self, given: Tensor, state: DecoderState) -> DecoderState:
        """The state after the cell."""
        position = state.position + 1
        if isinstance(self.cell, nn.LSTMCell):
            assert state.memory is not None
            hidden, memory = self.cell(given, (state.hidden, state.memory))
            return replace(state, hidden=hidden, memory=memory, position=position)
        return replace(state, hidden=self.cell(given, state.hidden), position=position)

    def _look(self, query: Tensor, projected: Tensor, value: Tensor, mask: Mask | None) -> Tensor:
        """The context of one step, `(batch, source_width)`."""
        assert self.score is not None
        asking, asked, spec = self.score.compare(query[:, None, None], projected)
        masked: SpecArguments = {**spec, "mask": mask}
        return attend(asking, asked, value.to(asking.dtype), **masked)[:, 0, 0]

    def _tell(self, run: _Run, source: Tensor, begin: DecoderState, mask: Mask | None) -> Handed:
        """All steps as one call of cross-attention."""
        assert self.score is not None and run.queries is not None and run.contexts is not None
        query, key, spec = self.score.prepare(run.queries[:, None], source[:, None])
        return Handed(
            query=query, key=key, value=source[:, None].to(query.dtype), output=run.contexts[:, None], is_cross=True,
            spec=SpecArguments({**spec, "mask": mask, "align": begin.position}),
        )  # fmt: skip


def _check(cell: str, **sizes: int) -> None:
    if not isinstance(cell, str) or cell not in CELLS:
        raise ArgumentError(f'cell must be "gru" or "lstm", got {cell!r}')
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentError(f"{name} must be at least 1, got {size}")
