"""`survey(model, batches)`: watch a model on any number of texts, merge what was seen, and be able to go on later.

Knows batches, failures and shards; how a text is watched and how profiles merge is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.checks.arguments import flag, listed, module, shown, whole
from regard.errors import ArgumentError, RecordError, WatchError
from regard.record.ledger import Ledger
from regard.record.profile import Profile
from regard.statistics.table import Choice, wanted
from regard.survey.batches import Batch, batches_of
from regard.survey.corpora import OnRay, survey_corpus
from regard.survey.corpus import Corpus
from regard.survey.processes import Processes
from regard.survey.reader import Reader
from regard.survey.settings import fingerprint, named

STATISTICS = (
    "lse",
    "entropy",
    "max_weight",
    "effective_keys",
    "sum_squares",
    "distance",
    "position",
    "spread",
    "first",
    "self_mass",
    "previous",
    "local",
    "sink",
    "allowed",
    "received",
    "by_offset",
)

Statistics = str | Choice | Iterable[str | Choice]
Asked = Statistics | Callable[[dict[str, Any]], Statistics] | None


def survey(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]] | Iterable[str] | Corpus | OnRay,
    *,
    tokenizer: Callable[..., Any] | None = None,
    statistics: Asked = None,
    layers: str | int | Iterable[str | int] | None = None,
    folder: str | PathLike[str] | None = None,
    resume: bool = True,
    tokens: int = 512,
    batch_size: int = 1,
    map: int | None = 64,
    shard: int = 16,
    progress: Callable[[int], Any] | None = None,
) -> Profile:
    """Watch a model on any number of texts, and merge what every head did into one profile.

    Each row of a batch is a text. The model runs in evaluation mode without gradients; its modes and all random states
    are as before when the survey is over. Memory does not grow with the number of texts. A text that cannot be read is
    listed in `profile.failures` and the survey goes on; where a batch fails, its texts are read one by one.

    With a `folder` the survey can be stopped at any time and resumed: it keeps a ledger there, a file for every
    `shard` batches, and what is there is not done again. Under `accelerate launch` each process reads its share of the
    batches, all of which every process must be given in the same order, and all processes return the whole profile.

    A `Corpus` in place of the batches is texts in files that need not fit in memory, nor on this machine; actors of
    Ray read it as `OnRay(corpus)`. It must have a folder, where each stretch of a file becomes a Parquet file; this may
    be an address of fsspec. All ways to read a corpus go on with the same ledger.

    Args:
        model: any module that `watch` can see.
        batches: an iterable of the model's keyword arguments, in dicts; with a tokenizer, of texts, or a corpus.
        tokenizer: one of transformers, or a function from a list of texts to the model's keyword arguments.
        statistics: what to keep, as for `observe`, or a function from a batch's keyword arguments to that, for groups
            of keys that differ from text to text. None: most of rows, and what keys and distances receive.
        layers: which modules to watch, as for `watch`.
        folder: of the ledger; None: none is kept.
        resume: go on with the ledger that is in the folder; False: it is an error that there is one.
        tokens: the most tokens of a text that a tokenizer of transformers may leave; `profile.truncated` counts the
            texts that were cut. Keyword arguments are taken as they are.
        batch_size: how many texts go through the model together; keyword arguments are batches already.
        map: at most this many cells a side of the map of each text, from which one of 32 × 32 on relative position is
            made; None: no maps.
        shard: how many batches have a file of the ledger together; of a corpus, its `stretch` says it.
        progress: called after each batch, or stretch of a corpus, with the number of texts that are done, those that
            failed among them; in a launch those of a corpus that this process did.

    Raises:
        ArgumentError: no text at all, an element that is no text or no keyword arguments, a wrong setting.
        RecordError: a folder that holds something else, or a ledger of other settings or other texts, or a damaged one.
        WatchError: no text could be read; says why the first one could not.

    Example:
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> profile = rg.survey(layer, ({"x": torch.randn(1, length, 16)} for length in (5, 8, 13)))
        >>> profile
        Profile of 3 records, 1 layers
    """
    model, resume = module("model", model), flag("resume", resume)
    tokens, batch_size = whole("tokens", tokens, 1), whole("batch_size", batch_size, 1)
    shard = whole("shard", shard, 1)
    if map is not None:
        map = whole("map", map, 1)
    chosen: Any = statistics
    if statistics is None:
        chosen = STATISTICS
    elif not isinstance(statistics, str | Choice) and not callable(statistics):
        chosen = tuple(listed("statistics", statistics, lambda _, item: item))
    if not callable(chosen):
        # An unknown statistic is an error now, and not a failure of every text.
        wanted(chosen)
    for name, function in (("tokenizer", tokenizer), ("progress", progress)):
        if function is not None and not callable(function):
            raise ArgumentError(f"{name} must be a function, got {shown(function)}")
    if layers is not None and not isinstance(layers, str | int):
        layers = tuple(listed("layers", layers, lambda _, item: item))
    if folder is not None and not isinstance(folder, str | PathLike):
        raise ArgumentError(f"folder must be a string or a path, got {shown(folder)}")
    reader = Reader(model, tokenizer, chosen, layers, map, tokens)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    processes = Processes.here(cpu=device.type == "cpu")
    settings = {
        "model": type(model).__name__,
        "weights": fingerprint(model),
        "statistics": named(chosen),
        "layers": layers if layers is None or isinstance(layers, str | int) else list(layers),
        "map": map,
        "tokens": tokens,
        "batch_size": batch_size,
    }
    if isinstance(batches, Corpus | OnRay):
        profile, done = survey_corpus(
            reader,
            batches,
            settings,
            folder=folder,
            resume=resume,
            batch_size=batch_size,
            processes=processes,
            progress=progress,
        )
        return _checked(profile, done)
    if processes.count > 1 and folder is None:
        raise ArgumentError(
            f"folder must be given where {processes.count} processes share a survey: they meet in its ledger"
        )
    ledger = None
    if folder is not None:
        settings |= {"shard": shard, "texts": tokenizer is not None}
        ledger = _started(Path(folder), settings, resume, processes)
    work = _Work(reader, ledger, processes, shard)
    done = 0
    for number, batch in enumerate(batches_of(batches, batch_size, texts=tokenizer is not None)):
        work.take(number, batch, done)
        done += batch.rows
        if progress is not None:
            progress(done)
    work.close()
    if not done:
        raise ArgumentError("batches must hold at least one text, got none")
    # The ledger is complete only when the last process has written its shards.
    processes.wait()
    profile = work.profile
    if ledger is not None:
        profile = ledger.profile()
    return _checked(profile, done)


def _checked(profile: Profile, done: int) -> Profile:
    """The profile, of which at least one text must have been read."""
    if not profile.texts and profile.failures:
        first = profile.failures[0]
        raise WatchError(
            f"none of {done} texts could be read; text {first.number}: {first.type}: {first.message}"
        )
    if not profile.texts:
        raise ArgumentError("the corpus must hold at least one text, and its files hold none")
    return profile


def _started(folder: Path, settings: dict[str, Any], resume: bool, processes: Processes) -> Ledger:
    """The ledger of a survey, which the main process starts."""
    if processes.index == 0:
        ledger = Ledger.start(folder, settings, resume=resume)
    # The others open the ledger that the main process has started, as two that start it would race.
    processes.wait()
    if processes.index:
        ledger = Ledger.start(folder, settings)
    return ledger


@dataclass
class _Work:
    """What has been done of a survey, and what is there already.

    Attributes:
        profile: of the shard that is open, or without a ledger of everything.
        digests: of the batches in it. written: how many of these are in the ledger.
        number: of the open shard.
    """

    reader: Reader
    ledger: Ledger | None
    processes: Processes
    shard: int
    profile: Profile = field(default_factory=Profile)
    digests: tuple[str, ...] = ()
    written: int = 0
    number: int = 0
    place: int = 0

    def take(self, number: int, batch: Batch, first: int) -> None:
        """Read a batch, unless it is there or belongs to another process; `first` is the number of its first text."""
        which, self.place = divmod(number, self.shard)
        if number == 0 or (self.place == 0 and self.ledger is not None):
            self._open(which)
        # By shard and not by batch, so that every file of the ledger has one writer.
        if which % self.processes.count != self.processes.index:
            return
        if self.ledger is not None and self.place < self.written:
            if self.digests[self.place] != batch.digest:
                raise RecordError(
                    f"{self.ledger.folder}: a survey that goes on must be given the same texts in the same order, "
                    f"and batch {number} is another one"
                )
            return
        try:
            profile = self.profile.merge(self.reader.profile(batch, first))
        # The open shard is saved first, so that a survey that goes on reads no text twice.
        except KeyboardInterrupt:
            self._write()
            raise
        # Both at once, as an interrupt may come between any two lines.
        self.profile, self.digests = profile, (*self.digests, batch.digest)
        if self.ledger is None:
            self.digests = ()

    def close(self) -> None:
        """Write the last shard.

        Raises:
            RecordError: the ledger has more batches than were given.
        """
        if self.ledger is None:
            return
        mine = self.number % self.processes.count == self.processes.index
        more = [number for number in self.ledger.numbers() if number > self.number]
        if more or (mine and len(self.digests) > self.place + 1):
            raise RecordError(
                f"{self.ledger.folder}: a survey that goes on must be given at least the texts of its ledger, "
                f"and it has more batches than were given"
            )
        self._write()

    def _open(self, which: int) -> None:
        if self.ledger is None:
            return
        self._write()
        self.number, self.profile, self.digests = which, Profile(), ()
        if which % self.processes.count == self.processes.index:
            self.profile, digests = self.ledger.read(which)
            self.digests = tuple(digests)
        self.written = len(self.digests)

    def _write(self) -> None:
        if self.ledger is not None and len(self.digests) > self.written:
            self.ledger.write(self.number, self.profile, self.digests)
            self.written = len(self.digests)
