"""Pairs of a text and what it becomes, as examples for a model that reads one and writes the other.

Knows pieces, their numbers and which target piece says what which source piece says; knows no task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from regard.tasks.common.tokenizer import END, PAD, Text, Vocabulary

IGNORED = -100  # a label that no loss looks at


@dataclass(frozen=True)
class Pair:
    """A text in two languages.

    Attributes:
        tag: the piece that says what is wanted, first in the source; it says nothing of the text.
        source: what is read. target: what is to be written.
    """

    tag: str
    source: Text
    target: Text

    @property
    def alignment(self) -> Tensor:
        """`(target pieces + 1, source pieces + 2)`: which source piece says something that a target piece says.

        The source is counted with its tag and its end, the target with its end, as in `input_ids` and `labels`: row t
        is the decoder's query that writes piece t. A row without any is a word without a partner.
        """
        rows = [[False, *(bool(t & s) for s in self.source.says), False] for t in self.target.says]
        return torch.tensor([*rows, [False] * (len(self.source.says) + 2)])


class Pairs(Dataset):
    """Pairs as dicts of `input_ids` (tag, pieces, end) and `labels` (pieces, end), each `(tokens,)`.

    Args:
        pairs: the pairs. vocabulary: of both sides.
    """

    def __init__(self, pairs: Sequence[Pair], vocabulary: Vocabulary) -> None:
        self.pairs, self.vocabulary = pairs, vocabulary

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        pair, numbers = self.pairs[place], self.vocabulary.encode
        return {
            "input_ids": torch.tensor([*numbers((pair.tag, *pair.source.pieces)), END]),
            "labels": torch.tensor([*numbers(pair.target.pieces), END]),
        }


def collate(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """One batch of examples: `input_ids` padded on the right, `attention_mask`, `labels` with −100 where padded.

    Args:
        examples: dicts of `input_ids` and `labels`, each `(tokens,)`.

    Returns:
        each `(batch, tokens)`.
    """
    sources = [example["input_ids"] for example in examples]
    ids = padded(sources, PAD)
    lengths = torch.tensor([len(source) for source in sources])
    return {
        "input_ids": ids,
        "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long(),
        "labels": padded([example["labels"] for example in examples], IGNORED),
    }


def padded(rows: Sequence[Tensor], value: int) -> Tensor:
    """Rows `(tokens,)` of any lengths as one tensor `(batch, most tokens)`, filled up on the right."""
    return pad_sequence(list(rows), batch_first=True, padding_value=value)
