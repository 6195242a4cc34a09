"""`regard verify`: within budget here, and able to say when it is not."""

import regard as rg
from regard.cli import verify
from regard.engines import tiles


def test_every_engine_keeps_to_its_budget(regard):
    status, out, _ = regard("verify")
    assert status == 0 and "0 beyond their budget" in out
    assert all(engine.name in out for engine in rg.engines.ENGINES)


def test_a_wrong_engine_is_found(regard, monkeypatch):
    honest = tiles.rows

    def wrong(*arguments):
        state = honest(*arguments)
        return type(state)(**(vars(state) | {"u": None if state.u is None else state.u * 1.001}))

    monkeypatch.setattr(tiles, "rows", wrong)
    status, out, _ = regard("verify", "--full")
    assert status == 1 and "entropy" in out and "too large" in out


def test_nan_is_beyond_every_budget():
    assert not verify.Error("tiles", "case", "entropy", float("nan"), 1.0).within


def test_a_missing_device_is_a_mistake(regard):
    status, _, err = regard("verify", "--device", "nonsense")
    assert status == 2 and "the device must be one that torch has here" in err
