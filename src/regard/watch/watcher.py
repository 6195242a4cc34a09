"""What the hooks ask of whoever watches: they know this, and not how calls become a record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from regard.watch.ancestry import Ancestry
from regard.watch.captured import CapturedCall
from regard.watch.mask_tensors import Masks
from regard.watch.modules import CallSite


@dataclass(eq=False)
class Witness:
    """Who compares the scores that a model's own softmax gets with what a captured call gives.

    Attributes:
        explains: says whether the scores are explained; None while nobody asks.
        confirmed: whether weights that were explained multiplied the values unchanged.
    """

    explains: Callable[[Tensor], bool] | None = None
    confirmed: bool = False


class Watcher(Protocol):
    """What the hooks ask of whoever watches.

    Attributes:
        masks: what mask tensors said already in this forward pass.
        witness: what is asked about the scores of the model's own softmax.
        seen: how many calls were seen so far.
        ancestry: of which sequences tensors were made.
        gates: names of modules in which weights multiplied values one by one, in no product.
        intervenes: whether it changes calls, and does not only look at them.
    """

    masks: Masks
    witness: Witness
    seen: int
    ancestry: Ancestry
    gates: set[str]
    intervenes: bool

    @property
    def sees(self) -> bool:
        """Whether a module of the model runs now, outside of calls that are handled already."""

    @property
    def depth(self) -> int:
        """How many modules of the model run now."""

    @property
    def layer(self) -> str:
        """Name of the innermost module that runs now."""

    def heeds(self, func: Any) -> bool:
        """Whether anything is learned from a call of this function of torch, which is no attention by itself."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]) -> Any:
        """The result of `run`, a call of a function of torch that is no attention by itself."""

    def learned(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter of the model, or a part of one."""

    def changed(self, site: CallSite) -> bool:
        """Whether an intervention changes calls of a module."""

    def rewritten(self, scores: Tensor) -> Tensor:
        """The scores that a softmax is to be given in the place of its own."""

    def replaced(self, before: Tensor, after: Tensor) -> None:
        """Scores were replaced by others: what is known of these holds of those."""

    def unexplained(self, site: CallSite, what: str) -> None:
        """A module did what may be attention, and it cannot be read."""

    def owns(self, module: Any) -> bool:
        """Whether a module is part of the watched model."""

    def site(self, child: str | None = None) -> CallSite | None:
        """The watched module that a call made now belongs to, or its child of that name.

        None if no watched module runs, or the call lies inside one that a hook handles already.
        """

    def through(
        self,
        read: Callable[[CallSite], CapturedCall],
        run: Callable[[], Any],
        child: str | None = None,
        *,
        first: bool = True,
    ) -> Any:
        """The result of `run`, a call that a hook caught; what `read` says of it is observed if it is watched.

        `first` says whether the call can be read before it ran, so that the observed output may stand in its place.
        """

    def observe(self, site: CallSite, captured: CapturedCall, result: Any = None) -> None:
        """Observe a call; its result shows whether it was read rightly."""

    def collecting(self) -> AbstractContextManager[list[tuple[CallSite, CapturedCall, Any]]]:
        """Keep calls for later instead of observing them."""

    def fits(self, site: CallSite, captured: CapturedCall, result: Any) -> bool:
        """Whether a captured call gives the result of its call."""

    def explains(self, site: CallSite, captured: CapturedCall, scores: Tensor) -> bool:
        """Whether a captured call gives the weights of the scores that the model's own softmax gets."""
