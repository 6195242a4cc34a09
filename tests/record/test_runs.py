"""Records of many runs lie in one Parquet dataset, which others read without Regard, and no writer harms another."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

import regard as rg
from helpers.calls import a_record, same
from regard.errors import ArgumentError, RecordError
from regard.record import Record, Runs

WRITER = """
import json, sys, time
from pathlib import Path
from helpers.calls import a_record
from regard.errors import RecordError
from regard.record import Record, Runs
folder, mine, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
record = a_record()
record = Record(record.calls, info={"writer": mine})
(folder / f"ready-{mine}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
won = []
for step in range(steps):
    try:
        Runs(folder / "runs").add(record, run="shared", step=step)
        won.append(step)
    except RecordError as error:
        assert "written once" in str(error), error
    Runs(folder / "runs").add(record, run=f"only-{mine}", step=step)
print(json.dumps(won))
"""

# Nobody but DuckDB, pandas and json: importing Regard is an error here.
READER = """
import sys
sys.modules["regard"] = sys.modules["torch"] = None
import duckdb, hashlib, json, pandas
from pathlib import Path
root = Path(sys.argv[1])
by_sql = duckdb.sql(f'''
    select run, step, layer, head, entropy
    from read_parquet('{root}/run=*/step=*/heads-*.parquet', hive_partitioning = true) order by all''').fetchall()
frame = pandas.read_parquet(root, ignore_prefixes=["record", "statistics", ".", "_"])
frame = frame.astype({"run": str, "step": int}).sort_values(["run", "step", "layer", "head"])
by_pandas = [list(row) for row in frame[["run", "step", "layer", "head", "entropy"]].itertuples(index=False)]
whole = []
for path in sorted(root.glob("run=*/step=*/record.json")):
    for seal in json.loads(path.read_text())["files"].values():
        content = (path.parent / seal["name"]).read_bytes()
        whole.append(len(content) == seal["bytes"] and hashlib.sha256(content).hexdigest() == seal["sha256"])
print(json.dumps([by_sql, by_pandas, whole], default=str))
"""


def scripted(script, *arguments, **more):
    # The tests' own modules, wherever the tests are run from.
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
        **more,
    )


def answered(process):
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


@pytest.fixture
def runs(tmp_path):
    runs = Runs(tmp_path / "runs")
    for run, step in (("seed-1", 20), ("seed-0", 100), ("seed-0", 9)):
        record = a_record()
        calls = [replace(call, entropy=call.entropy + step) for call in record]
        runs.add(Record(calls), run=run, step=step)
    return runs


def test_what_is_added_comes_back_by_run_and_step(tmp_path):
    runs = Runs(tmp_path / "deep" / "runs")
    assert runs.steps() == []
    record = a_record()
    path = runs.add(record, run="a", step=3)
    same(runs.load("a", 3), record)
    same(rg.load(path), record)
    assert [(item.run, item.step, item.path) for item in runs.steps()] == [("a", 3, path)]
    assert runs.check() == 1


def test_tables_are_one_table_in_the_order_of_runs_and_steps(runs):
    heads = runs.heads
    assert list(heads.columns[:2]) == ["run", "step"]
    order = heads[["run", "step"]].drop_duplicates().values.tolist()
    assert order == [["seed-0", 9], ["seed-0", 100], ["seed-1", 20]]
    mine = heads[(heads["run"] == "seed-0") & (heads["step"] == 100)].drop(columns=["run", "step"])
    pandas.testing.assert_frame_equal(mine.reset_index(drop=True), runs.load("seed-0", 100).heads)


def test_others_read_it_without_regard(runs):
    by_sql, by_pandas, whole = answered(scripted(READER, runs.folder))
    truth = runs.heads.sort_values(["run", "step", "layer", "head"])
    truth = [list(row) for row in truth[["run", "step", "layer", "head", "entropy"]].itertuples(index=False)]
    assert len(truth) == 3 * len(a_record().heads)
    assert by_sql == truth and by_pandas == truth
    assert whole == [True] * 6


def test_the_manifest_has_the_size_and_the_digest_of_every_data_file(runs):
    manifest = runs.manifest
    there = {
        path.relative_to(runs.folder).as_posix() for path in runs.folder.rglob("*-*.*") if path.is_file()
    }
    assert set(manifest["file"]) == there and len(there) == 6
    for row in manifest.itertuples():
        assert (runs.folder / row.file).stat().st_size == row.bytes and len(row.sha256) == 64


def test_two_writers_at_once_harm_nothing(tmp_path):
    steps = 12
    writers = {name: scripted(WRITER, tmp_path, name, steps) for name in ("one", "two")}
    while not all((tmp_path / f"ready-{name}").exists() for name in writers):
        assert all(process.poll() is None for process in writers.values())
        time.sleep(0.01)
    (tmp_path / "go").touch()
    won = {name: answered(process) for name, process in writers.items()}
    # Each step is that of one writer, whole, and the other one was told.
    assert sorted(won["one"] + won["two"]) == list(range(steps))
    runs = Runs(tmp_path / "runs")
    for name, mine in won.items():
        assert all(runs.load("shared", step).info == {"writer": name} for step in mine)
        assert [item.step for item in runs.steps() if item.run == f"only-{name}"] == list(range(steps))
    assert runs.check() == 3 * steps
    assert not list(runs.folder.rglob(".regard-*"))


def test_a_writer_that_is_killed_leaves_whole_steps_only(tmp_path):
    (tmp_path / "go").touch()
    writer = scripted(WRITER, tmp_path, "one", 100_000)
    runs = Runs(tmp_path / "runs")
    while len(runs.steps()) < 5:
        assert writer.poll() is None
        time.sleep(0.01)
    writer.kill()
    writer.wait()
    writer.stdout.close()
    count = runs.check()
    assert count >= 5 and len(runs.heads) == count * len(a_record().heads)
    # What it left unfinished goes with the next write.
    for run in ("shared", "only-one"):
        runs.add(a_record(), run=run, step=100_001)
    assert not list(runs.folder.rglob(".regard-*"))


def test_a_step_that_is_there_stays_as_it_is(runs):
    before = {path: path.read_bytes() for path in runs.folder.rglob("*") if path.is_file()}
    with pytest.raises(
        RecordError, match="step 9 of run 'seed-0' is there already, and steps are written once"
    ):
        runs.add(a_record(), run="seed-0", step=9)
    assert {path: path.read_bytes() for path in runs.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kind", ["heads", "statistics", "record"])
def test_a_file_that_was_altered_is_named(runs, kind):
    (path,) = (runs.folder / "run=seed-0" / "step=9").glob(f"{kind}*")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecordError, match=str(path)):
        runs.check()


@pytest.mark.parametrize(
    ("run", "step", "message"),
    [
        ("../up", 1, "run must be a name of letters.*got '../up'"),
        ("007", 1, "a letter first, got '007'"),
        ("a b", 1, "got 'a b'"),
        (3, 1, "got 3"),
        ("a", -1, "step must be .*at least 0.*got -1"),
        ("a", 1.5, "step must be .*got 1.5"),
    ],
)
def test_other_names_and_numbers_are_refused(tmp_path, run, step, message):
    with pytest.raises(ArgumentError, match=message):
        Runs(tmp_path).add(a_record(), run=run, step=step)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_record_or_no_folder_is_said(tmp_path):
    with pytest.raises(ArgumentError, match="record must be a Record, got 3"):
        Runs(tmp_path).add(3, run="a", step=0)
    with pytest.raises(ArgumentError, match="folder must be a path, got ''"):
        Runs("")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written"):
        Runs(tmp_path / "file").add(a_record(), run="a", step=0)
    with pytest.raises(RecordError, match="has no record of a run"):
        _ = Runs(tmp_path / "nothing").heads
    # Other folders are no steps.
    (tmp_path / "run=a" / "step=01").mkdir(parents=True)
    (tmp_path / "run=a" / "step=01" / "record.json").write_text("{}")
    assert Runs(tmp_path).steps() == []
