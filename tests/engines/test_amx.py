"""The products of bfloat16 tiles that Intel's AMX does, on an imitation of its tiles, against float64 of the inputs.

The library is built here with `REGARD_IMITATE_AMX`, so the code that cuts tiles runs on processors without them.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard as rg
from engines import drawn
from helpers.cases import Case, draw_tensors, faults, found
from regard.engines.native import library
from regard.engines.native.marshal import HALVES
from regard.errors import EngineError

SOURCES = Path(__file__).parents[2] / "native"
AMX = drawn.Runner("native", "amx")
NEEDED = {"cmake": "CMake", "c++": "a C++ compiler"}


IMITATE = "-DREGARD_IMITATE_AMX"
# What GCC 12 makes of its own _tile_loadconfig: an object of the stack, and an operand of 8 bytes.
CONSTANT = "static inline void amx_begin() { amx_configure(TILE_SHAPES); }"
ON_THE_STACK = """static inline void amx_begin() {
  struct {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shapes;
  REGARD_CONFIGURE("m"(*(const void* const*)&shapes));
}"""


def need(programs: Mapping[str, str]) -> None:
    """The test is skipped where one of these programs is missing."""
    missing = [what for program, what in programs.items() if shutil.which(program) is None]
    if missing:
        pytest.skip(f"to build the library the test needs {' and '.join(missing)}")


def run(*command: str | Path) -> None:
    """A command that must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder of a library with imitated tiles."""
    need(NEEDED)
    folder = tmp_path_factory.mktemp("imitation")
    # What is imitated is slow anyway, and compiles in a quarter of the time when little is optimized.
    options = (f"-DCMAKE_CXX_FLAGS={IMITATE}", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")
    run("cmake", "-S", SOURCES, "-B", folder, *options)
    run("cmake", "--build", folder, "--parallel", "2")
    return folder


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """The library of this folder takes the place of the one in use."""
    caches = (library._opened, library.builds, library._warn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FOLDER", folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        for cached in caches:
            cached.cache_clear()
        if not library.builds().get("amx", (0, False))[1]:
            pytest.skip("the imitation needs a processor with AVX-512 BF16")
        yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture(scope="module")
def imitation(built):
    """The library with imitated tiles is in use."""
    with in_use(built):
        yield


def check(case: Case) -> list[str]:
    with AMX.running():
        assert HALVES[library.build()] == 2  # products by tiles
        seen = case.observe(engine="native", map=8)
    return faults(found(seen), case, case.truth(torch.float32, seen.map.cell), seen.map.cell)


@pytest.mark.parametrize(
    "dim, value_dim", [(32, 32), (64, 64), (96, 33), (128, 65), (256, 96), (34, 64), (7, 32)]
)
@pytest.mark.parametrize(
    "mask", [None, rg.causal(), rg.near(30) | rg.strided(9)], ids=["all", "causal", "scattered"]
)
def test_widths_that_tiles_take_whole_in_part_and_not_at_all(imitation, mask, dim, value_dim):
    for queries, keys in ((53, 32), (101, 67), (61, 193)):
        case = Case(*draw_tensors(1, 2, 1, queries, keys, dim, value_dim), {"mask": mask}).to(torch.bfloat16)
        assert check(case) == []


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_call_is_the_truth(imitation, data):
    call = data.draw(drawn.drawn(AMX, dtypes=(torch.bfloat16,)))
    seen = call.observe(AMX)
    cell = seen.map.cell if call.grid else 0
    assert faults(call.found(seen), call.case, call.case.truth(torch.float32, cell), cell) == []


def test_nan_in_masked_values_does_not_leak(imitation):
    case = Case(*draw_tensors(1, 2, 1, 53, 128, 64, 64), {"mask": rg.prefix(70)}).to(torch.bfloat16)
    case.key[:, :, 70:], case.value[:, :, 70:] = torch.nan, torch.inf
    with AMX.running():
        seen = case.observe(engine="native")
    clean = Case(case.query, case.key.nan_to_num(0), case.value.nan_to_num(0, 0, 0), case.keywords)
    assert faults(found(seen), clean, clean.truth(torch.float32)) == []


def test_a_build_that_would_die_is_left_aside_and_the_call_is_right(built, tmp_path, monkeypatch):
    """The build that ended the process on every processor with AMX: its trial dies, and the next one computes."""
    need({"g++": "g++"})
    monkeypatch.delenv("REGARD_CPU", raising=False)
    sources = shutil.copytree(SOURCES, tmp_path / "native")
    text = (sources / "amx.h").read_text()
    assert text.count(CONSTANT) == 1
    (sources / "amx.h").write_text(text.replace(CONSTANT, ON_THE_STACK))
    flags = [
        "-O2",
        "-std=c++17",
        "-fPIC",
        "-fopenmp",
        "-fno-exceptions",
        "-fno-rtti",
        "-fno-math-errno",
        IMITATE,
    ]
    vectors = [f"-mavx512{name}" for name in ("f", "dq", "bw", "vl")]
    faulty = tmp_path / "kernels.o"
    run(
        "g++",
        *flags,
        *vectors,
        "-mfma",
        "-mf16c",
        "-DREGARD_ISA=avx512",
        "-c",
        sources / "kernels.cpp",
        "-o",
        faulty,
    )
    others = [built / f"CMakeFiles/kernels_{name}.dir/kernels.cpp.o" for name in ("avx2", "baseline")]
    rest = [sources / name for name in ("dispatch.cpp", "look.cpp", "proof.cpp")]
    folder = tmp_path / "library"
    folder.mkdir()
    run("g++", *flags, "-shared", "-fvisibility=hidden", *rest, faulty, *others, "-o", folder / "_native.so")
    case = Case(*draw_tensors(1, 2, 1, 53, 67, 64, 64), {"mask": rg.causal()}).to(torch.bfloat16)
    with in_use(folder):
        with pytest.warns(
            RuntimeWarning, match="the build 'amx' of the native engine died of SIGABRT in a trial"
        ):
            seen = case.observe(engine="native")
        assert library.build() == "avx512_bf16"
        monkeypatch.setenv("REGARD_CPU", "amx")
        with pytest.raises(EngineError, match="got 'amx': in a trial it died of SIGABRT"):
            case.observe(engine="native")
    assert faults(found(seen), case, case.truth(torch.float32)) == []
