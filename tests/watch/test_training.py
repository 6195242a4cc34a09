"""Models that are trained with dropout on, in every way that they compute attention; bits, gradients, weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard
from watch.truth import recorded

SMALL = dict(
    vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=29,
    max_position_embeddings=64, pad_token_id=0, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2,
)  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("BertModel", {}),
    "Roberta": ("RobertaModel", {}),
    "XLMRoberta": ("XLMRobertaModel", {}),
    "Electra": ("ElectraModel", dict(embedding_size=24)),
    "Ernie": ("ErnieModel", {}),
    "DPR": ("DPRQuestionEncoder", {}),
    "Data2VecText": ("Data2VecTextModel", {}),
    "RoCBert": ("RoCBertModel", {}),
    "Xmod": ("XmodModel", dict(languages=["en_XX"], default_language="en_XX")),
}


def model(name: str, implementation: str) -> nn.Module:
    kind, more = FAMILIES[name]
    config = getattr(transformers, f"{name}Config")(**SMALL, **more, attn_implementation=implementation)
    torch.manual_seed(7)
    built = getattr(transformers, kind)(config).train()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return built


def step(module: nn.Module, watch: bool) -> tuple[list[Tensor], Any]:
    """Loss, gradients and the next random number."""
    torch.manual_seed(3)
    ids = torch.randint(3, 97, (3, 11))
    real = torch.arange(11) < torch.tensor([11, 7, 4])[:, None]
    module.zero_grad()
    if watch:
        with regard.watch(module) as record:
            loss = module(ids, attention_mask=real.long())[0].square().mean()
            loss.backward()
    else:
        record = None
        loss = module(ids, attention_mask=real.long())[0].square().mean()
        loss.backward()
    grads = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    return [loss.detach(), *grads, torch.rand(())], record


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", FAMILIES)
def test_training_with_dropout_is_watched(name: str, implementation: str) -> None:
    module = model(name, implementation)
    want, _ = step(module, False)
    got, record = step(module, True)
    assert len(want) == len(got) and all(map(torch.equal, want, got))
    assert len(record) == 2 and not record.unseen
    torch.manual_seed(3)
    ids = torch.randint(3, 97, (3, 11))
    real = torch.arange(11) < torch.tensor([11, 7, 4])[:, None]
    with recorded() as scores, torch.no_grad():
        model(name, "eager").eval()(ids, attention_mask=real.long())
    for name, part in module.named_modules():  # the first layer's input is the same, its own dropout stays on
        if isinstance(part, nn.Dropout) and "embeddings" in name:
            part.p = 0.0
    first = scores[0].double().masked_fill(scores[0] <= -5e3, -torch.inf).softmax(-1)
    want_received = (first * real[:, None, :, None]).sum(2)
    with torch.no_grad(), regard.watch(module) as record:
        module(ids, attention_mask=real.long())
    torch.testing.assert_close(record[0].received.double(), want_received, atol=1e-5, rtol=0)
