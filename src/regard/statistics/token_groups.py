"""Groups of keys that the tokens of a text make: other occurrences, what came after them, brackets, separators.

Knows tokens and their ids; the mass that a head gives to such keys is a linear statistic, folded like any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.checks.arguments import checked, listed, shown
from regard.errors import ArgumentError
from regard.statistics.roles import AFTER
from regard.statistics.table import Choice, group, matching

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {closing: opening for opening, closing in OPENING.items()}
# What tokenizers put between texts.
SPECIAL = re.compile(r"\[(?:SEP|CLS|EOS|BOS)\]|</?\w+>|<\|\w+\|>")
# A token that has no partner.
NOBODY = -1


@checked
def token_groups(
    ids: Tensor, tokens: Sequence[Sequence[str]] | None = None, *, causal: bool = True
) -> tuple[Choice, ...]:
    """Statistics of where a head looks, told by the tokens: give them to `watch`, `observe` or `survey`.

    "duplicate token" is the mass on other occurrences of the query's token; "induction" that on the tokens that came
    after them (Olsson et al. 2022, arXiv 2209.11895); with `tokens`, "bracket" that on the bracket that the query's
    own opens or closes, and "separator" that on punctuation and special tokens.

    Args:
        ids: `(tokens,)` or `(batch, tokens)`, the ids of the whole text; queries and keys are both of it.
        tokens: the same as text, one list for each row of the batch.
        causal: whether queries may attend only what is before them; if not, also what comes later is counted, in
            groups whose names end in " after".

    Raises:
        ArgumentError: ids that are no whole numbers, or tokens that do not fit them.

    Example:
        >>> import regard as rg
        >>> ids = torch.tensor([5, 7, 5, 7])
        >>> query = key = torch.zeros(1, 1, 4, 8)
        >>> seen = rg.observe(query, key, mask=rg.causal(), statistics=token_groups(ids))
        >>> seen.groups["induction"][0, 0, 2]  # the second 5, of three keys: one is the 7 after the first 5
        tensor(0.3333)
    """
    if ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim not in (1, 2):
        raise ArgumentError(
            f"ids must be whole numbers (tokens,) or (batch, tokens), got {ids.dtype} {tuple(ids.shape)}"
        )
    ids = ids.detach().cpu().long()
    before = torch.full_like(ids[..., :1], NOBODY)
    after_its_own = torch.cat((before, ids[..., :-1]), -1)
    pairs = [("duplicate token", ids, ids, -1), ("induction", ids, after_its_own, 0)]
    choices = []
    if tokens is not None:
        rows = _rows(ids, tokens)
        partners = torch.tensor([brackets(row) for row in rows])
        pairs.append(("bracket", partners, partners, -1))
        separators = torch.tensor([[is_separator(token) for token in row] for row in rows])
        choices.append(group("separator", separators))
    for name, query_ids, key_ids, last in pairs:
        choices.append(matching(name, query_ids, key_ids, high=last))
        if not causal:
            # Neither the query itself nor, for induction, what comes after it anyway.
            choices.append(matching(name + AFTER, query_ids, key_ids, low=last + 2))
    return tuple(choices)


def is_separator(token: str) -> bool:
    """Whether a token is punctuation, the end of a line, or what tokenizers put between texts."""
    if SPECIAL.fullmatch(token):
        return True
    # The marks of blanks and newlines in vocabularies of bytes and of subwords.
    plain = token.replace("Ċ", "\n").strip(" Ġ▁\t")
    return bool(plain) and not any(letter.isalnum() for letter in plain)


def brackets(tokens: Sequence[str]) -> list[int]:
    """For each token the number of the pair of brackets that it opens or closes, the last one in it; −1: none."""
    numbers, open_ones = [NOBODY] * len(tokens), list[tuple[str, int]]()
    pairs = 0
    for index, token in enumerate(tokens):
        for letter in token:
            if letter in OPENING:
                open_ones.append((letter, index))
            elif letter in CLOSING and open_ones and open_ones[-1][0] == CLOSING[letter]:
                _, start = open_ones.pop()
                # Both in one token: nothing to look back at.
                if start != index:
                    numbers[start] = numbers[index] = pairs
                    pairs += 1
    return numbers


def _rows(ids: Tensor, tokens: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The tokens as one list for each row of the ids."""
    rows: list[Any] = listed("tokens", tokens, lambda _, item: item)
    if rows and all(isinstance(token, str) for token in rows):
        rows = [rows]
    if not all(
        isinstance(row, list | tuple) and all(isinstance(token, str) for token in row) for row in rows
    ):
        raise ArgumentError(
            f"tokens must be strings, one list for each row of the batch, got {shown(tokens)}"
        )
    shape = tuple(torch.atleast_2d(ids).shape)
    if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
        lengths = [len(row) for row in rows]
        raise ArgumentError(f"tokens must fit ids of shape {shape}, got rows of {lengths}")
    return rows
