"""What a viewer may have done to heads of a model, and what it did to the others.

Knows what can be asked for and compares two records of one text; `regard.intervene` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.analysis.head_distances import distances_of
from regard.checks.arguments import listed
from regard.errors import ArgumentError, RecordError
from regard.masks import near
from regard.record import Record
from regard.record.call import Call
from regard.watch.plan import Change

# Pairs of a query and a key up to which all weights of a call are compared.
MOST = 1 << 24
# Changes of one run.
MOST_CHANGES = 4096
KINDS: dict[str, Literal["self", "cross"]] = {"self": "self", "cross": "cross"}
ZERO: Literal["zero"] = "zero"


@dataclass(frozen=True)
class HeadSetting:
    """What is done to one head.

    Attributes:
        call, head: which, in the record that is looked at.
        off: its output is 0.
        temperature: its scores are divided by it.
        near: it may attend this many keys before a query and after it, besides the query's own.
        top: only so many of its largest weights of each query are left, and add up to 1 again.
        uniform: all keys that may be attended have equal weights.
    """

    call: int
    head: int
    off: bool = False
    temperature: float | None = None
    near: int | None = None
    top: int | None = None
    uniform: bool = False

    @property
    def keeps_spec(self) -> bool:
        """Whether the head's weights are made as those of its layer's other heads."""
        return self.temperature is None and self.near is None and self.top is None and not self.uniform


def changes_of(record: Record, settings: Sequence[HeadSetting]) -> list[Change]:
    """The settings as `regard.intervene` takes them.

    Args:
        record: in which the calls are. settings: one for each head at most.

    Raises:
        ArgumentError: no such call or head, two settings for one head, none at all, a setting that says nothing.

    Example:
        >>> import torch, regard as rg
        >>> layer = rg.nn.MultiHeadAttention(8, 2)
        >>> with rg.watch(layer) as record:
        ...     _ = layer(torch.zeros(1, 3, 8))
        >>> changes_of(record, [HeadSetting(0, 1, temperature=2.0)])
        [Change(heads=(('MultiHeadAttention', 1),), kind='self', temperature=2.0)]
    """
    listed("changes", settings, _setting, least=1)
    if len(settings) > MOST_CHANGES:
        raise ArgumentError(f"at most {MOST_CHANGES} heads may be changed at once, got {len(settings)}")
    heads = [(one.call, one.head) for one in settings]
    if len(set(heads)) < len(heads):
        raise ArgumentError("each head must be changed once, got one twice")
    return [_change(record, one) for one in settings]


def _setting(name: str, value: object) -> HeadSetting:
    if not isinstance(value, HeadSetting):
        raise ArgumentError(f"{name} must be a HeadSetting, got {type(value).__name__}")
    return value


def _change(record: Record, setting: HeadSetting) -> Change:
    if not 0 <= setting.call < len(record):
        raise ArgumentError(f"the call must be from 0 to {len(record) - 1}, got {setting.call}")
    call = record[setting.call]
    if not 0 <= setting.head < call.sizes.heads:
        raise ArgumentError(f"the head must be from 0 to {call.sizes.heads - 1}, got {setting.head}")
    mask, output = None, None
    if setting.near is not None:
        if call.kind == "cross":
            raise ArgumentError(
                "near must be for self-attention: queries and keys of cross-attention are two texts"
            )
        mask = near(setting.near, setting.near)
    if setting.off:
        output = ZERO
    return Change(
        heads=((call.layer, setting.head),),
        kind=KINDS[call.kind],
        mask=mask,
        temperature=setting.temperature,
        output=output,
        top=setting.top,
        uniform=setting.uniform,
    )


def said(record: Record, settings: Sequence[HeadSetting]) -> str:
    """The settings in words, of the first of them where they are many."""
    first = settings[0]
    words = []
    if first.off:
        words.append("off")
    if first.temperature is not None:
        words.append(f"temperature {first.temperature:g}")
    if first.near is not None:
        words.append(f"within {first.near} tokens")
    if first.top is not None:
        words.append(f"{first.top} largest weights")
    if first.uniform:
        words.append("equal weights")
    text = f"head {first.head} of {record[first.call].layer}: {', '.join(words)}"
    if len(settings) > 1:
        text += f", and {len(settings) - 1} more"
    return text


def code(record: Record, settings: Sequence[HeadSetting]) -> list[str]:
    """Lines of a `with` statement, one for each setting, in which `model` is run."""
    lines = []
    for change, setting in zip(changes_of(record, settings), settings, strict=True):
        assert change.heads is not None
        words = [f"model, {[tuple(head) for head in change.heads]!r}, kind={change.kind!r}"]
        if setting.near is not None:
            words.append(f"mask=rg.near({setting.near}, {setting.near})")
        for name in ("temperature", "top"):
            if getattr(setting, name) is not None:
                words.append(f"{name}={getattr(setting, name)!r}")
        if setting.uniform:
            words.append("uniform=True")
        if setting.off:
            words.append('output="zero"')
        lines.append(f"rg.intervene({', '.join(words)})")
    return lines


def distances(before: Record, after: Record) -> list[list[float | None] | None]:
    """How far the weights of each head are from what they were.

    Args:
        before, after: two records of one model on one text.

    Returns:
        For each call and head Hellinger's distance of its weights, √(mean over queries of 1 − Σ √(w·w′)), from 0 to 1;
        None for a call whose vectors were not kept in both, or which has too many pairs.

    Raises:
        RecordError: the records have other calls.
    """
    sizes = [[(call.layer, call.kind, call.sizes) for call in record] for record in (before, after)]
    if sizes[0] != sizes[1]:
        raise RecordError("both records must be of one model on one text, got other calls")
    return [_distances(one, other) for one, other in zip(before, after, strict=True)]


def _distances(before: Call, after: Call) -> list[float | None] | None:
    for call in (before, after):
        if call.query is None or call.spec is None or call.sizes.queries * call.sizes.keys > MOST:
            return None
    heads = before.sizes.heads
    between = distances_of([before, after], "hellinger", slice(None)).diagonal(heads).tolist()
    # A head without a valid query has no distance.
    return [value if value == value else None for value in between]
