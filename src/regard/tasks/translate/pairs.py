"""Pairs of a text and its translation, as examples for a model that reads one and writes the other.

Knows subwords, their ids, and which target subword is aligned with which source subword; knows no task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from regard.tasks.common.tokenizer import END, Text, Vocabulary


@dataclass(frozen=True)
class Pair:
    """A text in two languages.

    Attributes:
        language_token: the token that says which language is wanted, first in the source, such as "<fr>".
        source: what is read. target: what is to be written.
    """

    language_token: str
    source: Text
    target: Text

    @property
    def alignment(self) -> Tensor:
        """Which source token each target token follows from: bool `(target subwords + 1, source subwords + 2)`.

        A subword of the target is aligned with every subword of the source that has a tag in common with it. The
        source is counted with its language token and its end, the target with its end, as in `input_ids` and
        `labels`: row t is the decoder's query that writes token t. A row without any is a word without a partner.

        >>> source = Text.of([("March", ["month"]), (" ", []), ("3", ["day"])])
        >>> target = Text.of([("3", ["day"]), (" ", []), ("mars", ["month"])])
        >>> Pair("<fr>", source, target).alignment.int()
        tensor([[0, 0, 1, 0],
                [0, 1, 0, 0],
                [0, 0, 0, 0]], dtype=torch.int32)
        """
        rows = [
            [False, *(bool(target & source) for source in self.source.tags), False]
            for target in self.target.tags
        ]
        no_partner = [False] * (len(self.source.tags) + 2)
        return torch.tensor([*rows, no_partner])


class Pairs(Dataset):
    """Pairs as dicts of `input_ids` (language token, subwords, end) and `labels` (subwords, end), each `(tokens,)`.

    Args:
        pairs: the pairs. vocabulary: of both sides.
    """

    def __init__(self, pairs: Sequence[Pair], vocabulary: Vocabulary) -> None:
        self.pairs, self.vocabulary = pairs, vocabulary

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        pair, encode = self.pairs[index], self.vocabulary.encode
        return {
            "input_ids": torch.tensor([*encode((pair.language_token, *pair.source.subwords)), END]),
            "labels": torch.tensor([*encode(pair.target.subwords), END]),
        }
