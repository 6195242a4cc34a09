"""What a model says comes next, after each token of a text: the likeliest tokens, and what a change did to them.

Of each position a few tokens are kept, so the file grows with the text and not with the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard import files
from regard.checks.arguments import whole
from regard.errors import ArgumentError
from regard.web.arrays import pack, unpack
from regard.web.describe import number

# Tokens that are kept of each position.
COUNT = 12
# Numbers of logits that are looked at together: 16 MB in float32.
STRETCH = 1 << 22


@dataclass
class NextToken:
    """A token that may come next: `before` is its probability without the changes, None where there are none."""

    token: int
    text: str
    probability: float
    before: float | None


@dataclass
class NextLine:
    """What may come after one position.

    Attributes:
        tokens: the likeliest first; those that were likeliest without the changes are among them.
        divergence: Σ p·ln(p/p′), p without and p′ with the changes, in nats; None without changes, or where it is
            infinite.
    """

    position: int
    tokens: list[NextToken]
    divergence: float | None


@dataclass(frozen=True, eq=False)
class NextTokens:
    """The likeliest next tokens of every position of a text.

    Attributes:
        arrays: `token` int32 and `probability` float32, `(positions, tokens)`, −1 where a row has fewer; with changes
            also `before` of the same shape, and `divergence` `(positions)`.
        texts: token → how it is written.
    """

    arrays: dict[str, np.ndarray]
    texts: dict[int, str]

    @property
    def positions(self) -> int:
        """How many positions there are."""
        return len(self.arrays["token"])

    def at(self, position: int, most: int = COUNT) -> NextLine:
        """What may come after one position.

        Raises:
            ArgumentError: there is no such position.
        """
        if not 0 <= position < self.positions:
            raise ArgumentError(f"the position must be from 0 to {self.positions - 1}, got {position}")
        most = whole("most", most, 1)
        values = {name: array[position].tolist() for name, array in self.arrays.items()}
        unchanged = [None] * len(values["token"])
        rows = zip(values["token"], values["probability"], values.get("before", unchanged), strict=True)
        tokens = [NextToken(token, self.texts[token], *both) for token, *both in rows if token >= 0]
        tokens.sort(key=lambda one: -max(one.probability, one.before or 0.0))
        divergence = values.get("divergence")
        if divergence is not None:
            divergence = number(divergence)
        return NextLine(position, tokens[:most], divergence)

    def save(self, path: Path) -> None:
        """Write them into one file.

        Raises:
            RecordError: it cannot be written.
        """
        texts = {str(token): text for token, text in self.texts.items()}
        files.write(path, pack(self.arrays, {"texts": texts}), what="next tokens")

    @classmethod
    def load(cls, path: Path) -> NextTokens:
        """Those that `save` wrote."""
        arrays, info = unpack(path.read_bytes())
        return cls(arrays, {int(token): text for token, text in info["texts"].items()})


def next_tokens(
    logits: Tensor, text: Callable[[int], str], before: Tensor | None = None, count: int = COUNT
) -> NextTokens:
    """The likeliest next tokens of each position.

    Args:
        logits: `(positions, vocabulary)`.
        text: a token as it is written.
        before: the same without the changes: the likeliest of both are compared.
        count: tokens of each position, at most.

    Raises:
        ArgumentError: logits of other shapes.

    Example:
        >>> import torch
        >>> next_tokens(torch.tensor([[0.0, 3.0, 1.0]]).log_softmax(-1), str, count=1).at(0).tokens[0].text
        '1'
    """
    if logits.ndim != 2 or (before is not None and before.shape != logits.shape):
        shapes = [tuple(one.shape) for one in (logits, before) if one is not None]
        raise ArgumentError(
            f"logits must be (positions, vocabulary), alike with and without changes, got {shapes}"
        )
    count = min(count, logits.shape[1])
    rows = max(1, STRETCH // max(logits.shape[1], 1))
    parts = []
    for start in range(0, len(logits), rows):
        after = logits[start : start + rows].float().log_softmax(-1)
        if before is None:
            parts.append(_likeliest(after, count))
        else:
            parts.append(_compared(before[start : start + rows].float().log_softmax(-1), after, count))
    arrays = {name: torch.cat([part[name] for part in parts]).cpu().numpy() for name in parts[0]}
    known = sorted(set(arrays["token"].ravel().tolist()) - {-1})
    return NextTokens(arrays, {token: text(token) for token in known})


def _likeliest(logs: Tensor, count: int) -> dict[str, Tensor]:
    top, tokens = logs.topk(count, -1)
    return {"token": tokens.int(), "probability": top.exp()}


def _compared(before: Tensor, after: Tensor, count: int) -> dict[str, Tensor]:
    new, old = (logs.topk(count, -1).indices for logs in (after, before))
    twice = (old[:, :, None] == new[:, None, :]).any(-1)
    tokens = torch.cat([new, old], -1)
    absent = torch.cat([torch.zeros_like(twice), twice], -1)
    probability = after.exp()
    # 0 · ln 0 counts 0.
    shares = torch.where(before == -torch.inf, 0.0, before.exp() * (before - after))
    return {
        "token": tokens.int().masked_fill(absent, -1),
        "probability": probability.gather(-1, tokens),
        "before": before.gather(-1, tokens).exp(),
        # Rounding may fall below 0, which no divergence is.
        "divergence": shares.sum(-1).clamp(min=0.0),
    }


def logits_of(output: Any) -> Tensor | None:
    """The logits `(positions, vocabulary)` of the first text of an output; None without a language head."""
    logits = output
    if not isinstance(output, Tensor):
        logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.ndim != 3:
        return None
    return logits[0]
