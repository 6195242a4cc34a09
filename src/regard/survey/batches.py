"""What a survey reads: batches of keyword arguments or of texts, how many rows they have, and their digests.

Knows inputs of models; it does not know how a model is watched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.checks.arguments import shown
from regard.errors import ArgumentError, ModelError

PLAIN = (str, int, float, bool, type(None))
# What a tokenizer may give that every forward pass takes.
INPUTS = ("input_ids", "attention_mask")


@dataclass(frozen=True)
class Batch:
    """Some texts that go through a model together.

    Attributes:
        rows: how many texts. digest: of its content.
        given: keyword arguments of the model, or texts.
    """

    rows: int
    digest: str
    given: Mapping[str, Any] | tuple[str, ...]

    def each(self) -> list[Batch]:
        """Its texts, each as a batch; itself alone where it cannot be split."""
        if isinstance(self.given, tuple):
            return [Batch(1, "", (text,)) for text in self.given]
        sizes = {len(value) for value in self.given.values() if isinstance(value, Tensor) and value.ndim}
        if len(sizes) != 1:
            return [self]
        return [Batch(1, "", _row(self.given, row)) for row in range(self.rows)]


def batches_of(batches: Iterable[Any], batch_size: int, *, texts: bool) -> Iterator[Batch]:
    """What was given to a survey as batches.

    Args:
        batches: keyword arguments of the model, or texts. batch_size: how many texts go together.
        texts: whether there is a tokenizer, so that texts are wanted.

    Raises:
        ArgumentError: an element that is neither.
    """
    # A tensor without an axis says that it can be iterated over, and cannot.
    if isinstance(batches, str | bytes | Mapping | Tensor) or not isinstance(batches, Iterable):
        raise ArgumentError(f"batches must be an iterable of {_wanted(texts)}, got {shown(batches)}")
    together: list[str] = []
    for number, item in enumerate(batches):
        if texts and isinstance(item, str):
            together.append(item)
            if len(together) == batch_size:
                yield _of_texts(together)
                together = []
        elif not texts and isinstance(item, Mapping):
            yield _of_arguments(item)
        else:
            hint = ""
            if isinstance(item, str):
                hint = ": give the tokenizer too"
            raise ArgumentError(f"batches[{number}] must be {_wanted(texts, 1)}, got {shown(item)}{hint}")
    if together:
        yield _of_texts(together)


def _wanted(texts: bool, number: int = 2) -> str:
    """What batches must be, or one of them."""
    words = ("keyword arguments of the model in a dict", "keyword arguments of the model, in dicts")
    if texts:
        words = ("a text", "texts")
    return words[number - 1]


def _of_texts(texts: Sequence[str]) -> Batch:
    digest = hashlib.sha256()
    for text in texts:
        # What is no text is said when it is read; here it only must be told from others.
        content = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(content)} ".encode() + content)
    return Batch(len(texts), digest.hexdigest()[:32], tuple(texts))


def _of_arguments(arguments: Mapping[str, Any]) -> Batch:
    digest = hashlib.sha256()
    rows = 1
    for name in sorted(arguments, key=str):
        value = arguments[name]
        digest.update(f"{name} {type(value).__name__} ".encode())
        if isinstance(value, Tensor):
            rows = max(rows, len(value) if value.ndim else 1)
            digest.update(f"{value.dtype} {tuple(value.shape)} ".encode())
            if value.layout == torch.strided and not value.is_meta and not value.is_complex():
                digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(value, PLAIN):
            digest.update(repr(value).encode())
    return Batch(rows, digest.hexdigest()[:32], dict(arguments))


def _row(arguments: Mapping[str, Any], row: int) -> dict[str, Any]:
    return {
        name: value[row : row + 1] if isinstance(value, Tensor) and value.ndim else value
        for name, value in arguments.items()
    }


def tokenized(tokenizer: Callable[..., Any], texts: Sequence[str], tokens: int) -> tuple[dict[str, Any], int]:
    """Keyword arguments of the model for these texts, and how many of them were cut.

    Args:
        tokenizer: of transformers, or a function from a list of texts to keyword arguments.
        tokens: the most of a text that a tokenizer of transformers may leave.

    Raises:
        ModelError: a text without a token.
    """
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        return dict(tokenizer(list(texts))), 0
    rows, cut = [], 0
    for text in texts:
        # A tokenizer warns of texts that are longer than its model, which are cut here.
        ids = tokenizer(text, verbose=False)["input_ids"]
        if len(ids) > tokens:
            # By the tokenizer, which puts its last special token at the new end.
            ids = tokenizer(text, truncation=True, max_length=tokens, verbose=False)["input_ids"]
            cut += 1
        if not text or not ids:
            raise ModelError("the text must have at least one token, and it has none: is it empty?")
        rows.append(ids)
    longest = max(map(len, rows))
    filler = getattr(tokenizer, "pad_token_id", None) or 0
    ids = torch.tensor([row + [filler] * (longest - len(row)) for row in rows])
    real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": real}, cut
