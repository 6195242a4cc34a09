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


def test_weights_that_are_taken_apart_are_an_error_where_they_are_attention() -> None:
    class LocalAttention(Own):
        pass

    halves = lambda s, v: s.softmax(-1)[..., :3] @ v[..., :3, :] + s.softmax(-1)[..., 3:] @ v[..., 3:, :]  # noqa: E731
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    message = r"LocalAttention .* its weights are taken apart \(__getitem__\) before they multiply values"
    module = LocalAttention(halves)
    with pytest.raises(WatchError, match=message), regard.watch(module):
        module(scores, value)
    module = LocalAttention(
        lambda s, v: torch.einsum("bhqk,bhkd->bhqd", s.softmax(-1)[..., 2:], v[..., 2:, :])
    )
    with pytest.raises(WatchError, match=message), regard.watch(module):
        module(scores, value)
    plain = Own(halves)
    with pytest.raises(WatchError, match="Own ran, but no attention call was seen"), regard.watch(plain):
        plain(scores, value)


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
    log_likelihood = Own(
        lambda s, v: s.softmax(-1).log().sum() + (s.softmax(-1) + 1) @ v
    )  # not weights any more
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
    # Weights that nothing was multiplied with yet could still be used by the module around them, but not after it.
    assert len(record) == 2 and len(alive) == 4 and counts == [0, 0, 1, 0]
