"""Small models and what a watch of them costs: milliseconds for each call seen, in this process.

`python -m benchmarks.watched` answers as it is asked, so that processes with other sources of Regard can take turns. It
asks nothing of Regard but `watch`, and runs with the sources of any version.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import regard as rg

THREADS = 1  # small calls gain nothing from more, and two that wait for a busy core are no measurement
TOKENS, BATCH, GENERATED = 32, 2, 20
LEAST_SECONDS = (
    0.02  # of plain passes that are timed as one: what the processor does beside is spread among them
)


@dataclass(frozen=True)
class Subject:
    """A model and one way of running it.

    Attributes:
        model: what is watched.
        run: runs it once.
        grade: `no_grad` or `inference_mode`, in which it runs.
    """

    model: nn.Module
    run: Callable[[], object]
    grade: Callable[[], Any] = torch.no_grad


class Own(nn.Module):
    """A layer of attention that nobody wrote for a library."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, tokens, width)` to the same."""
        q, k, v = self.joint(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


def _ids() -> Tensor:
    return torch.randint(1, 1000, (BATCH, TOKENS))


def _padding() -> Tensor:
    """A mask of real tokens: the second text is shorter."""
    mask = torch.ones(BATCH, TOKENS, dtype=torch.int64)
    mask[1, TOKENS - 7 :] = 0
    return mask


def _gpt2(**more: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=64, n_layer=4, n_head=4, vocab_size=1000, bos_token_id=0, eos_token_id=None, **more
    )
    return GPT2LMHeadModel(config).eval()


def gpt2(**more: Any) -> Subject:
    """A decoder of 4 layers."""
    model, ids = _gpt2(**more), _ids()
    return Subject(model, lambda: model(ids, use_cache=False))


def gpt2_generation() -> Subject:
    """20 tokens, one after the other."""
    model, ids = _gpt2(), _ids()
    mask = torch.ones_like(ids)
    settings = {
        "max_new_tokens": GENERATED,
        "min_new_tokens": GENERATED,
        "do_sample": False,
        "pad_token_id": 0,
    }
    return Subject(model, lambda: model.generate(ids, attention_mask=mask, **settings))


def bert(padded: bool = False, grade: Callable[[], Any] = torch.no_grad) -> Subject:
    """An encoder of 4 layers, with padding or without."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, vocab_size=1000
    )
    model, ids, mask = BertModel(config).eval(), _ids(), _padding() if padded else None
    return Subject(model, lambda: model(ids, attention_mask=mask), grade)


def llama() -> Subject:
    """A decoder of 4 layers with shared key heads, and padding."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        vocab_size=1000,
    )  # fmt: skip
    model, ids, mask = LlamaForCausalLM(config).eval(), _ids(), _padding()
    return Subject(model, lambda: model(ids, attention_mask=mask, use_cache=False))


def t5() -> Subject:
    """Encoder and decoder of 4 layers each, with a learned bias and padding."""
    from transformers import T5Config, T5Model

    config = T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=4, num_heads=4, vocab_size=1000)
    model, ids, mask = T5Model(config).eval(), _ids(), _padding()
    told = _ids()
    return Subject(model, lambda: model(ids, attention_mask=mask, decoder_input_ids=told, use_cache=False))


def encoder() -> Subject:
    """`nn.TransformerEncoder` of 4 layers, whose fused inference is on."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 4).eval(), torch.randn(BATCH, TOKENS, 64)
    return Subject(model, lambda: model(x))


def own() -> Subject:
    """4 layers of one's own with a softmax."""
    model, x = nn.Sequential(*(Own(64, 4) for _ in range(4))).eval(), torch.randn(BATCH, TOKENS, 64)
    return Subject(model, lambda: model(x))


def vit() -> Subject:
    """ViT-Tiny on one picture of 224 × 224: 12 layers, 3 heads, 197 tokens."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768)
    model, picture = ViTModel(config).eval(), torch.randn(1, 3, 224, 224)
    return Subject(model, lambda: model(picture))


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "GPT-2": gpt2,
    "GPT-2, eager": lambda: gpt2(attn_implementation="eager"),
    "GPT-2, 20 tokens": gpt2_generation,
    "BERT": bert,
    "BERT, padding": lambda: bert(padded=True),
    "BERT, padding, inference_mode": lambda: bert(padded=True, grade=torch.inference_mode),
    "Llama, padding": llama,
    "T5, padding": t5,
    "nn.TransformerEncoder": encoder,
    "own softmax": own,
    "ViT, 224 pixels": vit,
}


def turn(subject: Subject) -> tuple[float, float, int]:
    """Seconds of the processor for a plain and for a watched pass, and how many calls were seen."""
    with subject.grade():
        plain = _seconds(subject.run)
        times = max(1, round(LEAST_SECONDS / plain))
        plain = _seconds(subject.run, times)
        seen: list[int] = []
        watched = _seconds(lambda: seen.append(_watched(subject)), max(1, times // 4))
    return plain, watched, seen[0]


def _watched(subject: Subject) -> int:
    with rg.watch(subject.model) as record:
        subject.run()
    return sum(call.steps for call in record)


def _seconds(run: Callable[[], object], times: int = 1) -> float:
    start = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - start) / times


def main() -> None:
    """For each name of a subject that comes in, a turn of it as JSON goes out; the first one of each is a warm-up."""
    torch.set_num_threads(THREADS)
    made: dict[str, Subject] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            torch.manual_seed(0)
            made = {name: SUBJECTS[name]()}
            turn(made[name])
        print(json.dumps(turn(made[name])), flush=True)


if __name__ == "__main__":
    main()
