"""The embedded model on torch alone: the numbers of transformers' `LlamaForCausalLM` to the bit, and seconds sooner.

Knows this one model: no cache, no padding, no training. Everything else loads the folder with transformers.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.embedded import folder
from regard.errors import require


class Attention(nn.Module):
    """Causal attention with rotary positions (Su et al. 2021), by torch's kernel, which `watch` sees."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.q_proj = nn.Linear(size, size, bias=False)
        self.k_proj = nn.Linear(size, size, bias=False)
        self.v_proj = nn.Linear(size, size, bias=False)
        self.o_proj = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Tokens `(batch, tokens, hidden_size)` to the same; `cos` and `sin` `(tokens, head_dim)` of their angles."""
        query, key, value = (
            projection(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = (rows * cos + _rotated(rows) * sin for rows in (query, key))
        output = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(output.transpose(1, 2).flatten(2))


def _rotated(rows: Tensor) -> Tensor:
    """Pairs (i, i + dim/2) of each row turned by a right angle."""
    first, second = rows.chunk(2, -1)
    return torch.cat((-second, first), -1)


class FeedForward(nn.Module):
    """A projection with a gate, SwiGLU (Shazeer 2020)."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens `(batch, tokens, hidden_size)` to the same."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention, then feed-forward, each behind a norm."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As in `Attention`."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Embeddings, layers and the last norm."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.head_dim, self.base = config.head_dim, config.rope_parameters["rope_theta"]
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Ids `(batch, tokens)` to `(batch, tokens, hidden_size)`."""
        # In float32, which the model was trained with: `regard.nn.Rotary` has finer angles, and so other bits.
        pairs = torch.arange(0, self.head_dim, 2, device=input_ids.device).float()
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).float()
        angles = (positions[:, None] * (1.0 / self.base ** (pairs / self.head_dim))).repeat(1, 2)
        x, cos, sin = self.embed_tokens(input_ids), angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Llama(nn.Module):
    """Predicts the next token (Touvron et al. 2023); its modules have the names that transformers gives them.

    Args:
        config: what `config.json` of the folder holds.
    """

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.norm.weight.device

    def forward(self, input_ids: Tensor) -> Tensor:
        """Ids `(batch, tokens)` to logits `(batch, tokens, vocab_size)` of the tokens after each."""
        # The head has the weights of the embeddings.
        return F.linear(self.model(input_ids), self.model.embed_tokens.weight)


def load() -> Llama:
    """The embedded model in float32 on the CPU; the random state stays as it was.

    Raises:
        MissingPackageError: safetensors is not installed.

    Example:
        >>> from regard.embedded import llama
        >>> llama.load()(torch.tensor([[0, 5, 7]])).shape
        torch.Size([1, 3, 2048])
    """
    config = json.loads((folder() / "config.json").read_text(encoding="utf-8"))
    weights = require("safetensors.torch", extra="look").load_file(folder() / "model.safetensors")
    # New modules draw weights, which are replaced at once; on the meta device torch would import its compiler instead.
    with torch.random.fork_rng(devices=[]):
        model = Llama(SimpleNamespace(**config))
    model.load_state_dict({name: weight.float() for name, weight in weights.items()}, assign=True)
    return model.eval()
