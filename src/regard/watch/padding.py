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
OWN = {
    "attention_mask": True,
    "key_padding_mask": False,
    "src_key_padding_mask": False,
    "tgt_key_padding_mask": False,
    "decoder_attention_mask": True,
}
OF_DECODERS = ("decoder_attention_mask", "tgt_key_padding_mask")


@dataclass(frozen=True, eq=False)
class Said:
    """What was said about the queries of a call.

    Attributes:
        padded: `(batch, queries)`, True where a token is padding.
        where: the argument and the module that it was given to.
    """

    padded: Tensor
    where: str


def said(
    stack: Sequence[CallSite],
    batch: int,
    queries: int,
    offset: int,
    *,
    crosses: bool,
    own: Tensor | None = None,
    source: Tensor | None = None,
    once: Callable[[Tensor, object, Callable[[], Tensor | None]], Tensor | None],
) -> Said | None:
    """What the caller said about the queries of a call; None where nothing was said.

    Args:
        stack: the running modules, innermost last, with their arguments.
        batch, queries, offset: of the call.
        crosses: whether its keys are another sequence, about which the module's own mask then is.
        own, source: `watch(…, padding=, source_padding=)`, `(batch, tokens)`, True where a token is real.
        once: from a mask, a question and how to answer it to the answer, which may be known from an earlier call.
    """
    takes = any(_takes_source(site) for site in stack)
    decoding = crosses or takes
    given = {"padding": own, "source_padding": source}
    for name in (
        ("padding", "source_padding") if decoding or source is None else ("source_padding", "padding")
    ):
        real = given[name]
        if real is not None and not (decoding and name == "source_padding"):
            padded = _of_queries(~real.bool(), batch, queries, offset)
            if padded is not None:
                return Said(padded, f"{name} of watch")
    # Without a module that was given the other sequence, `attention_mask` may be about that one.
    names: Sequence[str] = OF_DECODERS if crosses and not takes else tuple(OWN)
    for site in reversed(stack[:-1] if crosses else stack):
        arguments = site.given()
        for name in names:
            mask = arguments.get(name)
            if not isinstance(mask, Tensor) or mask.ndim != 2:
                continue
            find = partial(_said_by, mask, OWN[name], batch, queries, offset)
            padded = once(mask, (OWN[name], batch, queries, offset), find)
            if padded is not None:
                return Said(padded, f"{name} of {site.layer}")
        if _takes_source(site):  # outside of a decoder, `attention_mask` is about the other sequence
            names = OF_DECODERS
    return None


def _said_by(mask: Tensor, real: bool, batch: int, queries: int, offset: int) -> Tensor | None:
    """Which of the queries a mask of tokens says are padding; None where it is about others."""
    return _of_queries(_padding(mask, real), batch, queries, offset)


def _takes_source(site: CallSite) -> bool:
    """Whether a module was given a second sequence to look at."""
    given = site.given()
    return any(isinstance(given.get(name), Tensor) for name in SOURCES)


def _padding(mask: Tensor, real: bool) -> Tensor:
    """A mask of tokens as True where they are padding; a float mask of torch blocks where it is −inf."""
    if real:
        return mask == 0
    return mask <= BLOCKED if mask.is_floating_point() else mask != 0


def _of_queries(padded: Tensor, batch: int, queries: int, offset: int) -> Tensor | None:
    """The part of a mask of tokens that is about the queries; None where its shape does not fit."""
    rows, tokens = padded.shape
    if rows != batch and rows != 1:
        return None
    if tokens == queries:
        part = padded
    elif tokens >= offset + queries and offset:
        part = padded[:, offset : offset + queries]
    else:
        return None
    return part.to(torch.bool).expand(batch, -1)
