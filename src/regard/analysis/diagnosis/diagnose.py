"""`diagnose`: what is wrong with the heads of a record or a profile; `diagnose_model`: with those of a model that runs.

Knows how evidence is gathered; what is healthy is in `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from regard.analysis.diagnosis import behavior
from regard.analysis.diagnosis.diagnosis import Diagnosis
from regard.analysis.diagnosis.evidence import Evidence, Saved
from regard.analysis.diagnosis.finding import worst_first
from regard.analysis.diagnosis.head_norms import HeadNorms
from regard.analysis.diagnosis.numbers import Collector, of_profile
from regard.analysis.diagnosis.rules import RULES
from regard.analysis.importance import Loss, Texts, importance
from regard.analysis.redundancy import redundancy
from regard.checks.arguments import checked, listed, number, shown, whole
from regard.errors import ArgumentError, RecordError, WatchError
from regard.record import Profile, Record
from regard.statistics.table import TABLE, Choice
from regard.survey.batches import batches_of, tokenized
from regard.watch import watch
from regard.watch.undisturbed import undisturbed

# Batches whose weights are compared head by head, which costs heads², and their tokens at most.
COMPARED, COMPARED_TOKENS = 3, 512
# Queries with a choice that a text must have before two heads can be called alike.
FEWEST_COMPARED = 8


@checked
def diagnose(seen: Record | Profile | Iterable[Record]) -> Diagnosis:
    """What is wrong with the heads that were watched, with evidence: `docs/check.md` has every rule and its threshold.

    A finding about a mean needs its whole interval of 95 % over texts beyond the threshold, where there are two texts
    or more; a bug (weight on later keys, on padding, NaN) needs one text. Texts with fewer than eight queries that have
    a choice of keys say nothing about habits of heads.

    Args:
        seen: a record, several records of one model, or a profile. Records made with `statistics=None` can tell most;
            with `keep="vectors"` heads are also compared with each other, with `tokens` separators are known.

    Returns:
        The findings, worst first, and what was looked at.

    Raises:
        RecordError: nothing was watched.
        MissingPackageError: pandas or scipy is not installed.

    Example:
        >>> import torch, regard as rg
        >>> from transformers import GPT2Config, GPT2Model
        >>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50)).eval()
        >>> with rg.watch(model) as record:
        ...     _ = model(torch.arange(40)[None])
        >>> "broken causality" in rg.analysis.diagnose(record).applied
        True
    """
    if isinstance(seen, Profile):
        if not seen.layers:
            raise RecordError("a profile that is diagnosed must have at least one layer, and it has none")
        return _judged(Evidence(of_profile(seen)), seen, "")
    records = [seen] if isinstance(seen, Record) else listed("seen", seen, _record, 1)
    if not any(len(record) for record in records):
        raise RecordError("a record that is diagnosed must have at least one call, and it has none")
    collector, distances = Collector(), _Distances()
    for record in records:
        collector.add(record)
        distances.add(record)
    evidence = Evidence(collector.numbers(), distance=distances.largest, compared=distances.count)
    first = next(record for record in records if len(record))
    return _judged(evidence, first, str(first.info.get("model", "")))


@checked
def diagnose_model(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]] | Iterable[str],
    *,
    tokenizer: Callable[..., Any] | None = None,
    statistics: Callable[[dict[str, Any]], Iterable[str | Choice]] | None = None,
    token_names: Callable[[Tensor], list[str]] | None = None,
    layers: str | int | Iterable[str | int] | None = None,
    tokens: int = 512,
    batch_size: int = 1,
    ablate: bool = False,
    loss: Loss | None = None,
    budget: float = 0.01,
    progress: Callable[[int], Any] | None = None,
) -> Diagnosis:
    """What is wrong with the heads of a model: `diagnose`, and what only a model that runs can show.

    Beside the statistics of its heads on these texts, the last token of a text is changed (do earlier outputs move?),
    padding is appended (do outputs move, do heads attend it?), and the norm of what each head adds is measured. The
    model runs in evaluation mode without gradients; its modes and all random states are as before afterwards.

    Args:
        model: any module that `watch` can see.
        batches: the model's keyword arguments, in dicts; with a tokenizer, texts.
        tokenizer: one of transformers, or a function from a list of texts to the model's keyword arguments.
        statistics: from a batch's keyword arguments to what is observed; None: everything.
        token_names: from the ids of one text to its tokens, by which separators are known. None: those of a tokenizer
            of transformers.
        layers: which modules to watch, as for `watch`.
        tokens: the most tokens of a text that a tokenizer of transformers may leave.
        batch_size: how many texts go through the model together; keyword arguments are batches already.
        ablate: also take out each head in turn and measure the loss; a run over all texts for each head.
        loss: for `ablate`, as for `importance`; None: the loss that the model returns.
        budget: for `ablate`, the part of the loss that may be lost.
        progress: called after each batch with the number of texts that are done.

    Raises:
        ArgumentError: no text, elements that are neither texts nor keyword arguments, a layer that does not exist.
        WatchError: a model without attention, or a call that cannot be read; names the module.
        ModelError: a text without a token.
        MissingPackageError: pandas or scipy is not installed.

    Example:
        >>> import torch, regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> found = diagnose_model(layer, [{"x": torch.randn(1, length, 16)} for length in (11, 13)])
        >>> found.texts, found.heads
        (2, 2)
    """
    tokens, batch_size = whole("tokens", tokens, 1), whole("batch_size", batch_size, 1)
    budget = number("budget", budget, above=0, below=1)
    functions = {"tokenizer": tokenizer, "statistics": statistics, "token_names": token_names}
    for name, function in (functions | {"loss": loss, "progress": progress}).items():
        if function is not None and not callable(function):
            raise ArgumentError(f"{name} must be a function, got {shown(function)}")
    if token_names is None and hasattr(tokenizer, "convert_ids_to_tokens"):
        names: Any = tokenizer

        def token_names(ids: Tensor) -> list[str]:
            return [str(token) for token in names.convert_ids_to_tokens(ids.tolist())]

    reader = _Reader(model, statistics, token_names, layers)
    arguments: list[dict[str, Any]] = []
    done = 0
    for batch in batches_of(batches, batch_size, texts=tokenizer is not None):
        if isinstance(batch.given, tuple):
            assert tokenizer is not None
            inputs = tokenized(tokenizer, batch.given, tokens)[0]
        else:
            inputs = dict(batch.given)
        reader.read(inputs)
        done += batch.rows
        if ablate:
            arguments.append(inputs)
        if progress is not None:
            progress(done)
    if not done:
        raise ArgumentError("batches must hold at least one text, got none")
    evidence = reader.evidence()
    if ablate:
        evidence = _ablated(evidence, model, arguments, loss, budget)
    assert reader.example is not None
    return _judged(evidence, reader.example, type(model).__name__)


class _Reader:
    """Runs a model on one batch after the other, and lets each record go but the first."""

    def __init__(self, model: nn.Module, statistics: Any, token_names: Any, layers: Any) -> None:
        self.model, self.layers = model, layers
        self.statistics, self.token_names = statistics, token_names
        self.collector, self.distances, self.norms = Collector(), _Distances(), HeadNorms(model)
        self.example: Record | None = None
        self.movements: dict[str, behavior.Movement] = {}
        self.missing: dict[str, str] = {}
        self.finite = True

    def read(self, inputs: Mapping[str, Any]) -> None:
        """Watch the model on a batch."""
        with undisturbed(self.model) as device:
            moved = {name: x.to(device) if isinstance(x, Tensor) else x for name, x in inputs.items()}
            first = self.example is None
            record, result = self._watched(moved, vectors=self.distances.count < COMPARED)
            self.collector.add(record)
            self.distances.add(record)
            self.finite &= all(bool(x.isfinite().all()) for x in behavior.finite_parts(result))
            if first:
                self.example = record
                self._behave(moved)
            self._norms(moved)

    def _watched(self, inputs: dict[str, Any], *, vectors: bool = False) -> tuple[Record, Any]:
        ids = inputs.get(behavior.IDS)
        names = None
        if self.token_names is not None and isinstance(ids, Tensor) and ids.ndim == 2:
            names = [self.token_names(row) for row in ids]
            vectors = vectors and ids.shape[1] <= COMPARED_TOKENS
        statistics: Any = tuple(TABLE)
        if self.statistics is not None:
            statistics = self.statistics(inputs)
        keep: Any = "vectors" if vectors else "statistics"
        with watch(self.model, keep=keep, statistics=statistics, layers=self.layers, map=64) as record:
            result = self.model(**inputs)
        if names is not None:
            # The ids are those of the queries, or where there are two sequences those of the source.
            if behavior.WRITTEN in inputs or ("labels" in inputs and _two_sequences(self.model)):
                record.source_tokens = names
            else:
                record.tokens = names
        return record, result

    def _behave(self, inputs: dict[str, Any]) -> None:
        """Change what must not matter, on the first text."""
        try:
            text = behavior.first_text(self.model, inputs)
        except behavior.Unknown as reason:
            self.missing |= {"future": str(reason), "padding": str(reason)}
            return
        try:
            self.movements["future"] = behavior.future(self.model, text)
        except behavior.Unknown as reason:
            self.missing["future"] = str(reason)
        try:
            padded = behavior.with_padding(self.model, text)
            self.movements["padding"] = behavior.padding(self.model, text, padded)
            # Which heads attend the padding, if any do.
            record, _ = self._watched(padded)
            self.collector.add(record, count=False, only=("padding",))
        except behavior.Unknown as reason:
            self.missing["padding"] = str(reason)

    def _norms(self, inputs: dict[str, Any]) -> None:
        if "outputs" in self.missing:
            return
        try:
            self.norms.run(inputs)
        except WatchError as reason:
            self.missing["outputs"] = str(reason)

    def evidence(self) -> Evidence:
        """All that was seen."""
        numbers = self.collector.numbers()
        evidence = Evidence(
            numbers,
            behavior.declared_causal(self.model),
            self.movements.get("future"),
            self.movements.get("padding"),
            self.finite,
            distance=self.distances.largest,
            compared=self.distances.count,
            missing=self.missing,
        )
        if "outputs" in self.missing:
            return evidence
        norms = self.norms.norms(numbers.layers)
        return replace(evidence, outputs=norms.norms, projected=norms.projected)


class _Distances:
    """The largest distance of every two heads over a few records."""

    def __init__(self) -> None:
        self.largest: np.ndarray | None = None
        self.count = 0

    def add(self, record: Record) -> None:
        """Compare the heads of a record, if it has what that takes."""
        names = [(call.layer, call.kind) for call in record]
        short = any(call.sizes.queries < FEWEST_COMPARED for call in record)
        vectors = all(call.query is not None for call in record)
        if self.count >= COMPARED or short or not vectors or len(set(names)) < len(names) or not names:
            return
        distance = redundancy(record).distance
        if self.largest is None:
            self.largest = distance
        elif self.largest.shape == distance.shape:
            self.largest = np.maximum(self.largest, distance)
        self.count += 1


def _judged(evidence: Evidence, seen: Record | Profile, model: str) -> Diagnosis:
    """The findings of all rules that can be applied."""
    findings, applied, skipped = [], {}, {}
    numbers = evidence.numbers
    for rule in RULES:
        if reason := rule.why_not(evidence):
            skipped[rule.name] = reason
            continue
        applied[rule.name] = rule.meaning
        findings += rule.find(evidence)
    queries = numbers["queries"]
    most = 0
    if numbers.known("queries"):
        most = int(np.nanmax(queries.mean * np.maximum(queries.texts, 1)))
    return Diagnosis(
        worst_first(findings), numbers.layers, numbers.texts, most, applied, skipped, model, seen
    )


def _ablated(
    evidence: Evidence, model: nn.Module, arguments: list[dict[str, Any]], loss: Loss | None, budget: float
) -> Evidence:
    """The evidence with what each head's removal costs."""
    rows = importance(model, arguments, loss, method="zero")
    with undisturbed(model):
        whole_loss = float(Texts.of(arguments, loss).losses(model).mean())
    ablated = {
        (row.layer, row.kind, row.head): Saved(row.importance, row.low, row.high) for row in rows.itertuples()
    }
    return replace(evidence, ablated=ablated, loss=whole_loss, budget=budget)


def _two_sequences(model: nn.Module) -> bool:
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def _record(name: str, value: Any) -> Record:
    if not isinstance(value, Record):
        raise ArgumentError(f"{name} must be a record, a profile or several records, got {shown(value)}")
    return value
