"""`attend` and `observe` for one sequence whose tokens lie on many processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from torch import Tensor

from regard.attention import asked, observed_by, output_of
from regard.products import with_sink
from regard.scale.call import ShardArguments, prepared
from regard.scale.layout import Layout
from regard.shapes import Sizes, sizes_of
from regard.statistics.observation import Observation
from regard.statistics.table import Choice, Wanted


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    keys: Layout,
    **arguments: Unpack[ShardArguments],
) -> Tensor:
    """Attention's output for one process's queries, over keys and values that lie on all processes of a group.

    Every process of the group makes the call at the same time, with its own shards. The output is that of
    `regard.attend` on one device, for every mask, up to rounding; so are its gradients.

    Args:
        query: `(batch, heads, queries, dim)`, the queries of this process, in the order of the layout `queries`.
        key: `(batch, kv_heads, keys, dim)`, the keys of this process, in the order of the layout `keys`.
        value: `(batch, kv_heads, keys, value_dim)`, likewise.
        keys: which process holds which keys; positions begin at 0. See `contiguous` and `zigzag`.
        **arguments: queries, plan, group, mask, bias, scale, softcap, sink_logit: see `ShardArguments`.

    Returns:
        `(batch, heads, queries, value_dim)` of this process. Gradients of queries, keys and values are complete. Those
        of a bias and of a sink are this process's part and must be added up over the processes, as data-parallel
        training does. With plan "states" every process must have the same loss, and all gradients are complete.

    Raises:
        GroupError: there is no group, calls differ between processes, another process refused its part, or one no
            longer answers.
        ShapeError, MaskError, ArgumentError: inputs of this process that do not fit together.
        WatchError: a module that is watched, or whose heads are changed, makes the call.

    Example:
        >>> import regard as rg, torch, torch.distributed as dist
        >>> from regard.scale import contiguous, zigzag
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> query = key = value = torch.ones(1, 2, 6, 8)
        >>> attend(query, key, value, keys=zigzag(6, 1), mask=rg.causal()).shape
        torch.Size([1, 2, 6, 8])
        >>> dist.destroy_process_group()
    """
    call = prepared(query, key, value, keys, arguments, lambda sizes, offset: Wanted(), "auto")
    state = with_sink(call.runner.rows(query, key, value, call.spec, call.want), call.spec)
    return output_of(state, query, sizes_of(query, key, value))


def observe(
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    *,
    keys: Layout,
    statistics: str | Choice | Iterable[str | Choice] | None = None,
    top: int = 0,
    map: int | None = None,
    engine: str = "auto",
    **arguments: Unpack[ShardArguments],
) -> Observation:
    """`regard.observe` of one sequence that lies on many processes: what attention does, exact.

    Args:
        query, key, value, keys: as for `attend` here.
        statistics, top, map: as for `regard.observe`.
        engine: "auto", "native", "triton" or "tiles": what computes the parts.
        **arguments: queries, plan, group, mask, bias, scale, softcap, sink_logit: see `ShardArguments`.

    Returns:
        An `Observation` of this process's queries and, in `received` and `received_max`, of its keys. Numbers of keys
        are absolute positions. The map and `by_offset` are those of the whole sequence, on every process.

    Raises:
        GroupError: there is no group, calls differ between processes, another process refused its part, or one no
            longer answers.
        ShapeError, MaskError, ArgumentError, EngineError: inputs of this process that do not fit together.

    Example:
        >>> import regard as rg, torch, torch.distributed as dist
        >>> from regard.scale import contiguous, zigzag
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> query = key = torch.ones(1, 2, 6, 8)
        >>> seen = observe(query, key, keys=contiguous(6, 1), mask=rg.causal())
        >>> seen.allowed[0, 0].tolist()
        [1, 2, 3, 4, 5, 6]
        >>> dist.destroy_process_group()
    """

    def wanted(sizes: Sizes, offset: int) -> Wanted:
        return asked(sizes, offset, statistics, top, map, output=value is not None)

    call = prepared(query, key, value, keys, arguments, wanted, engine)
    return observed_by(call.runner, query, key, value, call.spec, call.want, top)
