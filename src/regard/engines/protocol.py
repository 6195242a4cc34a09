"""What an engine is, as types that mypy checks: each engine is a module, and the module has these functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from regard.engines.column_sums import Sums
from regard.spec import Spec
from regard.statistics.state import State
from regard.statistics.table import Wanted


class Runner(Protocol):
    """What computes one call: an engine, or in a graph the operators that choose an engine when the graph runs."""

    @property
    def name(self) -> str:
        """Its name, which an `Observation` gives as `engine`."""

    def rows(self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, /) -> State:
        """The first fold: the state of every row, differentiable in query, key, value and a bias's tensor."""

    def columns(self, query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted, /) -> Sums:
        """The second fold: what belongs to the keys, given the rows' m and l, a learned sink merged in.

        A weight is e^(score − m)/l with the scores of the first fold bit for bit. At large scores any rounding of its
        own, that of m + ln l included, would be another weight.
        """

    def look(
        self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, /
    ) -> tuple[dict[str, Tensor], Sums] | None:
        """Row statistics by name, "output" among them where it is wanted, and the sums at once; no derivative.

        Returns:
            None where the two folds are to be asked for one after the other.
        """


class Engine(Runner, Protocol):
    """One way to compute the two folds and the gradient of the first."""

    def vjp(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        spec: Spec,
        want: Wanted,
        grads: State,
        normalizer: Tensor,
        needed: Sequence[bool],
        /,
    ) -> tuple[Tensor | None, ...]:
        """Gradients of query, key, value and the bias's tensor; None where there is none to give.

        Args:
            grads: gradients of the state's l, u, r, o and c (None: none); its m is the state's m itself.
            normalizer: the state's l.
            needed: whose gradient is wanted, four booleans.
        """

    def weighted(
        self, query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, rows: Tensor, /
    ) -> Tensor:
        """The product of row vectors with the weights, Σ over queries of given · weight; no gradient.

        Args:
            m, l: of the rows, as in `columns`.
            rows: `(batch, heads, queries, vectors)`, finite.

        Returns:
            `(batch, heads, keys, vectors)`, in the type of statistics.
        """

    def refuses(
        self, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, /
    ) -> str | None:
        """Why it will not take a case, in words for its user; None where it takes it."""


def two_folds(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> None:
    """The `look` of an engine whose folds are asked for one after the other."""
