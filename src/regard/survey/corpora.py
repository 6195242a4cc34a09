"""A survey of a corpus: stretch by stretch, each of which is read, watched and written down as a part of the ledger.

Knows who reads which stretch: this process, all processes of a launch, or actors of Ray. A stretch whose part is there
is not watched again, so it does not matter who read it, how often anyone was killed, or who goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from regard.checks.arguments import number, shown, whole
from regard.errors import ArgumentError
from regard.record.parts import Part, Parts, TextRow
from regard.record.profile import Failure, Profile
from regard.survey import workers
from regard.survey.batches import Batch
from regard.survey.corpus import Corpus, Stretch, digest_of
from regard.survey.forms import Text
from regard.survey.processes import Processes
from regard.survey.reader import MESSAGE, Reader


@dataclass(frozen=True)
class OnRay:
    """A corpus that actors of Ray read, on one machine or on all of a cluster.

    Each actor has the model; one that dies is started again, and its stretch read again. The ledger and the corpus must
    be reachable from every machine. A cluster is joined with `ray.init` beforehand; else Ray starts on this one alone.

    Attributes:
        corpus: the texts. actors: how many read them.
        cpus, gpus: what each of them has; with `gpus` its model is moved there.

    Raises:
        ArgumentError: a wrong setting.

    Example:
        >>> from regard.survey import Corpus, OnRay
        >>> OnRay(Corpus("texts"), actors=64, gpus=1).actors
        64
    """

    corpus: Corpus
    actors: int = 2
    cpus: float = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        if not isinstance(self.corpus, Corpus):
            raise ArgumentError(f"corpus must be a Corpus, got {shown(self.corpus)}")
        whole("actors", self.actors, 1)
        number("cpus", self.cpus, least=0)
        number("gpus", self.gpus, least=0)


@dataclass(frozen=True)
class Work:
    """How a stretch becomes a part of the ledger.

    Attributes:
        reader: of batches. corpus: of the texts. ledger: where parts go.
        batch_size: how many texts go through the model together.
    """

    reader: Reader
    corpus: Corpus
    ledger: Parts
    batch_size: int

    def do(self, stretch: Stretch) -> int:
        """Read a stretch, unless its part is there; how many texts it has."""
        texts = self.corpus.read(stretch)
        digest = digest_of(stretch, texts)
        if not self.ledger.has(digest):
            profile = self._profile(texts)
            errors = {failure.number: failure for failure in profile.failures}
            rows = [_row(text, errors.get(index)) for index, text in enumerate(texts)]
            part = Part(stretch.source, stretch.start, stretch.stop, digest, len(texts))
            self.ledger.write(part, profile, rows)
        return len(texts)

    def _profile(self, texts: list[Text]) -> Profile:
        profile = Profile(failures=tuple(_failure(n, text) for n, text in enumerate(texts) if text.error))
        good = [(number, text.content) for number, text in enumerate(texts) if not text.error]
        for start in range(0, len(good), self.batch_size):
            numbers, contents = zip(*good[start : start + self.batch_size], strict=True)
            batch = self.reader.profile(Batch(len(contents), "", contents), 0)
            # Those that are no texts stand between them, so numbers of a batch have gaps.
            failures = tuple(item._replace(number=numbers[item.number]) for item in batch.failures)
            profile = profile.merge(Profile(**(vars(batch) | {"failures": failures})))
        return profile


def _failure(number: int, text: Text) -> Failure:
    return Failure(number, "ArgumentError", str(text.error)[:MESSAGE])


def _row(text: Text, failure: Failure | None) -> TextRow:
    if failure is None:
        return TextRow(text.position, text.digest)
    return TextRow(text.position, text.digest, failure.type, failure.message)


def survey_corpus(
    reader: Reader,
    texts: Corpus | OnRay,
    settings: Mapping[str, Any],
    *,
    folder: str | PathLike[str] | None,
    resume: bool,
    batch_size: int,
    processes: Processes,
    progress: Callable[[int], Any] | None,
) -> tuple[Profile, int]:
    """The profile of a corpus, and how many texts were gone through.

    Args:
        reader: of batches. texts: the corpus, and who reads it. settings: of the survey.
        folder, resume, batch_size, progress: as for `survey`. processes: which share the work.

    Raises:
        ArgumentError: no folder, no tokenizer, Ray inside a launch, or no text.
        RecordError: of the ledger, or the corpus changed.
    """
    on_ray = isinstance(texts, OnRay)
    if on_ray and processes.count > 1:
        raise ArgumentError("a corpus on Ray must be surveyed from one process, and this is one of a launch")
    if folder is None:
        raise ArgumentError("folder must be given for a corpus: what is done of it is written there")
    if reader.tokenizer is None:
        raise ArgumentError("tokenizer must be given for a corpus, whose files hold texts")
    if isinstance(texts, OnRay):
        corpus = texts.corpus.absolute()
    else:
        corpus = texts.absolute()
    settings = dict(settings) | {"column": corpus.column, "stretch": corpus.stretch}
    # Where nothing is to be read, nothing is written.
    stretches = list(corpus.stretches())
    ledger = _started(folder, settings, resume, processes)
    work, done = Work(reader, corpus, ledger, batch_size), 0
    for count in _counts(work, stretches, texts, processes):
        done += count
        if progress is not None:
            progress(done)
    # The ledger is complete only when the last process has written its parts.
    processes.wait()
    return ledger.profile((item.source, item.start, item.stop) for item in stretches), done


def _counts(
    work: Work, stretches: list[Stretch], texts: Corpus | OnRay, processes: Processes
) -> Iterator[int]:
    """Do all the work of this process; how many texts each stretch has, as soon as it is done."""
    if isinstance(texts, OnRay):
        yield from workers.counts(work, stretches, actors=texts.actors, cpus=texts.cpus, gpus=texts.gpus)
        return
    for stretch in stretches[processes.index :: processes.count]:
        yield work.do(stretch)


def _started(
    folder: str | PathLike[str], settings: Mapping[str, Any], resume: bool, processes: Processes
) -> Parts:
    """The ledger, which the main process starts; the others then open it, as two that start it would race."""
    if processes.index == 0:
        ledger = Parts.start(folder, settings, resume=resume)
    processes.wait()
    if processes.index:
        ledger = Parts.start(folder, settings)
    return ledger
