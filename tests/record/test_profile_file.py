"""A profile survives its file to the bit, equal profiles are equal files, and no altered file is read."""

import random

import pytest
import torch

import regard as rg
from helpers.calls import a_record, difference
from regard.errors import ArgumentError, RecordError
from regard.record import History, Profile
from regard.record.profile import Failure


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    failures = (Failure(3, "ValueError", 'no "text"'), Failure(7, "IndexError", "Ω"))
    profile = Profile.of([a_record(0), a_record(1)]).merge(Profile(failures=failures, truncated=2))
    path = tmp_path_factory.mktemp("profile") / "profile"
    profile.save(path)
    return profile, path


def test_it_comes_back_as_it_was(saved):
    profile, path = saved
    loaded = rg.load(path)
    assert difference(vars(loaded), vars(profile)) is None
    assert list(loaded.layers) == list(profile.layers)
    assert loaded.failures[1].message == "Ω"
    assert repr(loaded) == "Profile of 2 records, 2 layers, 2 texts that failed"


def test_equal_profiles_are_equal_files(saved, tmp_path):
    first, second = Profile.of([a_record(0)]), Profile.of([a_record(1)])
    rest = Profile(failures=saved[0].failures, truncated=2)
    second.merge(rest.merge(first)).save(tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == saved[1].read_bytes()


def test_nothing_is_a_profile_too(tmp_path):
    Profile().save(tmp_path / "empty")
    assert difference(vars(rg.load(tmp_path / "empty")), vars(Profile())) is None


def test_no_flipped_bit_is_read(saved, tmp_path):
    content, generator = saved[1].read_bytes(), random.Random(0)
    places = [*range(64), *(generator.randrange(len(content)) for _ in range(120)), len(content) - 1]
    for place in places:
        altered = bytearray(content)
        altered[place] ^= 1 << generator.randrange(8)
        (tmp_path / "altered").write_bytes(altered)
        with pytest.raises(RecordError):
            rg.load(tmp_path / "altered")
        with pytest.raises(RecordError, match="altered"):
            Profile.load(tmp_path / "altered")
    for length in (0, 7, 100, len(content) - 1):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(RecordError):
            rg.load(tmp_path / "cut")


def test_load_says_what_a_path_is(saved, tmp_path):
    History.of(0, a_record(0)).save(tmp_path / "history")
    assert isinstance(rg.load(tmp_path / "history"), History)
    with pytest.raises(RecordError, match="is no profile of Regard"):
        Profile.load(tmp_path / "history")
    a_record(0).save(tmp_path / "record")
    assert isinstance(rg.load(tmp_path / "record"), rg.record.Record)
    with pytest.raises(RecordError, match="there is no such file"):
        Profile.load(tmp_path / "nowhere")
    with pytest.raises(RecordError, match="there is no such folder"):
        rg.load(tmp_path / "nowhere")
    (tmp_path / "text").write_text("text")
    with pytest.raises(RecordError, match="a record is a folder, and this is a file"):
        rg.load(tmp_path / "text")
    with pytest.raises(ArgumentError, match="path must be a string or a path, got 3"):
        rg.load(3)


def test_parts_that_do_not_fit_are_refused(saved, tmp_path):
    profile = saved[0]
    (key, layer), *_ = profile.layers.items()
    wrong = type(layer)(**(vars(layer) | {"counts": torch.zeros(1, 1, dtype=torch.int64)}))
    Profile({key: wrong}).save(tmp_path / "wrong")
    with pytest.raises(
        RecordError, match=r"is damaged: counts must be \(\d+, 6\) of torch.int64, got \(1, 1\)"
    ):
        Profile.load(tmp_path / "wrong")
