"""The kernels compile for the oldest GPU and for Hopper, in a process of its own that does not interpret."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = {"rows_kernel", "merge_kernel", "columns_kernel", "query_kernel", "key_kernel"}


@pytest.mark.parametrize("generation, shared", [(80, 99), (90, 227)], ids=["Ampere", "Hopper"])
def test_every_kernel_compiles_and_fits(generation, shared):
    environment = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(Path(__file__).with_name("offline.py")), str(generation)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    compiled = json.loads(done.stdout.splitlines()[-1])
    assert compiled.keys() == KERNELS
    assert {name: size for name, size in compiled.items() if size > shared * 1024} == {}
