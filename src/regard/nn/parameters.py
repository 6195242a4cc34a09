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
        vocabulary: tokens with an embedding; 0 counts the layers alone.
        width, heads, hidden: of a layer; `hidden` is 4 · width by default, `heads` query heads.
        depth: number of layers.
        kv_heads, head_dim, value_dim: of attention; defaults as in `MultiHeadAttention`.
        crosses: whether each layer has cross-attention too, to a source of width `source_width` (default `width`).
        positions: length of a learned table of positions, 0 for schemes without parameters. segments: likewise.
        gated: whether the feed-forward block has a gate: "swiglu", "geglu".
        bias: whether projections and layer norms have one.
        kind: norms of tokens, "layer" or "rms". head_norm: of queries and keys.
        sink: whether each head has a sink logit.
        embedding_norm: a norm behind the embeddings (BERT). final_norm: one behind the last layer (GPT-2).
        pooler: a projection of the first token (BERT).
        tied: whether the projection to the vocabulary is the embedding itself, or none is there; else it has no bias.
    """

    vocabulary: int
    width: int
    depth: int
    heads: int
    hidden: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    crosses: bool = False
    source_width: int | None = None
    positions: int = 0
    segments: int = 0
    gated: bool = False
    bias: bool = True
    kind: Literal["layer", "rms"] = "layer"
    head_norm: Literal["layer", "rms"] | None = None
    sink: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    pooler: bool = False
    tied: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        for name, known in (("kind", ("layer", "rms")), ("head_norm", ("layer", "rms", None))):
            if getattr(self, name) not in known:
                raise ArgumentError(f'{name} must be "layer" or "rms", got {getattr(self, name)!r}')
        if self.head_dim is None and (self.heads < 1 or self.width % self.heads):
            raise ArgumentError(
                f"heads must divide width, got {self.heads} heads for a width of {self.width}"
            )


@checked
def parameters_of(config: Config) -> int:
    """How many parameters a transformer of these numbers has: the sum of `parts_of`."""
    return sum(parts_of(config).values())


@checked
def parts_of(config: Config) -> dict[str, int]:
    """How many parameters each part has, over all layers: embeddings, attention, crossing, feedforward, norms, head.

    With width d, query and value of all heads q and v, keys and values of kv_heads k and u, hidden h:
    attention d(q + k + u) + vd, feed-forward 2dh (3dh with a gate), and as many biases as outputs.
    """
    width, depth = config.width, config.depth
    head_dim = width // config.heads if config.head_dim is None else config.head_dim
    hidden = 4 * width if config.hidden is None else config.hidden
    norm = width * (2 if config.kind == "layer" and config.bias else 1)
    inner = hidden * (2 if config.gated else 1)
    norms = depth * (3 if config.crosses else 2) + config.embedding_norm + config.final_norm
    own = _attention(config, head_dim, width)
    crossing = _attention(config, head_dim, config.source_width or width) if config.crosses else 0
    pooler = _linear(width, width, True) if config.pooler else 0
    return {
        "embeddings": (config.vocabulary + config.positions + config.segments) * width,
        "attention": depth * own,
        "crossing": depth * crossing,
        "feedforward": depth * (_linear(width, inner, config.bias) + _linear(hidden, width, config.bias)),
        "norms": norms * norm,
        "head": pooler + (0 if config.tied else config.vocabulary * width),
    }


def _attention(config: Config, head_dim: int, source_width: int) -> int:
    kv_heads = config.heads if config.kv_heads is None else config.kv_heads
    value_dim = head_dim if config.value_dim is None else config.value_dim
    query = _linear(config.width, config.heads * head_dim, config.bias)
    key = _linear(source_width, kv_heads * head_dim, config.bias)
    value = _linear(source_width, kv_heads * value_dim, config.bias)
    output = _linear(config.heads * value_dim, config.width, config.bias)
    norms = {None: 0, "rms": 2 * head_dim, "layer": 4 * head_dim}[config.head_norm]
    return query + key + value + output + norms + config.heads * config.sink


def _linear(inputs: int, outputs: int, bias: bool) -> int:
    return inputs * outputs + (outputs if bias else 0)


# --- models whose numbers are printed ----------------------------------------------------------------------


def _bert(width: int, depth: int) -> Config:
    return Config(
        30522, width, depth, width // 64, positions=512, segments=2,
        embedding_norm=True, final_norm=False, pooler=True,
    )  # fmt: skip


def _gpt(width: int, depth: int, heads: int, head_dim: int | None = None, positions: int = 2048) -> Config:
    return Config(50257, width, depth, heads, head_dim=head_dim, positions=positions)


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
    "GPT-3 13B": _gpt(5140, 40, 40, head_dim=128),
    "GPT-3 175B": _gpt(12288, 96, 96),
}
