"""FlexAttention: imported by name, compiled or not, its mask and score functions evaluated as it evaluates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

import regard
from regard.errors import WatchError
from regard.masks import ALL, NONE
from regard.record import Record
from regard.watch.hooks.blockmask import mask_of
from watch.families import FAMILIES, real
from watch.truth import assert_within_budget, recorded, statistics

BATCH, HEADS, TOKENS, DIM = 2, 3, 150, 8
PACKED = torch.arange(TOKENS) // 37
ENDS = torch.tensor([150, 101])
SLOPES = torch.tensor([0.5, 0.25, 0.125])

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def causal_in_documents(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q >= k) & (PACKED[q] == PACKED[k]) & (k < ENDS[b])


def windows_by_head(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q - k).abs() <= 3 * (h + 1)


def one_by_one(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Right for single indices only: broadcasting gives something else."""
    return torch.stack([q, k]).amax() % 3 < 2


def alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score - SLOPES[h] * (q - k).abs()


class Flex(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def vectors() -> list[Tensor]:
    return [torch.randn(BATCH, HEADS, TOKENS, DIM) for _ in range(3)]


def block_mask(mask_mod: Callable[..., Tensor]) -> BlockMask:
    return create_block_mask(mask_mod, BATCH, HEADS, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=32)


def watched(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Record:
    module = Flex(function)
    want = module(*args, **kwargs)
    with regard.watch(module, keep="vectors") as record:
        got = module(*args, **kwargs)
    first, second = (out[0] if isinstance(out, tuple) else out for out in (want, got))
    assert torch.equal(first, second)
    return record


def softmax(q: Tensor, k: Tensor, keep: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    scores = q.double() @ k.double().mT / DIM**0.5 + bias
    return torch.softmax(scores.masked_fill(~keep, -torch.inf), -1).nan_to_num()


@pytest.mark.parametrize("mask_mod", [causal_in_documents, windows_by_head, one_by_one])
@pytest.mark.parametrize("score_mod", [None, alibi])
def test_masks_and_score_functions(
    mask_mod: Callable[..., Tensor], score_mod: Callable[..., Tensor] | None
) -> None:
    q, k, v = vectors()
    record = watched(flex_attention, q, k, v, block_mask=block_mask(mask_mod), score_mod=score_mod)
    distance = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs()
    bias = 0.0 if score_mod is None else -SLOPES.double()[:, None, None] * distance
    keep = create_mask(mask_mod, BATCH, HEADS, TOKENS, TOKENS, device="cpu")
    want = softmax(q, k, keep, bias)
    torch.testing.assert_close(record[0].received.double(), want.sum(2), atol=1e-5, rtol=0)
    for head in range(HEADS):
        torch.testing.assert_close(
            record[0].weights(head, batch=1).double(), want[1, head], atol=1e-6, rtol=0
        )


def test_no_mask_grouped_heads_and_scale() -> None:
    q, k, v = torch.randn(BATCH, 6, 17, DIM), *torch.randn(2, BATCH, 2, 19, DIM)
    record = watched(flex_attention, q, k, v, scale=0.2, enable_gqa=True)
    want = torch.softmax(q.double() @ k.double().repeat_interleave(3, 1).mT * 0.2, -1)
    torch.testing.assert_close(record[0].max_weight.double(), want.amax(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [{}, {"fullgraph": True}])
def test_compiled_functions_keep_their_own_bits(options: dict[str, bool]) -> None:
    q, k, v = vectors()
    compiled = torch.compile(flex_attention, **options)
    blocks = block_mask(causal_in_documents)
    record = watched(compiled, q, k, v, block_mask=blocks)
    assert record[0].entropy.equal(watched(flex_attention, q, k, v, block_mask=blocks)[0].entropy)


def test_a_mask_that_the_call_does_not_obey_is_an_error() -> None:
    """Without the compiler FlexAttention looks at the function only, not at the lists of blocks."""
    blocks = block_mask(windows_by_head)
    listed = BlockMask.from_kv_blocks(
        blocks.kv_num_blocks, blocks.kv_indices, BLOCK_SIZE=32, seq_lengths=(TOKENS, TOKENS)
    )
    module = Flex(flex_attention)
    message = r"Flex \(Flex\): what it was given does not explain its output"
    with pytest.raises(WatchError, match=message), regard.watch(module):
        module(*vectors(), block_mask=listed)


@pytest.mark.parametrize("mask_mod", [causal_in_documents, windows_by_head, one_by_one])
def test_tiles_agree_with_the_function(mask_mod: Callable[..., Tensor]) -> None:
    mask = mask_of(block_mask(mask_mod), BATCH, HEADS)(11, TOKENS)
    dense = create_mask(mask_mod, BATCH, HEADS, TOKENS, TOKENS, device="cpu")
    assert torch.equal(mask.dense(TOKENS, TOKENS, offset=11).expand_as(dense), dense)
    assert mask.broadcasts is (mask_mod is not one_by_one)
    for q0 in range(0, TOKENS, 29):
        for k0 in range(0, TOKENS, 31):
            q1, k1 = min(q0 + 29, TOKENS), min(k0 + 31, TOKENS)
            tile, part = mask.tile(q0 + 11, q1 + 11, k0, k1), dense[:, :, q0:q1, k0:k1]
            assert tile is not NONE or not part.any()
            assert tile is not ALL or part.all()
    assert mask.tile(0, 11, 0, 50) is NONE and mask.tile(10, 12, 0, 1) is not ALL


@pytest.mark.parametrize("padding", ["right"])
def test_hugging_face_through_flex_attention(padding: str) -> None:
    family = FAMILIES["Llama"]
    family = type(family)(family.name, family.head, {**family.config, "num_attention_heads": 4})
    model = family.build("flex_attention")
    with torch.no_grad():
        want = model(**family.inputs(padding=padding)).logits
        with regard.watch(model) as record:
            got = model(**family.inputs(padding=padding)).logits
        scores = []
        for dtype in (torch.float64, torch.float32):
            with recorded() as found:
                family.build("eager").to(dtype)(**family.inputs(padding=padding))
            scores.append(found)
    assert torch.equal(want, got)
    for call, exact, naive in zip(record, *scores, strict=True):
        assert_within_budget(call, statistics(exact, real(padding)), statistics(naive, real(padding)))
