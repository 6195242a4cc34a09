"""The largest flow between one token and each other one through the layers of a short text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.analysis.flow.chain import chain_of
from regard.checks.arguments import checked, share, whole
from regard.errors import ArgumentError, RecordError, require
from regard.record.call import Call
from regard.record.record import Record

# Tokens: a graph has as many edges as weights.
MOST_TOKENS = 128
# Capacities are whole numbers of this part of 1: each is rounded by 5e-10.
UNIT = 1 << 30


@checked
def max_flow(record: Record, token: int, *, batch: int = 0, residual: float = 0.5) -> Tensor:
    """Attention flow of Abnar and Zuidema 2020 (arXiv 2005.00928): the largest flow from one token's last state.

    Each token of each layer is a node, and Â of `rollout` gives the capacities of the edges to the layer before. SciPy
    finds the maximum flow to each token.

    Args:
        record: of one pass over at most 128 tokens, made by `watch(model, keep="vectors")`.
        token: which token; negative counts from the end.
        batch: which row of the batch.
        residual: weight of the residual connection, from 0 to 1.

    Returns:
        `(tokens,)`, float64: the largest flow to each token's first state. Capacities are rounded to 2⁻³⁰.

    Raises:
        RecordError: no calls, no vectors, cross-attention, or layers that do not follow each other.
        ArgumentError: a text of more than 128 tokens, or no such token or row.
        MissingPackageError: SciPy is not installed.
    """
    chain = chain_of(record)
    if chain.source_tokens is not None:
        raise RecordError(
            "max_flow is for layers of self-attention, and the record has cross-attention: use rollout"
        )
    if chain.tokens > MOST_TOKENS:
        raise ArgumentError(
            f"max_flow takes at most {MOST_TOKENS} tokens, as its graph has an edge for every weight, got "
            f"{chain.tokens}: rollout takes any number"
        )
    tokens = chain.tokens
    token = whole("token", token, -tokens, tokens - 1) % tokens
    batch = whole("batch", batch, 0, chain.batch - 1)
    residual = share("residual", residual)
    sparse = require("scipy.sparse", extra="analysis")
    graphs = require("scipy.sparse.csgraph", extra="analysis")
    steps = [_matrix(call, batch, residual) for call in chain.target]
    # Nodes are numbered layer by layer from the input; edges lead from a layer to the one before.
    size = (len(steps) + 1) * tokens
    rows, columns, capacities = [], [], []
    for layer, step in enumerate(steps):
        query, key = np.nonzero(step)
        rows.append(query + (layer + 1) * tokens)
        columns.append(key + layer * tokens)
        capacities.append(step[query, key])
    edges = (np.concatenate(capacities), (np.concatenate(rows), np.concatenate(columns)))
    graph: Any = sparse.csr_matrix(edges, shape=(size, size), dtype=np.int32)
    start = len(steps) * tokens + token
    flows = [graphs.maximum_flow(graph, start, key).flow_value / UNIT for key in range(tokens)]
    return torch.tensor(flows, dtype=torch.float64)


def _matrix(call: Call, batch: int, residual: float) -> np.ndarray:
    """Â of one layer and row of the batch in whole numbers of 1 / UNIT."""
    weights = torch.stack([call.weights(head, batch=batch).double() for head in range(call.sizes.heads)])
    identity = torch.eye(weights.shape[1], dtype=torch.float64)
    # As in rollout, an empty row and that of padding are rows of the identity.
    empty = (weights == 0).all(-1, keepdim=True)
    if call.padded is not None:
        empty = empty | call.padded[batch][:, None]
    step = residual * identity + (1 - residual) * torch.where(empty, identity, weights).mean(0)
    whole_numbers: np.ndarray = (step * UNIT).round().to(torch.int32).numpy()
    return whole_numbers
