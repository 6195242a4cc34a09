"""`regard learn` as a learner meets it: in a terminal, with saves and keys; and once, for scripts."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from regard import learn

pexpect = pytest.importorskip("pexpect")
if sys.platform == "win32":
    pytest.skip("a pseudo terminal is POSIX's", allow_module_level=True)

PATIENCE = 60
ATTENTION, NEXT = learn.exercise("attention"), learn.exercise("score variance")
WRONG = ATTENTION.solved.replace(" / np.sqrt(query.shape[-1])", "")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, in which progress is stored too."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def terminal(folder):
    """`regard learn` in a pseudo terminal."""
    started = []

    def start(*arguments: str):
        child = pexpect.spawn(
            sys.executable,
            ["-m", "regard", "learn", *arguments],
            dimensions=(50, 110),
            timeout=PATIENCE,
            encoding="utf-8",
            env=dict(os.environ, TERM="xterm", NO_COLOR="1"),
            # Tests that run in the background ignore interrupts, and so would what they start; a terminal does not.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.close(force=True)


def test_a_learner_goes_from_unsolved_to_the_next_exercise(terminal, folder):
    path = folder / "regard-exercises" / "attention.py"
    screen = terminal("attention")
    screen.expect("attention, lesson 3")
    screen.expect("not written yet")
    screen.send("n")
    screen.expect("not passed yet. Another one")
    screen.send("s")
    screen.expect("shown once yours passes")
    screen.send("h")
    screen.expect("Hint 1 of 5")
    path.write_text(WRONG)
    screen.expect("not divided by √d")
    screen.expect("input.*query = .*expected.*got")
    path.write_text(ATTENTION.solved)
    screen.expect("attention: passed")
    screen.expect("next")
    # The next exercise begins on the learner's word alone.
    assert not (folder / "regard-exercises" / NEXT.file).exists()
    screen.send("s")
    screen.expect("def attention")
    screen.send("l")
    screen.expect("passed.*attention")
    screen.send("n")
    screen.expect("score variance, lesson 3")
    screen.expect("not written yet")
    assert (folder / "regard-exercises" / NEXT.file).read_text() == NEXT.unsolved
    screen.send("q")
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 0
    # Without a name it begins with the first that is not passed.
    again = terminal()
    again.expect("cosine, lesson 1")


def test_a_reset_sets_the_text_aside(terminal, folder):
    path = folder / "mine" / "attention.py"
    path.parent.mkdir()
    path.write_text(WRONG)
    screen = terminal("attention", "--folder", "mine")
    screen.expect("not divided by √d")
    assert path.read_text() == WRONG
    screen.send("r")
    screen.expect("begins anew")
    screen.expect("not written yet")
    assert path.read_text() == ATTENTION.unsolved
    assert (folder / "mine" / "attention.before.py").read_text() == WRONG
    screen.sendintr()
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 130


@pytest.fixture
def regard(folder, monkeypatch, capsys):
    """The command in this process: its exit status, its output, its errors."""
    from regard.cli import main

    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["regard", "learn", *arguments])
        status = 0
        try:
            main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        return status, *capsys.readouterr()

    return run


def test_once_checks_once(regard, folder):
    status, out, _ = regard("causal-mask", "--once")
    assert status == 1 and "causal_attention is not written yet" in out
    path = folder / "regard-exercises" / "causal_mask.py"
    path.write_text(learn.exercise("causal mask").solved)
    status, out, _ = regard("causal_mask", "--once")
    assert status == 0 and "causal mask: passed" in out
    status, out, _ = regard("--list")
    assert status == 0 and len(out.splitlines()) == 1 + len(learn.exercises())
    passed = [line for line in out.splitlines() if "passed" in line]
    assert len(passed) == 1 and "causal mask" in passed[0]
    # With a reset it is open again, and the solution lies beside it.
    assert regard("causal mask", "--reset")[0] == 0
    assert "passed" not in regard("--list")[1] and path.with_suffix(".before.py").exists()


def test_mistakes_of_the_command_are_told_in_one_message(regard, folder):
    for arguments, reason in (
        (["atention"], "the exercise must be one of cosine"),
        (["--reset"], "--reset must have the name of an exercise"),
        (["attention", "--folder", "file"], "must go where files can be written"),
    ):
        (folder / "file").write_text("")
        status, _, err = regard(*arguments)
        assert status == 2 and reason in err and "Traceback" not in err


def test_a_pipe_that_ends_ends_the_loop(folder):
    result = subprocess.run(
        [sys.executable, "-m", "regard", "learn", "attention"],
        input="hl",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert "Hint 1 of 5" in result.stdout and "split heads" in result.stdout and result.stderr == ""


def test_damaged_progress_is_no_traceback(regard, folder):
    path = folder / "data" / "regard" / "learn.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    status, _, err = regard("--list")
    assert status == 2 and "learn.json: is damaged" in err
