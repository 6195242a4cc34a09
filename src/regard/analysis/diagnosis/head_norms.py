"""How much each head adds at most to any token: the norm of its output, behind the output projection where it is known.

Knows outputs of heads; what is too little is a rule's to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.analysis.diagnosis.diagnosis import Heads
from regard.analysis.output_projection import output_weight
from regard.watch import Change, intervene
from regard.watch.changes import HeadOutput, Seen


class Norms(NamedTuple):
    """The largest norm of each head, `(heads,)`, and whether it is behind the output projection."""

    norms: np.ndarray
    projected: np.ndarray


class HeadNorms:
    """Takes in passes of a model, one after the other; memory does not grow with them."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._largest: dict[tuple[str, str], Tensor] = {}
        self._projected: dict[tuple[str, str], bool] = {}

    def run(self, inputs: Mapping[str, Any]) -> None:
        """Run the model once, in whatever mode it is.

        Raises:
            WatchError: a call whose heads nobody can see.
        """
        with intervene(self.model, Change(output=Seen(self._look))):
            self.model(**inputs)

    def _look(self, heads: HeadOutput) -> Tensor:
        assert heads.output is not None
        output = heads.output.detach().float()
        count, dim = output.shape[1], output.shape[3]
        key = (heads.layer, heads.kind)
        weight = output_weight(self.model, heads.layer, count * dim)
        self._projected[key] = weight is not None
        if weight is not None:
            parts = weight.float().to(output.device).view(count, dim, -1)
            # |o W|² = o (W Wᵀ) oᵀ, in which the width of the model does not occur.
            gram = parts @ parts.transpose(1, 2)
            squares = torch.einsum("bhqd,hde,bhqe->bhq", output, gram, output)
        else:
            squares = output.square().sum(-1)
        if heads.padded is not None:
            squares = squares.masked_fill(heads.padded.to(squares.device)[:, None], 0.0)
        largest = squares.clamp(min=0).sqrt().amax((0, 2)).cpu()
        self._largest[key] = torch.maximum(self._largest.get(key, largest), largest)
        return heads.output

    def norms(self, layers: Sequence[Heads]) -> Norms:
        """The norms of the heads of these layers, NaN of those that were not seen."""
        norms, projected = [], []
        for layer in layers:
            key = (layer.layer, layer.kind)
            norms.append(self._largest.get(key, torch.full((layer.count,), torch.nan)).double().numpy())
            projected.append(np.full(layer.count, self._projected.get(key, False)))
        return Norms(np.concatenate(norms), np.concatenate(projected))
