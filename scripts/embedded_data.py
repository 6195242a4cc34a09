"""The text the embedded model learns from: which files, which are held out, how they become rows of tokens.

Knows the file system, Python's own tokenizer and the byte-level BPE; knows nothing of model or training.
"""

import builtins
import hashlib
import importlib.util
import io
import keyword
import random
import re
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

CONTEXT = 512
VOCABULARY = 2048
FILE = "<|file|>"
"""Stands before every file, and first in every row: beginning, end and padding in one."""
FILE_ID = 0

PACKAGES = ("numpy", "sympy", "torch")
"""Further training text: torch and two of the packages that come with it, so no install lacks them."""

# Tests repeat themselves; encodings and pydoc_data are tables and manual pages; the rest is not its own.
SKIPPED = {
    *("test", "tests", "testing", "idle_test", "lib2to3", "encodings", "pydoc_data"),
    *("site-packages", "dist-packages", "lib-dynload", "_vendor", "__pycache__"),
}
SKIPPED_NAME = re.compile(r"_sysconfigdata.*|.*_pb2")

# A line break takes the blank lines before it and the indentation after it along: one piece per line start.
PIECES = r"\n+ *| ?[A-Za-z]+| ?[0-9]| ?_+| ?[^\sA-Za-z0-9_]+|\s+"


@dataclass(frozen=True)
class Source:
    """One source file: its path below the library's root, with forward slashes, and its text."""

    path: str
    text: str


def sources(root: Path) -> list[Source]:
    """Every Python file below `root` that is worth learning from, sorted by path, each text once."""
    found: list[Source] = []
    seen: set[str] = set()
    for file in sorted(root.rglob("*.py")):
        relative = file.relative_to(root)
        if SKIPPED & set(relative.parts) or SKIPPED_NAME.fullmatch(file.stem):
            continue
        if relative.parts[0].startswith("config-"):
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip() and text not in seen:
            seen.add(text)
            found.append(Source(relative.as_posix(), text))
    return found


def is_held_out(path: str) -> bool:
    """Whether the file at this path (below the library's root) is kept for measuring: one in twenty."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % 20 == 0


def standard_library() -> tuple[list[Source], list[Source]]:
    """The standard library of the running Python: (files to train on, held-out files)."""
    files = sources(Path(sysconfig.get_path("stdlib")))
    return [f for f in files if not is_held_out(f.path)], [f for f in files if is_held_out(f.path)]


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


def train_tokenizer(files: Sequence[Source]) -> PreTrainedTokenizerFast:
    """Byte-level BPE of `VOCABULARY` pieces; it puts `FILE` before every text and loses no character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[FILE],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((f.text for f in files), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{FILE} $A", pair=f"{FILE} $A {FILE} $B", special_tokens=[(FILE, FILE_ID)]
    )
    return PreTrainedTokenizerFast(
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


def rows(tokens: Tensor, start: int = 0) -> Tensor:
    """Cut a stream, from `start` on, into rows (count, CONTEXT) that open with `FILE`; drop the remainder."""
    width = CONTEXT - 1
    count = (len(tokens) - start) // width
    body = tokens[start : start + count * width].view(count, width)
    return torch.cat([torch.full((count, 1), FILE_ID), body], dim=1)


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
    found = [t for t in tokens if t.type == tokenize.NAME]
    counts = Counter(t.string for t in found)
    fixed = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "self", "cls"}
    names = {
        name: "_".join(chance.choices(words, k=chance.choice((1, 2, 2, 3))))
        for name, count in counts.items()
        if count > 1 and name not in fixed and not name.startswith("__") and chance.random() < 0.5
    }
    lines = source.text.splitlines(keepends=True)
    for token in reversed(found):  # from the end, so that earlier columns stay right
        if token.string in names:
            (row, first), (_, last) = token.start, token.end
            line = lines[row - 1]
            lines[row - 1] = line[:first] + names[token.string] + line[last:]
    return Source(source.path, "".join(lines))


def renamed(files: Sequence[Source], tokenizer: PreTrainedTokenizerFast, seed: int) -> list[Source]:
    """`rename` on every file, with words that are single pieces of the tokenizer."""
    chance = random.Random(seed)
    plain = [w for w in tokenizer.get_vocab() if w.isascii() and w.isalpha() and w.islower()]
    words = sorted({*plain} - {*keyword.kwlist, *keyword.softkwlist})
    return [rename(f, words, chance) for f in files]


def repeated(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A row of one random span over and over, and its labels, which leave out the unpredictable first copy.

    The span has 16 to 255 uniformly random tokens. Labels are -100 where the loss must not look.
    """
    length = int(torch.randint(16, CONTEXT // 2, (1,), generator=generator))
    span = torch.randint(1, VOCABULARY, (length,), generator=generator)
    row = torch.cat([torch.tensor([FILE_ID]), span.repeat(CONTEXT // length + 1)])[:CONTEXT]
    labels = row.clone()
    labels[: length + 1] = -100
    return row, labels
