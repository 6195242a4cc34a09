"""Nothing that is read back has another meaning than what was written: whatever is altered is refused by name."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from helpers.altered import cuts, flips, loaded_otherwise
from helpers.calls import a_record, same
from regard.errors import ArgumentError, MissingPackageError, ModelError, RecordError
from regard.files import sealing
from regard.record import load
from regard.tasks.common.task import read_card, write_card
from regard.training import History, Recipe

# `make proof` alters ten times as much.
COUNTS = {"record.json": 20_000, "statistics": 2000, "heads": 2000}  # every bit of the first
MORE = 10 if settings.get_current_profile_name() == "proof" else 1


@pytest.fixture
def saved(tmp_path):
    a_record().save(tmp_path / "record")
    return tmp_path / "record"


@pytest.mark.parametrize("kind", ["record.json", "statistics", "heads"])
def test_no_flipped_bit_of_a_record_loads_with_another_meaning(saved, kind):
    (path,) = saved.glob(f"{kind}*")
    record = load(saved)
    tried, wrong = loaded_otherwise(
        path,
        flips(path.read_bytes(), COUNTS[kind] * MORE, seed=7),
        lambda: load(saved),
        RecordError,
        lambda found: same(record, found) is None,
    )
    assert wrong == [] and tried >= min(COUNTS[kind], 8 * path.stat().st_size)
    assert same(record, load(saved)) is None


@pytest.mark.parametrize("kind", ["record.json", "statistics", "heads"])
def test_no_cut_or_lengthened_file_of_a_record_loads(saved, kind):
    (path,) = saved.glob(f"{kind}*")
    tried, wrong = loaded_otherwise(
        path, cuts(path.read_bytes(), 40 * MORE, seed=3), lambda: load(saved), RecordError, lambda _: False
    )
    assert wrong == [] and tried >= 120 * MORE


def history():
    values = torch.arange(12.0).reshape(3, 2, 2)
    layer = {"name": "a.b", "kind": "self", "heads": 2, "cell": 1, "offset": 0, "queries": 3, "keys": 3}
    from regard.record.history import Layer

    maps = (torch.rand(2, 2, 3, 3).half(),)
    return History((Layer(**layer),), ("entropy", "first"), {"first": 1}, (0, 2, 5), values, (0, 5), maps)


def same_history(one, other):
    names = ("layers", "statistics", "parameters", "steps", "pictured")
    tensors = zip((one.values, *one.maps), (other.values, *other.maps), strict=True)
    return all(getattr(one, n) == getattr(other, n) for n in names) and all(
        torch.equal(*pair) for pair in tensors
    )


def a_history(folder):
    path = folder / "history.safetensors"
    history().save(path)
    kept = history_of(path)
    return path, lambda: History.load(path), lambda found: same_history(found, kept)


def history_of(path):
    return History.load(path)


def a_recipe(folder):
    path = folder / "recipe.json"
    recipe = Recipe(max_steps=12345, batch_size=16, learning_rate=3e-4)
    recipe.save(path)
    return path, lambda: Recipe.load(path), lambda found: found == recipe


def a_card(folder):
    path = folder / "card.json"
    card = {"task": "translate", "scores": {"exact": {"score": 0.9945, "interval": [0.991, 0.997]}}}
    write_card(folder, card)
    return path, lambda: read_card(folder), lambda found: found == card


def a_seal(folder):
    """A folder with two files, as a checkpoint and a model's folder are: its seal is altered, or one of them."""
    for name in ("config.json", "inner/weights"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"what {name} holds")
    sealing.seal(folder)

    def check():
        if reason := sealing.broken(folder):
            raise RecordError(reason)

    return folder / sealing.SEAL, check, lambda _: False


def a_listed_file(folder):
    _, check, never = a_seal(folder)
    return folder / "inner/weights", check, never


@pytest.mark.parametrize("kind", [a_history, a_recipe, a_card, a_seal, a_listed_file])
@pytest.mark.parametrize(
    "alterations", [lambda c: flips(c, 1500 * MORE, seed=5), lambda c: cuts(c, 40, seed=5)]
)
def test_nothing_else_that_is_read_back_has_another_meaning(tmp_path, kind, alterations):
    path, read, meant = kind(tmp_path)
    assert read() is None or meant(read())
    content = path.read_bytes()
    tried, wrong = loaded_otherwise(path, alterations(content), read, (RecordError, ArgumentError), meant)
    assert wrong == [] and tried >= 100


# --- whole files -------------------------------------------------------------------------------------------


def of(folder, kind):
    (path,) = folder.glob(f"{kind}*")
    return path


@pytest.mark.parametrize("kind", ["record.json", "statistics", "heads"])
def test_a_file_of_another_record_is_refused(saved, tmp_path, kind):
    a_record(1, ("layer.0", "layer.9")).save(tmp_path / "other")
    theirs = of(tmp_path / "other", kind)
    shutil.copy(theirs, of(saved, kind))  # under the name of ours
    with pytest.raises(RecordError, match="is altered|is missing|cut short"):
        load(saved)


@pytest.mark.parametrize("kind", ["statistics", "heads"])
def test_a_renamed_file_is_missing(saved, kind):
    path = of(saved, kind)
    path.rename(path.with_name(path.name.replace(path.stem[-16:], "0" * 16)))
    with pytest.raises(RecordError, match=f"{path.name}: is missing"):
        load(saved)


@pytest.mark.parametrize("kind", ["record.json", "statistics", "heads"])
def test_an_older_copy_of_a_file_is_refused(saved, tmp_path, kind):
    older = Path(shutil.copytree(saved, tmp_path / "older"))
    a_record(1).save(saved)
    shutil.copy(of(older, kind), of(saved, kind))
    with pytest.raises(RecordError, match="is altered|is missing|cut short"):
        load(saved)


@pytest.mark.parametrize("kind", ["record.json", "statistics", "heads"])
@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file_is_refused(saved, kind, put):
    path = of(saved, kind)
    path.unlink()
    put(path)
    with pytest.raises(RecordError, match=f"{path.name}: must be a plain file"):
        load(saved)


def test_a_file_that_is_listed_and_gone_is_named(tmp_path):
    _, check, _ = a_seal(tmp_path)
    check()
    (tmp_path / "inner/weights").unlink()
    with pytest.raises(RecordError, match="inner/weights: is missing"):
        check()
    (tmp_path / "inner/weights").symlink_to("../config.json")
    with pytest.raises(RecordError, match="inner/weights: must be a plain file"):
        check()


def test_an_altered_model_is_refused(tmp_path, monkeypatch):
    from regard.tasks.common import pretrained as kept

    folder = Path(shutil.copytree(kept.folder("translate", "bahdanau"), tmp_path / "translate" / "bahdanau"))
    monkeypatch.setattr(kept, "root", lambda: tmp_path)
    for name in ("model.safetensors", "config.json", "words.json"):
        path = folder / "model" / name
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        with pytest.raises(ModelError, match=rf"{name}: is altered"):
            kept.load("translate", "bahdanau")
        path.write_bytes(content)
    kept.load("translate", "bahdanau")
    (folder / "model" / sealing.SEAL).unlink()
    with pytest.raises(ModelError, match="seal.json: is missing"):
        kept.load("translate", "bahdanau")


def test_what_the_package_brings_is_whole():
    from regard import embedded
    from regard.tasks.common import pretrained as kept

    folders = [embedded.folder(), *kept.root().rglob("model")]
    assert len(folders) > 10
    assert [reason for folder in folders if (reason := sealing.broken(folder))] == []
    listed = json.loads((embedded.folder() / sealing.SEAL).read_text())["files"]
    assert sorted(listed) == sorted(embedded.SEALED)


def test_an_altered_embedded_model_is_refused(tmp_path):
    from regard import embedded
    from regard.cli import models

    folder = Path(shutil.copytree(embedded.folder(), tmp_path / "embedded"))
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(5_000_000)
        byte = file.read(1)[0]
        file.seek(5_000_000)
        file.write(bytes([byte ^ 16]))
    with pytest.raises(ModelError, match="model.safetensors: is altered"):
        models.load(folder)


# --- documents ---------------------------------------------------------------------------------------------

FORM = sealing.Form("regard-test", 3, "test")


def test_a_document_comes_back():
    body = {"a": [1, 2.5, None, True, "é\ud800"], "b": {"format": "x", "sha256": sealing.ZEROS}}
    for layout in ({}, {"indent": 1}, {"indent": 0, "ensure_ascii": True}):
        assert sealing.opened(sealing.document(FORM, body, **layout), FORM) == body


def test_names_that_json_takes_for_one_are_refused():
    with pytest.raises(ValueError, match="'1' is there twice"):
        sealing.document(FORM, {"info": {1: "a", "1": "b"}})


def test_without_safetensors_it_is_said(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingPackageError, match="safetensors"):
        sealing.unpacked(b"")
