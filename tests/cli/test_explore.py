"""What `regard explore` refuses, in one message; what it serves is tested beside the explorer."""

import pytest

from regard.cli import explore
from regard.explorer import serve
from regard.explorer.visitors import HERE


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
        (["--client-id", "x"], "must go with --sign-in"),
        (["--client-secret-file", "x"], "must go with --sign-in"),
        (["--sign-in", "https://id.example"], "must have --client-id"),
        (["--sign-in", "http://id.example", "--client-id", "x"], "https:// unless it is on this machine"),
        (
            ["--sign-in", "https://id.example", "--client-id", "x", "--client-secret-file", "no-such-file"],
            "--client-secret-file must be a file that can be read",
        ),
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
    opened = serving[0].state.desks.of(HERE).opened
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


def test_a_sign_in_says_what_the_provider_must_know(regard, serving, monkeypatch, tmp_path):
    regard("look", "--record", "kept")
    (tmp_path / "secret").write_text("from the file\n")
    options = ("--sign-in", "https://id.example", "--client-id", "an id", "--no-browser", "--port", "0")
    monkeypatch.setenv("REGARD_CLIENT_SECRET", "from the environment")
    status, out, _ = regard("explore", "kept", *options)
    assert status == 0 and "Sign-in: https://id.example must know the address http://127.0.0.1:" in out
    assert "/sign-in/back" in out and "secret" not in out.replace("--client-secret", "")
    assert regard("explore", "kept", *options, "--client-secret-file", "secret")[0] == 0
    clients = [app.state.sign_in.provider.client for app in serving]
    assert [one.secret for one in clients] == ["from the environment", "from the file"]
    assert all(one.client_id == "an id" and one.issuer == "https://id.example" for one in clients)
    # On this machine alone, whoever has not signed in is its user.
    assert all(app.state.sign_in.alone for app in serving)
    assert serving[0].state.sign_in.learning is serving[0].state.learning
    regard("explore", "kept", *options, "--host", "0.0.0.0", "--password", "long enough")
    assert not serving[2].state.sign_in.alone
