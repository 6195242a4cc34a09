"""Processes that do not make the same call, or that die, are errors on all of them, in words, and no hang."""

import json
import os
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import regard as rg
from helpers import sharded
from regard import scale
from regard.errors import ArgumentError, GroupError, RegardError, ShapeError
from regard.statistics import group

TOKENS = 12


def tensors(rank, tokens=TOKENS // 2, dim=4):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(1, 2, tokens, dim, generator=generator) for _ in range(3)]


def refusals(rank):
    """What each of two processes is told of calls of which one of them is wrong."""
    layout, other = scale.contiguous(TOKENS, 2), scale.zigzag(TOKENS, 2)
    second = rank == 1
    calls = {
        "dims": lambda: scale.attend(*tensors(rank, dim=4 + rank), keys=layout),
        "masks": lambda: scale.attend(*tensors(rank), keys=layout, mask=rg.near(3 + rank)),
        "contents": lambda: scale.attend(
            *tensors(rank), keys=layout, mask=rg.documents([0] * 6 + [rank] * 6)
        ),
        "layouts": lambda: scale.attend(*tensors(rank), keys=other if second else layout),
        "a shape": lambda: scale.attend(*tensors(rank, TOKENS // 2 - rank), keys=layout),
        "plans": lambda: scale.attend(*tensors(rank), keys=layout, plan=("ring", "gather")[rank]),
        "statistics": lambda: scale.observe(*tensors(rank), keys=layout, top=3 * rank),
        "gradients": lambda: scale.attend(
            tensors(rank)[0].requires_grad_(second), *tensors(rank)[1:], keys=layout
        ),
        "slopes": lambda: scale.attend(*tensors(rank), keys=layout, bias=rg.alibi([0.5, 0.5 + rank])),
        "sinks": lambda: scale.attend(*tensors(rank), keys=layout, sink_logit=torch.full((2,), float(rank))),
        "members": lambda: scale.observe(
            *tensors(rank), keys=layout, statistics=[group("some", [rank], size=TOKENS)]
        ),
        "engines": lambda: scale.observe(*tensors(rank), keys=layout, engine=("native", "tiles")[rank]),
        "a watch": lambda: watched(rank, layout, second),
        "a name": lambda: scale.observe(*tensors(rank), keys=layout, engine="sdpa" if second else "auto"),
    }
    return {name: message(call) for name, call in calls.items()}


class Sharded(torch.nn.Module):
    def forward(self, *shards, **call):
        return scale.attend(*shards, **call)


def watched(rank, layout, watches):
    """A model of shards, which only one of the processes watches."""
    model = Sharded()
    with torch.no_grad():
        if not watches:
            return model(*tensors(rank), keys=layout)
        with rg.watch(model):
            return model(*tensors(rank), keys=layout)


def message(call):
    try:
        call()
    except RegardError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def test_every_process_hears_what_differs(tmp_path):
    first, second = sharded.start(refusals, tmp_path, processes=2)
    assert first["dims"] == (
        "GroupError: every process of the group must make the same call: dim is 4 on process 0 and 5 on process 1"
    )
    assert "dim is 5 on process 1 and 4 on process 0" in second["dims"]
    same = "masks contents layouts plans statistics gradients slopes sinks members engines"
    for name in same.split():
        assert first[name].startswith("GroupError: every process of the group must make the same call"), name
        assert second[name].startswith("GroupError: every process of the group must make the same call"), name
    assert "must hold 6 tokens of query, as its layout says, got 5" in second["a shape"]
    assert second["a shape"].startswith("ShapeError")
    assert first["a shape"].startswith("GroupError: process 1 of the group refuses its part: ShapeError")
    assert second["a watch"].startswith("WatchError: Sharded (Sharded): it calls regard.scale.attend")
    assert first["a watch"].startswith("GroupError: process 1 of the group refuses its part: WatchError")
    assert second["a name"].startswith("EngineError") and "refuses its part" in first["a name"]


def deserted(rank, folder):
    """One of three processes is killed in the middle of a ring; the others say what they were told, and end."""
    layout = scale.contiguous(3 * TOKENS, 3)
    call = {"keys": layout, "mask": rg.near(5, 5)}
    scale.attend(*tensors(rank, TOKENS), **call)
    if rank == 1:
        # In the second step of the ring: the first one was sent and received.
        shifts = scale.links.Links.shift

        def shift(links, parts):
            coming = shifts(links, parts)
            coming.wait()
            os.kill(os.getpid(), 9)

        scale.links.Links.shift = shift
    start = time.monotonic()
    try:
        for _ in range(3):
            scale.attend(*tensors(rank, TOKENS), **call)
        result = "nothing"
    except GroupError as error:
        result = str(error)
    (Path(folder) / f"{rank}.json").write_text(json.dumps([result, time.monotonic() - start]))
    os._exit(0)


def test_a_process_that_dies_is_an_error_on_the_others(tmp_path):
    with pytest.raises(torch.multiprocessing.ProcessExitedException):
        sharded.start(deserted, tmp_path, str(tmp_path), processes=3)
    for rank in (0, 2):
        text, _ = json.loads((tmp_path / f"{rank}.json").read_text())
        assert "every process of the group must answer within the group's time limit" in text
        assert f"process {rank} of 3 lost another one" in text


def test_a_group_must_be_there():
    layout = scale.zigzag(TOKENS // 2, 1)
    with pytest.raises(GroupError, match="init_process_group in every process"):
        scale.attend(*tensors(0), keys=layout)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(GroupError, match="group must be a process group or None, got 'all'"):
            scale.attend(*tensors(0), keys=layout, group="all")
        with pytest.raises(
            ArgumentError, match="keys must lie on the 1 processes of the group, got a layout for 2"
        ):
            scale.attend(*tensors(0), keys=scale.zigzag(TOKENS, 2))
        with pytest.raises(ArgumentError, match="keys must be a layout such as"):
            scale.attend(*tensors(0), keys=6)
        with pytest.raises(ArgumentError, match="there is no dropout, and positions .*, got align, dropout"):
            scale.attend(*tensors(0), keys=layout, dropout=0.1, align="start")
        with pytest.raises(ArgumentError, match="plan must be one of"):
            scale.attend(*tensors(0), keys=layout, plan="ulysses")
        with pytest.raises(ArgumentError, match="positions of keys must begin at 0, got 3"):
            scale.attend(*tensors(0), keys=scale.zigzag(TOKENS // 2, 1, start=3))
        with pytest.raises(
            rg.errors.EngineError, match="no engine takes this case: native: it computes in float32"
        ):
            scale.observe(*(t.double() for t in tensors(0)), keys=layout, engine="native")
    finally:
        dist.destroy_process_group()


def test_layouts_hold_every_position_once():
    whole = torch.arange(11).view(1, 1, 11, 1)
    for layout in (
        scale.zigzag(11, 3),
        scale.contiguous(11, 4),
        scale.Layout(((range(4, 6), range(0, 2)), (), (range(6, 11), range(2, 4)))),
    ):
        shards = [layout.shard(whole, rank) for rank in range(layout.processes)]
        for rank, part in enumerate(shards):
            assert part.flatten().tolist() == layout.positions(rank).tolist()
        assert torch.equal(layout.join(shards), whole)
        assert layout.tokens == 11
    with pytest.raises(ArgumentError, match="got stretches 0 to 2 and 2 to 3"):
        scale.Layout(((range(0, 3),), (range(2, 4),)))
    with pytest.raises(ArgumentError, match="got stretches 0 to 2 and 4 to 5"):
        scale.Layout(((range(0, 3),), (range(4, 6),)))
    with pytest.raises(ArgumentError, match="range of positions with step 1"):
        scale.Layout(((range(0, 3, 2),),))
    with pytest.raises(ShapeError, match="11 tokens, the tensor 12"):
        scale.zigzag(11, 2).shard(torch.zeros(1, 1, 12, 1), 0)
    with pytest.raises(ArgumentError, match="rank must be at most 1, got 2"):
        scale.zigzag(11, 2).positions(2)
    with pytest.raises(ArgumentError, match="rank must be at least 0, got -1"):
        scale.zigzag(11, 2).shard(whole, -1)
    # Under a causal mask the pairs of a process are within a twentieth of the mean.
    long = scale.zigzag(4096, 4)
    pairs = [float((long.positions(rank) + 1).sum()) for rank in range(4)]
    assert max(pairs) <= 1.05 * sum(pairs) / 4
