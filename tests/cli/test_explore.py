"""What `regard explore` refuses, in one message; what it serves is tested beside the explorer."""

import pytest

from regard.cli import explore
from regard.explorer import serve


@pytest.fixture(autouse=True)
def serving(monkeypatch):
    """A server that ends at once, and the app that it was given."""
    apps = []
    monkeypatch.setattr(serve, "serve", lambda app, listening, ready: apps.append(app))
    return apps


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no-such-model"], "there is no folder 'no-such-model' here"),
        (["--host", "0.0.0.0"], "must have a password of at least"),
        (["--port", "99999"], "--port must be from 0 to 65535"),
        (["--host", "no-such-host.invalid", "--password", "long enough"], "must be an address that is free"),
    ],
)
def test_what_cannot_be_is_told_in_one_message(regard, arguments, reason):
    status, _, err = regard("explore", "--no-browser", *arguments)
    assert status == 2 and reason in err and len(err.splitlines()) == 1


def test_records_and_tasks_are_told_apart(regard, folders, serving, tmp_path):
    assert regard("look", "--record", "translate")[0] == 0
    # A folder called like a task is reached as ./translate.
    status, out, _ = regard("explore", "./translate", "--no-browser")
    assert status == 0 and "/?token=" in out
    opened = serving[0].state.opened
    assert [one.title for one in opened.records()] == ["translate"]
    assert [model.kind for model in opened.models.values()].count("task") == 5


def test_another_address_says_what_it_exposes(regard, monkeypatch):
    monkeypatch.setenv("REGARD_PASSWORD", "long enough")
    regard("look", "--record", "kept")
    status, out, _ = regard("explore", "kept", "--no-browser", "--host", "0.0.0.0")
    assert status == 0 and "can read every open record" in out and "not encrypted" in out


def test_a_browser_is_opened_only_where_it_can_be_seen(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    assert not explore.has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert explore.has_screen()
