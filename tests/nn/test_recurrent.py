"""Recurrent encoder and decoder against loops over their equations, step by step and all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError
from regard.nn import (
    Additive,
    Concat,
    Cosine,
    DecoderState,
    General,
    RecurrentDecoder,
    RecurrentEncoder,
    Score,
    Tempered,
)

BATCH, TOKENS, KEYS, WIDTH, HIDDEN, SOURCE = 3, 5, 7, 11, 13, 17
SCORES: dict[str, Callable[[], Score]] = {
    "general": lambda: General(HIDDEN, SOURCE),
    "concat": lambda: Concat(HIDDEN, SOURCE, 6),
    "additive": lambda: Tempered(Additive(HIDDEN, SOURCE, 6), 0.5),
}


def decoder(**keywords: Any) -> RecurrentDecoder:
    given: dict[str, Any] = {"score": SCORES["additive"]()} | keywords
    return RecurrentDecoder(WIDTH, HIDDEN, SOURCE, **given).double()


def texts() -> tuple[Tensor, Tensor]:
    return (
        torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.float64),
        torch.randn(BATCH, KEYS, SOURCE, dtype=torch.float64),
    )


def by_hand(model: RecurrentDecoder, x: Tensor, source: Tensor, h: Tensor, lengths: Tensor | None) -> Tensor:
    """The outputs by the equations of the papers."""
    memory, fed, outputs = torch.zeros_like(h), torch.zeros_like(h), []

    def context(query: Tensor) -> Tensor:
        assert model.score is not None
        scores = model.score(query[:, None, None], source[:, None])[:, 0, 0]
        if lengths is not None:
            scores = scores.masked_fill(torch.arange(KEYS) >= lengths[:, None], -torch.inf)
        return (scores.softmax(-1)[:, None] @ source)[:, 0]

    for token in x.unbind(1):
        before = context(h) if model.order == "bahdanau" else fed
        given = torch.cat((token, before), -1)
        if isinstance(model.cell, nn.LSTMCell):
            h, memory = model.cell(given, (h, memory))
        else:
            h = model.cell(given, h)
        looked = before if model.order == "bahdanau" else context(h)
        assert model.combine is not None
        fed = torch.tanh(model.combine(torch.cat((h, looked), -1)))
        outputs.append(fed)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 4, 1])], ids=["whole", "padded"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("order", ["bahdanau", "luong"])
@pytest.mark.parametrize("score", SCORES)
def test_outputs_are_those_of_the_equations(
    score: str, order: str, cell: str, lengths: Tensor | None
) -> None:
    model, (x, source) = decoder(score=SCORES[score](), order=order, cell=cell), texts()
    start = torch.randn(BATCH, HIDDEN, dtype=torch.float64)
    got, state = model(x, source, start, lengths=lengths)
    want = by_hand(model, x, source, start, lengths)
    torch.testing.assert_close(got, want)
    assert state.position == TOKENS and (state.cell is None) == (cell == "gru")
    leaves = list(model.parameters())
    for one, other in zip(
        *(torch.autograd.grad(out.square().sum(), leaves) for out in (got, want)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("order", ["bahdanau", "luong", "none"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_steps_are_the_whole_text_at_once(order: str, cell: str) -> None:
    given = {"score": None} if order == "none" else {"order": order}
    model, (x, source) = decoder(cell=cell, **given), texts()
    whole, _ = model(x, source)
    state, outputs = None, []
    for part in x.split([2, 1, 0, 2], 1):
        out, state = model(part, source, state)
        outputs.append(out)
    torch.testing.assert_close(torch.cat(outputs, 1), whole)
    assert isinstance(state, DecoderState) and state.position == TOKENS


def test_without_a_score_it_is_the_plain_network() -> None:
    model, (x, source) = decoder(score=None), texts()
    plain = nn.GRU(WIDTH, HIDDEN, batch_first=True).double()
    with torch.no_grad():
        for name, tensor in model.cell.named_parameters():
            getattr(plain, f"{name}_l0").copy_(tensor)
    torch.testing.assert_close(model(x, source)[0], plain(x)[0])
    assert model.combine is None


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_encoder_reads_each_row_as_if_it_were_alone(cell: str, bidirectional: bool) -> None:
    model = RecurrentEncoder(WIDTH, HIDDEN, cell=cell, bidirectional=bidirectional, num_layers=2).double()
    x, lengths = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.float64), torch.tensor([5, 2, 3])
    outputs, final = model(x, lengths)
    assert outputs.shape == (BATCH, TOKENS, model.output_size) and final.shape == (BATCH, model.output_size)
    for row, length in enumerate(lengths.tolist()):
        alone, last = model(x[row : row + 1, :length])
        torch.testing.assert_close(outputs[row, :length], alone[0])
        assert (outputs[row, length:] == 0).all()
        torch.testing.assert_close(final[row], last[0])
        torch.testing.assert_close(last[0, :HIDDEN], alone[0, -1, :HIDDEN])
        if bidirectional:
            torch.testing.assert_close(last[0, HIDDEN:], alone[0, 0, HIDDEN:])


def test_an_encoder_and_a_decoder_learn_to_copy() -> None:
    torch.manual_seed(1)
    table = nn.Embedding(8, 16)
    encoder = RecurrentEncoder(16, 12)
    model = RecurrentDecoder(16, 24, encoder.output_size, score=General(24, 24))
    head = nn.Linear(24, 8)
    parts = nn.ModuleList([table, encoder, model, head])
    optimizer, losses = torch.optim.Adam(parts.parameters(), 1e-2), []
    for _ in range(40):
        tokens = torch.randint(1, 8, (16, 4))
        source, start = encoder(table(tokens))
        given = torch.cat((torch.zeros_like(tokens[:, :1]), tokens[:, :-1]), 1)
        logits = head(model(table(given), source, start)[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_errors() -> None:
    x, source = texts()
    with pytest.raises(ArgumentError, match='cell must be "gru" or "lstm", got \'rnn\''):
        RecurrentEncoder(3, 4, cell="rnn")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="num_layers must be at least 1, got 0"):
        RecurrentEncoder(3, 4, num_layers=0)
    with pytest.raises(ArgumentError, match='order must be "bahdanau" or "luong", got \'first\''):
        decoder(order="first")
    with pytest.raises(ArgumentError, match="memory_dim must be at least 1, got 0"):
        RecurrentDecoder(3, 4, 0, score=Cosine())
    with pytest.raises(ShapeError, match=r"x must be \(batch, tokens, 11\), got \(3, 7, 17\)"):
        RecurrentEncoder(WIDTH, HIDDEN).double()(source)
    with pytest.raises(ShapeError, match=r"lengths must be one for each of 3 rows, got \(2,\)"):
        RecurrentEncoder(WIDTH, HIDDEN).double()(x, torch.tensor([1, 2]))
    with pytest.raises(ShapeError, match=r"memory must be .* 17\) with batch 3, got \(2, 7, 17\)"):
        decoder()(x, source[:2])
    with pytest.raises(ShapeError, match=r"the state must be \(3, 13\), got \(3, 12\)"):
        decoder()(x, source, torch.zeros(3, 12))
