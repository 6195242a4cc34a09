"""For every head a mask that is cheaper than its own, with what that mask keeps: a frozen value, saved and loaded.

Knows masks and numbers; it does not know how they were found.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from regard import files, html
from regard.attention import attend
from regard.errors import ArgumentError, RecordError, RegardError
from regard.files import sealing
from regard.masks import Mask, deserialize_mask, serialize_mask
from regard.masks.algebra import And
from regard.record.layers import short_names
from regard.record.table import frame, identity
from regard.shapes import sizes_of
from regard.spec import Spec, SpecArguments
from regard.watch import Plan
from regard.watch.changes import spec_of_heads
from regard.watch.plan import of_masks

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch.nn.attention.flex_attention import BlockMask

COLUMNS = ("layer", "kind", "head", "family", "mask", "mass", "error", "pairs", "all_pairs", "saved", "cost")
FORM = sealing.Form("regard-sparse-plan", 2, "plan of sparse masks")
DTYPES = {"int64": torch.int64, "uint8": torch.uint8, "bool": torch.bool, "int32": torch.int32}


@dataclass(frozen=True)
class SparseHead:
    """One head of a plan.

    Attributes:
        layer, kind, head: which.
        family: how its mask is built, such as "window" or "columns"; "full" where nothing cheaper keeps enough.
        mask: what it may attend besides the model's own mask; None for all that the model allows.
        mass: share of the mass on keys that the mask leaves, a mean over the valid queries: measured; from a profile
            the least that it may be.
        pairs: pairs of query and key that are left, and `all_pairs`, those of the model's own mask: counted; from a
            profile those of a text of mean length.
        error: ‖output under the mask − output‖ / ‖output‖ over all valid queries, measured; None where it was not.
        cost: about the time of its attention in the native engine, as a share of that without a mask.
    """

    layer: str
    kind: str
    head: int
    family: str
    mask: Mask | None
    mass: float
    pairs: int
    all_pairs: int
    error: float | None = None
    cost: float | None = None

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
        least_saving: the share of a head's time below which it stayed full.
        not_judged: families of masks of which nothing was known, so that none was tried.
    """

    chosen: tuple[SparseHead, ...]
    keep: float
    model: str = ""
    least_saving: float = 0.0
    not_judged: tuple[str, ...] = ()

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
    def cost(self) -> float:
        """About the time of all attention in the native engine, as a share of that without masks."""
        every = sum(one.all_pairs for one in self.chosen)
        if not every:
            return 1.0
        shares = (
            (one.pairs / max(one.all_pairs, 1) if one.cost is None else one.cost) for one in self.chosen
        )
        return sum(share * one.all_pairs for share, one in zip(shares, self.chosen, strict=True)) / every

    @property
    def heads(self) -> DataFrame:
        """A row per head: which, its `family` and `mask`, `mass`, `error`, `pairs`, `all_pairs`, `saved`, `cost`.

        What was not measured is NaN; `attrs["not_judged"]` names the families that were not tried.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        parts = []
        for one in self.chosen:
            row = identity(one.layer, one.kind, 1, pairs=one.pairs, all_pairs=one.all_pairs)
            row |= {"head": np.array([one.head]), "family": np.array([one.family], object)}
            row |= {"mask": np.array([_name(one.mask)], object)}
            numbers = {"mass": one.mass, "error": one.error, "saved": one.saved, "cost": one.cost}
            parts.append(row | {name: np.array([value], float) for name, value in numbers.items()})
        empty = {name: np.empty(0) for name in COLUMNS}
        table = frame([{name: row[name] for name in COLUMNS} for row in parts], empty)
        table.attrs["not_judged"] = list(self.not_judged)
        return table

    def masks_of(self, layer: str, kind: str | None = None) -> dict[int, Mask | None]:
        """Head → mask, of one layer; of "self" or "cross" attention alone where a kind is said."""
        return {one.head: one.mask for one in self.chosen if one.layer == layer and kind in (None, one.kind)}

    def attend(
        self, layer: str, query: Tensor, key: Tensor, value: Tensor, **spec: Unpack[SpecArguments]
    ) -> Tensor:
        """Self-attention of one layer under the plan: `rg.attend`, each head with its mask besides the one given.

        Heads with equal masks are one call, and so are those that stay full: what a plan saves is saved here.

        Args:
            layer: whose heads the plan has masks for.
            query: `(batch, heads, queries, dim)`, all heads of the layer.
            key: `(batch, kv_heads, keys, dim)`. value: `(batch, kv_heads, keys, value_dim)`.
            **spec: mask, bias, scale, softcap, sink_logit, align: see `SpecArguments`.

        Returns:
            `(batch, heads, queries, value_dim)`.

        Raises:
            ArgumentError: a layer that the plan has not, or one with another number of heads.
            ShapeError, MaskError: inputs that do not fit together.
        """
        masks = self.masks_of(layer, "self")
        sizes = sizes_of(query, key, value)
        if sorted(masks) != list(range(sizes.heads)):
            raise ArgumentError(
                f"the plan must have the {sizes.heads} heads of {layer!r}, it has {len(masks)}"
            )
        full = Spec.of(sizes, **spec).arguments
        groups: dict[Mask | None, list[int]] = {}
        for head in range(sizes.heads):
            groups.setdefault(masks[head], []).append(head)
        parts, order = list[Tensor](), list[int]()
        for mask, heads in groups.items():
            arguments = spec_of_heads(full, heads)
            if mask is not None:
                own_mask = arguments["mask"]
                arguments["mask"] = mask
                if own_mask is not None:
                    arguments["mask"] = own_mask & mask
            keys = [head // sizes.group for head in heads]
            inputs = (query, key, value)
            # All heads together are taken as they are, without a copy.
            if len(heads) < sizes.heads:
                inputs = (query[:, heads], key[:, keys], value[:, keys])
            parts.append(attend(*inputs, **arguments))
            order += heads
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, 1)[:, torch.tensor(order, device=query.device).argsort()]

    def changes(self) -> Plan:
        """The plan as `regard.intervene` takes it: a change for all heads that have the same mask.

        In a layer in which some have one, those that stay full are in it too, with a mask that blocks nothing.

        Raises:
            ArgumentError: no head has one.
        """
        return of_masks(self)

    def block_masks(
        self, queries: int, keys: int, *, causal: Mask | None = None, device: torch.device | str = "cpu"
    ) -> dict[tuple[str, int], BlockMask]:
        """FlexAttention's `BlockMask` of each head that has a mask, by layer and head.

        Args:
            queries, keys: sizes of the attention.
            causal: the model's own mask, and-ed with each.
            device: where the tensors are to be.
        """
        masks = {}
        for one in self.chosen:
            mask = one.mask
            if mask is None:
                continue
            if causal is not None:
                # FlexAttention takes one mask, and does not add what the model itself blocks.
                mask = And((causal, mask))
            masks[one.layer, one.head] = mask.block_mask(1, 1, queries, keys, device=device)
        return masks

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan into a JSON file that carries its seal.

        Raises:
            RecordError: it cannot be written there.
        """
        body = {"keep": self.keep, "model": self.model, "least_saving": self.least_saving}
        body |= {"not_judged": list(self.not_judged), "heads": [_packed(one) for one in self.chosen]}
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
            heads = tuple(_unpacked(one) for one in body["heads"])
            left = tuple(str(family) for family in body["not_judged"])
            return cls(heads, float(body["keep"]), str(body["model"]), float(body["least_saving"]), left)
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
            of_layer = [one for one in self.chosen if (one.layer, one.kind) == (layer, kind)]
            titles = [
                f"head {one.head}, {one.family}: {_name(one.mask)}, keeps {one.mass:.4f}, {_error(one)}saved"
                for one in of_layer
            ]
            lines.append((name, layer, html.cells(np.array([one.saved for one in of_layer]), 1.0, titles)))
        most = max((len(self.masks_of(layer)) for layer, _ in layers), default=0)
        head = f'<th></th><th colspan="{most}">pairs saved&emsp;{html.legend(1.0, "")}</th>'
        return html.card(html.heading("SparsePlan", self.model, facts), html.table([head], lines))


def _error(one: SparseHead) -> str:
    if one.error is None:
        return ""
    return f"output error {one.error:.3g}, "


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


_FIELDS = ("layer", "kind", "head", "family", "mass", "pairs", "all_pairs", "error", "cost")


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
