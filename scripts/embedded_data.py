"""The text the embedded model learns from: that of the task `language`, and more of its kind.

Knows packages, Python's own tokenizer and random rows; knows nothing of model or training.
"""

import builtins
import importlib.util
import io
import keyword
import random
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from regard.tasks.common.batches import IGNORED
from regard.tasks.language.data import CONTEXT, FILE, FILE_ID, VOCABULARY, rows, stream, train_tokenizer
from regard.tasks.language.files import Source, is_held_out, sources, standard_library

__all__ = [
    "CONTEXT",
    "FILE",
    "FILE_ID",
    "PACKAGES",
    "VOCABULARY",
    "Source",
    "endless_rows",
    "is_held_out",
    "packages",
    "rename",
    "renamed",
    "repeated",
    "rows",
    "sources",
    "standard_library",
    "stream",
    "train_tokenizer",
]

PACKAGES = ("numpy", "sympy", "torch")
"""Further training text: torch and two of the packages that come with it, so no install lacks them."""


def packages(names: Sequence[str], without: Sequence[Source]) -> list[Source]:
    """Files of the installed packages `names`, less any whose text is also in `without`."""
    known = {source.text for source in without}
    found: list[Source] = []
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise SystemExit(f"the package {name!r} must be installed to train on it; it was not found")
        for source in sources(Path(spec.origin).parent):
            if source.text not in known:
                found.append(Source(f"{name}/{source.path}", source.text))
    return found


def endless_rows(tokens: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows of a stream for ever: each epoch cuts at a new offset and shuffles anew."""
    while True:
        start = int(torch.randint(CONTEXT - 1, (1,), generator=generator))
        epoch = rows(tokens, start)
        yield from epoch[torch.randperm(len(epoch), generator=generator)]


def rename(source: Source, words: Sequence[str], chance: random.Random) -> Source:
    """The same file with half of its repeated identifiers renamed, consistently, to random words.

    What a name is called then says nothing; that it was seen before says all. A file that Python's tokenizer
    refuses is returned as it is.
    """
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source.text).readline))
    except (tokenize.TokenError, SyntaxError):
        return source
    identifiers = [token for token in tokens if token.type == tokenize.NAME]
    counts = Counter(token.string for token in identifiers)
    # Keywords are names to the tokenizer too, and what Python defines must keep its name to mean the same.
    fixed = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "self", "cls"}
    names = {
        name: "_".join(chance.choices(words, k=chance.choice((1, 2, 2, 3))))
        for name, count in counts.items()
        if count > 1 and name not in fixed and not name.startswith("__") and chance.random() < 0.5
    }
    lines = source.text.splitlines(keepends=True)
    # From the end, so that earlier columns stay right.
    for token in reversed(identifiers):
        if token.string in names:
            (row, first), (_, last) = token.start, token.end
            line = lines[row - 1]
            lines[row - 1] = line[:first] + names[token.string] + line[last:]
    return Source(source.path, "".join(lines))


def renamed(files: Sequence[Source], tokenizer: PreTrainedTokenizerFast, seed: int) -> list[Source]:
    """`rename` on every file, with words that are single tokens."""
    chance = random.Random(seed)
    plain = [w for w in tokenizer.get_vocab() if w.isascii() and w.isalpha() and w.islower()]
    words = sorted({*plain} - {*keyword.kwlist, *keyword.softkwlist})
    return [rename(f, words, chance) for f in files]


def repeated(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A row of one random span over and over, and its labels, which leave out the unpredictable first copy.

    The span has 16 to 255 uniformly random tokens. Labels are −100 where the loss must not look.
    """
    length = int(torch.randint(16, CONTEXT // 2, (1,), generator=generator))
    span = torch.randint(1, VOCABULARY, (length,), generator=generator)
    row = torch.cat([torch.tensor([FILE_ID]), span.repeat(CONTEXT // length + 1)])[:CONTEXT]
    labels = row.clone()
    labels[: length + 1] = IGNORED
    return row, labels
