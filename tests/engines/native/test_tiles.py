"""The tiles of native/amx.h: what the compiler is told about them, and an imitation as strict as a processor."""

from __future__ import annotations

import re
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from regard.engines import native

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "native"
AVX512 = ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c")
LEVELS = ("-O0", "-O1", "-O2", "-O3")


def compiler() -> str:
    """GCC for x86-64, whose way with dead stores the faults below need; without it the test is skipped."""
    found = shutil.which("g++") or pytest.skip("needs g++")
    said = [
        subprocess.run([found, flag], capture_output=True, text=True).stdout
        for flag in ("-dumpmachine", "--version")
    ]
    if not said[0].startswith("x86_64") or "Free Software Foundation" not in said[1]:
        pytest.skip("needs GCC for x86-64")
    return found


def compiled(to: Path, *flags: str) -> Path:
    """The shim, compiled with these flags."""
    command = [compiler(), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi"]
    command += ["-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-unused-function", *AVX512, *flags]
    done = subprocess.run(
        [*command, f"-I{NATIVE}", HERE / "tiles_shim.cpp", "-o", to], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return to


def need_avx512() -> None:
    if not native.builds().get("avx512", (0, False))[1]:
        pytest.skip("the imitation needs a processor with AVX-512")


@pytest.fixture(scope="module", params=LEVELS)
def imitation(request, tmp_path_factory) -> Path:
    """The shim on imitated tiles, at each level of optimization."""
    need_avx512()
    return compiled(tmp_path_factory.mktemp("shim") / "shim", request.param, "-DREGARD_IMITATE_AMX")


def ran(shim: Path, *arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.split()


def configuration(palette=1, start=0, reserved=0, bytes_=(64,) * 8, rows=(16,) * 8) -> bytes:
    """The 64 bytes as the manual lays them out."""
    padded = [*bytes_, *[0] * (16 - len(bytes_))], [*rows, *[0] * (16 - len(rows))]
    return struct.pack("<2B14B16H16B", palette, start, *[0] * 13, reserved, *padded[0], *padded[1])


def test_configured_tiles_multiply_pairs(imitation):
    status, words = ran(imitation, "begin")
    assert status == 0 and words == [*["112.5"] * 256, "done"]  # 0.5 + 16 · (1 · 1 + 2 · 3)


def test_a_load_sees_what_was_written_and_a_read_what_a_tile_wrote(imitation):
    assert ran(imitation, "written")[0] == 0
    status, words = ran(imitation, "read")
    assert status == 0 and words[0] == "0"


@pytest.mark.parametrize("what", ["", "ended"], ids=["never", "released"])
def test_a_tile_that_is_not_configured_ends_the_process(imitation, what):
    assert ran(imitation, what) == (-signal.SIGABRT, [])


BAD = {
    "palette 2": {"palette": 2},
    "reserved byte": {"reserved": 1},
    "start row": {"start": 3},
    "17 rows": {"rows": (16,) * 7 + (17,)},
    "65 bytes": {"bytes_": (64,) * 7 + (65,)},
    "rows without bytes": {"bytes_": (64,) * 7},
    "bytes without rows": {"rows": (16,) * 7},
    "a ninth tile": {"bytes_": (64,) * 9, "rows": (16,) * 9},
}


@pytest.mark.parametrize("name", BAD)
def test_a_configuration_that_hardware_refuses_ends_the_process(imitation, name):
    good, bad = configuration().hex(), configuration(**BAD[name]).hex()
    assert ran(imitation, "use", good)[0] == 0
    assert ran(imitation, "use", bad) == (-signal.SIGABRT, [])


def test_palette_0_takes_the_tiles_away(imitation):
    off = configuration(palette=0, bytes_=(), rows=()).hex()
    assert ran(imitation, "use", off) == (-signal.SIGABRT, [])


def test_rows_and_bytes_are_those_that_were_configured(imitation):
    """A product of 3 rows by 5 pairs by 7 lanes; what lies outside is not touched."""
    shapes = configuration(bytes_=(28, 20, 28), rows=(3, 3, 5)).hex()
    status, words = ran(imitation, "use", shapes)
    expected = (["35.5"] * 7 + ["0.5"] * 9) * 3 + ["0.5"] * 16 * 13
    assert status == 0 and words == [*expected, "done"]


@pytest.mark.parametrize(
    "bytes_, rows", [((64, 64, 60), (16,) * 3), ((64, 60, 64), (16,) * 3), ((64,) * 3, (16, 15, 16))]
)
def test_tiles_that_do_not_fit_together_end_the_process(imitation, bytes_, rows):
    assert ran(imitation, "use", configuration(bytes_=bytes_, rows=rows).hex())[0] == -signal.SIGABRT


@pytest.mark.parametrize("level", LEVELS[1:])
def test_an_operand_that_covers_8_of_the_64_bytes_is_seen(tmp_path, level):
    """The imitation reads what the hardware would: stores that the compiler takes for dead are missing."""
    need_avx512()
    shim = compiled(tmp_path / "shim", level, "-DREGARD_IMITATE_AMX")
    assert ran(shim, "8 bytes") == (-signal.SIGABRT, [])


def body(assembly: str, function: str) -> list[str]:
    """The instructions of a function of the shim."""
    label = next(line for line in assembly.splitlines() if re.match(rf"_Z\d+{function}[a-z]*:", line))
    lines = assembly.partition(f"\n{label}\n")[2].splitlines()
    end = next(i for i, line in enumerate(lines) if ".cfi_endproc" in line)
    return [line.strip() for line in lines[:end] if line.startswith("\t") and not line.startswith("\t.")]


def stores_before(lines: list[str], instruction: str) -> int:
    """How many registers are moved into memory before an instruction."""
    at = next(i for i, line in enumerate(lines) if line.startswith(instruction))
    return sum(bool(re.match(r"v?mov\w*\s+%[^,]+, .*\(.*\)$", line)) for line in lines[:at])


@pytest.mark.parametrize("level", LEVELS[1:])
def test_no_store_is_dropped_or_moved_behind_a_load_of_a_tile(tmp_path, level):
    assembly = compiled(tmp_path / "shim.s", level, "-S").read_text()
    assert stores_before(body(assembly, "load_what_was_just_written"), "tileloadd") > 0
    assert stores_before(body(assembly, "load_without_saying_so"), "tileloadd") == 0


@pytest.mark.parametrize("level", LEVELS[1:])
def test_the_configuration_is_read_from_constant_memory(tmp_path, level):
    shim = compiled(tmp_path / "shim.o", level, "-c", "-fPIC").read_bytes()
    assert configuration() in shim
    assembly = compiled(tmp_path / "shim.s", level, "-S", "-fPIC").read_text()
    operands = re.findall(r"ldtilecfg\s+(.*)", assembly)
    assert any("TILE_SHAPES" in operand and "(%rip)" in operand for operand in operands)
    # and the one on the stack does not have its rows
    assert not any("TILE_SHAPES" in line for line in body(assembly, "configure_by_8_bytes"))
