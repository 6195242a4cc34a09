"""Regard's own attention is seen whatever computes it, and so is what a module hands over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import regard as rg
from regard.errors import ShapeError, WatchError
from regard.spec.bias import Logarithm
from regard.watch.hooks.own import Handed, hand_over

BATCH, HEADS, KV_HEADS, TOKENS, DIM = 2, 6, 3, 37, 5


class Attends(nn.Module):
    """Self-attention through `attend` with any keywords."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__()
        self.keywords = keywords

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return rg.attend(query, key, value, **self.keywords)


class Linear(nn.Module):
    """Attention without a softmax, written down naively: weights φ(q)·φ(k) / Σ."""

    def __init__(self, off: float = 0.0) -> None:
        super().__init__()
        self.off = off

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        def run() -> Tensor:
            products = query.exp() @ key.exp().mT
            return products.tril() @ value / products.tril().sum(-1, keepdim=True) + self.off

        def tell(output: Tensor) -> Handed:
            spec = rg.spec.SpecArguments(mask=rg.causal(), bias=Logarithm(), scale=1.0)
            return Handed(query=query.exp(), key=key.exp(), value=value, output=output, spec=spec)

        return hand_over((query, key, value), run, tell)


def vectors(heads: int = HEADS, queries: int = TOKENS, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    sizes = (HEADS, queries), (heads, TOKENS), (heads, TOKENS)
    return [torch.randn(BATCH, *size, DIM, dtype=dtype) for size in sizes]


KEYWORDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "near": {"mask": rg.near(3), "scale": 0.3},
    "softcap": {"softcap": 2.0, "mask": rg.causal() & rg.padding(torch.tensor([37, 23]))},
    "alibi": {"bias": rg.alibi([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), "mask": rg.causal()},
    "sink": {"sink_logit": torch.randn(HEADS)},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", KEYWORDS)
def test_attend_is_seen_on_every_path_with_what_observe_says(name: str, dtype: torch.dtype) -> None:
    module, given, keywords = Attends(**KEYWORDS[name]), vectors(KV_HEADS, dtype=dtype), KEYWORDS[name]
    want = module(*given)
    with rg.watch(module, keep="vectors") as record:
        got = module(*given)
    assert torch.equal(want, got)
    (call,) = record
    assert (call.layer, call.kind, call.seen) == ("Attends", "self", "query-key")
    truth = rg.observe(*given, **keywords)
    for statistic in ("lse", "entropy", "received", "distance"):
        torch.testing.assert_close(getattr(call, statistic), getattr(truth, statistic))
    window = rg.weights(*given[:2], **keywords)[1, 4]
    torch.testing.assert_close(call.weights(4, batch=1), window)


def test_a_long_call_on_the_native_engine_is_seen() -> None:
    module = nn.Sequential(Attends(mask=rg.causal()))
    given = [torch.randn(1, 2, 701, 64) for _ in range(3)]  # enough work for the native engine
    module.forward = lambda *inputs: module[0](*inputs)  # type: ignore[method-assign]
    with rg.watch(module) as record:
        module(*given)
    assert [call.layer for call in record] == ["0"]
    torch.testing.assert_close(record[0].entropy, rg.observe(*given, mask=rg.causal()).entropy)


def test_a_fused_watch_lets_the_observed_output_stand_with_its_gradient() -> None:
    given = [part.requires_grad_() for part in vectors()]
    module = Attends(mask=rg.causal())
    want = torch.autograd.grad(module(*given).square().sum(), given)
    with rg.watch(module, fused=True) as record:
        got = torch.autograd.grad(module(*given).square().sum(), given)
    assert len(record) == 1
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("fused", [False, True])
def test_autocast_keeps_its_bits_and_its_type(fused: bool) -> None:
    module, given = Attends(mask=rg.causal()), vectors()
    with torch.autocast("cpu", torch.bfloat16):
        want = module(*given)
        with rg.watch(module, fused=fused) as record:
            got = module(*given)
    assert want.dtype == got.dtype and torch.equal(want, got) and len(record) == 1


def test_steps_with_a_cache_merge_and_cross_attention_is_told_by_its_name() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.self_attention, self.cross_attention = Attends(), Attends(mask=rg.prefix(29) & ~rg.prefix(2))

        def forward(self, query: Tensor, key: Tensor, source: Tensor, mask: Any) -> Tensor:
            self.self_attention.keywords = {"mask": mask}
            mixed = self.self_attention(query, key, key)
            return self.cross_attention(mixed, source, source)

    query, key, source = vectors()
    module = Decoder()
    with rg.watch(module) as whole:
        module(query, key, source, rg.causal())
    with rg.watch(module) as steps:
        for start, stop in ((0, 31), (31, 32), (32, 33), (33, TOKENS)):
            module(query[:, :, start:stop], key[:, :, :stop], source, rg.causal())
    for record in (whole, steps):
        assert [call.kind for call in record] == ["self", "cross"]
    assert [call.steps for call in steps] == [4, 4]
    for one, other in zip(whole, steps, strict=True):
        for name in ("entropy", "received", "position"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name))


def test_dropout_is_drawn_as_without_a_watch() -> None:
    module, given = Attends(dropout=0.4), vectors()
    torch.manual_seed(3)
    want = module(*given)
    torch.manual_seed(3)
    with rg.watch(module) as record:
        got = module(*given)
    assert torch.equal(want, got) and torch.equal(record[0].entropy, rg.observe(*given).entropy)


def test_errors_of_a_call_are_the_same_under_a_watch() -> None:
    query, key, value = vectors()
    module = Attends()
    for fused in (False, True):
        with pytest.raises(ShapeError, match="batch sizes must agree"), rg.watch(module, fused=fused):
            module(query, key[:1], value)


def test_another_mode_sees_attend_and_passes_it_on() -> None:
    class Counts(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += func is rg.attend
            return func(*args, **(kwargs or {}))

    module, given = Attends(), vectors()
    with rg.watch(module) as record, Counts() as counts:
        got = module(*given)
    assert len(record) == 1 and counts.seen == 1 and torch.equal(got, module(*given))


# --- what is handed over ------------------------------------------------------------------------------------


def test_a_mechanism_without_attend_is_seen_with_its_own_weights() -> None:
    module, given = nn.ModuleDict({"mix": Linear()}), vectors(dtype=torch.float64)
    module.forward = lambda *inputs: module["mix"](*inputs)  # type: ignore[method-assign]
    want = module(*given)
    with rg.watch(module, keep="vectors") as record, rg.watch(module, layers="mix") as inner:
        got = module(*given)
    assert torch.equal(want, got) and len(record) == len(inner) == 1
    products = (given[0].exp() @ given[1].exp().mT).tril()
    weights = products / products.sum(-1, keepdim=True)
    call = record["mix"]
    torch.testing.assert_close(call.received, weights.sum(2))
    torch.testing.assert_close(call.entropy, -torch.special.xlogy(weights, weights).sum(-1))
    torch.testing.assert_close(call.weights(3, batch=1), weights[1, 3])


def test_what_is_handed_over_is_saved_and_loaded(tmp_path: Any) -> None:
    module, given = Linear(), vectors()
    with rg.watch(module, keep="vectors") as record:
        module(*given)
    record.save(tmp_path / "record")
    loaded = rg.load(tmp_path / "record")
    assert isinstance(loaded[0].spec.bias, Logarithm)
    assert torch.equal(loaded[0].weights(2), record[0].weights(2))


def test_nothing_is_told_where_nobody_watches() -> None:
    def tell(_: Any) -> Handed:
        raise ZeroDivisionError

    query = torch.randn(1, 1, 3, 2)
    assert hand_over((query,), lambda: 7, tell) == 7
    module = nn.ModuleList([Attends(), nn.Identity()])
    module.forward = lambda *inputs: (module[0](*inputs), hand_over((query,), lambda: 7, tell))  # type: ignore
    with rg.watch(module, layers="0") as record:  # the other module is not among the watched ones
        assert module(*vectors())[1] == 7
    assert len(record) == 1


def test_what_does_not_explain_its_output_is_refused() -> None:
    module = Linear(off=0.5)
    with pytest.raises(WatchError, match="Linear.*does not explain its output"), rg.watch(module):
        module(*vectors())
