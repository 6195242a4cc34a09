"""For every head a mask that is cheaper than its own, with what that mask keeps: a frozen value, saved and loaded.

Knows masks and numbers; it does not know how they were found.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

from regard import files, html
from regard.errors import ArgumentError, RecordError, RegardError
from regard.files import sealing
from regard.masks import Mask, deserialize_mask, serialize_mask
from regard.masks.algebra import And
from regard.record.layers import short_names
from regard.record.table import frame, identity
from regard.watch import Change, Plan

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch.nn.attention.flex_attention import BlockMask

FORM = sealing.Form("regard-sparse-plan", 1, "plan of sparse masks")
DTYPES = {"int64": torch.int64, "uint8": torch.uint8, "bool": torch.bool, "int32": torch.int32}


@dataclass(frozen=True)
class SparseHead:
    """One head of a plan.

    Attributes:
        layer, kind, head: which.
        family: how its mask is built, such as "window" or "columns"; "full" where nothing cheaper keeps enough.
        mask: what it may attend besides the model's own mask; None for all that the model allows.
        mass: share of the mass on keys that the mask leaves, a mean over the valid queries: measured.
        pairs: pairs of query and key that are left, and `all_pairs`, those of the model's own mask: counted.
    """

    layer: str
    kind: str
    head: int
    family: str
    mask: Mask | None
    mass: float
    pairs: int
    all_pairs: int

    @property
    def saved(self) -> float:
        """Share of the pairs that need not be computed."""
        if not self.all_pairs:
            return 0.0
        return 1 - self.pairs / self.all_pairs


@dataclass(frozen=True, eq=False, repr=False)
class SparsePlan(Sequence[tuple[str, str, int, Mask | None]]):
    """Masks for the heads of a model: a sequence of (layer, kind, head, mask).

    Attributes:
        chosen: the heads, in the order of the record.
        keep: the share of the mass that was asked for.
        model: the name of the model's class; "" where the record does not say.
    """

    chosen: tuple[SparseHead, ...]
    keep: float
    model: str = ""

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str, int, Mask | None]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, str, int, Mask | None]]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        one = self.chosen[index]
        return one.layer, one.kind, one.head, one.mask

    def __iter__(self) -> Iterator[tuple[str, str, int, Mask | None]]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"SparsePlan({len(self)} heads, keep {self.keep:g}, saves {self.saved:.1%} of the pairs)"

    @property
    def saved(self) -> float:
        """Share of all pairs that need not be computed: the time of attention saved, where it goes by pairs."""
        every = sum(one.all_pairs for one in self.chosen)
        # Without any pair there is nothing to take a share of, and nothing is saved.
        if not every:
            return 0.0
        return 1 - sum(one.pairs for one in self.chosen) / every

    @property
    def heads(self) -> DataFrame:
        """A row per head: `layer`, `kind`, `head`, `family`, `mask`, `mass`, `pairs`, `all_pairs`, `saved`.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        parts = []
        for one in self.chosen:
            row = identity(one.layer, one.kind, 1, pairs=one.pairs, all_pairs=one.all_pairs)
            row |= {"head": np.array([one.head]), "family": np.array([one.family], object)}
            row |= {"mask": np.array([_name(one.mask)], object)}
            parts.append(row | {"mass": np.array([one.mass]), "saved": np.array([one.saved])})
        names = ("layer", "kind", "head", "family", "mask", "mass", "pairs", "all_pairs", "saved")
        empty = {name: np.empty(0) for name in names}
        return frame([{name: row[name] for name in names} for row in parts], empty)

    def masks_of(self, layer: str) -> dict[int, Mask | None]:
        """Head → mask, of one layer."""
        return {one.head: one.mask for one in self.chosen if one.layer == layer}

    def changes(self) -> Plan:
        """The plan as `regard.intervene` takes it: a change for each head that has a mask.

        Raises:
            ArgumentError: no head has one.
        """
        sparse = [one for one in self.chosen if one.mask is not None]
        if not sparse:
            raise ArgumentError("a plan that changes something must have a head with a mask, got none")
        return Plan([Change(heads=((one.layer, one.head),), mask=one.mask) for one in sparse])

    def block_masks(
        self, queries: int, keys: int, *, causal: Mask | None = None, device: torch.device | str = "cpu"
    ) -> dict[tuple[str, int], BlockMask]:
        """FlexAttention's `BlockMask` of each head that has a mask, by layer and head.

        Args:
            queries, keys: sizes of the attention.
            causal: the model's own mask, and-ed with each.
            device: where the tensors are to be.
        """
        found = {}
        for one in self.chosen:
            mask = one.mask
            if mask is None:
                continue
            if causal is not None:
                # FlexAttention takes one mask, and does not add what the model itself blocks.
                mask = And((causal, mask))
            found[one.layer, one.head] = mask.block_mask(1, 1, queries, keys, device=device)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan into a JSON file that carries its seal.

        Raises:
            RecordError: it cannot be written there.
        """
        body = {"keep": self.keep, "model": self.model, "heads": [_packed(one) for one in self.chosen]}
        try:
            files.write(Path(path), sealing.document(FORM, body, indent=1))
        except OSError as fault:
            raise RecordError(f"{path}: cannot be written: {fault.strerror or fault}") from fault

    @classmethod
    def load(cls, path: str | PathLike[str]) -> SparsePlan:
        """The plan that `save` wrote.

        Raises:
            RecordError: there is none, or it is not what was written; names the file.
        """
        try:
            body = sealing.read(Path(path), FORM, RecordError)
            return cls(
                tuple(_unpacked(one) for one in body["heads"]), float(body["keep"]), str(body["model"])
            )
        except FileNotFoundError:
            raise RecordError(f"{path}: there is no such file") from None
        # It names the file already; as it is a RegardError, the clause below would wrap it once more.
        except RecordError:
            raise
        except (RegardError, KeyError, TypeError, ValueError) as fault:
            raise RecordError(
                f"{path}: holds no plan of sparse masks that this Regard can read: {fault}"
            ) from fault

    def _repr_html_(self) -> str:
        facts = [f"{len(self)} heads", f"keep {self.keep:g}", f"saves {self.saved:.1%} of the pairs"]
        layers = list(dict.fromkeys((one.layer, one.kind) for one in self.chosen))
        names = short_names([layer for layer, _ in layers], [kind for _, kind in layers])
        lines = []
        for (layer, kind), name in zip(layers, names, strict=True):
            own = [one for one in self.chosen if (one.layer, one.kind) == (layer, kind)]
            titles = [
                f"head {one.head}, {one.family}: {_name(one.mask)}, keeps {one.mass:.4f}, saved"
                for one in own
            ]
            lines.append((name, layer, html.cells(np.array([one.saved for one in own]), 1.0, titles)))
        most = max((len(self.masks_of(layer)) for layer, _ in layers), default=0)
        head = f'<th></th><th colspan="{most}">pairs saved&emsp;{html.legend(1.0, "")}</th>'
        return html.card(html.heading("SparsePlan", self.model, facts), html.table([head], lines))


def _name(mask: Mask | None) -> str:
    if mask is None:
        return ""
    return mask.name


def _packed(one: SparseHead) -> dict[str, Any]:
    """A head as JSON; what its mask holds in tensors is text of their bytes."""
    body: dict[str, Any] = {name: getattr(one, name) for name in _FIELDS} | {"mask": None}
    if one.mask is not None:
        mask, tensors = serialize_mask(one.mask)
        body |= {"mask": mask, "tensors": {name: _text(tensor) for name, tensor in tensors.items()}}
    return body


_FIELDS = ("layer", "kind", "head", "family", "mass", "pairs", "all_pairs")


def _unpacked(body: Mapping[str, Any]) -> SparseHead:
    mask = None
    if body["mask"] is not None:
        tensors = {name: _tensor(content) for name, content in body["tensors"].items()}
        mask = deserialize_mask(body["mask"], tensors)
    return SparseHead(**{name: body[name] for name in _FIELDS}, mask=mask)


def _text(tensor: Tensor) -> dict[str, Any]:
    array = tensor.detach().cpu().contiguous().numpy()
    # Bytes and not lists of numbers, which would take several times the room in JSON.
    content = base64.b64encode(array.tobytes()).decode("ascii")
    return {"dtype": str(array.dtype), "shape": list(array.shape), "bytes": content}


def _tensor(body: Mapping[str, Any]) -> Tensor:
    # The file may be altered, and numpy reads many more type names than masks have.
    if body["dtype"] not in DTYPES:
        raise ValueError(f"a tensor of a mask must be one of {', '.join(DTYPES)}, got {body['dtype']!r:.60}")
    # numpy's view of bytes cannot be written to, which torch warns of: hence the copy.
    content = np.frombuffer(base64.b64decode(body["bytes"], validate=True), dtype=body["dtype"])
    return torch.from_numpy(content.reshape(body["shape"]).copy())
