"""A process group as the folds use it: the same sends and receives on every process, and errors in plain words.

Knows `torch.distributed`; it knows nothing of attention.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard.checks.arguments import shown
from regard.errors import GroupError

# Bytes of what processes tell each other of a call before they begin.
CARD = 4096


@dataclass(frozen=True)
class Links:
    """The processes of a group, as one of them sees it.

    Attributes:
        group: torch's; None for all processes.
        rank: of this process in the group.
        processes: in the group.
    """

    group: Any
    rank: int
    processes: int

    @classmethod
    def of(cls, group: Any) -> Links:
        """Those of a process group; None for the default one.

        Raises:
            GroupError: there is no group, or this process is not in it.
        """
        if not dist.is_available() or not dist.is_initialized():
            raise GroupError(
                "a process group must be there: call torch.distributed.init_process_group in every process, "
                "as programs do that torchrun starts; got none"
            )
        try:
            rank = dist.get_rank(group)
        except (AttributeError, TypeError, ValueError) as error:
            raise GroupError(f"group must be a process group or None, got {shown(group)}") from error
        if rank < 0:
            raise GroupError("only processes of the group may make the call, and this one is not in it")
        return cls(group, rank, dist.get_world_size(group))

    def agree(
        self, describe: Callable[[], Mapping[str, Any]], device: torch.device, free: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Every process says what call it makes; all raise if one of them could not, or makes another.

        Args:
            describe: what must be the same everywhere, by name, as JSON can hold it; its error is everybody's.
            device: where messages lie.
            free: names of what may differ.

        Returns:
            What every process said, in the order of ranks.

        Raises:
            GroupError: the calls differ, or another process refused its own.
            RegardError: what `describe` raised, on the process where it did.
        """
        fault: Exception | None = None
        try:
            card = dict(describe())
        except Exception as error:
            fault, card = error, {"refused": f"{type(error).__name__}: {error}"[:500]}
        # Also with a fault: the others wait for this message.
        cards = self._cards(card, device)
        if fault is not None:
            raise fault
        for rank, other in enumerate(cards):
            if "refused" in other:
                raise GroupError(f"process {rank} of the group refuses its part: {other['refused']}")
        for name, value in card.items():
            if name in free:
                continue
            for rank, other in enumerate(cards):
                if other.get(name) != value:
                    raise GroupError(
                        f"every process of the group must make the same call: {name} is {value} on process "
                        f"{self.rank} and {other.get(name)} on process {rank}"
                    )
        return cards

    def _cards(self, card: Mapping[str, Any], device: torch.device) -> list[dict[str, Any]]:
        text = json.dumps(card, default=str).encode()
        if len(text) > CARD:
            text = json.dumps(
                {"refused": f"its call takes {len(text)} bytes to describe, at most {CARD}"}
            ).encode()
        message = torch.zeros(CARD, dtype=torch.uint8)
        message[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        everyone = self.gather(message.to(device))
        return [json.loads(bytes(other.tolist()).rstrip(b"\0")) for other in everyone.cpu()]

    def gather(self, tensor: Tensor) -> Tensor:
        """`(processes, …)`: the tensors of one shape that the processes hold."""
        parts = [torch.empty_like(tensor) for _ in range(self.processes)]
        with self._speaking():
            dist.all_gather(parts, tensor.contiguous(), group=self.group)
        return torch.stack(parts)

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of the processes' tensors, on each of them."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest of the processes' numbers, on each of them."""
        return self._reduced(tensor, dist.ReduceOp.MAX)

    def smallest(self, tensor: Tensor) -> Tensor:
        """The smallest of the processes' numbers, on each of them."""
        return self._reduced(tensor, dist.ReduceOp.MIN)

    def _reduced(self, tensor: Tensor, operation: Any) -> Tensor:
        result = tensor.clone(memory_format=torch.contiguous_format)
        if self.processes > 1 and result.numel():
            with self._speaking():
                dist.all_reduce(result, operation, group=self.group)
        return result

    def shift(self, tensors: Sequence[Tensor]) -> Shift:
        """Send tensors to the next process and receive those of the one before, while this one goes on.

        Args:
            tensors: contiguous, of the same shapes on every process; not written to before `wait`.
        """
        # Its own memory: what is sent must not be written over on the way.
        arriving = [torch.empty_like(tensor) for tensor in tensors]
        to, source = (self._global(self.rank + step) for step in (1, -1))
        operations = [dist.P2POp(dist.isend, tensor, to, self.group) for tensor in tensors]
        operations += [dist.P2POp(dist.irecv, tensor, source, self.group) for tensor in arriving]
        with self._speaking():
            works = dist.batch_isend_irecv(operations)
        return Shift(self, works, arriving, tuple(tensors))

    def _global(self, rank: int) -> int:
        rank %= self.processes
        if self.group is None:
            return rank
        return dist.get_global_rank(self.group, rank)

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        """Within it, faults of the network are errors of ours."""
        try:
            yield
        except RuntimeError as error:
            raise GroupError(
                f"every process of the group must answer within the group's time limit; process {self.rank} of "
                f"{self.processes} lost another one: {str(error).strip()[:400]}"
            ) from error


@dataclass(frozen=True)
class Shift:
    """Tensors on their way; those that are sent stay alive as long as this does."""

    links: Links
    works: Sequence[Any]
    arriving: list[Tensor]
    leaving: tuple[Tensor, ...]

    def wait(self) -> list[Tensor]:
        """The tensors of the process before, once all have come and gone."""
        with self.links._speaking():
            for work in self.works:
                work.wait()
        return self.arriving
