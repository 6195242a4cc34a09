"""A Ray of this machine alone, and the processes of its actors, for the benchmark and the test of surveys on Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

# Named, as a node that looks for them itself gives up early on a busy machine.
PORTS = ("port", "dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port")
PORTS = (*PORTS, "runtime-env-agent-port", "ray-client-server-port")
TRIES = 6


@contextmanager
def cluster(*folders: Path) -> Iterator[psutil.Process]:
    """A Ray of two processors on this machine, which `ray.init` joins; its head, below which its workers run.

    Args:
        folders: which its workers import from as well.

    Raises:
        RuntimeError: it did not start in several tries.
    """
    import ray

    # A node gives up where its own parts take longer than 15 seconds to start, as on a busy machine they do.
    running = next(filter(None, (_started(folders) for _ in range(TRIES))), None)
    if running is None:
        raise RuntimeError(f"Ray must start in {TRIES} tries")
    head, port = running
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_ADDRESS")}
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_ADDRESS=f"127.0.0.1:{port}")
    try:
        yield psutil.Process(head.pid)
    finally:
        ray.shutdown()
        _stop(head)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def workers(head: psutil.Process) -> list[psutil.Process]:
    """The processes of the actors that read."""
    return [item for item in head.children(recursive=True) if "MapBatches" in "".join(item.cmdline())]


def _started(folders: tuple[Path, ...]) -> tuple[subprocess.Popen[str], int] | None:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in PORTS]
        for item in sockets:
            item.bind(("", 0))
        ports = [item.getsockname()[1] for item in sockets]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    found = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2"]
    command += ["--object-store-memory", "100000000", "--include-dashboard", "false"]
    command += [f"--{name}={port}" for name, port in zip(PORTS, ports, strict=True)]
    head = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output = head.stdout
    assert output is not None, "a pipe was asked for"
    for line in output:
        if "Ray runtime started" in line:
            # What it prints later must not fill the pipe.
            threading.Thread(target=lambda: list(output), daemon=True).start()
            return head, ports[0]
    _stop(head)
    return None


def _stop(head: subprocess.Popen[str]) -> None:
    """End a Ray with all that runs below it."""
    below: list[psutil.Process] = []
    if head.poll() is None:
        below = psutil.Process(head.pid).children(recursive=True)
    head.kill()
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    head.wait()
