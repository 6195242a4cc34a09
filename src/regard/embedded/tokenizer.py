"""The embedded model's tokenizer on the package `tokenizers` alone, under the names of transformers' methods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.embedded import folder
from regard.errors import require


class Tokenizer:
    """From a text to the numbers of its subwords, and back.

    Raises:
        MissingPackageError: tokenizers is not installed.

    Example:
        >>> tokenizer = Tokenizer()
        >>> ids = tokenizer("return x")["input_ids"]
        >>> tokenizer.convert_ids_to_tokens(ids[0].tolist())
        ['<|file|>', 'return', 'Ġx']
    """

    def __init__(self) -> None:
        package = require("tokenizers", extra="look")
        self._tokenizer = package.Tokenizer.from_file(str(folder() / "tokenizer.json"))

    def __call__(self, text: str, **_: Any) -> dict[str, Tensor]:
        """The ids `(1, tokens)` of a text, after that of the start of a file."""
        return {"input_ids": torch.tensor([self._tokenizer.encode(text).ids])}

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of tokens that stand for no text."""
        return [
            number for number, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        ]

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        """Each subword as the vocabulary spells it."""
        return [self._tokenizer.id_to_token(number) for number in ids]

    def decode(self, ids: list[int]) -> str:
        """The text of subwords, special ones with it."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)
