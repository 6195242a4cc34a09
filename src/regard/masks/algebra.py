"""The value `Mask` and its operators `&`, `|`, `~`.

Knows how answers combine; what each mask means is in `positions.py`, `content.py`, `scattered.py`, `bits.py`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks.blocks import block_mask
from regard.masks.drawing import card, drawing
from regard.masks.tile import ALL, NONE, SOME, Tile

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Index = Tensor | int

AMBIGUOUS = (
    "a raw tensor does not say whether True means may attend or blocked: "
    "wrap it as dense(keep=…) (True: may attend), dense(drop=…) (True: blocked) "
    "or dense(additive=…) (0 or −inf)"
)


@dataclass(frozen=True, eq=False, repr=False)
class Mask(ABC):
    """Which key a query may attend, as a frozen value: a predicate on absolute positions.

    It answers `allows` (its meaning), `tile` (what holds on a whole tile) and `dense` (as a tensor), combines
    with `&`, `|` and `~`, and prints itself as a small drawing. Two masks are equal when they are built alike
    from equal content.
    """

    def allows(self, q_pos: Index, k_pos: Index, batch: Index = 0, head: Index = 0) -> Tensor:
        """Whether the query at `q_pos` may attend the key at `k_pos`.

        The four are integer tensors (or ints) that broadcast. The result is a bool tensor that broadcasts
        to their common shape: smaller where an axis does not matter. `torch.vmap` can trace it.
        """
        # A number joins the tensor on its device: indexing a mask's content across devices would fail.
        if not isinstance(q_pos, Tensor):
            q_pos = torch.tensor(q_pos, device=getattr(k_pos, "device", None))
        if not isinstance(k_pos, Tensor):
            k_pos = torch.tensor(k_pos, device=q_pos.device)
        return self._allows(q_pos, k_pos, batch, head)

    @abstractmethod
    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor: ...

    @abstractmethod
    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        """What holds for all queries in [q0, q1) and keys in [k0, k1), over all batch rows and heads.

        Absolute positions, neither range empty. Never touches a device.
        """

    @property
    @abstractmethod
    def name(self) -> str:
        """The expression that builds this mask, shortened where its content is long."""

    @property
    def shape(self) -> tuple[int, int]:
        """Batch rows and heads of its content; 1 where the mask is the same for all of them."""
        return 1, 1

    @property
    def span(self) -> tuple[range, range]:
        """The queries and the keys that a drawing must cover to show what the mask is."""
        return range(8), range(8)

    def check(self, batch: int, heads: int, queries: int, keys: int, offset: int) -> None:
        """Raise unless the mask's content fits attention of these sizes, with query 0 at position `offset`.

        Raises:
            MaskError: content for another number of rows, heads, queries or keys.
        """
        for axis, held, size in zip(("batch rows", "heads"), self.shape, (batch, heads), strict=True):
            if held not in (1, size):
                raise MaskError(f"{self.name} holds {held} {axis}, attention has {size}: they must agree")
        self._check_positions(queries, keys, offset)

    def _check_positions(self, queries: int, keys: int, offset: int) -> None:  # noqa: B027  most hold everywhere
        """Raise a MaskError when content bound to positions does not fit these sizes."""

    def dense(
        self,
        queries: int,
        keys: int,
        *,
        offset: int | None = None,
        batch: int | None = None,
        heads: int | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """The mask as a bool tensor `(batch or 1, heads or 1, queries, keys)`, True where a query may attend.

        Args:
            offset: absolute position of query 0; by default `keys - queries`: the queries are the last ones.
            batch: batch rows, by default those of the mask's content; `heads` likewise.

        Raises:
            MaskError: the content does not fit these sizes.
        """
        offset = offset_or_end(offset, queries, keys)
        batch, heads = batch or self.shape[0], heads or self.shape[1]
        self.check(batch, heads, queries, keys, offset)
        mask = self
        if device is not None:
            mask = self.to(device)
        allowed = mask.allows(
            torch.arange(offset, offset + queries, device=device)[:, None],
            torch.arange(keys, device=device),
            torch.arange(batch, device=device)[:, None, None, None],
            torch.arange(heads, device=device)[:, None, None],
        )
        while allowed.ndim < 4:
            allowed = allowed[None]
        return allowed.expand(-1, -1, queries, keys)

    def block_mask(
        self,
        batch: int,
        heads: int,
        queries: int,
        keys: int,
        *,
        offset: int | None = None,
        device: torch.device | str = "cpu",
    ) -> BlockMask:
        """The mask as FlexAttention's `BlockMask`, in blocks of 128 × 128, without the dense tensor.

        Raises:
            MaskError: the content does not fit these sizes.
        """
        offset = offset_or_end(offset, queries, keys)
        self.check(batch, heads, queries, keys, offset)
        return block_mask(self.to(device), queries, keys, offset, device)

    def to(self, device: torch.device | str) -> Mask:
        """The same mask with its tensors on `device`."""
        return self._map_tensors(lambda tensor: tensor.to(device))

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> Mask:
        # A copy keeps what was worked out for `tile`, so that a mask on a device never synchronizes with it.
        held = {name: value for name, value in self._content().items() if isinstance(value, Tensor)}
        after = {name: change(tensor) for name, tensor in held.items()}
        if all(after[name] is tensor for name, tensor in held.items()):
            return self
        changed = copy.copy(self)
        changed._set(**after)
        return changed

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Built while torch.compile traced, a mask could not read its content: it does when first asked.
            if name not in {field.name for field in fields(self) if not field.init}:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__post_init__()
            return self.__dict__[name]

    def _content(self) -> dict[str, Any]:
        """The values that the mask was built from, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def _set(self, **values: Any) -> None:
        """Set attributes of a frozen value; only for `__post_init__`."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __and__(self, other: Mask) -> Mask:
        if not _is_mask(other):
            return NotImplemented
        return And(_parts(And, self) + _parts(And, other))

    def __or__(self, other: Mask) -> Mask:
        if not _is_mask(other):
            return NotImplemented
        return Or(_parts(Or, self) + _parts(Or, other))

    def __invert__(self) -> Mask:
        return Not(self)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Mask)
        content, other_content = self._content(), other._content()
        return all(_equal(value, other_content[name]) for name, value in content.items())

    def __hash__(self) -> int:
        # Shapes for tensors: their numbers would have to be read, from a GPU perhaps. Equality reads them.
        content = (value.shape if isinstance(value, Tensor) else value for value in self._content().values())
        return hash((type(self), *content))

    def __repr__(self) -> str:
        return drawing(self)

    def _repr_html_(self) -> str:
        return card(self)


@dataclass(frozen=True, eq=False, repr=False)
class Node(Mask):
    """Several masks joined by one operator; asks each of them."""

    masks: tuple[Mask, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.masks, tuple) or not self.masks or not all(map(_is_mask, self.masks)):
            raise MaskError(f"{type(self).__name__} must join masks, got {self.masks!r}")

    @property
    def shape(self) -> tuple[int, int]:
        return max(mask.shape[0] for mask in self.masks), max(mask.shape[1] for mask in self.masks)

    @property
    def span(self) -> tuple[range, range]:
        queries, keys = zip(*(mask.span for mask in self.masks), strict=True)
        return _hull(queries), _hull(keys)

    def check(self, batch: int, heads: int, queries: int, keys: int, offset: int) -> None:
        for mask in self.masks:
            mask.check(batch, heads, queries, keys, offset)

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> Mask:
        changed = tuple(mask._map_tensors(change) for mask in self.masks)
        if all(map(is_, changed, self.masks)):
            return self
        return type(self)(changed)

    def _names(self) -> list[str]:
        return [_operand_name(mask) for mask in self.masks]


class And(Node):
    """Allowed by every one of `masks`."""

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        allowed = self.masks[0]._allows(q_pos, k_pos, batch, head)
        for mask in self.masks[1:]:
            allowed = allowed & mask._allows(q_pos, k_pos, batch, head)
        return allowed

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        answer = ALL
        for mask in self.masks:
            tile = mask.tile(q0, q1, k0, k1)
            if tile is NONE:
                return NONE
            if tile is SOME:
                answer = SOME
        return answer

    @property
    def name(self) -> str:
        return " & ".join(self._names())


class Or(Node):
    """Allowed by at least one of `masks`."""

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        allowed = self.masks[0]._allows(q_pos, k_pos, batch, head)
        for mask in self.masks[1:]:
            allowed = allowed | mask._allows(q_pos, k_pos, batch, head)
        return allowed

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        answer = NONE
        for mask in self.masks:
            tile = mask.tile(q0, q1, k0, k1)
            if tile is ALL:
                return ALL
            if tile is SOME:
                answer = SOME
        return answer

    @property
    def name(self) -> str:
        return " | ".join(self._names())


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Allowed exactly where `mask` is not."""

    mask: Mask

    def __post_init__(self) -> None:
        if not _is_mask(self.mask):
            raise MaskError(f"Not must be of a mask, got {self.mask!r}")

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        return ~self.mask._allows(q_pos, k_pos, batch, head)

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        tile = self.mask.tile(q0, q1, k0, k1)
        # SOME stays SOME, the safe answer: it says that nothing is known, not that something is blocked.
        return {ALL: NONE, NONE: ALL}.get(tile, SOME)

    @property
    def name(self) -> str:
        return f"~{_operand_name(self.mask)}"

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask.shape

    @property
    def span(self) -> tuple[range, range]:
        return self.mask.span

    def check(self, batch: int, heads: int, queries: int, keys: int, offset: int) -> None:
        self.mask.check(batch, heads, queries, keys, offset)

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> Mask:
        changed = self.mask._map_tensors(change)
        if changed is self.mask:
            return self
        return Not(changed)

    def __invert__(self) -> Mask:
        return self.mask


def as_mask(value: object) -> Mask | None:
    """Check what a user gave as `mask`: a mask, or None for "every key".

    Raises:
        MaskError: a raw tensor, whose polarity is ambiguous, or anything else.
    """
    if value is None or isinstance(value, Mask):
        return value
    if isinstance(value, Tensor):
        raise MaskError(f"{AMBIGUOUS}; got a {value.dtype} tensor of shape {tuple(value.shape)}")
    raise MaskError(f"mask must be a mask such as causal() or near(3), or None, got {type(value).__name__}")


def square(size: int) -> tuple[range, range]:
    """The first `size` queries and keys, at least 8: what most masks need to be drawn."""
    return range(max(size, 8)), range(max(size, 8))


def offset_or_end(offset: int | None, queries: int, keys: int) -> int:
    """The position of query 0: where it is not said, the queries are the last ones."""
    if offset is None:
        return keys - queries
    return offset


def _operand_name(mask: Mask) -> str:
    """A mask's name as an operand: in brackets where it has operators of its own that bind less."""
    if isinstance(mask, And | Or):
        return f"({mask.name})"
    return mask.name


def _is_mask(value: object) -> bool:
    # A raw tensor gets its own error, that of `as_mask`, not Python's about operands.
    if isinstance(value, Tensor):
        as_mask(value)
    return isinstance(value, Mask)


def _parts(kind: type[Node], mask: Mask) -> tuple[Mask, ...]:
    """The operands that `mask` brings to a node of this kind: `a & b & c` is one node of three."""
    if isinstance(mask, kind):
        return mask.masks
    return (mask,)


def _hull(ranges: tuple[range, ...]) -> range:
    return range(min(r.start for r in ranges), max(r.stop for r in ranges))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a.cpu(), b.cpu())
    return type(a) is type(b) and a == b
