"""A call in stretches is the call; killed and resumed it gives the same bits, and its indices pass 2^31."""

import signal
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from helpers.cases import cases, draw_tensors, faults, found, top_faults
from regard import scale
from regard.errors import ArgumentError, RecordError
from regard.spec.bias import ScoreMod


@settings(max_examples=40)
@given(case=cases(), stretch=st.sampled_from([1, 3, 4, 7, 64]), single=st.booleans())
def test_stretches_are_the_call(case, stretch, single, tmp_path_factory):
    if single:
        case = case.to(torch.float32)
    more = {"statistics": case.choices.values(), "map": 4, "top": 3}
    folder = tmp_path_factory.mktemp("long")
    seen = scale.observe_long(
        case.query, case.key, case.value, folder=folder, stretch=stretch, **more, **case.keywords
    )
    naive = case.truth(torch.float32, seen.map.cell) if single else None
    assert faults(found(seen), case, naive, seen.map.cell) == []
    assert top_faults(seen.top, case, case.query.dtype) == []
    once = case.observe(map=4, top=3)
    assert torch.equal(seen.map.rows, once.map.rows) and seen.engine == once.engine
    assert seen.parameters == once.parameters


PROGRAM = """
import os, signal, sys
import torch
import regard as rg
from regard import scale

torch.set_num_threads(1)
torch.manual_seed(5)
query, key, value = (torch.randn(1, 2, 613, 16) for _ in range(3))
killed, folder, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
write = rg.files.write

def failing(path, content, **more):
    # Between the rows of a stretch and the sums over it, where a resumed run has to do the stretch again.
    if killed and os.path.basename(path) == "sums.safetensors" and done[-1] == killed:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, content, **more)

rg.files.write = failing
done = []
seen = scale.observe_long(query, key, value, folder=folder, stretch=64, map=16, top=2, mask=rg.causal(),
                          progress=lambda ready, count: done.append(ready))
torch.save({"seen": [getattr(seen, n) for n in ("output", "entropy", "received", "received_max", "argmax")]
            + [seen.map.total, seen.map.peak, seen.top.keys], "done": done}, out)
"""


def test_killed_and_resumed_gives_the_same_bits(tmp_path):
    def run(killed, folder, out):
        command = [sys.executable, "-c", PROGRAM, str(killed), str(tmp_path / folder), str(tmp_path / out)]
        return subprocess.run(command, timeout=90, check=False).returncode

    assert run(0, "whole", "whole.pt") == 0
    assert run(3, "cut", "cut.pt") == -signal.SIGKILL
    assert (tmp_path / "cut" / "rows-000003.safetensors").exists()
    assert run(0, "cut", "cut.pt") == 0
    whole, cut = (torch.load(tmp_path / name, weights_only=True) for name in ("whole.pt", "cut.pt"))
    assert whole["done"] == list(range(11)) and cut["done"] == list(range(3, 11))
    assert all(torch.equal(a, b) for a, b in zip(whole["seen"], cut["seen"], strict=True))


def test_another_call_or_a_damaged_folder_is_an_error(tmp_path):
    query, key, _ = (t.float() for t in draw_tensors(1, 2, 1, 19, 19, 8, 8))
    call = {"folder": tmp_path / "a", "stretch": 8}
    scale.observe_long(query, key, mask=rg.causal(), **call)
    for changed in (
        {"mask": rg.near(3)},
        {"mask": rg.causal(), "softcap": 3.0},
        {"mask": rg.causal(), "top": 1},
    ):
        with pytest.raises(RecordError, match="holds another call"):
            scale.observe_long(query, key, **changed, **call)
    with pytest.raises(RecordError, match="holds another call: key is"):
        scale.observe_long(query, key + 1, mask=rg.causal(), **call)
    with pytest.raises(ArgumentError, match="stretch must be"):
        scale.observe_long(query, key, folder=tmp_path / "b", stretch=0)
    with pytest.raises(ArgumentError, match="folder must be a string or a path, got 3"):
        scale.observe_long(query, key, folder=3)
    with pytest.raises(ArgumentError, match="progress must be a function"):
        scale.observe_long(query, key, folder=tmp_path / "b", progress=3)
    rows = tmp_path / "a" / "rows-000001.safetensors"
    content = rows.read_bytes()
    rows.write_bytes(content[:-40] + b"x" + content[-39:])
    with pytest.raises(RecordError, match="rows-000001.safetensors: is altered"):
        scale.observe_long(query, key, mask=rg.causal(), **call)
    rows.unlink()
    with pytest.raises(RecordError, match=r"rows-000001.safetensors is done and not there"):
        scale.observe_long(query, key, mask=rg.causal(), **call)


def test_code_cannot_be_gone_on_with(tmp_path):
    """Two functions are nothing that could be compared: the stretches of one must not stand for the other's."""
    query, key, _ = (t.float() for t in draw_tensors(1, 2, 1, 19, 19, 8, 8))
    call = {"folder": tmp_path, "stretch": 8}

    def rising(score, _batch, _head, _query, key):
        return score + 0.1 * key

    def falling(score, _batch, _head, _query, key):
        return score - 0.5 * key

    seen = scale.observe_long(query, key, bias=ScoreMod(rising), **call)
    assert torch.allclose(seen.lse, rg.observe(query, key, bias=ScoreMod(rising)).lse)
    for function in (falling, rising):
        with pytest.raises(RecordError, match="Python code cannot be resumed.*another folder"):
            scale.observe_long(query, key, bias=ScoreMod(function), **call)


def test_indices_past_two_to_the_31st(tmp_path):
    """2^32 elements of keys and 2^34 pairs, of which a window looks at the last few thousand."""
    heads, keys, queries, dim = 64, 1 << 20, 256, 64
    torch.manual_seed(0)
    # One head's memory for all: the elements are counted, not held.
    key = torch.randn(1, 1, keys, dim).expand(1, heads, keys, dim)
    query = torch.randn(1, heads, queries, dim)
    assert key.numel() == 1 << 32 and heads * keys * queries == 1 << 34
    mask = rg.near(100)
    more = {"statistics": ["lse", "entropy", "argmax", "position"], "mask": mask}
    seen = scale.observe_long(query, key, key, folder=tmp_path, stretch=100, **more)
    part = 512
    tail = key[:, :1, -part:].contiguous().expand(1, heads, part, dim)
    near = rg.observe(query, tail, tail, **more)
    assert torch.allclose(seen.output, near.output, atol=1e-5)
    assert torch.allclose(seen.entropy, near.entropy, atol=1e-5)
    assert torch.equal(seen.argmax, near.argmax + keys - part)
    assert (seen.position.double() - near.position.double() - (keys - part)).abs().max() < 0.1
