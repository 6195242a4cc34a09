"""What is remembered or taken together to save time changes no number, and sees what changes."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard import attention
from regard.attention import observe
from regard.errors import WatchError
from regard.masks import causal, near, padding
from regard.spec import Spec
from regard.statistics import formulas
from regard.statistics.observation import Map, Observation
from regard.watch import uniform
from regard.watch.resolved import ResolvedCall
from regard.watch.sampled import sampled_weights
from regard.watch.uniform import _observed

TOKENS, HEADS, DIM = 14, 2, 4


class Shared(nn.Module):
    """Two layers that are given one mask, which may be changed in place between them."""

    class Layer(nn.Module):
        def forward(self, x: Tensor, mask: Tensor, attention_mask: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x, mask)

    def __init__(self, change: bool) -> None:
        super().__init__()
        self.first, self.second, self.change = self.Layer(), self.Layer(), change

    def forward(self, x: Tensor, mask: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.first(x, mask, attention_mask)
        if self.change:
            mask[:, :, :, 3] = False
            attention_mask[1, 5] = 0
        return self.second(x, mask, attention_mask)


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("grade", [torch.no_grad, torch.inference_mode])
def test_a_mask_that_is_changed_in_place_is_read_again(grade, change: bool) -> None:  # type: ignore[no-untyped-def]
    with grade():
        mask = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
        said, x = torch.ones(2, TOKENS, dtype=torch.int64), torch.randn(2, HEADS, TOKENS, DIM)
        said[1, 6:] = 0
        model = Shared(change)
        with regard.watch(model) as record:
            model(x, mask, said)
    first, second = record
    assert (first.received is not None) and (second.received is not None)
    assert (first.received[:, :, 3] > 0).all()
    assert ((second.received[:, :, 3] == 0).all()).item() is change
    assert first.padded is not None and second.padded is not None
    assert first.padded[1].sum() == TOKENS - 6
    assert second.padded[1].sum() == TOKENS - 6 + change


@pytest.mark.parametrize("fused", [False, True])
def test_what_chance_gives_is_found_once_for_all_causal_layers(
    fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Attends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    asked = []
    monkeypatch.setattr(uniform, "_observed", lambda *given: asked.append(given) or _observed(*given))
    model = nn.Sequential(Attends(), Attends(), Attends())
    with regard.watch(model, fused=fused) as record:
        model(torch.randn(1, HEADS, TOKENS, DIM))
    first, _, last = record
    assert len(asked) == 1
    assert first.uniform and first.uniform.keys() == last.uniform.keys()
    for name, chance in first.uniform.items():
        assert torch.equal(chance, last.uniform[name]), name


@pytest.mark.parametrize("row", range(0, TOKENS, max(1, (TOKENS - 1) // 4)))
def test_a_wrong_reading_of_any_sampled_row_is_refused(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Attends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    def wrong(self: ResolvedCall) -> Spec:
        keep = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
        keep[row, : TOKENS // 2] = False
        return Spec.of(self.sizes, mask=regard.dense(keep=keep), align=0)

    model, x = Attends(), torch.randn(1, HEADS, TOKENS, DIM)
    with regard.watch(model):
        model(x)
    monkeypatch.setattr(ResolvedCall, "as_called", property(wrong))
    with pytest.raises(WatchError, match="does not explain its output"), regard.watch(model):
        model(x)


def test_sampled_weights_are_the_weights() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 13, 8, dtype=torch.float64), torch.randn(2, 2, 19, 8, dtype=torch.float64)
    sink, bias = torch.randn(4, dtype=torch.float64), torch.randn(2, 1, 13, 19, dtype=torch.float64)
    table = regard.relative(torch.randn(4, 41, dtype=torch.float64))
    hidden = regard.dense(keep=torch.rand(2, 4, 13, 19) > 0.7)
    for arguments in (
        {}, {"mask": causal()}, {"mask": hidden, "sink_logit": sink}, {"bias": bias, "softcap": 3.0, "scale": 0.7},
        {"bias": table, "mask": near(3, 1), "align": 2}, {"bias": regard.alibi([0.1, 0.2, 0.3, 0.4])},
    ):  # fmt: skip
        sizes = attention.sizes_of(query, key)
        for step in (1, 3, 12):
            got = sampled_weights(query, key, Spec.of(sizes, **arguments), step)  # type: ignore[arg-type]
            want = regard.weights(query, key, **arguments)[:, :, ::step]  # type: ignore[arg-type]
            torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-9)


def numbers(seen: Observation) -> dict[str, Tensor]:
    """All tensors of an observation by name."""
    found = {f.name: t for f in fields(seen) if isinstance(t := getattr(seen, f.name), Tensor)}
    return found | {f"map.{name}": getattr(seen.map, name) for name in ("total", "peak", "rows") if seen.map}


@pytest.mark.parametrize("broken", [False, True])
def test_one_call_gives_what_the_folds_and_the_table_give(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    cases = [
        (2, 4, 2, 32, 32, 0, causal(), 128), (1, 3, 3, 197, 197, 0, None, 16), (2, 2, 1, 1, 40, 39, causal(), 128),
        (2, 2, 2, 17, 17, 0, causal() & padding(torch.tensor([17, 9])), 4), (1, 2, 2, 5, 9, -3, None, 2),
        (1, 2, 2, 300, 300, 7, near(5, 0), 20),
    ]  # fmt: skip
    groups = ("entropy", "lse", "sink", regard.statistics.local(3))
    for batch, heads, kv_heads, queries, keys, offset, mask, cells in cases:
        query, key = torch.randn(batch, heads, queries, 8), torch.randn(batch, kv_heads, keys, 8)
        value = torch.randn(batch, kv_heads, keys, 7)
        if broken:
            query[0, 0, 0], key[0, 0, -1] = float("inf"), float("nan")
            value[0, 0, keys // 2] = float("nan")
        for chosen, carried in itertools.product((None, groups, "rows"), (None, value)):
            asked = {"map": cells, "mask": mask, "align": offset, "statistics": chosen, "value": carried}
            with monkeypatch.context() as patch:
                one = numbers(observe(query, key, **asked))  # type: ignore[arg-type]
                patch.setattr(attention, "_at_once", lambda *_: None)
                two = numbers(observe(query, key, **asked))  # type: ignore[arg-type]
                patch.setattr(formulas, "_plain", lambda _: False)
                table = numbers(observe(query, key, **asked))  # type: ignore[arg-type]
            assert one.keys() == two.keys() == table.keys()
            for name in one:
                for other in (two, table):
                    torch.testing.assert_close(
                        one[name], other[name], atol=1e-7, rtol=1e-6, equal_nan=True, msg=name
                    )


def test_maps_merge_at_once_as_one_after_the_other() -> None:
    torch.manual_seed(2)
    query, key = torch.randn(2, 2, 11, 4), torch.randn(2, 2, 11, 4)
    parts: list[Map] = []
    for start, stop in ((0, 4), (4, 5), (5, 6), (6, 11)):
        seen = observe(query[:, :, start:stop], key[:, :, :stop], map=4, mask=causal(), align=start).map
        assert seen is not None
        parts.append(replace(seen, peak=seen.peak - 0.2))  # some below 0, as changed weights may be
    together, one = parts[0].merge(*parts[1:]), parts[0]
    for part in parts[1:]:
        one = one.merge(part)
    for name in ("total", "peak", "rows"):
        torch.testing.assert_close(getattr(together, name), getattr(one, name))
