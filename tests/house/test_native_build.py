"""The native library: what it asks of the system, what happens without it, and that its sources are portable."""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard as rg
from house import guards
from regard.engines import native
from regard.engines.native import abi, library
from regard.errors import EngineError

NATIVE = guards.ROOT / "native"
C_LIBRARY = {"libgomp.so.1", "libomp.so.5", "libm.so.6", "libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
NAMES = (
    "View",
    "Mask",
    "Call",
    "Want",
    "State",
    "Columns",
    "Gradient",
    "Look",
)  # of native/abi.h, as abi.STRUCTURES has them

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # pip brings cmake, perhaps

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells of libraries and threads")


def tool(name: str) -> str:
    """The path of a program; without it the test is skipped."""
    found = shutil.which(name, path=PATH)
    return found or pytest.skip(f"no {name} on the PATH")


def run(*command: str | Path) -> str:
    """What a command prints; it must succeed."""
    environment = {**os.environ, "PATH": PATH}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def built() -> Path:
    """The library in use; where it was not built although there is a compiler, the tests fail."""
    reason = native.why_not()
    if reason and shutil.which("g++") is None:
        pytest.skip(f"no native engine: {reason}")
    assert reason is None, reason
    return next(library.FOLDER.glob("_native.*"))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The library is looked for in an empty folder."""
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    caches = (library._opened, library.builds)
    for cached in caches:
        cached.cache_clear()
    yield tmp_path
    for cached in caches:
        cached.cache_clear()


@linux
def test_the_library_asks_for_openmp_and_the_c_library_alone(built):
    lines = run(tool("readelf"), "--dynamic", built).splitlines()
    needed = {line.partition("[")[2].rstrip("]") for line in lines if "(NEEDED)" in line}
    assert needed <= C_LIBRARY and any("omp" in name for name in needed)
    assert not any("RPATH" in line or "RUNPATH" in line for line in lines)


@linux
def test_the_library_shows_nothing_but_its_own_functions(built):
    shown = [line.split()[-1] for line in run(tool("nm"), "--dynamic", "--defined-only", built).splitlines()]
    assert {"regard_build", "regard_rows", "regard_columns", "regard_gradients"} <= set(shown)
    assert all(name.startswith("regard_") for name in shown)


@linux
def test_it_runs_on_torchs_threads_and_as_many_as_torch_says(built):
    program = """
import os, torch, regard as rg
def tasks(): return len(os.listdir("/proc/self/task"))
q = torch.randn(1, 2, 997, 32)
torch.set_num_threads(1)
before = tasks()
rg.observe(q, q, q, mask=rg.causal(), engine="native")
assert tasks() == before, "one thread was asked for"
torch.set_num_threads(3)
rg.observe(q, q, q, mask=rg.causal(), engine="native")
assert tasks() == before + 2, (before, tasks())
(q[0] @ q[0].mT).exp_()  # torch's own work takes the same threads
lines = open("/proc/self/maps").read().split()
print(*{os.path.realpath(path) for path in lines if "omp" in os.path.basename(path)}, sep="\\n")
"""
    runtimes = [path for path in run(sys.executable, "-c", program).split() if "omp" in Path(path).name]
    assert (
        len([path for path in runtimes if Path(path).name.startswith(("libgomp", "libomp", "libiomp"))]) == 1
    )


def test_the_structures_lie_alike_in_c_and_in_python(built, tmp_path):
    lines = ['#include "abi.h"', "#include <stddef.h>", "#include <stdio.h>", "int main() {"]
    wanted = []
    for name, structure in zip(NAMES, abi.STRUCTURES, strict=True):
        for field, *_ in structure._fields_:
            lines.append(f'  printf("{name}.{field} %d\\n", (int)offsetof(Regard{name}, {field}));')
            wanted.append(f"{name}.{field} {getattr(structure, field).offset}")
        lines.append(f'  printf("{name} %d\\n", (int)sizeof(Regard{name}));')
        wanted.append(f"{name} {ctypes.sizeof(structure)}")
    source = tmp_path / "layout.cpp"
    source.write_text("\n".join([*lines, "}"]))
    run(tool("g++"), f"-I{NATIVE}", source, "-o", tmp_path / "layout")
    assert run(tmp_path / "layout").splitlines() == wanted


# What ldtilecfg must find: palette 1, eight tiles of 64 bytes in 16 rows (Intel's manual, volume 1, chapter 18).
TILES = struct.pack("<2B14x16H16B", 1, 0, *[64] * 8, *[0] * 8, *[16] * 8, *[0] * 8)
TILED = '__attribute__((target("amx-tile"))) void tiled()'


def configuration_faults(file: Path) -> list[str]:
    """What is wrong with the tiles' configuration in a compiled file: every ldtilecfg must read a constant."""
    faults = [] if TILES in file.read_bytes() else ["the 64 bytes are nowhere"]
    code = run(tool("objdump"), "--disassemble", "--no-show-raw-insn", file).splitlines()
    for operand in [line.partition("ldtilecfg")[2].strip() for line in code if "ldtilecfg" in line]:
        found = re.match(r"0x[0-9a-f]+\(%rip\)\s+# ([0-9a-f]+) <", operand)
        if not found:
            faults.append(f"read from what is no constant: {operand}")
            continue
        at = int(found[1], 16)
        bounds = f"--start-address={at}", f"--stop-address={at + 64}"
        dump = run(tool("objdump"), "--full-contents", *bounds, file)
        section = re.search(r"Contents of section (\S+):", dump)
        words = re.findall(r"^ [0-9a-f]+ ((?:[0-9a-f]{2,8} ){1,4})", dump, re.MULTILINE)
        if bytes.fromhex("".join(words)) != TILES:
            faults.append(f"other bytes at {operand}")
        if section is None or not section[1].startswith(".rodata"):
            faults.append(f"not in memory that is only read: {operand}")
    return faults


@linux
def test_the_configuration_of_tiles_is_a_constant_of_the_library(built):
    if "amx" not in native.builds():
        pytest.skip("a library without the build for AMX")
    assert configuration_faults(built) == []
    assert "ldtilecfg" in run(tool("objdump"), "--disassemble", "--no-show-raw-insn", built)


@linux
@pytest.mark.parametrize(
    "shapes, load, fault",
    [
        ("Shapes shapes;", '"m"(*(const void* const*)&shapes)', "the 64 bytes are nowhere"),
        ("static Shapes shapes;", '"m"(shapes) : "memory"', "not in memory that is only read"),
        (
            "static const struct Shapes : Other {} shapes;",
            '"m"(shapes) : "memory"',
            "the 64 bytes are nowhere",
        ),
    ],
    ids=["stores dropped", "writable", "other shapes"],
)
def test_a_configuration_that_is_no_constant_is_found(tmp_path, shapes, load, fault):
    if run(tool("g++"), "-dumpmachine").partition("-")[0] != "x86_64":
        pytest.skip("needs a compiler for x86-64")
    source, to = tmp_path / "tiles.cpp", tmp_path / "tiles.so"
    members = "unsigned char palette = 1, rest[15] = {}; unsigned short bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};"
    rows = "unsigned char rows[16] = {%s, 16, 16, 16, 16, 16, 16, 16};"
    shapes = shapes.replace(" : Other {}", f" {{ {members} {rows % 15} }}")
    source.write_text(
        f"struct Shapes {{ {members} {rows % 16} }};\n"
        f'{TILED} {{ {shapes} __asm__ volatile("ldtilecfg %0" :: {load}); }}'
    )
    run(tool("g++"), "-O2", "-shared", "-fPIC", source, "-o", to)
    assert any(fault in found for found in configuration_faults(to))


def test_without_a_library_the_engine_refuses_and_says_why(elsewhere):
    q = torch.randn(1, 2, 3, 5)
    assert native.why_not() == (
        "it was not built: install a C++ compiler with OpenMP, then Regard again from source"
    )
    with pytest.raises(EngineError, match="native: it was not built: install a C.. compiler with OpenMP"):
        rg.observe(q, q, q, engine="native")
    assert rg.observe(q, q, q).engine == "tiles"


def test_a_file_that_is_no_library_is_named(elsewhere):
    (elsewhere / "_native.so").write_text("no library")
    assert str(native.why_not()).startswith("its library does not load: ")


def test_a_library_of_other_sources_is_not_called(built, elsewhere, monkeypatch):
    shutil.copy(built, elsewhere)
    monkeypatch.setattr(abi, "STRUCTURES", abi.STRUCTURES[1:])
    assert str(native.why_not()).startswith("its library was built for another version of Regard")


def test_a_build_that_does_not_run_here_cannot_be_asked_for(built, monkeypatch):
    monkeypatch.setenv(library.ENVIRONMENT, "sse9")
    with pytest.raises(EngineError, match=r"REGARD_CPU must be one of \[.*'baseline'\].*, got 'sse9'"):
        native.build()


@pytest.mark.timeout(900)
def test_the_sources_compile_and_run_on_aarch64(tmp_path):
    """The same folds, compiled for another processor without a warning, agree there with double precision."""
    compiler, emulator = tool("aarch64-linux-gnu-g++"), tool("qemu-aarch64")
    target = (
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={compiler}",
    )
    flags = ("-DREGARD_CHECK=ON", "-DCMAKE_CXX_FLAGS=-Werror")
    run(tool("cmake"), "-S", NATIVE, "-B", tmp_path, *target, *flags)
    run(tool("cmake"), "--build", tmp_path, "--target", "check")
    lines = run(emulator, "-L", "/usr/aarch64-linux-gnu", tmp_path / "check", "20").splitlines()
    assert lines == ["baseline: 20 cases", "0 wrong"]
