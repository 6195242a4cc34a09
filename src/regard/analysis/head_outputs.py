"""The mean output of every head over texts: what may stand in its place when it is taken out of a model.

Knows outputs of heads and which queries count; how a model runs with other outputs is `rg.intervene`'s work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.checks.arguments import checked
from regard.errors import ArgumentError
from regard.survey.batches import batches_of
from regard.watch import Change, intervene
from regard.watch.changes import HeadOutput, Seen
from regard.watch.undisturbed import undisturbed


@checked
def mean_outputs(model: nn.Module, batches: Iterable[Mapping[str, Any]]) -> dict[str, Tensor]:
    """The mean output of every head, over all queries of all texts that are no padding.

    The model runs in evaluation mode without gradients; its modes and all random states are as before afterwards.

    Args:
        model: any module whose heads `rg.intervene` can change.
        batches: the model's keyword arguments, in dicts.

    Returns:
        Name of the module → `(heads, value_dim)`, all heads of the layer: what `rg.intervene(…, output=)` takes.

    Raises:
        ArgumentError: no text at all.
        WatchError: a call whose heads nobody can see.

    Example:
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> means = rg.analysis.mean_outputs(layer, [{"x": torch.randn(1, 5, 16)}])
        >>> {name: tuple(mean.shape) for name, mean in means.items()}
        {'MultiHeadAttention': (2, 8)}
    """
    sums: dict[str, Tensor] = {}
    counts: dict[str, float] = {}

    def look(outputs: HeadOutput) -> Tensor:
        assert outputs.output is not None
        # In float64 on the CPU: many texts are added, and the model's own type may be half precision.
        output = outputs.output.detach().to("cpu", torch.float64)
        real = torch.ones(output.shape[0], output.shape[2], dtype=torch.float64)
        if outputs.padded is not None:
            real = (~outputs.padded.cpu()).double()
        total = torch.einsum("bhqd,bq->hd", output, real)
        sums[outputs.layer] = sums.get(outputs.layer, torch.zeros_like(total)) + total
        counts[outputs.layer] = counts.get(outputs.layer, 0.0) + float(real.sum())
        return outputs.output

    inputs = [batch.given for batch in batches_of(batches, 1, texts=False)]
    if not inputs:
        raise ArgumentError("batches must have at least one text, got none")
    with undisturbed(model), intervene(model, Change(output=Seen(look))):
        for arguments in inputs:
            assert isinstance(arguments, Mapping)
            model(**arguments)
    # A layer that saw nothing but padding has the mean 0 and not NaN.
    return {name: (total / max(counts[name], 1.0)).float() for name, total in sums.items()}
