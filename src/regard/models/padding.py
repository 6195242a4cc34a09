"""Hugging Face's attention masks as masks of the algebra. Knows where a text is real, and nothing of attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ArgumentError, MaskError, ShapeError
from regard.masks import Mask, dense, padding, prefix


@dataclass(frozen=True)
class Text:
    """Which tokens of a batch are real.

    Attributes:
        real: bool `(batch, tokens)`; None: all of them.
        start: position of each row's first real token `(batch,)`; 0 where none is padded.
        lengths: number of real tokens `(batch,)`; None where all are real.
        whole: whether each row's real tokens follow each other.
    """

    real: Tensor | None = None
    start: Tensor | int = 0
    lengths: Tensor | None = None
    whole: bool = True

    def own(self, queries: int) -> Mask | None:
        """The mask of self-attention, for the last `queries` tokens: real tokens attend real tokens."""
        if self.real is None or self.lengths is None:
            return None
        if self.whole:
            # Two numbers a row say the same as a dense mask, which has one for each pair of tokens.
            return padding(self.lengths, start=self.start)
        return dense(keep=self.real[:, None, -queries:, None] & self.real[:, None, None, :])

    def asked(self, queries: int, first: int) -> Mask | None:
        """The mask of cross-attention to this text, for queries at position `first` on."""
        if self.real is None or self.lengths is None:
            return None
        if not self.whole:
            keep = self.real[:, None, None, :].expand(-1, -1, queries, -1)
            return dense(keep=keep, offset=first)
        ends = prefix(self.start + self.lengths)
        # Without padding on the left, where a text ends says everything.
        if not bool((torch.as_tensor(self.start) > 0).any()):
            return ends
        return ends & ~prefix(self.start)

    def ends(self) -> Tensor | None:
        """Number of tokens of each row, for a network that reads from the first on; None where all are real.

        Raises:
            ArgumentError: padding that is not behind a text, or a text without tokens.
        """
        if self.lengths is None:
            return None
        if not self.whole or bool(torch.as_tensor(self.start).any()) or not bool(self.lengths.all()):
            raise ArgumentError(
                "attention_mask of a recurrent model must be 1 from each text's first token on and 0 behind its end, "
                "got padding elsewhere, or a text without tokens: pad on the right"
            )
        return self.lengths


def text(attention_mask: Tensor | None, batch: int, tokens: int) -> Text:
    """What an attention mask says.

    Args:
        attention_mask: `(batch, tokens)`, 1 (or True) where a token is real, 0 where it is padding; None: all are real.
        batch, tokens: its sizes; with a cache, the tokens before count.

    Raises:
        ShapeError: another shape.
        MaskError: not 0 and 1: where 0 means may attend, as in masks that are added, every text would be turned over.
    """
    if attention_mask is None:
        return Text()
    shape: object = type(attention_mask).__name__
    if isinstance(attention_mask, Tensor):
        shape = tuple(attention_mask.shape)
    if shape != (batch, tokens):
        raise ShapeError(
            f"attention_mask must be (batch, tokens) = {(batch, tokens)}, with the tokens in the cache, "
            f"got {shape}"
        )
    _check_convention(attention_mask)
    real = attention_mask.bool()
    # No mask at all, as the fastest kernels of torch take none.
    if bool(real.all()):
        return Text()
    lengths, start = real.sum(1), real.int().argmax(1)
    end = real.shape[1] - real.flip(1).int().argmax(1)
    # A row of padding alone has no first real token, and `argmax` gives 0 for it.
    whole = bool(((end - start == lengths) | (lengths == 0)).all())
    return Text(real, start, lengths, whole)


def _check_convention(mask: Tensor) -> None:
    """Raise MaskError where 0 may mean something else than padding, as in a mask that is added to scores."""
    whole = not mask.is_floating_point() and not mask.is_complex()
    if whole and bool(((mask == 0) | (mask == 1)).all()):
        return
    raise MaskError(
        "attention_mask must be booleans or whole numbers, 1 where a token is real and 0 where it is padding, got "
        f"{mask.dtype} with {mask.flatten()[:6].tolist()}…: give (mask == 0).long() where 0 means real, as in "
        "additive masks, (mask != 0).long() where it means padding"
    )
