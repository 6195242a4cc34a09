"""One watch of one model: what the seams report becomes calls of a record.

Knows the order of calls and the steps of a generation; how a single call is read is the seams' work.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import observe
from regard.errors import RegardError, WatchError
from regard.observation import Observation
from regard.record import Call, Record
from regard.seams import flex, huggingface, torch_calls
from regard.seams.kept import copied, on_cpu, portable
from regard.seams.place import Modules, Place
from regard.seams.reading import Reading, unreadable
from regard.seams.settled import Settled, Settler
from regard.seams.softmax import Softmax
from regard.statistics import Choice


@dataclass(frozen=True)
class Settings:
    """What is kept of each call."""

    vectors: bool
    statistics: str | tuple[str | Choice, ...] | None
    map: int | None
    top: int
    fused: bool


class Session:
    """What the seams report to (a `Watcher`).

    Attributes:
        layers: names of the modules in which calls were seen.
        seen: how many calls were seen.
    """

    def __init__(
        self, model: nn.Module, settings: Settings, record: Record, selected: set[str] | None
    ) -> None:
        self.modules = Modules(model)
        self.settings, self.record, self.selected = settings, record, selected
        self.settler = Settler()
        self.masks = self.settler.masks
        self.softmax = Softmax(self)
        self.layers: set[str] = set()
        self.seen = 0
        self._muted = 0
        self._owner = threading.get_ident()
        self._collected: list[tuple[Place, Reading, Any]] | None = None
        self._turns: Counter[tuple[str, str]] = Counter()  # calls of each layer and kind in this forward pass
        self._trusted: set[str] = set()  # layers of which a call was compared with its output
        self._open: dict[tuple[str, str, int], int] = {}  # places in the record where steps of each go on

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Open the seams, and close them again whatever happens."""
        with ExitStack() as seams:
            seams.enter_context(self.modules.followed(self._begin, self.softmax.leave, self._end))
            seams.enter_context(torch_calls.seen(self))
            seams.enter_context(huggingface.seen(self))
            seams.enter_context(flex.seen(self))
            try:
                yield
            finally:
                self._end()

    def _begin(self) -> None:
        """A forward pass of the model starts."""
        self._turns.clear()
        self.settler.restart()

    def _end(self) -> None:
        """A forward pass is over: nothing of it is kept but the record."""
        self.masks.forget()
        self.softmax.forget()

    @property
    def depth(self) -> int:
        """How many modules of the model run now."""
        return len(self.modules.stack)

    def watches(self, layer: str) -> bool:
        """Whether a module is among the chosen ones."""
        return self.selected is None or layer in self.selected

    @property
    def way_out(self) -> str:
        """What a user can do about a call that is not seen."""
        hugging = hasattr(self.modules.root, "set_attn_implementation")
        return "Ways out: leave it out with layers=…" + (
            '; model.set_attn_implementation("eager") shows its weights' if hugging else ""
        )

    def owns(self, module: Any) -> bool:
        """Whether a module is part of the watched model."""
        return module in self.modules.names

    def place(self, child: str | None = None) -> Place | None:
        """The watched module that a call made now belongs to, or its child of that name."""
        # Gradient checkpointing runs forward passes once more while gradients are computed: they are no new calls.
        elsewhere = threading.get_ident() != self._owner or torch._C._current_graph_task_id() != -1
        if self._muted or elsewhere or not self.modules.stack:
            return None
        place = self.modules.stack[-1]
        if child is not None:
            inner = getattr(place.module, child)
            layer = self.modules.names.get(inner, f"{place.layer}.{child}")
            place = replace(place, layer=layer, module=inner)
        return place if self.watches(place.layer) else None

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
        place = self.place(child)
        if place is None:
            return run()
        if self.settings.fused and first:
            output = self._instead(place, read)
            if output is not None:
                return output
        with self._muting():
            result = run()
        with self._aside():
            reading = read(place)
        self.observe(place, reading, result)
        return result

    def observe(self, place: Place, reading: Reading, result: Any = None) -> None:
        """Observe a call; its result shows whether it was read rightly."""
        if self._collected is not None:
            self._collected.append((place, reading, result))
            return
        self._noted(place)
        if not reading.query.numel() or not reading.key.numel():
            return
        with self._aside(), _exactly(reading.query), _named(place):
            settled = self._settled(place, reading)
            self._trust(place, settled, result)
            self._add(place, settled, self._observed(settled, None))

    @contextmanager
    def collecting(self) -> Iterator[list[tuple[Place, Reading, Any]]]:
        """Keep calls for later instead of observing them."""
        collected: list[tuple[Place, Reading, Any]] = []
        before, self._collected = self._collected, collected
        try:
            yield collected
        finally:
            self._collected = before

    def fits(self, place: Place, reading: Reading, result: Any) -> bool:
        """Whether a reading gives the result of its call."""
        with self._aside(), _exactly(reading.query), _named(place):
            return self._settled(place, reading).fits(result)

    def explains(self, place: Place, reading: Reading, scores: Tensor) -> bool:
        """Whether a reading gives the weights of the scores that the model's own softmax gets."""
        with self._aside(), _exactly(reading.query), _named(place):
            return self._settled(place, reading).explains(scores)

    def _instead(self, place: Place, read: Callable[[Place], Reading]) -> Any:
        """The result of a call from what is observed; None where the model must compute its own."""
        with self._muting(), torch._C.DisableTorchFunction():
            reading = read(place)
            if reading.result is None or reading.dropout or reading.unknown or not reading.query.numel():
                return None
            with _exactly(reading.query), _named(place):
                settled = self._settled(place, reading)
                if settled.padded:  # padded queries have an output, but no statistics
                    return None
                observation = self._observed(settled, settled.value)
                self._noted(place)
                with torch.inference_mode(False), torch.no_grad():
                    self._add(place, settled, replace(observation, output=None))
        assert observation.output is not None
        return reading.result(observation.output)

    def _noted(self, place: Place) -> None:
        self.seen += 1
        self.layers.add(place.layer)

    def _settled(self, place: Place, reading: Reading) -> Settled:
        if reading.settled is None:
            turn = (place.layer, "self", self._turns[place.layer, "self"])
            earlier = self.record.calls[self._open[turn]] if turn in self._open else None
            end = None if earlier is None else earlier.offset + earlier.sizes.queries
            reading.settled = self.settler.settle(place, reading, end, self._padding())
        return reading.settled

    def _padding(self) -> Tensor | None:
        """Which tokens the model itself was told are padding, if it takes one text."""
        given = self.modules.stack[0].given() if self.modules.stack else {}
        mask = given.get("attention_mask")
        two = any(name.startswith("decoder_") and value is not None for name, value in given.items())
        return mask == 0 if isinstance(mask, Tensor) and mask.ndim == 2 and not two else None

    def _trust(self, place: Place, settled: Settled, result: Any) -> None:
        """Raise where the reading does not explain the call's result, or where nobody can tell."""
        if settled.sizes.queries == 1 and place.layer in self._trusted:  # a step of a generation
            return
        self._trusted.add(place.layer)
        unknown = settled.reading.unknown
        hint = f"; it was given what Regard does not know: {', '.join(unknown)}" if unknown else ""
        if not settled.fits(result):
            raise unreadable(place, f"what it was given does not explain its output{hint}")
        if unknown and settled.comparable(result) is None:
            raise unreadable(place, f"dropout hides whether its arguments were understood{hint}")

    def _observed(self, settled: Settled, value: Tensor | None) -> Observation:
        chosen = self.settings
        kept: dict[str, Any] = {"statistics": chosen.statistics, "map": chosen.map, "top": chosen.top}
        return observe(settled.query, settled.key, value, **kept, **settled.spec)

    def _add(self, place: Place, settled: Settled, observation: Observation) -> None:
        """Put a call into the record, as the next step of an earlier one where it is one."""
        turn = (place.layer, settled.kind, self._turns[place.layer, settled.kind])
        self._turns[place.layer, settled.kind] += 1
        where, calls = self._open.get(turn), self.record.calls
        vectors: dict[str, Any] = {}
        if self.settings.vectors and settled.reading.seen == "query-key":
            key, earlier = copied(settled.key), None if where is None else calls[where].key
            if settled.gone and earlier is not None:
                key[:, :, : settled.gone] = earlier[:, :, : settled.gone]
            vectors = {
                "query": copied(settled.query),
                "key": key,
                "spec": portable(settled.sizes, settled.spec),
            }
        call = Call(
            **{item.name: on_cpu(getattr(observation, item.name)) for item in fields(observation)},
            layer=place.layer,
            kind=settled.kind,
            seen=settled.reading.seen,
            sizes=settled.sizes,
            offset=settled.offset,
            **vectors,
        )
        if where is not None and call.offset and calls[where].continues(call):
            calls[where] = calls[where].extend(call)
        else:
            self._open[turn] = len(calls)
            calls.append(call)

    @contextmanager
    def _muting(self) -> Iterator[None]:
        """See no calls: those inside a call that is handled, and our own."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Compute on the side: no gradients, no inference tensors, seen by no watcher."""
        with self._muting(), torch.inference_mode(False), torch.no_grad(), torch._C.DisableTorchFunction():
            yield


@contextmanager
def _exactly(tensor: Tensor) -> Iterator[None]:
    """Compute without autocast."""
    with torch.autocast(tensor.device.type, enabled=False):
        yield


@contextmanager
def _named(place: Place) -> Iterator[None]:
    """Errors about a call name its module."""
    try:
        yield
    except WatchError:
        raise
    except RegardError as error:
        raise unreadable(place, str(error)) from error
