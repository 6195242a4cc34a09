"""Numbers go to the real clients, and are read back with what these bring."""

import time

import pyarrow.parquet
import pytest
import torch

from regard.errors import ArgumentError, RecordError
from regard.training import MLflowWriter, Monitor, ParquetWriter, TensorBoardWriter, WandbWriter, Writer
from training import tiny
from training.monitor.looped import trained

NAME = "regard layer 1/head 2/entropy_fraction"


def offline(content):
    """The records of an offline run of Weights & Biases: protocol buffers in the log format of LevelDB.

    Seven bytes, then blocks of 32 KiB: of each part a check sum (4 bytes), a length (2), and whether it is a record (1)
    or the first (2), a middle (3) or the last part (4) of one.
    """
    from wandb.proto import wandb_internal_pb2

    at, parts = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def monitored(writer):
    """The value of one head at each look, once a training with this writer is over."""
    monitor = Monitor(every=4, writers=[writer])
    trained(monitor, steps=10)
    values = monitor.history.of_statistic("entropy_fraction")[:, -1]
    return dict(zip(monitor.history.steps, values.tolist(), strict=True))


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    expected = monitored(TensorBoardWriter(tmp_path / "events"))
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert {event.step: event.value for event in events.Scalars(NAME)} == pytest.approx(expected)


def test_parquet(tmp_path):
    path = tmp_path / "folder" / "numbers.parquet"
    writer = ParquetWriter(path)
    expected = monitored(writer)
    table = pyarrow.parquet.read_table(path).to_pandas()
    one = table[table.name == NAME]
    assert dict(zip(one.step, one.value, strict=True)) == pytest.approx(expected)
    assert not table.value.isna().any() and len(table) == 3 * 6 * 8


def test_a_parquet_file_is_whole_after_each_look_and_says_where_it_cannot_be(tmp_path):
    writer = ParquetWriter(tmp_path / "numbers.parquet")
    for step in range(3):
        writer.scalars(step, {"a": 1.0, "b": float(step)})
        assert len(pyarrow.parquet.read_table(tmp_path / "numbers.parquet")) == 2 * (step + 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="file"):
        ParquetWriter(tmp_path / "file" / "numbers.parquet").scalars(0, {"a": 1.0})
    with pytest.raises(ArgumentError, match="path must be a path, got int"):
        ParquetWriter(3)


def test_mlflow(tmp_path, monkeypatch):
    # MLflow 3 keeps runs in a folder only for who says so.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    writer = MLflowWriter(tmp_path / "mlruns", "heads")
    expected = monitored(writer)
    client = mlflow.MlflowClient((tmp_path / "mlruns").as_uri())
    points = client.get_metric_history(writer.run_id, NAME)
    assert {point.step: point.value for point in points} == pytest.approx(expected)
    assert client.get_run(writer.run_id).info.status == "FINISHED"
    # A second run joins the experiment; one that is somebody else's stays open.
    run = client.create_run(client.get_experiment_by_name("heads").experiment_id).info.run_id
    other = MLflowWriter(tmp_path / "mlruns", "heads", run)
    other.scalars(3, {"a · b": 1.0})
    other.close()
    assert client.get_run(run).info.status == "RUNNING" and client.get_run(run).data.metrics == {"a - b": 1.0}


def test_wandb_offline(tmp_path, monkeypatch):
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    expected = monitored(WandbWriter(project="heads", dir=str(tmp_path), mode="offline"))
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    values, end = {}, time.monotonic() + 30
    # The client's own process writes the file, and may not be done when the run is.
    while len(values) < len(expected) and time.monotonic() < end:
        values = logged(path)
        time.sleep(0.1)
    assert values == pytest.approx(expected)


def logged(path):
    """The head's number at each step, as far as the file has them."""
    values = {}
    for record in offline(path.read_bytes()):
        line = {".".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
        if NAME in line:
            values[int(line["regard_step"])] = float(line[NAME])
    return values


def test_a_destination_of_ones_own_gets_numbers_before_an_alarm_ends_the_run():
    class Kept:
        def __init__(self):
            self.seen, self.closed = [], 0

        def scalars(self, step, values):
            self.seen.append((step, dict(values)))

        def close(self):
            self.closed += 1

    kept, model = Kept(), tiny.gpt(0.0)
    assert isinstance(kept, Writer)
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[:, 0] = torch.nan
    monitor = Monitor(writers=[kept], on_alarm="raise")
    monitor.step(model)
    model(**tiny.batch(2))
    with pytest.raises(Exception, match="not finite"):
        monitor.close()
    (step, values), *_ = kept.seen
    assert step == 0 and values["regard alarms/not finite"] == 1.0 and kept.closed == 1
    # NaN is no number of a chart: it is left out, and counted.
    assert "regard layer 0/head 0/entropy_fraction" not in values
    assert values["regard layer 0/head 0/nonfinite"] == 1.0
