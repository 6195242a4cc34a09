"""The data of `language`: Python's standard library as rows of tokens, to go on with or to fill in.

Knows the byte-level BPE, rows, and which tokens are hidden from an encoder. Files are `sources`', baselines `ngrams`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from regard.errors import require
from regard.tasks.language.files import Source
from regard.tasks.translate.pairs import IGNORED

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTEXT = 512
VOCABULARY = 2048
FILE = "<|file|>"
"""Stands before every file, and first in every row: beginning, end and padding in one."""
FILE_ID = 0
HIDDEN_ID = VOCABULARY
"""The token that an encoder sees in place of a hidden one; a decoder does not know it."""
HIDDEN = 0.15  # part of the tokens that an encoder is to find, as in BERT

# A line break takes the blank lines before it and the indentation after it along: one piece per line start.
PIECES = r"\n+ *| ?[A-Za-z]+| ?[0-9]| ?_+| ?[^\sA-Za-z0-9_]+|\s+"


def train_tokenizer(files: Sequence[Source]) -> PreTrainedTokenizerFast:
    """Byte-level BPE of `VOCABULARY` pieces; it puts `FILE` before every text and loses no character."""
    parts, transformers = require("tokenizers", extra="train"), require("transformers", extra="train")
    tokenizer = parts.Tokenizer(parts.models.BPE())
    tokenizer.pre_tokenizer = parts.pre_tokenizers.Sequence(
        [
            parts.pre_tokenizers.Split(parts.Regex(PIECES), "isolated"),
            parts.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = parts.decoders.ByteLevel()
    trainer = parts.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[FILE],
        initial_alphabet=parts.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((f.text for f in files), trainer)
    tokenizer.post_processor = parts.processors.TemplateProcessing(
        single=f"{FILE} $A", pair=f"{FILE} $A {FILE} $B", special_tokens=[(FILE, FILE_ID)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=FILE,
        eos_token=FILE,
        pad_token=FILE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def stream(tokenizer: PreTrainedTokenizerFast, files: Sequence[Source]) -> Tensor:
    """All files end to end, each with `FILE` before it: one long tensor of token ids, shape (tokens,)."""
    encoded = tokenizer.backend_tokenizer.encode_batch([f.text for f in files])
    return torch.tensor([token for one in encoded for token in one.ids])


def rows(tokens: Tensor, start: int = 0, context: int = CONTEXT) -> Tensor:
    """Cut a stream, from `start` on, into rows (count, context) that open with `FILE`; drop the remainder."""
    width = context - 1
    count = (len(tokens) - start) // width
    body = tokens[start : start + count * width].view(count, width)
    return torch.cat([torch.full((count, 1), FILE_ID), body], dim=1)


class Rows(Dataset):
    """Rows as dicts of `input_ids` and `labels`, both the row `(context,)`: a causal model moves labels itself.

    Args:
        rows: `(count, context)`.
        copies: how many rows of random tokens over and over come after them (see `copied`). They reward looking back,
            which a small model learns late from plain text.
    """

    def __init__(self, rows: Tensor, copies: int = 0) -> None:
        self.rows, self.copies = rows, copies

    def __len__(self) -> int:
        return len(self.rows) + self.copies

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        if place >= len(self.rows):
            return copied(self.rows.shape[1], place - len(self.rows))
        return {"input_ids": self.rows[place], "labels": self.rows[place]}


def copied(context: int, seed: int) -> dict[str, Tensor]:
    """A row of one random span over and over, each `(context,)`; its first copy, which nothing tells, is no label."""
    generator = torch.Generator().manual_seed(seed)
    length = int(torch.randint(context // 16, context // 2, (1,), generator=generator))
    span = torch.randint(1, VOCABULARY, (length,), generator=generator)
    row = torch.cat([torch.tensor([FILE_ID]), span.repeat(context // length + 1)])[:context]
    labels = row.clone()
    labels[: length + 1] = IGNORED
    return {"input_ids": row, "labels": labels}


def hide(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """A batch for an encoder, each `(batch, context)`: some tokens are hidden, and the labels are theirs alone.

    Of each token's chances of 15 % to be asked for, eight in ten hide it behind `HIDDEN_ID`, one in ten puts a random
    token there, and one in ten leaves it (Devlin et al. 2019, section 3.1). `FILE` is never asked for.
    """
    tokens = torch.stack([example["input_ids"] for example in examples])
    asked = (torch.rand(tokens.shape) < HIDDEN) & (tokens != FILE_ID)
    how = torch.rand(tokens.shape)
    inputs = tokens.masked_fill(asked & (how < 0.8), HIDDEN_ID)
    other = torch.randint(1, VOCABULARY, tokens.shape)
    return {
        "input_ids": torch.where(asked & (how >= 0.9), other, inputs),
        "labels": tokens.masked_fill(~asked, IGNORED),
    }


def repeated(count: int, length: int, seed: int) -> Tensor:
    """`FILE` and random tokens twice, to find induction with: `(count, 1 + 2 · length)`."""
    generator = torch.Generator().manual_seed(seed)
    span = torch.randint(1, VOCABULARY, (count, length), generator=generator)
    return torch.cat([torch.full((count, 1), FILE_ID), span, span], dim=1)
