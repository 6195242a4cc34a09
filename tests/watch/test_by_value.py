"""Weights that a model changes after its softmax, or makes in another way: what multiplies values is what counts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.errors import UnseenWarning, WatchError
from regard.record import Call

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 4
MIX = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.0, 0.5, 0.5]])
SIGNED = torch.tensor([[1.4, -0.3, 0.1], [0.2, 0.9, -0.6], [-0.1, 0.5, 0.5]])
GATE = torch.tensor([0.5, 2.0, 1.0]).view(1, 3, 1, 1)


class Made(nn.Module):
    """Weights from scores by `weigh`, then their product with the values; what the weights were is remembered."""

    num_heads = HEADS

    def __init__(self, weigh: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weigh = weigh

    def forward(self, scores: Tensor, value: Tensor) -> Tensor:
        weights = self.weigh(scores)
        with torch._C.DisableTorchFunction():
            self.operand = weights.detach().clone().double()
        return weights @ value


def zeroed(s: Tensor) -> Tensor:
    w = s.softmax(-1)
    w[..., 0] = 0
    return w


def renormalized(s: Tensor) -> Tensor:
    w = s.softmax(-1)
    values, keys = w.topk(3, -1)
    w = torch.zeros_like(w).scatter(-1, keys, values)
    return w / w.sum(-1, keepdim=True)


def in_place(s: Tensor) -> Tensor:
    return torch.softmax(s, -1, out=s)


def written_over(s: Tensor) -> Tensor:
    w = s.softmax(-1)
    s.zero_()
    return w


def by_hand(s: Tensor) -> Tensor:
    e = (s - s.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def over_sum(w: Tensor) -> Tensor:
    return w / w.sum(-1, keepdim=True)


def two(s: Tensor) -> Tensor:
    """As in ConViT: a gated sum of two softmaxes."""
    gate = torch.sigmoid(torch.tensor([-1.0, 0.0, 2.0])).view(1, 3, 1, 1)
    w = (1 - gate) * s.softmax(-1) + gate * (-s).softmax(-1)
    return w / w.sum(dim=-1).unsqueeze(-1)


def refined(s: Tensor) -> Tensor:
    """As in DeepViT: heads mixed, then a norm over heads."""
    w = torch.einsum("bhij,hg->bgij", s.softmax(-1), MIX)
    return F.layer_norm(w.permute(0, 2, 3, 1), (HEADS,)).permute(0, 3, 1, 2)


NORMALIZED: dict[str, Callable[[Tensor], Tensor]] = {
    "log softmax": lambda s: s.log_softmax(-1).exp(),
    "by hand": by_hand,
    "without a maximum": lambda s: s.exp() / s.exp().sum(-1, keepdim=True),
    "out": in_place,
    "written over": written_over,
    "where": lambda s: torch.where(s > -100, s.softmax(-1), torch.zeros(())),
    "top-k": renormalized,
    "talking heads": lambda s: torch.einsum("bhij,hg->bgij", s.softmax(-1), MIX.T),
    "linear over heads": lambda s: F.linear(s.softmax(-1).permute(0, 2, 3, 1), MIX).permute(0, 3, 1, 2),
    "convolution over heads": lambda s: F.conv2d(s.softmax(-1), MIX[..., None, None]),
    "two softmaxes": two,
    "relu": lambda s: F.normalize((s @ torch.eye(KEYS)).relu() + 1e-3, p=1, dim=-1),
    "relu by hand": lambda s: over_sum((s @ torch.eye(KEYS)).relu() + 1e-3),
    "another axis": lambda s: s.transpose(-1, -2).softmax(-2).transpose(-1, -2),
    "l1": lambda s: F.normalize(s.softmax(-1) * 3, p=1, dim=-1),
    "twice": lambda s: s.softmax(-1).softmax(-1),
    "cut and joined": lambda s: torch.cat(s.softmax(-1).chunk(3, 1), 1),
    "head by head": lambda s: torch.stack([s[:, head].softmax(-1) for head in range(HEADS)], 1),
    "written into": lambda s: _into(torch.zeros_like(s), s.softmax(-1)),
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeroed": zeroed,
    "gate": lambda s: s.softmax(-1) * GATE,
    "masked": lambda s: s.softmax(-1).masked_fill(torch.ones(QUERIES, KEYS).tril() == 0, 0),
    "masked in place": lambda s: s.softmax(-1).masked_fill_(torch.ones(QUERIES, KEYS).tril() == 0, 0),
    "signed heads": lambda s: torch.einsum("bhij,hg->bgij", s.softmax(-1), SIGNED),
    "refined": refined,
    "shifted": lambda s: s.softmax(-1) + 1,
    "off by one": lambda s: s.exp() / (1 + s.exp().sum(-1, keepdim=True)),
    "scaled": lambda s: s.softmax(-1) * math.sqrt(KEYS),
}


def _into(target: Tensor, weights: Tensor) -> Tensor:
    target[:] = weights
    return target


def watched(module: Made, scores: Tensor, value: Tensor, **options: object) -> Call:
    want = module(scores.clone(), value)
    with regard.watch(module, top=3, **options) as record:
        got = module(scores.clone(), value)
    assert torch.equal(want, got) and len(record) == 1 and not record.unseen
    assert record[0].seen == "weights"
    return record[0]


def assert_shows(call: Call, w: Tensor) -> None:
    """The statistics of these weights by their formulas."""
    share = w.abs() / w.abs().sum(-1, keepdim=True)
    q, k = torch.arange(w.shape[2])[:, None], torch.arange(w.shape[3])
    want = {
        "entropy": -torch.special.xlogy(share, share).sum(-1),
        "max_weight": w.amax(-1),
        "sum_squares": w.square().sum(-1),
        "first": w[..., 0],
        "received": w.sum(2),
        "received_max": w.amax(2),
        "position": (share * k).sum(-1),
    }
    if call.placed:
        want |= {"distance": (share * (q - k).abs()).sum(-1), "self_mass": (w * (q == k)).sum(-1)}
    for name, tensor in want.items():
        got = getattr(call, name)
        torch.testing.assert_close(
            got.double(), tensor, atol=2e-6, rtol=2e-6, msg=lambda m, n=name: f"{n}: {m}"
        )
    variance = ((share * k**2).sum(-1) - (share * k).sum(-1) ** 2).clamp(min=0)
    torch.testing.assert_close(call.spread.double() ** 2, variance, atol=2e-5, rtol=2e-5)
    assert call.map is not None and call.top is not None
    torch.testing.assert_close(call.map.total.double(), w, atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(call.map.peak.double(), w, atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(
        call.top.weights.double(), w.topk(3, -1).values.clamp(min=0), atol=2e-6, rtol=2e-6
    )


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("queries", [QUERIES, KEYS])
@pytest.mark.parametrize("way", [*NORMALIZED, *OTHERS])
def test_what_multiplies_the_values_is_what_is_shown(way: str, queries: int, inference: bool) -> None:
    if way.startswith("masked") and queries != QUERIES:
        queries = QUERIES
    torch.manual_seed(3)
    module = Made((NORMALIZED | OTHERS)[way])
    scores, value = torch.randn(BATCH, HEADS, queries, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    with torch.inference_mode(inference):
        call = watched(module, scores, value)
    assert_shows(call, module.operand)
    assert call.normalized == (way in NORMALIZED)
    if not call.normalized:
        assert call.row_sum is not None
        torch.testing.assert_close(call.row_sum.double(), module.operand.sum(-1), atol=1e-6, rtol=1e-6)


def test_a_row_sum_is_saved(tmp_path) -> None:  # type: ignore[no-untyped-def]
    module = Made(OTHERS["gate"])
    with regard.watch(module) as record:
        module(torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM))
    record.save(tmp_path / "record")
    loaded = regard.load(tmp_path / "record")[0]
    assert not loaded.normalized and torch.equal(loaded.row_sum, record[0].row_sum)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("way", ["gate", "by hand", "talking heads", "zeroed"])
def test_weights_before_dropout(way: str, inplace: bool) -> None:
    weigh = (NORMALIZED | OTHERS)[way]
    before: list[Tensor] = []

    def dropped(s: Tensor) -> Tensor:
        w = weigh(s)
        with torch._C.DisableTorchFunction():
            before.append(w.detach().clone().double())
        return F.dropout(w, 0.4, True, inplace)

    module = Made(dropped)
    scores, value = torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM)
    torch.manual_seed(5)
    want = module(scores.clone(), value)
    torch.manual_seed(5)
    with regard.watch(module, top=3) as record:
        got = module(scores.clone(), value)
    assert torch.equal(want, got)
    assert_shows(record[0], before[-1])


def test_weights_changed_after_dropout_are_refused() -> None:
    module = Made(lambda s: F.dropout(s.softmax(-1), 0.4, True) * torch.rand(QUERIES, KEYS))
    with pytest.raises(WatchError, match="are changed after dropout"), regard.watch(module):
        module(torch.randn(BATCH, HEADS, QUERIES, KEYS), torch.randn(BATCH, HEADS, KEYS, DIM))


@pytest.mark.parametrize("magnitude", [1e-30, 1.0, 1e3, 1e5, 1e9, 1e30])
def test_scores_of_every_magnitude(magnitude: float) -> None:
    """Large scores are no masks: −1e5 is only low beside what is larger."""
    torch.manual_seed(2)
    module = Made(lambda s: s.softmax(-1))
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS) * magnitude
    scores[0, 0] = -scores[0, 0].abs() - magnitude
    call = watched(module, scores, torch.randn(BATCH, HEADS, KEYS, DIM))
    assert_shows(call, module.operand)
    assert call.valid().all()


def test_kernels_of_aten() -> None:
    class Flash(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)[0]

    module, x = Flash(), torch.randn(BATCH, HEADS, KEYS, DIM)
    want = module(x, x, x)
    with regard.watch(module) as record:
        assert torch.equal(module(x, x, x), want)
    scores = (x @ x.mT / 2).double().masked_fill(torch.ones(KEYS, KEYS).tril() == 0, -torch.inf)
    torch.testing.assert_close(record[0].received.double(), scores.softmax(-1).sum(2), atol=1e-6, rtol=0)


class Opaque(nn.Module):
    """Weights that no function of torch shows."""

    def forward(self, x: Tensor) -> Tensor:
        powers = np.maximum((x @ x.mT).numpy(), 0)
        return torch.from_numpy(powers / powers.sum(-1, keepdims=True)) @ x


class Sigmoid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT).sigmoid() @ x


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("kind", [Opaque, Sigmoid])
def test_what_cannot_be_explained_is_named(kind: type[nn.Module]) -> None:
    model = nn.Sequential(Plain(), kind(), Plain())
    with pytest.warns(UnseenWarning, match=r"1 modules that may attend \(1: "), regard.watch(model) as record:
        model(torch.randn(2, 6, 4))
    assert [call.layer for call in record] == ["0", "2"] and list(record.unseen) == ["1"]
    with regard.watch(model, layers="!1") as record:
        model(torch.randn(2, 6, 4))
    assert len(record) == 2 and not record.unseen
    with pytest.raises(WatchError, match="no attention call was seen"), regard.watch(model[1]):
        model[1](torch.randn(2, 6, 4))


class Indexer(nn.Module):
    """Scores of every head's query with one key, added up over the heads: they choose keys and multiply no values."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.query, self.weigh = 3, nn.Linear(4, 12), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.matmul(self.query(x).unflatten(-1, (3, 4)), x.mT.unsqueeze(1)).relu()
        return torch.matmul(self.weigh(x).unsqueeze(-2), scores).squeeze(-2)


def test_an_indexer_is_not_named() -> None:
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.indexer = Indexer()

        def forward(self, x: Tensor) -> Tensor:
            index = self.indexer(x).topk(2).indices
            mask = torch.zeros(2, 7, 7, dtype=torch.bool).scatter(-1, index, True)
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    model = Chosen()
    with regard.watch(model) as record:
        model(torch.randn(2, 7, 4))
    assert len(record) == 1 and not record.unseen


def test_keys_as_many_as_heads_are_keys() -> None:
    """Weights without a softmax are named, whatever the number of keys."""

    class Cross(nn.Module):
        num_heads = 3

        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, k) + (q @ k.mT).sigmoid() @ k

    model = Cross()
    with pytest.warns(UnseenWarning), regard.watch(model) as record:
        model(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 3, 4))
    assert list(record.unseen) == ["Cross"]


def test_products_that_are_no_attention_are_not_named() -> None:
    class Contrast(nn.Module):
        """As in CLIP: similarities of two sets of vectors, after attention."""

        def __init__(self) -> None:
            super().__init__()
            self.attend, self.text, self.image = Plain(), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            seen = self.attend(x)
            return (self.text(seen) @ self.image(seen).mT * 2).sigmoid()

    model = Contrast()
    with regard.watch(model) as record:
        model(torch.randn(2, 6, 4))
    assert len(record) == 1 and not record.unseen
