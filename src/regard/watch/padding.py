"""Which tokens the caller said are padding, and where it was said. Nothing is read off a mask here.

Knows the names under which models take masks of tokens, and which value says "padding" in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.masks.conventions import BLOCKED
from regard.watch.modules import SOURCES, CallSite

# Whether True and 1 say that a token is real, as transformers has it, or that it is padding, as torch has it.
TOKEN_MASKS = {
    "attention_mask": True,
    "key_padding_mask": False,
    "src_key_padding_mask": False,
    "tgt_key_padding_mask": False,
    "decoder_attention_mask": True,
}
OF_DECODERS = ("decoder_attention_mask", "tgt_key_padding_mask")


@dataclass(frozen=True, eq=False)
class PaddedQueries:
    """What was said about the queries of a call.

    Attributes:
        padded: `(batch, queries)`, True where a token is padding.
        where: the argument and the module that it was given to.
    """

    padded: Tensor
    where: str


def find_padded(
    stack: Sequence[CallSite],
    batch: int,
    queries: int,
    offset: int,
    *,
    is_cross: bool,
    padding: Tensor | None = None,
    source_padding: Tensor | None = None,
    once: Callable[[Tensor, object, Callable[[], Tensor | None]], Tensor | None],
) -> PaddedQueries | None:
    """What the caller said about the queries of a call; None where nothing was said.

    Args:
        stack: the running modules, innermost last, with their arguments.
        batch, queries, offset: of the call.
        is_cross: whether its keys are another sequence, about which the module's own mask then is.
        padding, source_padding: those of `watch`, `(batch, tokens)`, True where a token is real.
        once: from a mask, a question and how to answer it to the answer, which may be known from an earlier call.
    """
    takes = any(_takes_source(site) for site in stack)
    decoding = is_cross or takes
    masks = {"padding": padding, "source_padding": source_padding}
    order = ["padding", "source_padding"]
    # Outside of a decoder the queries are most likely the other sequence's tokens, as in an encoder.
    if not decoding and source_padding is not None:
        order.reverse()
    for name in order:
        real = masks[name]
        if real is not None and not (decoding and name == "source_padding"):
            padded = _of_queries(~real.bool(), batch, queries, offset)
            if padded is not None:
                return PaddedQueries(padded, f"{name} of watch")
    # Without a module that was given the other sequence, `attention_mask` may be about that one.
    names: Sequence[str] = tuple(TOKEN_MASKS)
    if is_cross and not takes:
        names = OF_DECODERS
    # The mask that a cross-attention was given itself is about its keys.
    sites = stack
    if is_cross:
        sites = stack[:-1]
    for site in reversed(sites):
        arguments = site.given()
        for name in names:
            mask = arguments.get(name)
            if not isinstance(mask, Tensor) or mask.ndim != 2:
                continue
            find = partial(_padded_by, mask, TOKEN_MASKS[name], batch, queries, offset)
            padded = once(mask, (TOKEN_MASKS[name], batch, queries, offset), find)
            if padded is not None:
                return PaddedQueries(padded, f"{name} of {site.layer}")
        # Outside of a decoder, `attention_mask` is about the other sequence.
        if _takes_source(site):
            names = OF_DECODERS
    return None


def _padded_by(mask: Tensor, real: bool, batch: int, queries: int, offset: int) -> Tensor | None:
    """Which of the queries a mask of tokens says are padding; None where it is about others."""
    return _of_queries(_padding(mask, real), batch, queries, offset)


def _takes_source(site: CallSite) -> bool:
    """Whether a module was given a second sequence to look at."""
    arguments = site.given()
    return any(isinstance(arguments.get(name), Tensor) for name in SOURCES)


def _padding(mask: Tensor, real: bool) -> Tensor:
    """A mask of tokens as True where they are padding; a float mask of torch blocks where it is −inf."""
    if real:
        return mask == 0
    if mask.is_floating_point():
        return mask <= BLOCKED
    return mask != 0


def _of_queries(padded: Tensor, batch: int, queries: int, offset: int) -> Tensor | None:
    """The part of a mask of tokens that is about the queries; None where its shape does not fit."""
    rows, tokens = padded.shape
    if rows != batch and rows != 1:
        return None
    # With a cache the mask is about all tokens so far; without an offset, more tokens than queries are others.
    if tokens == queries:
        part = padded
    elif tokens >= offset + queries and offset:
        part = padded[:, offset : offset + queries]
    else:
        return None
    return part.to(torch.bool).expand(batch, -1)
