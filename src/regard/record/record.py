"""What `watch` saw in a model: the attention calls in order, each with its statistics.

Knows how a call is found by name, saved and loaded; not how calls are caught.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.checks.arguments import shown
from regard.errors import ArgumentError, RecordError
from regard.record import folder, notebook, serialize
from regard.record.call import Call
from regard.record.display import record_card
from regard.record.layers import matching
from regard.record.table import table
from regard.statistics.observation import close_to

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(eq=False, repr=False)
class Record:
    """Everything seen while a model was watched: a list of calls, in order.

    Attributes:
        calls: the attention calls.
        tokens: for each row of the batch the tokens that the queries are, and with "self" the keys.
        source_tokens: the tokens that the keys of "cross" calls are.
        info: model class, versions, date, settings: whatever JSON can hold.
        unseen: name → reason, of modules that did what may be attention and could not be read.
    """

    calls: list[Call] = field(default_factory=list)
    tokens: list[list[str]] | None = None
    source_tokens: list[list[str]] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

    def __repr__(self) -> str:
        calls = (f"{index:4}  {call!r}" for index, call in enumerate(self))
        unseen = (f"not seen  {layer}: {reason}" for layer, reason in self.unseen.items())
        return "\n".join([f"Record of {len(self)} calls", *calls, *unseen])

    def _repr_html_(self) -> str:
        tokens = 0
        if self.tokens:
            tokens = len(self.tokens[0])
        return record_card(self.calls, tokens, self.info, self.unseen)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return notebook.bundle(self)

    def _display_(self) -> object:
        return notebook.display(self._repr_html_(), self)

    def __getitem__(self, which: int | str) -> Call:
        """One call, by its index or by its layer's name.

        A part of the name between dots is enough where only one layer has it: `encoder.layer.3` finds
        `bert.encoder.layer.3.attention.self`.

        Raises:
            RecordError: there is no such call, or there are several.
        """
        if isinstance(which, str):
            return notebook.taken(self.calls[self._find(which)], self)
        if not -len(self) <= which < len(self):
            raise RecordError(f"the record has {len(self)} calls, counted from 0: there is no call {which}")
        return notebook.taken(self.calls[which], self)

    def _find(self, name: str) -> int:
        # Each layer once: one that was called several times is one answer, and another error.
        layers = list(dict.fromkeys(call.layer for call in self))
        names = [layers[index] for index in matching(name, layers)]
        if not names:
            raise RecordError(f"no layer {name!r} in the record; {close_to(name, layers)}")
        if len(names) > 1:
            raise RecordError(f"{name!r} must be a part of one layer's name, got several: {', '.join(names)}")
        indices = [index for index, call in enumerate(self) if call.layer == names[0]]
        if len(indices) > 1:
            raise RecordError(
                f"layer {names[0]!r} was called {len(indices)} times: take record[i], i one of {indices}"
            )
        return indices[0]

    @property
    def heads(self) -> DataFrame:
        """One row per call and head: see `regard.record.table.columns`."""
        return table(self.calls)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the record into a folder, which is made if need be; a record that is there is replaced whole.

        The folder holds safetensors (every tensor), Parquet (the table of heads, for other tools) and JSON.

        Raises:
            RecordError: the folder cannot be written, or the record holds what cannot be saved.
        """
        entries, tensors = [], dict[str, Tensor]()
        for index, call in enumerate(self):
            entry, call_tensors = serialize.pack(call)
            entries.append(entry)
            tensors |= {f"{index}.{name}": tensor for name, tensor in call_tensors.items()}
        body = {"info": self.info, "tokens": self.tokens, "source_tokens": self.source_tokens}
        body["unseen"] = self.unseen
        folder.write(Path(path), body | {"calls": entries}, tensors, self.heads)

    @classmethod
    def load(cls, path: str | PathLike[str], *, mapped: bool = False) -> Record:
        """Read a record that `save` wrote.

        Args:
            path: its folder.
            mapped: map the tensors into memory instead of reading them: at once, whatever their size, and read as they
                are used. Of the data file only the size is checked, not the digest of its content.

        Raises:
            RecordError: no record, or one that is damaged, too new or hostile; says which file and why.
            ArgumentError: no path.
        """
        if not isinstance(path, str | PathLike):
            raise ArgumentError(f"path must be a string or a path, got {shown(path)}")
        body, tensors = folder.read(Path(path), mapped)
        of_calls: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            index, _, rest = name.partition(".")
            of_calls.setdefault(index, {})[rest] = tensor
        try:
            entries = serialize.entries(body)
            calls = [
                Call(**serialize.unpack(e, of_calls.pop(str(i), {}), f"calls[{i}]"))
                for i, e in enumerate(entries)
            ]
            # What nobody reads may hide anything.
            if of_calls:
                raise RecordError(f"tensors of calls that it does not list: {', '.join(sorted(of_calls))}")
        # The same fault with the file's name before it.
        except RecordError as error:
            raise RecordError(f"{Path(path) / folder.RECORD}: {error}") from None
        return cls(calls, body["tokens"], body["source_tokens"], body["info"], body["unseen"])
