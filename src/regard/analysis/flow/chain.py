"""The calls of a record as one path of layers: a text's own, and where there is cross-attention those of its source.

Knows which calls follow each other; what flows along them is computed in `rollout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.checks.arguments import whole
from regard.errors import ArgumentError, RecordError
from regard.record.call import Call
from regard.record.record import Record

TEXTS = ("target", "source")


@dataclass(frozen=True, eq=False)
class Chain:
    """The layers of a pass, first to last.

    Attributes:
        target: those of the text, its cross-attention among them.
        source: those of the text that cross-attention looks at; none where it was not watched, or there is none.
    """

    target: tuple[Call, ...]
    source: tuple[Call, ...] = ()

    @property
    def batch(self) -> int:
        """Rows of the batch."""
        return self.target[0].sizes.batch

    @property
    def tokens(self) -> int:
        """Of the text."""
        return self.target[0].sizes.queries

    @property
    def source_tokens(self) -> int | None:
        """Of the text that cross-attention looks at; None without cross-attention."""
        return next((call.sizes.keys for call in self.target if call.kind == "cross"), None)

    def token(self, token: int, text: str) -> int:
        """The place of a token of one of the texts, counted from 0.

        Raises:
            ArgumentError: there is no such token or text.
        """
        if text not in TEXTS:
            raise ArgumentError(f"text must be {' or '.join(map(repr, TEXTS))}, got {text!r}")
        tokens = self.tokens
        if text == "source":
            if self.source_tokens is None:
                raise ArgumentError("text='source' needs cross-attention, and the record has none")
            tokens = self.source_tokens
        return whole("token", token, -tokens, tokens - 1) % tokens


def chain_of(record: Record) -> Chain:
    """The calls of a record in order, told apart by which text they are of.

    Raises:
        RecordError: it has no calls, lacks their vectors, or they do not follow each other on the same tokens.
    """
    calls = list(record)
    if not calls:
        raise RecordError("the record has no calls: nothing flows")
    check_vectors(calls)
    crossing = [call for call in calls if call.kind == "cross"]
    source = _of_source([call for call in calls if call.kind == "self"], crossing)
    chain = Chain(tuple(call for call in calls if id(call) not in source), tuple(_in(calls, source)))
    tokens = chain.source_tokens
    # Checked before anything is computed: an error of shapes in a step would not name the layer.
    for call in chain.target:
        keys = chain.tokens
        if call.kind == "cross" and tokens is not None:
            keys = tokens
        _check(call, chain.batch, chain.tokens, keys)
    for call in chain.source:
        assert tokens is not None, "without cross-attention nothing is of a source"
        _check(call, chain.batch, tokens, tokens)
    return chain


def check_vectors(calls: Sequence[Call]) -> None:
    """Raise a RecordError where a call lacks its vectors."""
    for call in calls:
        if call.query is None or call.key is None or call.spec is None:
            reason = 'which were not kept: watch with keep="vectors"'
            if call.seen == "weights":
                reason = "and the model made its weights itself, so that there are none"
            raise RecordError(f"{call.layer}: the flow needs query and key vectors, {reason}")


def _in(calls: Sequence[Call], chosen: set[int]) -> list[Call]:
    return [call for call in calls if id(call) in chosen]


def _of_source(calls: Sequence[Call], crossing: Sequence[Call]) -> set[int]:
    """Which self-attention is of the other text: that which shares less of its name with the cross-attention."""
    if not crossing:
        return set()
    # By identity and not by name, as a layer that is used twice has two calls of the same name.
    shared = {id(call): max(_common(call.layer, other.layer) for other in crossing) for call in calls}
    # In a decoder, self-attention and cross-attention are in the same block, so their names begin alike.
    if len(set(shared.values())) > 1:
        most = max(shared.values())
        return {id(call) for call in calls if shared[id(call)] < most}
    # Names say nothing: then sizes do, and a text as long as its source is taken for the text itself.
    return {id(call) for call in calls if call.sizes.queries != crossing[0].sizes.queries}


def _common(one: str, other: str) -> int:
    """How many parts at the beginning of two names are the same."""
    count = 0
    for a, b in zip(one.split("."), other.split("."), strict=False):
        if a != b:
            return count
        count += 1
    return count


def _check(call: Call, batch: int, queries: int, keys: int) -> None:
    have = (call.sizes.batch, call.sizes.queries, call.sizes.keys)
    if have != (batch, queries, keys):
        raise RecordError(
            f"{call.layer}: layers must follow each other on the same tokens, here batch {batch}, queries {queries} "
            f"and keys {keys}, got batch {have[0]}, queries {have[1]} and keys {have[2]}"
        )
