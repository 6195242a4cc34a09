"""What one caught call computes, in the words of `observe`, as far as the call itself tells.

Knows tensors and their conventions; where queries stand and which of them are padding is found in `positions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from regard.bias import Bias
from regard.errors import WatchError
from regard.seams.masking import MaskAt, Masks, anything
from regard.seams.place import Place

if TYPE_CHECKING:
    from regard.seams.settled import Settled
    from regard.seams.softmax import Softmax


def same(result: Any) -> Any:
    """The result as it is."""
    return result


@dataclass(kw_only=True, eq=False)
class Reading:
    """One attention call.

    Attributes:
        query: `(batch, heads, queries, dim)`; key and value likewise, with `kv_heads` that divide `heads`. No value
            where the weights were made by the model.
        mask_at: the mask, given the position of query 0 and the number of keys.
        bias: what is added to the scores: a `Bias`, or a tensor that broadcasts to them.
        offset: position of query 0, where the call tells it.
        crosses: whether queries and keys are of two sequences, where the call tells it.
        seen: "query-key", or "weights" where the model made the weights itself.
        dropout: probability with which weights are dropped after what is observed.
        output: from the call's result to `(batch, heads or 1, queries, …)`, for the check of the reading; None
            where the result has no such form.
        projected: from the output that the reading implies to the same.
        result: from an output `(batch, heads, queries, value_dim)` to the call's result, where it may replace it.
        window: sliding window of the layer, in keys, where the call tells it.
        unknown: names of arguments that the reading does not understand.
        settled: the reading made ready, once it is.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None
    mask_at: MaskAt = anything
    bias: Bias | Tensor | None = None
    scale: float | None = None
    softcap: float | None = None
    sink_logit: Tensor | None = None
    offset: int | None = None
    crosses: bool | None = None
    seen: str = "query-key"
    dropout: float = 0.0
    output: Callable[[Any], Tensor | None] | None = None
    projected: Callable[[Tensor], Tensor] = same
    result: Callable[[Tensor], Any] | None = None
    window: int | None = None
    unknown: tuple[str, ...] = ()
    settled: Settled | None = None


class Watcher(Protocol):
    """What the seams ask of whoever watches.

    Attributes:
        masks: what mask tensors said already in this forward pass.
        softmax: follows the weights that the model makes itself.
        seen: how many calls were seen so far.
    """

    masks: Masks
    softmax: Softmax
    seen: int

    @property
    def depth(self) -> int:
        """How many modules of the model run now."""

    def owns(self, module: Any) -> bool:
        """Whether a module is part of the watched model."""

    def place(self, child: str | None = None) -> Place | None:
        """The watched module that a call made now belongs to, or its child of that name.

        None if no watched module runs, or the call lies inside one that a seam handles already.
        """

    def through(
        self,
        read: Callable[[Place], Reading],
        run: Callable[[], Any],
        child: str | None = None,
        *,
        first: bool = True,
    ) -> Any:
        """The result of `run`, a call that a seam caught; what `read` says of it is observed if it is watched.

        `first` says whether the call can be read before it ran, so that the observed output may stand in its place.
        """

    def observe(self, place: Place, reading: Reading, result: Any = None) -> None:
        """Observe a call; its result shows whether it was read rightly."""

    def collecting(self) -> AbstractContextManager[list[tuple[Place, Reading, Any]]]:
        """Keep calls for later instead of observing them."""

    def fits(self, place: Place, reading: Reading, result: Any) -> bool:
        """Whether a reading gives the result of its call."""

    def explains(self, place: Place, reading: Reading, scores: Tensor) -> bool:
        """Whether a reading gives the weights of the scores that the model's own softmax gets."""


def unreadable(place: Place, what: str) -> WatchError:
    """The error for a call that cannot be read: what it is, and the ways out."""
    return WatchError(
        f"{place.layer} ({type(place.module).__name__}): {what}. Ways out: leave it out with layers=…; for a "
        f'Hugging Face model, model.set_attn_implementation("eager")'
    )


def four_axes(place: Place, name: str, tensor: Tensor) -> Tensor:
    """A tensor of any rank as `(batch, heads, tokens, dim)`.

    Three axes are `(batch, tokens, dim)` or `(batch · heads, tokens, dim)`: the module's number of heads and the batch
    of its input tell which.
    """
    if not tensor.is_floating_point():
        raise unreadable(place, f"{name} must be floating point, got {tensor.dtype}")
    if tensor.is_meta:
        raise unreadable(place, f"{name} holds no numbers: the model is on the meta device")
    if tensor.ndim < 2:
        raise unreadable(
            place, f"{name} must have at least the axes (tokens, dim), got {tuple(tensor.shape)}"
        )
    if tensor.ndim == 2:
        return tensor[None, None]
    if tensor.ndim == 3:
        return tensor.unflatten(0, (-1, _heads(place, tensor.shape[0])))
    return tensor if tensor.ndim == 4 else tensor.flatten(0, -4)


def _heads(place: Place, lanes: int) -> int:
    """How many heads a joint axis of batch and heads has."""
    heads = place.heads
    if heads is None or lanes % heads or lanes == place.batch != lanes // heads:
        return 1
    return heads
