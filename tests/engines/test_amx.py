"""The products of bfloat16 tiles that Intel's AMX does, on an imitation of its tiles, against float64 of the inputs.

The library is built here with `REGARD_IMITATE_AMX`, so the code that cuts tiles runs on processors without them.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard as rg
from cases import Case, draw_tensors, faults, found
from engines import drawn
from regard.engines.native import library
from regard.engines.native.call import HALVES

SOURCES = Path(__file__).parents[2] / "native"
AMX = drawn.Runner("native", "amx")
NEEDED = {"cmake": "CMake", "c++": "a C++ compiler"}


@pytest.fixture(scope="module")
def imitation(tmp_path_factory):
    """The library with imitated tiles takes the place of the one in use."""
    missing = [what for program, what in NEEDED.items() if shutil.which(program) is None]
    if missing:
        pytest.skip(f"to build the library the test needs {' and '.join(missing)}")
    folder = tmp_path_factory.mktemp("imitation")
    configure = ["cmake", "-S", SOURCES, "-B", folder, "-DCMAKE_CXX_FLAGS=-DREGARD_IMITATE_AMX"]
    for command in (configure, ["cmake", "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stdout + done.stderr
    caches = (library._opened, library.builds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FOLDER", folder)
        for cached in caches:
            cached.cache_clear()
        runs = library.builds().get("amx", (0, False))[1]
        if not runs:
            pytest.skip("the imitation needs a processor with AVX-512 BF16")
        yield
    for cached in caches:
        cached.cache_clear()


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
