"""Models that make the weights themselves: what counts as attention, what does not, and that nothing is kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.errors import WatchError

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 4


class Own(nn.Module):
    """Makes weights from scores, and calls a function on them and the values."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], heads: int | None = None) -> None:
        super().__init__()
        self.function = function
        if heads:
            self.num_heads = heads

    def forward(self, scores: Tensor, value: Tensor) -> Tensor:
        return self.function(scores, value)


def seen(
    function: Callable[[Tensor, Tensor], Tensor], scores: Tensor, value: Tensor, heads: int | None = None
) -> Tensor:
    """The entropies of the only call, after checking that nothing changed."""
    module = Own(function, heads)
    want = module(scores, value)
    with regard.watch(module) as record:
        got = module(scores, value)
    assert torch.equal(want, got) and len(record) == 1 and record[0].seen == "weights"
    return record[0].entropy


def entropy(scores: Tensor) -> Tensor:
    w = torch.softmax(scores.double(), -1)
    return -torch.special.xlogy(w, w).sum(-1).float()


LAYOUTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda s, v: torch.matmul(s.softmax(-1), v),
    "operator": lambda s, v: F.softmax(s, dim=-1) @ v,
    "module": lambda s, v: nn.Softmax(dim=-1)(s) @ v,
    "last axis by number": lambda s, v: torch.softmax(s, 3) @ v,
    "dropout and cast": lambda s, v: F.dropout(s.softmax(-1, dtype=torch.float64).float(), 0.0) @ v,
    "head mask": lambda s, v: (s.softmax(-1) * torch.ones(HEADS, 1, 1)) @ v,
    "bmm": lambda s, v: torch.bmm(s.softmax(-1).view(-1, QUERIES, KEYS), v.flatten(0, 1)),
    "baddbmm": lambda s, v: torch.baddbmm(torch.zeros(1), s.softmax(-1).flatten(0, 1), v.flatten(0, 1)),
    "einsum": lambda s, v: torch.einsum("bhqk,bhkd->bqhd", s.softmax(-1), v),
    "einsum, values first": lambda s, v: torch.einsum("bhkd, bhqk -> bqhd", v, s.softmax(-1)),
    "columns": lambda s, v: v.mT @ s.softmax(-1).transpose(-1, -2),
    "permuted columns": lambda s, v: torch.bmm(
        v.flatten(0, 1).mT, s.softmax(-1).flatten(0, 1).permute(0, 2, 1)
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    torch.testing.assert_close(seen(LAYOUTS[layout], scores, value), entropy(scores))


def test_other_orders_of_axes() -> None:
    scores, value = torch.randn(BATCH, QUERIES, HEADS, KEYS), torch.randn(BATCH, KEYS, HEADS, DIM)
    got = seen(lambda s, v: torch.einsum("bqhk,bkhd->bqhd", s.softmax(-1), v), scores, value)
    torch.testing.assert_close(got, entropy(scores).transpose(1, 2))
    one_value = value[:, :, 0]
    got = seen(lambda s, v: torch.einsum("bqhk,bkd->bqhd", s.softmax(-1), v), scores, one_value, heads=HEADS)
    torch.testing.assert_close(got, entropy(scores).transpose(1, 2))


def test_two_three_and_five_axes() -> None:
    scores, value = torch.randn(QUERIES, KEYS), torch.randn(KEYS, DIM)
    attend = LAYOUTS["operator"]
    assert seen(attend, scores, value).shape == (1, 1, QUERIES)
    scores, value = torch.randn(6, QUERIES, KEYS), torch.randn(6, KEYS, DIM)
    assert seen(attend, scores, value).shape == (6, 1, QUERIES)
    scores, value = torch.randn(2, BATCH, HEADS, QUERIES, KEYS), torch.randn(2, BATCH, HEADS, KEYS, DIM)
    torch.testing.assert_close(seen(attend, scores, value), entropy(scores).flatten(0, 1))


@pytest.mark.parametrize("blocked", [-torch.inf, torch.finfo(torch.float32).min, -1e9, -1e4])
def test_every_way_of_blocking(blocked: float) -> None:
    hidden = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    scores = torch.randn(BATCH, HEADS, QUERIES, QUERIES) + torch.where(hidden, blocked, 0.0)
    module = Own(LAYOUTS["operator"])
    with regard.watch(module) as record:
        module(scores, torch.randn(BATCH, HEADS, QUERIES, DIM))
    assert record[0].allowed[0, 0].tolist() == [1, 2, 3, 4, 5]
    torch.testing.assert_close(record[0].entropy, entropy(scores.masked_fill(hidden, -torch.inf)))


@pytest.mark.parametrize("moved", [False, True])
def test_a_column_for_a_learned_sink(moved: bool) -> None:
    """As in GPT-OSS: one more score per head, cut off after the softmax; the largest score may be taken off before."""
    sinks = torch.tensor([0.5, -1.0, 2.0]).view(1, HEADS, 1, 1)

    def attend(scores: Tensor, value: Tensor) -> Tensor:
        scores = torch.cat([scores, sinks.expand(BATCH, -1, QUERIES, -1)], -1)
        scores = scores - scores.amax(-1, keepdim=True) if moved else scores
        return scores.softmax(-1)[..., :-1] @ value

    module = Own(attend)
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    with regard.watch(module) as record:
        module(scores, value)
    joint = torch.softmax(torch.cat([scores, sinks.expand(BATCH, -1, QUERIES, -1)], -1), -1)
    torch.testing.assert_close(record[0].sink, joint[..., -1])
    torch.testing.assert_close(record[0].received, joint[..., :-1].sum(2))


class LocalAttention(Own):
    """One that says of itself that it is attention."""


def test_weights_that_are_taken_apart_are_an_error_where_they_are_attention() -> None:
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    every_other = lambda s, v: s.softmax(-1)[..., ::2] @ v[..., ::2, :]  # noqa: E731
    message = r"LocalAttention .* its weights are taken apart \(__getitem__\) before they multiply values"
    module = LocalAttention(every_other)
    with pytest.raises(WatchError, match=message), regard.watch(module):
        module(scores, value)
    plain = Own(every_other)
    with pytest.raises(WatchError, match="Own ran, but no attention call was seen"), regard.watch(plain):
        plain(scores, value)


def ends(s: Tensor, v: Tensor) -> Tensor:
    """The columns in the middle multiply nothing."""
    w = s.softmax(-1)
    return w[..., :2] @ v[..., :2, :] + w[..., 5:] @ v[..., 5:, :]


def test_columns_in_the_middle_that_multiply_nothing_are_an_error() -> None:
    module = LocalAttention(ends)
    with pytest.raises(WatchError, match="columns in the middle"), regard.watch(module):
        module(torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM))


def halves(s: Tensor, v: Tensor) -> Tensor:
    w = s.softmax(-1)
    return w[..., :3] @ v[..., :3, :] + w[..., 3:] @ v[..., 3:, :]


def dropped_halves(s: Tensor, v: Tensor) -> Tensor:
    first, second = F.dropout(s.softmax(-1), 0.5).split([4, 3], -1)
    return first @ v[..., :4, :] + second @ v[..., 4:, :]


def halves_dropped(s: Tensor, v: Tensor) -> Tensor:
    w = s.softmax(-1)
    first = F.dropout(w.narrow(-1, 0, 3), 0.5) @ v[..., :3, :]
    return first + F.dropout(w.narrow(-1, 3, 4), 0.5) @ v[..., 3:, :]


@pytest.mark.parametrize("way", [halves, dropped_halves, halves_dropped])
def test_weights_whose_columns_multiply_values_in_pieces_are_one_call(
    way: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """As in Pegasus-X: global tokens first, then those of the block."""
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    torch.testing.assert_close(seen_with_chance(way, scores, value), entropy(scores))


def seen_with_chance(way: Callable[[Tensor, Tensor], Tensor], scores: Tensor, value: Tensor) -> Tensor:
    """The entropies of the only call; its row sums are 1, or not told as it is a softmax."""
    module = LocalAttention(way, HEADS)
    torch.manual_seed(3)
    want = module(scores, value)
    torch.manual_seed(3)
    with regard.watch(module) as record:
        got = module(scores, value)
    assert torch.equal(want, got) and len(record) == 1 and record[0].normalized
    return record[0].entropy


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_leading_columns_that_are_cut_off_leave_rows_below_1(dropout: float) -> None:
    """As with learned sinks that stand first: the keys keep their places, and `row_sum` tells what the sinks took."""
    query, value = torch.randn(BATCH, HEADS, KEYS, DIM), torch.randn(BATCH, HEADS, KEYS, DIM)
    sink = torch.tensor([0.5, -1.0, 2.0]).view(1, HEADS, 1, 1).expand(BATCH, -1, KEYS, -1)

    def attend(q: Tensor, v: Tensor) -> Tensor:
        w = torch.cat((sink, q @ q.mT), -1).softmax(-1)[..., 1:]
        return F.dropout(w, dropout) @ v

    module = LocalAttention(attend, HEADS)
    with regard.watch(module) as record:
        module(query, value)
    (call,) = record
    w = torch.cat((sink, query @ query.mT), -1).softmax(-1)[..., 1:]
    assert not call.normalized and call.placed and call.kind == "self"
    torch.testing.assert_close(call.row_sum, w.sum(-1))
    torch.testing.assert_close(call.received, w.sum(2))
    torch.testing.assert_close(call.max_weight, w.amax(-1))
    torch.testing.assert_close(call.min_weight, w.amin(-1))


def test_columns_cut_off_that_are_no_sink_have_no_place() -> None:
    """The second half of the keys, as many as queries: nobody knows which tokens they are."""
    query, value = torch.randn(BATCH, HEADS, 4, DIM), torch.randn(BATCH, HEADS, 8, DIM)
    module = LocalAttention(lambda q, v: (q @ v.mT).softmax(-1)[..., 4:] @ v[..., 4:, :], HEADS)
    with regard.watch(module) as record:
        module(query, value)
    (call,) = record
    torch.testing.assert_close(call.row_sum, (query @ value.mT).softmax(-1)[..., 4:].sum(-1))
    assert not call.placed and call.distance is None


def banded(s: Tensor, v: Tensor) -> Tensor:
    """Each row shifted by one, as a sliding window's weights are laid out over the keys of a block."""
    w = s.softmax(-1)
    w = F.pad(w, (0, QUERIES)).flatten(-2)[..., :-QUERIES]
    band = w.unflatten(-1, (QUERIES, KEYS + QUERIES - 1))
    return band @ F.pad(v, (0, 0, 0, QUERIES - 1))


def test_weights_that_are_laid_out_in_bands_are_read_row_by_row() -> None:
    """As in Longformer: each row's numbers stand elsewhere, so where the keys are is not known."""
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    module = LocalAttention(banded, HEADS)
    with regard.watch(module) as record:
        module(scores, value)
    (call,) = record
    torch.testing.assert_close(call.entropy, entropy(scores))
    assert not call.placed and call.distance is None


def test_bands_whose_numbers_were_changed_are_an_error() -> None:
    def changed(s: Tensor, v: Tensor) -> Tensor:
        w = F.pad(s.softmax(-1), (0, QUERIES)).flatten(-2)[..., :-QUERIES]
        return (w.unflatten(-1, (QUERIES, KEYS + QUERIES - 1)) * 2) @ F.pad(v, (0, 0, 0, QUERIES - 1))

    module = LocalAttention(changed, HEADS)
    with pytest.raises(WatchError, match="taken apart"), regard.watch(module):
        module(torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM))


def test_blocks_have_the_heads_of_the_module() -> None:
    """Weights `(batch, heads, blocks, queries, keys)`: the blocks are of the batch, the heads are heads."""
    scores, value = torch.randn(BATCH, HEADS, 4, QUERIES, KEYS), torch.randn(BATCH, HEADS, 4, KEYS, DIM)
    module = LocalAttention(lambda s, v: s.softmax(-1) @ v, HEADS)
    with regard.watch(module) as record:
        module(scores, value)
    size = record[0].sizes
    assert (size.batch, size.heads, size.queries, size.keys) == (4 * BATCH, HEADS, QUERIES, KEYS)
    torch.testing.assert_close(record[0].entropy, entropy(scores).transpose(1, 2).flatten(0, 1))


def test_a_softmax_by_way_of_logsumexp() -> None:
    """As in Reformer: exp(x − ln Σ eˣ)."""
    own = lambda s, v: torch.exp(s - torch.logsumexp(s, -1, keepdim=True)) @ v  # noqa: E731
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    torch.testing.assert_close(seen(own, scores, value, HEADS), entropy(scores))


def test_a_softmax_that_gates_is_named_as_such() -> None:
    module = LocalAttention(lambda s, v: (s.softmax(1)[..., None] * v).sum(1))
    with pytest.raises(WatchError, match="multiplies values one by one"), regard.watch(module):
        module(torch.randn(BATCH, KEYS), torch.randn(BATCH, KEYS, DIM))


class Router(nn.Module):
    """A mixture of experts and a soft vocabulary: softmaxes whose results multiply what was learned."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.randn(BATCH, KEYS, DIM))
        self.embedding = nn.Embedding(KEYS, DIM)

    def forward(self, scores: Tensor) -> Tensor:
        return (
            scores.softmax(-1) @ self.experts
            + scores.softmax(-1) @ self.embedding.weight
            + scores.softmax(1).sum()
        )


def test_softmaxes_that_are_no_attention() -> None:
    module = Router()
    with pytest.raises(WatchError, match="Router ran, but no attention call was seen"), regard.watch(module):
        module(torch.randn(BATCH, QUERIES, KEYS))
    log_likelihood = Own(lambda s, v: s.softmax(-1).log().sum() + v)
    with pytest.raises(WatchError, match="no attention call was seen"), regard.watch(log_likelihood):
        log_likelihood(torch.randn(BATCH, QUERIES, KEYS), torch.randn(BATCH, KEYS, DIM))


def test_weights_and_scores_are_let_go_at_once() -> None:
    alive: list[weakref.ref[Tensor]] = []
    counts: list[int] = []
    kept: list[Tensor] = []  # weights that the model itself keeps must not keep their scores

    def attend(scores: Tensor, value: Tensor) -> Tensor:
        scores = scores * 2
        weights = scores.softmax(-1)
        alive.extend([weakref.ref(scores), weakref.ref(weights)])
        return weights @ value

    def unused(scores: Tensor, value: Tensor) -> Tensor:
        scores = scores * 2
        kept.append(scores.softmax(-1))
        alive.append(weakref.ref(scores))
        return value

    def attend_and_keep(scores: Tensor, value: Tensor) -> Tensor:
        scores = scores * 2
        kept.append(scores.softmax(-1))
        alive.append(weakref.ref(scores))
        return kept[-1] @ value

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.ModuleList([Own(attend), Own(attend_and_keep), Own(unused)])

        def forward(self, scores: Tensor, value: Tensor) -> None:
            for step in self.steps:
                step(scores, value)
                gc.collect()
                counts.append(sum(reference() is not None for reference in alive))

    model = Model()
    with regard.watch(model) as record:
        model(torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM))
        gc.collect()
        counts.append(sum(reference() is not None for reference in alive))
    # What a module does not return is let go with it.
    assert len(record) == 2 and len(alive) == 4 and counts == [0, 0, 0, 0]
