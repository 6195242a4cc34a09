"""Examples of different lengths put together into padded batches. Knows no task and no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.tasks.common.tokenizer import PAD

# The value that torch's cross-entropy leaves out unless it is told otherwise, and that transformers fills up with.
IGNORED = -100


def pad_rows(rows: Sequence[Tensor], value: int) -> Tensor:
    """Stack rows `(tokens,)` of any lengths into one tensor `(batch, longest)`, padded with `value` on the right.

    >>> pad_rows([torch.tensor([5, 6, 7]), torch.tensor([8])], value=0)
    tensor([[5, 6, 7],
            [8, 0, 0]])
    """
    return pad_sequence(list(rows), batch_first=True, padding_value=value)


def attention_mask(rows: Sequence[Tensor]) -> Tensor:
    """Which tokens of `pad_rows(rows, …)` are no padding: `(batch, longest)`, int64, 1 for a token and 0 for padding.

    >>> attention_mask([torch.tensor([5, 6, 7]), torch.tensor([8])])
    tensor([[1, 1, 1],
            [1, 0, 0]])
    """
    # From the lengths and not from the ids: a task may use the padding id as a token as well.
    lengths = torch.tensor([len(row) for row in rows])
    return (torch.arange(int(lengths.max())) < lengths[:, None]).long()


def collate(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Make one batch of examples for a model that reads `input_ids` and learns `labels`.

    Args:
        examples: dicts of `input_ids` and `labels`, each `(tokens,)`; other entries are left out.

    Returns:
        `input_ids`, padded with `<pad>`, and their `attention_mask`, both `(batch, longest source)`; `labels`
        `(batch, longest target)`, padded with `IGNORED`, so that padding adds nothing to the loss.
    """
    sources = [example["input_ids"] for example in examples]
    return {
        "input_ids": pad_rows(sources, PAD),
        "attention_mask": attention_mask(sources),
        "labels": pad_rows([example["labels"] for example in examples], IGNORED),
    }
