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
        input_size: of the tokens' embeddings.
        hidden_size: of each direction's state.
        cell: "gru" or "lstm".
        num_layers: how many on top of each other.
        bidirectional: whether a second one reads backwards.
        dropout: between the layers, in training.

    Attributes:
        output_size: size of its outputs, 2 · hidden_size with two directions.

    Raises:
        ArgumentError: an unknown cell, or a size below 1.

    Example:
        >>> outputs, final = RecurrentEncoder(16, 12)(torch.randn(3, 7, 16))
        >>> outputs.shape, final.shape
        (torch.Size([3, 7, 24]), torch.Size([3, 24]))
    """

    @sized
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        cell: Cell = "gru",
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check(cell, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        dropout = share("dropout", dropout)
        self.input_size, self.hidden_size, self.bidirectional = input_size, hidden_size, bidirectional
        self.output_size = hidden_size * (2 if bidirectional else 1)
        self.network = NETWORKS[cell](
            input_size,
            hidden_size,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout,
        )

    @checked
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read texts.

        Args:
            x: `(batch, tokens, input_size)`.
            lengths: how many tokens of each row are real, at least 1; None: all.

        Returns:
            outputs `(batch, tokens, output_size)`, 0 behind a row's end; and the last layer's final states, those of
            both directions side by side, `(batch, output_size)`, with which a decoder may start.

        Raises:
            ShapeError: other axes or another size.
        """
        if x.ndim != 3 or x.shape[2] != self.input_size:
            raise ShapeError(f"x must be (batch, tokens, {self.input_size}), got {tuple(x.shape)}")
        if lengths is None:
            outputs, final = self.network(x)
        else:
            if lengths.shape != x.shape[:1]:
                raise ShapeError(
                    f"lengths must be one for each of {x.shape[0]} rows, got {tuple(lengths.shape)}"
                )
            # The backward direction has to start at a text's last token, not in its padding.
            # torch reads the lengths on the CPU, wherever the texts are.
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            outputs, final = self.network(packed)
            # By itself torch pads to the longest of these texts, and outputs would be shorter than the input.
            outputs = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])[0]
        if isinstance(final, tuple):
            # An LSTM gives its cell state besides.
            final = final[0]
        # torch stacks directions behind layers: the last entries are those of the last layer.
        last = final[-2:] if self.bidirectional else final[-1:]
        return outputs, torch.cat(last.unbind(), -1)


@dataclass(frozen=True, eq=False)
class DecoderState:
    """Where a recurrent decoder stands.

    Attributes:
        hidden: `(batch, hidden_size)`. cell: the same, the cell state of an LSTM; None for a GRU.
        input_feed: `(batch, hidden_size)`, the last output, which the next step reads beside its token; None at first.
        position: of the next token.
    """

    hidden: Tensor
    cell: Tensor | None = None
    input_feed: Tensor | None = None
    position: int = 0


@dataclass(eq=False)
class _Run:
    """The outputs of some steps, and what their attention did."""

    outputs: Tensor
    state: DecoderState
    queries: Tensor | None = None
    contexts: Tensor | None = None


class RecurrentDecoder(nn.Module):
    """A recurrent cell that looks at a memory before each step or after it.

    - "bahdanau" (Bahdanau et al. 2015): the last state asks, and the context enters the cell beside the token:
      `c = attend(s₋₁)`, `s = cell([x; c], s₋₁)`; the output is `tanh(W [s; c])`.
    - "luong" (Luong et al. 2015): the cell goes first and the new state asks: `s = cell([x; input_feed], s₋₁)`,
      `c = attend(s)`; the output is `tanh(W [s; c])`, and is fed to the next step.

    Without a score there is no attention: the output is the state (Sutskever et al. 2014).

    Args:
        input_size: of the tokens' embeddings.
        hidden_size: of the state and of the outputs.
        memory_dim: embedding size of the memory.
        score: any of `regard.nn.scores`, between states of `hidden_size` and memories of `memory_dim`; None for none.
        order: "bahdanau" or "luong".
        cell: "gru" or "lstm".

    Raises:
        ArgumentError: an unknown cell or order, or a size below 1.

    Example:
        >>> from regard.nn import Additive
        >>> decoder = RecurrentDecoder(16, 12, 24, score=Additive(12, 24, 10))
        >>> outputs, state = decoder(torch.randn(3, 5, 16), torch.randn(3, 7, 24))
        >>> outputs.shape, state.position
        (torch.Size([3, 5, 12]), 5)
    """

    @sized
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        memory_dim: int,
        *,
        score: Score | None,
        order: Literal["bahdanau", "luong"] = "luong",
        cell: Cell = "gru",
    ) -> None:
        super().__init__()
        _check(cell, input_size=input_size, hidden_size=hidden_size, memory_dim=memory_dim)
        if order not in ("bahdanau", "luong"):
            raise ArgumentError(f'order must be "bahdanau" or "luong", got {order!r}')
        self.input_size, self.hidden_size, self.memory_dim = input_size, hidden_size, memory_dim
        self.score, self.order = score, order
        # Beside its token, Bahdanau's cell reads the context, Luong's the last output (input feeding, section 3.3).
        beside = {"bahdanau": memory_dim, "luong": hidden_size}[order]
        self.combine = None
        if score is None:
            self.cell = CELLS[cell](input_size, hidden_size)
        else:
            self.cell = CELLS[cell](input_size + beside, hidden_size)
            self.combine = nn.Linear(hidden_size + memory_dim, hidden_size)

    @checked
    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        state: DecoderState | Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState]:
        """Take steps, one for each token that is given: all of a text in training, one in decoding.

        Args:
            x: `(batch, tokens, input_size)`.
            memory: `(batch, keys, memory_dim)`.
            state: where to go on; a tensor `(batch, hidden_size)` to start with; zeros by default.
            lengths: how many keys of each row are real; None: all.

        Returns:
            outputs `(batch, tokens, hidden_size)`, and the state after the last step.

        Raises:
            ShapeError: inputs that do not fit together.
        """
        for name, tensor, size in (("x", x, self.input_size), ("memory", memory, self.memory_dim)):
            if tensor.ndim != 3 or tensor.shape[2] != size or tensor.shape[0] != x.shape[0]:
                raise ShapeError(
                    f"{name} must be (batch, tokens, {size}) with batch {x.shape[0]}, got {tuple(tensor.shape)}"
                )
        begin = self._begin(x, state)
        # torch.stack refuses an empty list of outputs.
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.hidden_size), begin
        if self.score is None:
            run = self._steps(x, memory, begin, None)
            return run.outputs, run.state
        mask = None if lengths is None else prefix(lengths)
        done = hand_over(
            (x, memory),
            lambda: self._steps(x, memory, begin, mask),
            lambda run: self._describe(run, memory, begin, mask),
        )
        return done.outputs, done.state

    def _begin(self, x: Tensor, state: DecoderState | Tensor | None) -> DecoderState:
        shape = (x.shape[0], self.hidden_size)
        if not isinstance(state, DecoderState):
            if state is None:
                state = x.new_zeros(shape)
            state = DecoderState(state)
        if tuple(state.hidden.shape) != shape:
            raise ShapeError(f"the state must be {shape}, got {tuple(state.hidden.shape)}")
        if isinstance(self.cell, nn.LSTMCell) and state.cell is None:
            # A tensor to start with is a hidden state; the cell state beside it begins at 0, as in torch.
            state = replace(state, cell=torch.zeros_like(state.hidden))
        return state

    def _steps(self, x: Tensor, memory: Tensor, state: DecoderState, mask: Mask | None) -> _Run:
        value = memory[:, None]
        projected = None
        if self.score is not None:
            # Keys are the same in each step, so what a score computes of them alone is computed once.
            projected = self.score.project(value)
        outputs, queries, contexts = [], [], []
        for token in x.unbind(1):
            query = state.hidden
            if projected is None:
                state = self._next(token, state)
                outputs.append(state.hidden)
                continue
            if self.order == "luong":
                input_feed = state.input_feed
                if input_feed is None:
                    # Before the first output there is none to feed, but the cell's input has a fixed size.
                    input_feed = torch.zeros_like(query)
                state = self._next(torch.cat((token, input_feed), -1), state)
                query = state.hidden
                context = self._context(query, projected, value, mask)
            else:
                context = self._context(query, projected, value, mask)
                state = self._next(torch.cat((token, context), -1), state)
            assert self.combine is not None
            output = torch.tanh(self.combine(torch.cat((state.hidden, context), -1)))
            # The output tells the next step where this one looked (Luong et al. 2015, section 3.3).
            if self.order == "luong":
                state = replace(state, input_feed=output)
            outputs.append(output)
            queries.append(query)
            contexts.append(context)
        if projected is None:
            return _Run(torch.stack(outputs, 1), state)
        return _Run(torch.stack(outputs, 1), state, torch.stack(queries, 1), torch.stack(contexts, 1))

    def _next(self, inputs: Tensor, state: DecoderState) -> DecoderState:
        """The state after the cell."""
        position = state.position + 1
        if isinstance(self.cell, nn.LSTMCell):
            assert state.cell is not None
            hidden, cell = self.cell(inputs, (state.hidden, state.cell))
            return replace(state, hidden=hidden, cell=cell, position=position)
        return replace(state, hidden=self.cell(inputs, state.hidden), position=position)

    def _context(self, query: Tensor, projected: Tensor, value: Tensor, mask: Mask | None) -> Tensor:
        """The context of one step, `(batch, memory_dim)`."""
        assert self.score is not None
        # Under autocast a score's projections may be of bfloat16; the memory's values follow their type.
        queries, keys, spec = self.score.compare(query[:, None, None], projected)
        masked: SpecArguments = {**spec, "mask": mask}
        return attend(queries, keys, value.to(queries.dtype), **masked)[:, 0, 0]

    def _describe(self, run: _Run, memory: Tensor, begin: DecoderState, mask: Mask | None) -> Handed:
        """All steps as one call of cross-attention."""
        assert self.score is not None and run.queries is not None and run.contexts is not None
        # A watch sees one call with a row for each step, as the keys were the same in all of them.
        query, key, spec = self.score.prepare(run.queries[:, None], memory[:, None])
        return Handed(
            query=query,
            key=key,
            value=memory[:, None].to(query.dtype),
            output=run.contexts[:, None],
            is_cross=True,
            spec=SpecArguments({**spec, "mask": mask, "align": begin.position}),
        )


def _check(cell: str, **sizes: int) -> None:
    if not isinstance(cell, str) or cell not in CELLS:
        raise ArgumentError(f'cell must be "gru" or "lstm", got {cell!r}')
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentError(f"{name} must be at least 1, got {size}")
