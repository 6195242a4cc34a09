"""Records made by hand, with heads whose habits are known: the page must show exactly these.

A head is given by its scores: with the identity as keys the query vectors *are* the scores.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

import regard
from regard.record import Call, Record
from regard.shapes import Sizes
from regard.spec import Spec

SOURCE = '''def total(prices, rate):
    """Sum of prices with tax."""
    result = 0
    for price in prices:
        result += price * (1 + rate)
    return result

print(total([3, 4], 0.5))
'''
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<b>&amp;",
    "@@script@@",
    "\u202e\u0000\ud800",
    "]]>",
    "\"'`",
    "",
]


def pieces(count: int) -> list[str]:
    """The first `count` tokens of a source file, repeated if need be."""
    tokens = re.findall(r" ?\w+|\n *|[^\w\n]", SOURCE)
    return (tokens * (count // len(tokens) + 1))[:count]


def scores(tokens: list[str], heads: int, layers: int, keys: list[str] | None = None) -> Tensor:
    """`(layers, heads, queries, keys)`: habits in turn, sharper in later layers, with some noise of the content."""
    read = keys or tokens
    names = {name: i for i, name in enumerate(dict.fromkeys([*read, *tokens]))}
    query_ids = torch.tensor([names[token] for token in tokens])
    key_ids = torch.tensor([names[token] for token in read])
    generator = torch.Generator().manual_seed(7)
    affinity = torch.randn(layers, heads, len(names), len(names), generator=generator)
    noise = affinity[:, :, query_ids][:, :, :, key_ids]
    back = torch.arange(len(tokens))[:, None] - torch.arange(len(read))
    before = torch.roll(key_ids, 1).clone()
    before[0] = -1
    habits = [
        (back == 1) * 6.0,
        (torch.arange(len(read)) == 0).expand_as(back) * 5.0,
        -(back.abs() / 3.0),
        (query_ids[:, None] == before) * 7.0,
        torch.zeros_like(back),
        (query_ids[:, None] == key_ids) * 4.0,
        (back == 5) * 5.0 - back.abs() / 20,
        torch.zeros_like(back, dtype=torch.float32),
    ]
    loud = [0.6, 0.5, 0.3, 0.5, 0.15, 0.6, 0.4, 3.0]
    result = torch.empty(layers, heads, *back.shape)
    for layer in range(layers):
        for head in range(heads):
            habit = (head + 3 * layer) % len(habits)
            sharp = 0.45 + 0.55 * layer / max(1, layers - 1)
            result[layer, head] = sharp * habits[habit] + loud[habit] * noise[layer, head]
    return result


def call(
    layer: str,
    wanted: Tensor,
    *,
    kind: str = "self",
    grid: int | None = 128,
    vectors: bool = False,
    statistics=None,
    **spec,
) -> Call:
    """A call with these scores, `(batch, heads, queries, keys)`, seen by the real engine."""
    batch, heads, queries, keys = wanted.shape
    key = torch.eye(keys).expand(batch, heads, keys, keys)
    seen = regard.observe(wanted, key, map=grid, statistics=statistics, scale=1.0, **spec)
    sizes = Sizes(batch, heads, heads, queries, keys, keys, 0)
    full = Spec.of(sizes, scale=1.0, **spec)
    kept = {"query": wanted, "key": key, "spec": full} if vectors else {}
    fields = {name: getattr(seen, name) for name in seen.__dataclass_fields__}
    return Call(**fields, layer=layer, kind=kind, sizes=sizes, offset=full.offset, **kept)


def decoder(tokens: list[str], *, layers: int = 4, heads: int = 8, batch: int = 1, **options) -> Record:
    """A causal model; each further row of the batch is a little flatter than the one before."""
    made = scores(tokens, heads, layers)
    rows = 1 - 0.3 * torch.arange(batch)[:, None, None, None]
    calls = [
        call(f"model.layers.{layer}.self_attn", made[layer] * rows, mask=regard.causal(), **options)
        for layer in range(layers)
    ]
    info = {
        "model": "a small decoder",
        "date": "2025-11-20",
        "versions": {"torch": "2.13.0"},
        "settings": {"map": 128},
    }
    return Record(calls, [tokens] * batch, None, info)


def watched(length: int = 41, *, batch: int = 1) -> Record:
    """A model of one layer of four heads that was really watched, so that roles can be told."""
    torch.manual_seed(3)
    layer = regard.nn.MultiHeadAttention(16, 4)
    with torch.no_grad(), regard.watch(layer, statistics=list(regard.statistics.TABLE)) as record:
        layer(3 * torch.randn(batch, length, 16), mask=regard.causal())
    return record


def translator(source: list[str], target: list[str], *, layers: int = 3, heads: int = 5) -> Record:
    """An encoder–decoder: its encoder, then in each layer of the decoder a self- and a cross-attention."""
    inner, outer, cross = (
        scores(source, heads, layers),
        scores(target, heads, layers),
        scores(target, heads, layers, source),
    )
    calls = [call(f"encoder.block.{i}.layer.0.SelfAttention", inner[i][None]) for i in range(layers)]
    for i in range(layers):
        calls.append(call(f"decoder.block.{i}.layer.0.SelfAttention", outer[i][None], mask=regard.causal()))
        calls.append(call(f"decoder.block.{i}.layer.1.EncDecAttention", cross[i][None], kind="cross"))
    return Record(calls, [target], [source], {"model": "a small translator"})
