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
from regard.tasks.common.batches import IGNORED
from regard.tasks.language.files import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTEXT = 512
VOCABULARY = 2048
FILE = "<|file|>"
"""Stands before every file, and first in every row: beginning, end and padding in one."""
FILE_ID = 0
HIDDEN_ID = VOCABULARY
"""The token that an encoder sees in place of a hidden one; a decoder does not know it."""
# Part of the tokens that an encoder is to find, as in BERT.
HIDDEN = 0.15

# A line break takes the blank lines before it and the indentation after it along: one token per line start.
PRETOKENS = r"\n+ *| ?[A-Za-z]+| ?[0-9]| ?_+| ?[^\sA-Za-z0-9_]+|\s+"


def train_tokenizer(files: Sequence[Source]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of `VOCABULARY` tokens; it puts `FILE` before every text and loses no character."""
    tokenizers = require("tokenizers", extra="train")
    transformers = require("transformers", extra="train")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(PRETOKENS), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[FILE],
        # All 256 bytes, also those that no file has: so any text can be encoded.
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((file.text for file in files), trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
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
    """The token ids of all files end to end, each file with `FILE` before it: `(tokens,)`."""
    # By tokenizers itself: the method of transformers warns of texts that are longer than the context.
    encodings = tokenizer.backend_tokenizer.encode_batch([file.text for file in files])
    return torch.tensor([token for encoding in encodings for token in encoding.ids])


def rows(tokens: Tensor, start: int = 0, context: int = CONTEXT) -> Tensor:
    """Cut a stream `(tokens,)`, from `start` on, into rows `(count, context)` that open with `FILE`.

    The remainder, which is too short for a row, is dropped.

    >>> rows(torch.arange(1, 9), context=4)
    tensor([[0, 1, 2, 3],
            [0, 4, 5, 6]])
    """
    length = context - 1
    count = (len(tokens) - start) // length
    body = tokens[start : start + count * length].view(count, length)
    return torch.cat([torch.full((count, 1), FILE_ID), body], dim=1)


class Rows(Dataset):
    """Rows as dicts of `input_ids` and `labels`, both the row `(context,)`: a causal model shifts labels itself.

    Args:
        rows: `(count, context)`.
        copies: how many rows of repeated random tokens come after them (see `copied`). They reward looking back, which
            a small model learns late from plain text.
    """

    def __init__(self, rows: Tensor, copies: int = 0) -> None:
        self.rows, self.copies = rows, copies

    def __len__(self) -> int:
        return len(self.rows) + self.copies

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if index >= len(self.rows):
            return copied(self.rows.shape[1], index - len(self.rows))
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def copied(context: int, seed: int) -> dict[str, Tensor]:
    """A row of one random span, repeated until the row is full.

    Args:
        context: length of the row. seed: of the span and its length.

    Returns:
        `input_ids` and `labels`, each `(context,)`; labels of the first copy, which cannot be predicted, are −100.

    >>> example = copied(32, seed=1)
    >>> ids, (labeled,) = example["input_ids"], (example["labels"] >= 0).nonzero(as_tuple=True)
    >>> bool((ids[1:10] == ids[10:19]).all()), int(labeled[0])
    (True, 10)
    """
    generator = torch.Generator().manual_seed(seed)
    length = int(torch.randint(context // 16, context // 2, (1,), generator=generator))
    span = torch.randint(1, VOCABULARY, (length,), generator=generator)
    row = torch.cat([torch.tensor([FILE_ID]), span.repeat(context // length + 1)])[:context]
    labels = row.clone()
    labels[: length + 1] = IGNORED
    return {"input_ids": row, "labels": labels}


def hide(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Make a batch for masked language modeling (Devlin et al. 2019, section 3.1).

    15 % of the tokens are asked for, `FILE` never; of these, 80 % are replaced by `HIDDEN_ID`, 10 % by a random token,
    and 10 % stay as they are. Draws from torch's random state.

    Args:
        examples: dicts of `input_ids` `(context,)`, all of one length.

    Returns:
        `input_ids`, and `labels`, −100 except where a token is asked for; each `(batch, context)`.
    """
    tokens = torch.stack([example["input_ids"] for example in examples])
    hidden = (torch.rand(tokens.shape) < HIDDEN) & (tokens != FILE_ID)
    # One number for each token decides between the three ways.
    how = torch.rand(tokens.shape)
    inputs = tokens.masked_fill(hidden & (how < 0.8), HIDDEN_ID)
    other = torch.randint(1, VOCABULARY, tokens.shape)
    return {
        "input_ids": torch.where(hidden & (how >= 0.9), other, inputs),
        "labels": tokens.masked_fill(~hidden, IGNORED),
    }


def repeated(count: int, length: int, seed: int) -> Tensor:
    """Rows to measure induction on: `FILE`, then the same `length` random tokens twice: `(count, 1 + 2 · length)`."""
    generator = torch.Generator().manual_seed(seed)
    span = torch.randint(1, VOCABULARY, (count, length), generator=generator)
    return torch.cat([torch.full((count, 1), FILE_ID), span, span], dim=1)
