"""The one choice of a call: an engine, a fast path of torch, or in a graph the operators that choose when it runs."""

from __future__ import annotations

from torch import Tensor

from regard import engines
from regard.checks.transforms import graph_below_transform, tracing
from regard.engines import fast_paths, native
from regard.engines.fast_paths import FastPath
from regard.engines.protocol import Runner
from regard.engines.torch_ops import WAY_OUT, Traced
from regard.errors import EngineError
from regard.shapes import Sizes
from regard.spec import Spec
from regard.statistics.table import Wanted


def choose(name: str, query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> Runner:
    """The engine of that name, as `engines.choose`; within a graph, the operators.

    Raises:
        EngineError: there is no such engine, or it refuses; asking by name never falls back.
    """
    _refuse_graphs_of_transforms(query, key, value)
    if tracing(query, key, value):
        return Traced(name)
    return engines.choose(name, query, key, value, spec, want)


def choose_for_output(
    query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes, want: Wanted
) -> FastPath | Runner:
    """What computes a call of which the output alone is wanted: a kernel of torch where one is exact and fastest.

    Raises:
        EngineError: no engine takes the case.
    """
    engine: Runner | None = None
    if fast_paths.possible(spec, sizes, want):
        traced = tracing(query, key, value)
        # Small calls go to torch's kernel, so no engine need be asked, which costs as much as they do.
        if not traced and fast_paths.native_is_faster(sizes):
            engine = engines.choose("auto", query, key, value, spec, want)
        if engine is not native:
            path = fast_paths.exact(query, key, value, spec, sizes, traced)
            if path is not None:
                return path
    if engine is None:
        return choose("auto", query, key, value, spec, want)
    _refuse_graphs_of_transforms(query, key, value)
    return engine


def _refuse_graphs_of_transforms(*tensors: Tensor | None) -> None:
    if unsupported := graph_below_transform(*tensors):
        raise EngineError(f"attention cannot be computed {unsupported}: {WAY_OUT}")
