"""Watching changes nothing: not the bits, not the gradients, not the random numbers, not what others watch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import regard
from watch.families import FAMILIES


class Block(nn.Module):
    """Causal self-attention with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(2, (3, 3, 4)).permute(2, 0, 3, 1, 4)
        dropout = 0.3 if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        return x + self.out(F.dropout(seen.transpose(1, 2).flatten(2), 0.2, self.training))


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(Block(), Block())


def trained(build: Callable[[], nn.Module], watch: bool) -> list[Tensor]:
    """The loss and all gradients of one step with dropout, and the next random number."""
    torch.manual_seed(5)
    module = build().train()
    name = type(module).__name__.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
    given = FAMILIES[name].inputs() if name in FAMILIES else {"x": torch.randn(2, 7, 12)}
    torch.manual_seed(6)
    with regard.watch(module) if watch else contextlib.nullcontext():
        out = module(**given) if name in FAMILIES else module(given["x"])
        loss = getattr(out, "logits", out).square().mean()
        loss.backward()
    return [loss, *(p.grad for p in module.parameters() if p.grad is not None), torch.rand(())]


@pytest.mark.parametrize("build", [
    model, FAMILIES["T5"].build, FAMILIES["Gemma2"].build,
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 2, 17, batch_first=True), 2),
], ids=["function", "T5", "Gemma2", "encoder"])  # fmt: skip
def test_training_with_dropout_gives_the_same_gradients(build: Callable[[], nn.Module]) -> None:
    want, got = (trained(build, watch) for watch in (False, True))
    assert len(want) == len(got) and all(map(torch.equal, want, got))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    module, x = model().to(dtype).eval(), torch.randn(2, 7, 12, dtype=dtype)
    want = module(x)
    with regard.watch(module) as record:
        got = module(x)
    assert torch.equal(want, got)
    assert record[0].entropy.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("build", [model, lambda: nn.MultiheadAttention(12, 2, batch_first=True)])
def test_autocast_is_observed_in_its_own_type_and_keeps_its_gradients(build: Any) -> None:
    def run(watch: bool) -> tuple[list[Tensor], Any]:
        torch.manual_seed(3)
        module, x = build().eval(), torch.randn(2, 7, 12)
        with torch.autocast("cpu", torch.bfloat16):
            with regard.watch(module, keep="vectors") if watch else contextlib.nullcontext() as record:
                out = module(x) if isinstance(module, nn.Sequential) else module(x, x, x)[0]
            out.float().sum().backward()
        return [out, *(p.grad for p in module.parameters())], record

    (want, _), (got, record) = run(False), run(True)
    assert all(map(torch.equal, want, got))
    assert record[0].query.dtype == torch.bfloat16


def test_inference_mode_gives_ordinary_tensors() -> None:
    module, x = model().eval(), torch.randn(2, 7, 12)
    with torch.inference_mode():
        want = module(x)
        with regard.watch(module, keep="vectors") as record:
            got = module(x)
        assert torch.equal(want, got)
    assert not record[0].entropy.is_inference() and not record[0].query.is_inference()


def test_an_exception_of_the_model_passes_and_everything_is_put_back() -> None:
    class Breaks(Block):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ZeroDivisionError("of the model")

    module = nn.Sequential(Block(), Breaks())
    with pytest.raises(ZeroDivisionError, match="of the model"), regard.watch(module) as record:
        module(torch.randn(2, 7, 12))
    assert [call.layer for call in record] == ["0", "1"]  # what was seen is there


def test_watches_nest_and_each_has_its_own_record() -> None:
    outer, inner = model().eval(), model().eval()
    x = torch.randn(2, 7, 12)
    want = inner(outer(x))
    with (
        regard.watch(outer) as first,
        regard.watch(inner) as second,
        regard.watch(outer, layers="1") as third,
    ):
        got = inner(outer(x))
    assert torch.equal(want, got)
    assert [len(record) for record in (first, second, third)] == [2, 2, 1]
    assert torch.equal(first[1].entropy, third[0].entropy)
    llama = FAMILIES["Llama"]
    module = llama.build()
    with torch.no_grad(), regard.watch(module) as first, regard.watch(module) as second:
        module(**llama.inputs())
    assert len(first) == len(second) == 2


def test_another_mode_and_another_thread_are_left_alone() -> None:
    class Counts(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += func is F.scaled_dot_product_attention
            return func(*args, **(kwargs or {}))

    module, x = model(), torch.randn(2, 7, 12)
    with regard.watch(module) as record, Counts() as counts:
        module(x)
        thread = threading.Thread(target=module, args=(x,))
        thread.start()
        thread.join()
    assert len(record) == 2 and counts.seen == 2


def test_checkpointed_passes_are_seen_once() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.block, x, use_reentrant=False)

    module = Checkpointed()
    with regard.watch(module) as record:
        module(torch.randn(2, 7, 12, requires_grad=True)).sum().backward()
    assert len(record) == 1 and record[0].steps == 1


def test_a_compiled_function_inside_the_model_stays_compiled() -> None:
    @torch.compile(fullgraph=True, backend="eager")
    def gate(x: Tensor) -> Tensor:
        return x * x.softmax(-1).sigmoid()

    class Gated(Block):
        def forward(self, x: Tensor) -> Tensor:
            return gate(super().forward(x))

    module, x = Gated().eval(), torch.randn(2, 7, 12)
    want = module(x)
    with regard.watch(module) as record:
        assert torch.equal(module(x), want)
    assert len(record) == 1


def test_compiled_parts_without_attention_stay_whole() -> None:
    class Gated(Block):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12))
            self.compiled = torch.compile(self.mix, fullgraph=True, backend="eager")

        def mix(self, x: Tensor) -> Tensor:
            return x + self.gate(x).softmax(-1)

        def forward(self, x: Tensor) -> Tensor:
            return self.compiled(super().forward(x))

    module, x = Gated().eval(), torch.randn(2, 7, 12)
    with regard.watch(module) as record:
        got = module(x)
    assert torch.equal(module(x), got) and len(record) == 1


def test_the_model_can_be_watched_again_and_the_record_outlives_it() -> None:
    module, x = model().eval(), torch.randn(2, 7, 12)
    with regard.watch(module) as first:
        module(x)
    with regard.watch(module) as second:
        module(x)
        module(x)
    del module
    assert [call.layer for call in second] == ["0", "1", "0", "1"]  # two passes, no generation
    assert torch.equal(first[1].entropy, second[3].entropy) and len(first.heads) == 6
