"""Saved records are mapped and not read, their pyramids lie beside them, and what is damaged is not used."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard as rg
from helpers.altered import flips
from helpers.dense_tiles import DenseTiles, faults, observed_call, places
from helpers.small_tiles import small_tiles
from regard.errors import ArgumentError, RecordError
from regard.record import Call, Record
from regard.web.tiles import RecordTiles, pyramid_file, tiles_of
from regard.web.tiles.map_tiles import MapTiles


def a_call(layer: str = "layer.0", cells: int | None = None) -> Call:
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 37, 5), torch.randn(2, 2, 41, 5)
    call = observed_call(query, key, cells=cells, mask=rg.causal() & ~rg.prefix([1, 3]), align="start")
    return replace(call, layer=layer)


def save(folder: Path, *calls: Call) -> Path:
    Record(list(calls)).save(folder)
    return folder


def all_tiles(tiles: RecordTiles, head: int = 3, batch: int = 1) -> list[torch.Tensor]:
    one = tiles.head(0, head, batch)
    return [one.tile(*place, pool) for place in places(37, 41) for pool in ("max", "mean")]


def test_a_saved_record_gives_the_tiles_of_the_one_in_memory(tmp_path):
    call = a_call()
    folder = save(tmp_path / "record", call)
    with small_tiles():
        saved, kept = RecordTiles.open(folder), RecordTiles(Record([call]))
        for head, batch in ((0, 0), (3, 1)):
            for a, b in zip(all_tiles(saved, head, batch), all_tiles(kept, head, batch), strict=True):
                assert torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0))


def test_pyramids_are_found_again_and_are_the_same(tmp_path):
    folder, shares = save(tmp_path / "record", a_call()), []
    with small_tiles():
        first = RecordTiles.open(folder)
        assert not first.head(0, 3, 1).ready(8)
        first.prepare([(0, 3, 1)], shares.append)
        assert shares == sorted(shares) and shares[-1] == 1.0
        assert [path.name for path in sorted((folder / "pyramids").iterdir())] == [
            "call-0-head-3-batch-1.json",
            "call-0-head-3-batch-1.safetensors",
        ]
        again = RecordTiles.open(folder)
        head = again.head(0, 3, 1)
        assert head.ready(8) and head.pyramid.complete and head is again.head(-1, -1, -1)
        for a, b in zip(all_tiles(first), all_tiles(again), strict=True):
            assert torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0))
        dense = DenseTiles.of(a_call(), 3, 1)
        for place in places(37, 41):
            assert faults(head.tile(*place, "mean"), dense.tile(*place, "mean")) == []
    # The record is still one.
    assert len(rg.load(folder)) == 1


def test_all_heads_are_prepared_once(tmp_path, monkeypatch):
    tiles = RecordTiles.open(save(tmp_path / "record", a_call(), replace(a_call("layer.1"), query=None)))
    tiles.prepare()
    assert len(list((tmp_path / "record" / "pyramids").glob("*.json"))) == 8
    monkeypatch.setattr(pyramid_file, "save", lambda *_: pytest.fail("it is there already"))
    tiles.prepare()
    RecordTiles.open(tmp_path / "record").prepare()


def test_a_pyramid_of_another_record_is_not_used(tmp_path):
    folder = save(tmp_path / "record", a_call())
    RecordTiles.open(folder).prepare([(0, 0, 0)])
    save(folder, replace(a_call(), query=a_call().query + 1))
    assert not RecordTiles.open(folder).head(0, 0, 0).pyramid.complete


def test_a_damaged_pyramid_is_not_used(tmp_path):
    folder = save(tmp_path / "record", a_call())
    RecordTiles.open(folder).prepare([(0, 0, 0)])
    for path in sorted((folder / "pyramids").iterdir()):
        content = path.read_bytes()
        for what, damaged in [*flips(content, 20, 0), ("cut", content[:-1]), ("empty", b"")]:
            path.write_bytes(damaged)
            assert not RecordTiles.open(folder).head(0, 0, 0).pyramid.complete, (path.name, what)
        path.unlink()
        assert not RecordTiles.open(folder).head(0, 0, 0).pyramid.complete
        path.write_bytes(content)
    assert RecordTiles.open(folder).head(0, 0, 0).pyramid.complete


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors | {"more": torch.zeros(1)},
        lambda tensors: tensors | {"states": torch.zeros_like(tensors["states"])},
        lambda tensors: tensors | {"states": tensors["states"].float()},
        lambda tensors: tensors | {"tops": tensors["tops"][:3]},
        lambda tensors: tensors | {"0.slots": tensors["0.slots"] + 1},
        lambda tensors: tensors | {"0.slots": tensors["0.slots"] - 7},
        lambda tensors: tensors | {"1.tiles": tensors["1.tiles"].float()},
        lambda tensors: tensors | {"1.tiles": tensors["1.tiles"][..., :-1]},
        lambda tensors: {name: tensor for name, tensor in tensors.items() if name != "0.tiles"},
    ],
)
def test_a_pyramid_whose_tensors_do_not_fit_is_not_used(tmp_path, change):
    one = tiles_of(a_call(), 0)
    one.prepare()
    pyramid_file.save(one.pyramid, tmp_path, "a", {})
    tensors, _ = _unsealed(tmp_path / "a.safetensors")
    assert pyramid_file._unpacked(tensors, 37, 41) is not None
    assert pyramid_file._unpacked(change(tensors), 37, 41) is None
    assert pyramid_file._unpacked(tensors, 37, 31) is None


def _unsealed(path):
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.offset_keys()}, file.metadata()


def test_a_mapped_record_is_the_one_that_is_read(tmp_path):
    folder = save(tmp_path / "record", a_call(cells=8))
    read, mapped = Record.load(folder), Record.load(folder, mapped=True)
    for name in ("query", "key", "lse", "max_weight"):
        assert torch.equal(getattr(read[0], name), getattr(mapped[0], name))
    assert torch.equal(read[0].map.total, mapped[0].map.total)


def test_a_mapped_record_of_another_size_is_refused(tmp_path):
    folder = save(tmp_path / "record", a_call())
    (data,) = folder.glob("statistics-*")
    data.write_bytes(data.read_bytes() + b"\0")
    with pytest.raises(RecordError, match="is cut short or altered"):
        RecordTiles.open(folder)
    body = json.loads((folder / "record.json").read_text())
    assert body["files"]["statistics"]["bytes"] == data.stat().st_size - 1


def test_a_record_that_is_replaced_meanwhile_stays_what_it_was(tmp_path):
    folder = save(tmp_path / "record", a_call())
    tiles = RecordTiles.open(folder)
    before = tiles.head(0, 1).row(5)
    save(folder, replace(a_call(), query=a_call().query + 1))
    assert torch.equal(tiles.head(0, 1).row(5), before)
    assert torch.equal(tiles.head(0, 2).row(5), tiles_of(a_call(), 2).row(5))


def test_a_record_that_is_replaced_while_it_is_opened_is_opened_again(tmp_path, monkeypatch):
    folder, load, other = tmp_path / "record", Record.load, replace(a_call(), query=a_call().query + 1)
    save(folder, a_call())
    turns = iter([other, None])

    def replaced(path, **more):
        record, call = load(path, **more), next(turns)
        if call is not None:
            save(folder, call)
        return record

    monkeypatch.setattr(Record, "load", replaced)
    tiles = RecordTiles.open(folder)
    assert torch.equal(tiles.record[0].query, other.query)
    turns = iter([a_call(), other] * 9)
    with pytest.raises(RecordError, match="must stay while it is opened"):
        RecordTiles.open(folder)


@pytest.mark.parametrize("path", ["nothing", "record/record.json", 3])
def test_what_is_no_record_is_not_opened(tmp_path, path):
    save(tmp_path / "record", a_call())
    where = path
    if isinstance(path, str):
        where = tmp_path / path
    with pytest.raises((RecordError, ArgumentError)):
        RecordTiles.open(where)


@pytest.mark.parametrize(
    "place, message",
    [
        ((1, 0, 0), "call must be an integer from 0 to 0, got 1"),
        ((0, 4, 0), "head must be an integer from 0 to 3, got 4"),
        ((0, 0, 2), "batch must be an integer from 0 to 1, got 2"),
    ],
)
def test_what_the_record_has_not_is_said(place, message):
    with pytest.raises(ArgumentError, match=message):
        RecordTiles(Record([a_call()])).head(*place)


# --- without vectors ---------------------------------------------------------------------------------------


def test_without_vectors_the_levels_of_the_map_are_there():
    call = a_call(cells=16)
    assert call.map.cell == 4
    tiles, exact = tiles_of(replace(call, query=None), 3, 1), tiles_of(call, 3, 1)
    assert isinstance(tiles, MapTiles) and tiles.least_cell == 4
    assert tiles.ready(4) and tiles.ready(64) and not tiles.ready(2)
    for cell in (4, 8, 64):
        for pool in ("max", "mean"):
            wanted = exact.tile(cell, 0, 0, pool).nan_to_num(-torch.inf)
            torch.testing.assert_close(tiles.tile(cell, 0, 0, pool), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tiles: tiles.tile(2, 0, 0),
        lambda tiles: tiles.row(0),
        lambda tiles: tiles.column(0),
        lambda tiles: tiles.window(0, 1, 0, 1),
        lambda tiles: tiles.pair(0, 0),
        lambda tiles: tiles.peaks(),
    ],
)
def test_without_vectors_the_rest_says_how_to_get_it(ask):
    tiles = tiles_of(replace(a_call(cells=16), key=None), 0)
    with pytest.raises(RecordError, match=r'cells of 4 tokens: watch with keep="vectors"'):
        ask(tiles)
    with pytest.raises(RecordError, match="no map was kept that begins at the first query"):
        ask(tiles_of(replace(a_call(), key=None), 0))


def test_a_map_whose_cells_begin_before_the_first_query_is_not_taken():
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 37, 5), torch.randn(1, 1, 40, 5)
    call = observed_call(query, key, cells=16, mask=rg.causal())
    assert call.offset % call.map.cell
    dense = DenseTiles.of(call, 0)
    for cell in (4, 8, 16):
        assert faults(tiles_of(call, 0).tile(cell, 0, 0), dense.tile(cell, 0, 0, "max")) == []
    with pytest.raises(RecordError, match="no map was kept that begins at the first query"):
        tiles_of(replace(call, query=None), 0).least_cell  # noqa: B018
