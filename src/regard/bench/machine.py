"""What this machine is, and how much memory a call takes on it at most. Knows no attention."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regard.engines import ENGINES
from regard.files.versions import versions

VECTOR_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")
# Processors that compute alike: vendor, family, first and last model, as in the headers of Linux.
KINDS = {
    "zen3": [("AuthenticAMD", 25, 0x00, 0x0F), ("AuthenticAMD", 25, 0x20, 0x5F)],
    "zen4": [("AuthenticAMD", 25, 0x10, 0x1F), ("AuthenticAMD", 25, 0x60, 0xAF)],
    "zen5": [("AuthenticAMD", 26, 0x00, 0x7F)],
    "ice-lake": [("GenuineIntel", 6, 0x6A, 0x6A), ("GenuineIntel", 6, 0x6C, 0x6C)],
    "sapphire-rapids": [("GenuineIntel", 6, 0x8F, 0x8F)],
    "emerald-rapids": [("GenuineIntel", 6, 0xCF, 0xCF)],
    "granite-rapids": [("GenuineIntel", 6, 0xAD, 0xAE)],
}
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def machine(device: str = "cpu") -> dict[str, Any]:
    """Hardware, engines and versions, as JSON."""
    flags = set(" ".join(_facts("flags", "Features")).split())
    return {
        "processor": processor(),
        "kind": kind(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "vector_sets": [name for name in VECTOR_SETS if name in flags],
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "engines": [label(engine.name) for engine in ENGINES],
        **versions("python", "torch", "numpy", "regard"),
    }


def processor() -> str:
    """The name of the processor, or at least of its kind; several where its cores differ."""
    # `platform` knows no name on Linux, and the kernel writes one only where the processor tells it.
    return ", ".join(sorted(_facts("model name"))) or platform.processor() or platform.machine()


def kind() -> str:
    """The kind of processor, such as "zen4", by which results are told apart; of an unknown one its widest vectors."""
    vendors, families, models = (_facts(name) for name in ("vendor_id", "cpu family", "model"))
    for name, members in KINDS.items():
        for vendor, family, first, last in members:
            alike = vendors == {vendor} and families == {str(family)}
            if alike and all(first <= int(model) <= last for model in models):
                return name
    flags = set(" ".join(_facts("flags", "Features")).split())
    return next((name for name in reversed(VECTOR_SETS) if name in flags), platform.machine().lower())


def label(engine: str) -> str:
    """An engine's name, with the build that it runs where it has several."""
    # Only engines with several builds can say which one runs.
    build = next((getattr(e, "build", None) for e in ENGINES if e.name == engine), None)
    try:
        if build:
            return f"{engine} ({build()})"
        return engine
    except (IndexError, RuntimeError):
        return engine


def memory_kib(field: str) -> int:
    """A figure of this process from the kernel, in KiB: VmRSS (now) or VmHWM (the most so far).

    Raises:
        RuntimeError: this kernel does not report it.
    """
    lines = []
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
    for line in lines:
        # With the colon, as one field's name may begin another's.
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"the kernel must report {field}")


def peak(run: Callable[[], object], device: str = "cpu") -> int | None:
    """Bytes that a call takes at most, above what was there before; None where the system does not say."""
    if device.startswith("cuda"):
        before = torch.cuda.memory_allocated(device)
        # torch keeps the largest since the start of the process, which an earlier call may hold.
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return int(torch.cuda.max_memory_allocated(device)) - before
    try:
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            # What was freed goes back first: taken again, it counts.
            libc.malloc_trim(0)
        # The kernel forgets the largest so far.
        RESET.write_text("5")
        before = memory_kib("VmRSS")
        run()
        return 1024 * max(0, memory_kib("VmHWM") - before)
    except (OSError, RuntimeError, TypeError):  # TypeError: no library without a name on Windows
        return None


def _facts(*names: str) -> set[str]:
    """What Linux says of the processor's cores under these names; nothing elsewhere."""
    facts = Path("/proc/cpuinfo")
    if not facts.exists():
        return set()
    lines = [line.partition(":") for line in facts.read_text().splitlines()]
    # Each core has its own entry, and on some machines they differ.
    return {value.strip() for name, _, value in lines if name.strip() in names}
