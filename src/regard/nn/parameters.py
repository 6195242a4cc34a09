"""How many parameters a transformer has, from its numbers alone: nothing is built. Knows arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.checks.arguments import check_fields, checked
from regard.errors import ArgumentError


@dataclass(frozen=True)
class Config:
    """The numbers that decide how many parameters a transformer has.

    Attributes:
        vocab_size: tokens with an embedding; 0 counts the layers alone.
        hidden_size: embedding size. intermediate_size: of the feed-forward blocks, 4 · hidden_size by default.
        num_hidden_layers: how many. num_attention_heads: query heads of each.
        num_key_value_heads, head_dim, value_dim: of attention; defaults as in `MultiHeadAttention`.
        cross_attention: whether each layer has cross-attention too, to a memory of `memory_dim` (`hidden_size` by
            default).
        max_position_embeddings: length of a learned table of positions, 0 for schemes without parameters.
        type_vocab_size: kinds of tokens with an embedding (`token_type_ids`).
        gated: whether the feed-forward block has a gate: "swiglu", "geglu".
        bias: whether projections and layer norms have one.
        norm_type: norms of tokens, "layer" or "rms". qk_norm: of queries and keys.
        sink: whether each head has a sink logit.
        embedding_norm: a norm behind the embeddings (BERT). final_norm: one behind the last layer (GPT-2).
        pooler: a projection of the first token (BERT).
        tie_word_embeddings: whether the projection to the vocabulary is the embedding itself, or none is there; else it
            has no bias.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    cross_attention: bool = False
    memory_dim: int | None = None
    max_position_embeddings: int = 0
    type_vocab_size: int = 0
    gated: bool = False
    bias: bool = True
    norm_type: Literal["layer", "rms"] = "layer"
    qk_norm: Literal["layer", "rms"] | None = None
    sink: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    pooler: bool = False
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        for name, known in (("norm_type", ("layer", "rms")), ("qk_norm", ("layer", "rms", None))):
            if getattr(self, name) not in known:
                raise ArgumentError(f'{name} must be "layer" or "rms", got {getattr(self, name)!r}')
        if self.head_dim is None and (
            self.num_attention_heads < 1 or self.hidden_size % self.num_attention_heads
        ):
            raise ArgumentError(
                f"num_attention_heads must divide hidden_size, got {self.num_attention_heads} and {self.hidden_size}"
            )


@checked
def parameters_of(config: Config) -> int:
    """How many parameters a transformer of these numbers has: the sum of `parts_of`.

    Example:
        >>> parameters_of(PUBLISHED["GPT-2 small"])
        124439808
    """
    return sum(parts_of(config).values())


@checked
def parts_of(config: Config) -> dict[str, int]:
    """How many parameters each part has, over all layers: embeddings, attention, crossing, feedforward, norms, head.

    With hidden_size d, query and value of all heads q and v, key and value of all key-value heads k and u,
    intermediate_size h:
    attention d(q + k + u) + vd, feed-forward 2dh (3dh with a gate), and as many biases as outputs.
    """
    size, layers = config.hidden_size, config.num_hidden_layers
    head_dim, hidden = config.head_dim, config.intermediate_size
    if head_dim is None:
        head_dim = size // config.num_attention_heads
    if hidden is None:
        hidden = 4 * size
    # A layer norm has a factor and a bias for each number, an RMS norm the factor alone.
    norm = size * (1 + (config.norm_type == "layer" and config.bias))
    norms = layers * (2 + config.cross_attention) + config.embedding_norm + config.final_norm
    crossing, pooler, head = 0, 0, 0
    if config.cross_attention:
        crossing = _attention(config, head_dim, config.memory_dim or size)
    if config.pooler:
        pooler = _linear(size, size, True)
    if not config.tie_word_embeddings:
        # Never with a bias, whatever `config.bias` says of the layers.
        head = config.vocab_size * size
    # A gate is as large as what it lets through: the first projection is doubled, the second is not.
    inner = _linear(size, hidden * (1 + config.gated), config.bias)
    outer = _linear(hidden, size, config.bias)
    return {
        "embeddings": (config.vocab_size + config.max_position_embeddings + config.type_vocab_size) * size,
        "attention": layers * _attention(config, head_dim, size),
        "crossing": layers * crossing,
        "feedforward": layers * (inner + outer),
        "norms": norms * norm,
        "head": pooler + head,
    }


def _attention(config: Config, head_dim: int, memory_dim: int) -> int:
    heads, bias = config.num_attention_heads, config.bias
    kv_heads, value_dim = config.num_key_value_heads, config.value_dim
    if kv_heads is None:
        kv_heads = heads
    if value_dim is None:
        value_dim = head_dim
    query = _linear(config.hidden_size, heads * head_dim, bias)
    key = _linear(memory_dim, kv_heads * head_dim, bias)
    value = _linear(memory_dim, kv_heads * value_dim, bias)
    output = _linear(heads * value_dim, config.hidden_size, bias)
    # Queries and keys have one norm each, shared by all heads.
    norms = {None: 0, "rms": 2 * head_dim, "layer": 4 * head_dim}[config.qk_norm]
    return query + key + value + output + norms + heads * config.sink


def _linear(inputs: int, outputs: int, bias: bool) -> int:
    return (inputs + bias) * outputs


def _bert(hidden_size: int, num_layers: int) -> Config:
    return Config(
        30522,
        hidden_size,
        num_layers,
        # Heads of 64 numbers in both sizes, 12 and 16 of them.
        hidden_size // 64,
        max_position_embeddings=512,
        type_vocab_size=2,
        embedding_norm=True,
        final_norm=False,
        pooler=True,
    )


def _gpt(
    hidden_size: int, num_layers: int, num_heads: int, head_dim: int | None = None, positions: int = 2048
) -> Config:
    return Config(
        50257, hidden_size, num_layers, num_heads, head_dim=head_dim, max_position_embeddings=positions
    )


# BERT: Devlin et al. 2019, pooler included, heads of masked-token training not. GPT-3: Brown et al. 2020, table 2.1.
# That table prints 24 heads of 128 for GPT-3 XL, which do not make its width of 2048; its 1.3 billion are those of 16.
PUBLISHED = {
    "BERT-base": _bert(768, 12),
    "BERT-large": _bert(1024, 24),
    "GPT-2 small": _gpt(768, 12, 12, positions=1024),
    "GPT-3 Small": _gpt(768, 12, 12),
    "GPT-3 Medium": _gpt(1024, 24, 16),
    "GPT-3 Large": _gpt(1536, 24, 16),
    "GPT-3 XL": _gpt(2048, 24, 16),
    "GPT-3 2.7B": _gpt(2560, 32, 32),
    "GPT-3 6.7B": _gpt(4096, 32, 32),
    # As printed: 5140 is no multiple of its 40 heads of 128.
    "GPT-3 13B": _gpt(5140, 40, 40, head_dim=128),
    "GPT-3 175B": _gpt(12288, 96, 96),
}
