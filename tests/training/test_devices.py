"""`accelerate launch` takes a training to several processes, and the curves stay what they were."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.training import History, checkpoints
from training import devices

TESTS = Path(__file__).parents[1]


def test_two_processes_train_as_one(tmp_path):
    alone = devices.run(tmp_path / "one")
    # Without a GPU this launcher starts as many processes on the CPU; `--cpu` alone would ask for MPI.
    launch = (
        "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --main_process_port 0"
    )
    settings = "--mixed_precision no --dynamo_backend no"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
    command = [sys.executable, *launch.split(), *settings.split(), devices.__file__, str(tmp_path / "two")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert json.loads((tmp_path / "two" / f"left-{rank}.json").read_text()) is False
        curves = json.loads((tmp_path / "two" / f"curves-{rank}.json").read_text())
        for name, values in curves.items():
            expected = getattr(alone, name)
            assert {int(step): value for step, value in values.items()} == pytest.approx(
                expected, rel=1e-4
            ), name
    history = History.load(tmp_path / "two" / "history.safetensors")
    assert history.steps == alone.history.steps
    assert torch.allclose(history.values, alone.history.values, atol=1e-4)
    latest = checkpoints.latest(tmp_path / "two")
    assert latest == tmp_path / "two" / "checkpoint-13"
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(
        json.loads((latest / checkpoints.SEAL).read_text())["files"]
    )
