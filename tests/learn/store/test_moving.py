"""The file of progress that there was before the database moves in once, and is then set aside."""

from __future__ import annotations

import json
import os

import pytest

from regard.errors import ArgumentError
from regard.files import sealing
from regard.learn.store import Store
from regard.learn.store.earlier import FORM


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which the file lies."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "regard"
    folder.mkdir()
    return folder


def test_the_file_moves_in_once(folder):
    path, aside = folder / "learn.json", folder / "learn.before.json"
    content = sealing.document(FORM, {"passed": ["attention", "cosine"]}, indent=1)
    path.write_bytes(content)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    learner = Store().learner()
    assert learner.passed() == {"attention", "cosine"}
    assert learner.solution("cosine").at.timestamp() == 1_700_000_000
    assert not path.exists() and aside.read_bytes() == content
    # What is begun anew must not come back.
    learner.begin_anew("attention")
    assert Store().learner().passed() == {"cosine"}
    path.write_bytes(content)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert Store().learner().passed() == {"cosine"}


def test_a_damaged_file_changes_nothing(folder):
    path = folder / "learn.json"
    path.write_text(json.dumps({"passed": ["attention"]}))
    with pytest.raises(ArgumentError, match="learn.json"):
        Store()
    assert [one.name for one in folder.iterdir()] == ["learn.json"]


def test_another_database_than_the_users_own_is_left_alone(folder, tmp_path):
    path = folder / "learn.json"
    path.write_bytes(sealing.document(FORM, {"passed": ["attention"]}))
    assert Store(f"sqlite:///{tmp_path / 'other.db'}").learner().passed() == set()
    assert path.exists()


def test_a_folder_that_cannot_be_made_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(ArgumentError, match="the folder of progress must be one that can be made"):
        Store()
