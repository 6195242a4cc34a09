"""What is saved comes back, a save that dies leaves the old record whole, and a bad folder is said to be one."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.calls import a_record, call_of, same, vectors, without
from regard.errors import RecordError
from regard.masks import (
    SOME,
    Mask,
    block_sparse,
    causal,
    dense,
    documents,
    global_tokens,
    near,
    padding,
    prefix,
    random_blocks,
    strided,
)
from regard.record import Record, load
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.spec.bias import Logarithm, ScoreMod, alibi, relative

QUERIES, KEYS = 3, 7


# --- round trip --------------------------------------------------------------------------------------------

MASKS = [
    lambda: None,
    lambda: causal() & padding(torch.tensor([2, 5]), start=torch.tensor([1, 0])),
    lambda: ~prefix(torch.tensor([2, 0])) | global_tokens([1, 4]),
    lambda: near(2, 1) & strided(2) | random_blocks(1, block=2, seed=3, keys=KEYS),
    lambda: documents(torch.tensor([[0, 0, 1, 1, 1, 2, 2], [5, 5, 5, 5, 9, 9, 9]])),
    lambda: block_sparse([[True, False], [True, True]], block=4),
    lambda: dense(keep=torch.rand(2, 6, QUERIES, KEYS) > 0.5, offset=KEYS - QUERIES),
]
BIASES = [
    lambda: None,
    lambda: alibi(torch.rand(6)),
    lambda: relative(torch.randn(6, 5)),
    lambda: torch.randn(2, 1, QUERIES, KEYS),
    Logarithm,
]
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
KEPT = ["output", "lse", "entropy", "argmax", "spread", "received", "received_max", "map", "top", "query"]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def calls(draw):
    torch.manual_seed(draw(st.integers(0, 99)))
    query, key = (tensor.to(draw(st.sampled_from(TYPES))) for tensor in vectors(queries=QUERIES, keys=KEYS))
    key = key.to(query.dtype)
    call = call_of(query, key, cell=draw(st.sampled_from([1, 2, 8])), layer=draw(st.text()))
    call = replace(call, output=torch.randn(2, 6, QUERIES, 4), sizes=replace(call.sizes, value_dim=4))
    spec = Spec.of(
        call.sizes,
        mask=draw(st.sampled_from(MASKS))(),
        bias=draw(st.sampled_from(BIASES))(),
        scale=draw(st.floats(0.1, 9)),
        softcap=draw(st.none() | st.floats(0.5, 50)),
        sink_logit=draw(st.sampled_from([None, torch.randn(6)])),
    )
    gone = draw(st.sets(st.sampled_from(KEPT)))
    gone |= {"query", "key", "spec"} if "query" in gone else set()
    groups = {name: torch.rand(2, 6, QUERIES) for name in draw(st.lists(st.text(), unique=True, max_size=2))}
    call = without(
        replace(call, spec=spec, groups=groups, kind=draw(st.sampled_from(["self", "cross"]))), *gone
    )
    return replace(
        call,
        seen=draw(st.sampled_from(["query-key", "weights"])),
        parameters={"first": 2, "sink_logit": True},
    )


words = st.none() | st.lists(st.lists(st.text(), max_size=3), max_size=2)


@settings(max_examples=40)
@given(st.lists(calls(), max_size=3), words, words, st.dictionaries(st.text(), json_values, max_size=3))
def test_what_is_saved_comes_back(some, own, source, info):
    record = Record(some, own, source, info)
    with tempfile.TemporaryDirectory() as folder:
        record.save(folder)
        assert same(record, load(folder)) is None


def test_merged_steps_come_back(tmp_path):
    query, key = vectors(queries=KEYS, keys=KEYS)
    steps = [
        call_of(query[:, :, a:b], key[:, :, :b], Spec.of(sizes_of(query[:, :, a:b], key[:, :, :b])))
        for a, b in ((0, 4), (4, 6), (6, 7))
    ]
    record = Record([steps[0].extend(steps[1]).extend(steps[2])])
    assert len(record[0].parts) == 3
    record.save(tmp_path)
    assert same(record, load(tmp_path)) is None
    assert torch.equal(load(tmp_path)[0].weights(3, batch=1), record[0].weights(3, batch=1))


def test_the_folder_is_for_other_tools_too(tmp_path):
    record = a_record()
    record.save(tmp_path / "new" / "folder")
    files = sorted(path.suffix for path in (tmp_path / "new" / "folder").iterdir())
    assert files == [".json", ".parquet", ".safetensors"]
    (parquet,) = (tmp_path / "new" / "folder").glob("heads-*.parquet")
    pandas.testing.assert_frame_equal(pandas.read_parquet(parquet), record.heads)
    body = json.loads((tmp_path / "new" / "folder" / "record.json").read_text())
    assert body["packages"]["torch"] == torch.__version__
    assert list(body)[:2] == ["format", "version"]


def test_a_tensor_that_all_calls_share_is_stored_once(tmp_path):
    record = a_record()
    bits = dense(keep=torch.rand(1, 1, QUERIES, KEYS) > 0.5, offset=KEYS - QUERIES)
    shared = [replace(call, spec=replace(call.spec, mask=bits)) for call in record]
    Record(shared).save(tmp_path)
    stored = safetensors.torch.load(next(tmp_path.glob("statistics-*")).read_bytes())
    assert [name for name in stored if "mask" in name] == ["0.parts.0.mask.0"]
    assert same(Record(shared), load(tmp_path)) is None


def test_a_loaded_record_needs_its_folder_no_more(tmp_path):
    record = a_record()
    record.save(tmp_path)
    loaded = load(tmp_path)
    next(tmp_path.glob("statistics-*")).write_bytes(b"")
    assert same(record, loaded) is None


def test_views_and_gradients_are_saved(tmp_path):
    call = a_record()[0]
    whole = torch.randn(2, QUERIES, 6, 15).requires_grad_()
    strange = replace(
        call, query=whole.transpose(1, 2)[..., 5:10], entropy=call.entropy[:, :1].expand(2, 6, 3)
    )
    Record([strange]).save(tmp_path)
    assert torch.equal(load(tmp_path)[0].query, strange.query)
    assert torch.equal(load(tmp_path)[0].entropy, strange.entropy)


# --- a save that dies --------------------------------------------------------------------------------------


class Died(Exception):
    """Stands for whatever ends a save."""


def failing(function, *, at):
    """The function, which dies instead of its call number `at`, counted from 0."""
    left = [at]

    def call(*args, **kwargs):
        left[0] -= 1
        if left[0] == -1:
            raise Died
        return function(*args, **kwargs)

    return call


STAGES = {
    **{f"replace {n}": (os, "replace", n) for n in range(3)},
    **{f"fsync {n}": (os, "fsync", n) for n in range(6)},
    "safetensors": (safetensors.torch, "save_file", 0),
    "parquet": (pandas.DataFrame, "to_parquet", 0),
    "json": (Path, "write_bytes", 0),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_save_that_fails_leaves_the_old_record_whole(tmp_path, monkeypatch, stage):
    old, new = a_record(1), a_record(2, ("another",))
    old.save(tmp_path)
    module, name, at = STAGES[stage]
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(module, name, failing(getattr(module, name), at=at))
        new.save(tmp_path)
    swapped = stage == "fsync 5"  # the new record is complete, only the folder was not forced to the disk
    assert same(new if swapped else old, load(tmp_path)) is None
    assert not list(tmp_path.glob(".*"))
    new.save(tmp_path)
    assert same(new, load(tmp_path)) is None
    assert len(list(tmp_path.iterdir())) == 3


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from helpers.calls import a_record
real, left = os.replace, [int(sys.argv[2])]
def replace(*args):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args)
os.replace = replace
a_record(2, ("another",)).save(sys.argv[1])
"""


@pytest.mark.parametrize("survived", [0, 2])
def test_a_killed_save_leaves_the_old_record_whole(tmp_path, survived):
    old = a_record(1)
    old.save(tmp_path)
    arguments = [str(tmp_path), str(survived), str(Path(__file__).parents[1])]
    run = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert list(tmp_path.glob(".*.tmp"))  # nobody was left to tidy up
    assert same(old, load(tmp_path)) is None
    a_record(3).save(tmp_path)
    assert same(a_record(3), load(tmp_path)) is None
    assert len(list(tmp_path.iterdir())) == 3


def test_files_of_others_stay(tmp_path):
    notes = tmp_path / "statistics-of-mine.safetensors"
    notes.write_text("mine")
    for seed in (1, 1, 2):
        a_record(seed).save(tmp_path)
    assert notes.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 4


# --- what cannot be saved ----------------------------------------------------------------------------------


class Odd(Mask):
    """A mask of somebody else's making."""

    name = "odd"

    def _allows(self, q_pos, k_pos, batch, head):
        return k_pos % 2 == 1

    def tile(self, q0, q1, k0, k1):
        return SOME


def test_what_cannot_be_saved_is_said(tmp_path):
    call = a_record()[0]

    def with_spec(**values):
        return Record([replace(call, spec=replace(call.spec, **values))])

    way_out = ' Python code.*: watch without keep="vectors"'
    cases = {
        f"layer.0: its score_mod cannot be saved, it is{way_out}": with_spec(
            bias=ScoreMod(lambda s, b, h, q, k: s)
        ),
        f"layer.0: its mask cannot be saved, odd is{way_out}": with_spec(mask=causal() & Odd()),
        "must be what JSON can hold: Object of type device": Record(info={"device": torch.device("cpu")}),
        "must be what JSON can hold: Out of range float": Record(info={"loss": float("nan")}),
        "nested deeper than 32 levels": Record(info={"deep": json.loads("[" * 40 + "]" * 40)}),
    }
    for message, wrong in cases.items():
        with pytest.raises(RecordError, match=message):
            wrong.save(tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_folders_that_cannot_be_written_are_said(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RecordError, match=f"{file}: a record is a folder, and this is a file"):
        a_record().save(file)
    with pytest.raises(RecordError, match="cannot save the record here: Not a directory"):
        a_record().save(file / "below")
    (tmp_path / "record.json").write_text('{"format": "other"}')
    with pytest.raises(RecordError, match=r"record.json: is no record of Regard, so it is not replaced"):
        a_record().save(tmp_path)
    assert (tmp_path / "record.json").read_text() == '{"format": "other"}'


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="users are a matter of POSIX")
def test_a_folder_that_is_not_writable_is_said():
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o555)
        try:
            os.seteuid(user or 65534)  # root may write everywhere
            with pytest.raises(
                RecordError, match=f"{path}: cannot save the record here, the folder is not writable"
            ):
                a_record().save(path)
        finally:
            os.seteuid(user)
        assert not os.listdir(path)
