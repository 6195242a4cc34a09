"""Under distributed data parallel all processes have the same numbers: those of one process on the joint batch."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from regard.training import History
from training.monitor import ranks

TESTS = Path(__file__).parents[2]


def test_two_processes_see_what_one_would(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
    commands = [
        [sys.executable, ranks.__file__, str(rank), str(tmp_path / "meet"), str(tmp_path)] for rank in (0, 1)
    ]
    processes = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands
    ]
    alone = ranks.run(0, 1).history
    for process in processes:
        _, errors = process.communicate(timeout=280)
        assert process.returncode == 0, errors
    one, other = (History.load(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    assert one.layers == other.layers == alone.layers and one.steps == alone.steps == (0, 2, 4)
    assert torch.equal(one.values, other.values)
    assert torch.allclose(one.values, alone.values, rtol=1e-4, atol=1e-6)
