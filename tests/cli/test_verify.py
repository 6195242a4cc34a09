"""`regard verify`: within budget here, able to say when it is not, and why an engine is not there."""

import os

import pytest

import regard as rg
from regard.cli import verify
from regard.engines import native, tiles
from regard.engines.native.proof import Verdict

FEW = ("causal", "few queries")


@pytest.fixture
def short(monkeypatch):
    """Two cases, where how lines are told matters and not what is in them."""
    cases = verify._cases
    monkeypatch.setattr(verify, "_cases", lambda generator: {name: cases(generator)[name] for name in FEW})


def test_every_engine_and_build_keeps_to_its_budget(regard):
    status, out, _ = regard("verify")
    assert status == 0 and "0 beyond their budget" in out
    assert all(engine.name in out for engine in rg.engines.ENGINES)
    assert all(f"native {name} " in out for name, (_, runs) in native.builds().items() if runs)
    assert all(precision in out for precision in verify.DTYPES)


def test_what_an_engine_does_not_take_is_told(regard, short, monkeypatch):
    monkeypatch.setattr(verify, "ENGINES", (native, tiles))
    monkeypatch.setattr(native, "builds", dict)
    monkeypatch.setattr(native, "refuses", lambda *_: "it was not built: install a C++ compiler")
    before = os.environ.get(verify.ENVIRONMENT)
    status, out, _ = regard("verify")
    assert status == 0 and os.environ.get(verify.ENVIRONMENT) == before
    told = [line for line in out.splitlines() if line.startswith("not checked: native")]
    precisions = "float64, float32, bfloat16, float16"
    assert told == [f"not checked: native in {precisions}: it was not built: install a C++ compiler"]


def test_builds_that_were_proved_are_told_and_others_are_not_run(regard, short, monkeypatch):
    running = [name for name, (_, runs) in native.builds().items() if runs]
    if len(running) < 2:
        pytest.skip("needs two builds of the native engine")
    honest = native.verdict

    def verdict(name):
        return Verdict(False, "died of SIGILL") if name == running[0] else honest(name)

    monkeypatch.setattr(verify, "ENGINES", (native, tiles))
    monkeypatch.setattr(native, "verdict", verdict)
    status, out, _ = regard("verify")
    (told,) = [line for line in out.splitlines() if line.startswith("builds of native: ")]
    assert status == 0 and f"{running[0]} died of SIGILL" in told and f"{running[1]} proved" in told
    compared = out.partition("builds of native")[0]
    assert f"native {running[1]} " in compared and f"native {running[0]} " not in compared


def test_outputs_statistics_columns_maps_and_gradients_are_compared(short):
    lines = [line for line in verify.measure() if isinstance(line, verify.Error)]
    expected = {
        "output",
        *rg.statistics.TABLE,
        "map",
        "map peak",
        "top",
        "top keys",
        "d query",
        "d key",
        "d value",
    }
    for name, precision in (("tiles", "float64"), ("tiles", "bfloat16")):
        found = {line.statistic for line in lines if (line.engine, line.precision) == (name, precision)}
        assert found == expected


@pytest.mark.parametrize("part, statistic", [("u", "entropy"), ("o", "output"), ("l", "lse")])
def test_a_wrong_engine_is_found(regard, short, monkeypatch, part, statistic):
    honest = tiles.rows

    def wrong(*arguments):
        state = honest(*arguments)
        return type(state)(**(vars(state) | {part: getattr(state, part) * 1.02}))

    monkeypatch.setattr(tiles, "rows", wrong)
    status, out, _ = regard("verify", "--full")
    bad = [line for line in out.splitlines() if "too large" in line]
    assert status == 1 and any(statistic in line for line in bad) and all("tiles" in line for line in bad)


def test_nan_is_beyond_every_budget():
    assert not verify.Error("tiles", "float32", "case", "entropy", float("nan"), 1.0).within


def test_a_missing_device_is_a_mistake(regard):
    status, _, err = regard("verify", "--device", "nonsense")
    assert status == 2 and "the device must be one that torch has here" in err
