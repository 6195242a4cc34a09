"""Ctrl-C ends the command in silence at every moment, with exit status 130 and nothing half-written."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from regard.cli import interrupts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent in the way of POSIX")

# What pip writes for an entry point.
SCRIPT = "import sys\nfrom regard.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"

# Says when torch is about to be imported: Python's own start, before that, is not ours to guard.
TELLING = """
import sys
class Telling:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.meta_path.remove(self)
            print("torch", file=sys.stderr, flush=True)
sys.meta_path.insert(0, Telling())
"""
COMMANDS = {"help": ["--help"], "look": ["look"], "verify": ["verify"]}
COMMANDS["explore"] = ["explore", "--no-browser"]


@pytest.fixture(autouse=True)
def heeding():
    """Interrupts are heeded here: what a shell started in the background ignores them, and so would its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """`start(way, command, folder)`: a child process that is about to import torch.

    It heeds interrupts; with `ignoring` it does not.
    """
    place = tmp_path_factory.mktemp("start")
    (place / "sitecustomize.py").write_text(TELLING)
    (place / "regard").write_text(SCRIPT)
    ways = {"script": [str(place / "regard")], "module": ["-m", "regard"]}
    here = [str(place), *(path for path in sys.path if path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(here), "HF_HUB_OFFLINE": "1", "COLUMNS": "160"}

    def run(way, command, folder, ignoring=False):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignoring else signal.SIG_DFL)
        try:
            process = subprocess.Popen(
                [sys.executable, *ways[way], *COMMANDS[command]],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)
        assert process.stderr.readline() == "torch\n", process.stderr.read()
        return process

    return run


def interrupted(process, after):
    """The exit status of a process that is interrupted after some seconds, and what it said on standard error."""
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    _, said = process.communicate(timeout=100)
    return process.returncode, said, time.monotonic() - asked


@pytest.mark.parametrize("way", ["script", "module"])
def test_the_command_runs_either_way(start, tmp_path, way):
    process = start(way, "help", tmp_path)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0 and err == "" and "verify" in out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("way", ["script", "module"])
def test_an_interrupt_at_any_moment_ends_in_silence(start, tmp_path, way, command):
    chance = random.Random(f"{way} {command}")
    longest = {"help": 2.0, "look": 3.0, "verify": 3.0, "explore": 6.0}[command]
    for after in (0.0, chance.uniform(0, longest)):
        process = start(way, command, tmp_path)
        status, said, _ = interrupted(process, after)
        assert "Traceback" not in said and "Interrupt" not in said, (after, said)
        assert status == interrupts.STATUS or (status == 0 and after), (after, status, said)
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"regard-report.html"}
    if left:
        assert (tmp_path / "regard-report.html").read_text().rstrip().endswith("</html>")


# In the place of the commands: what libraries do with an interrupt that comes within them.
LOST = {
    "swallowed": "try:\n    exec('os.kill(os.getpid(), 2)')\nexcept KeyboardInterrupt:\n    pass",
    "turned": "try:\n    os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt:\n    raise ImportError('failed') from None",
    "imported": "import swallowing",
    "swallowed within a loop": (
        "from regard.cli import interrupts\n"
        "try:\n    os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt:\n    pass\n"
        "while True:\n    interrupts.check()"
    ),
}
REPLACING = """
import importlib.util, os, sys
class Replacing:
    def find_spec(self, name, path=None, target=None):
        if name == "regard.cli.commands":
            return importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), "commands.py"))
sys.meta_path.insert(0, Replacing())
"""


@pytest.mark.parametrize("fate", LOST)
def test_an_interrupt_that_a_library_loses(tmp_path, fate):
    body = textwrap.indent(LOST[fate], "    ")
    (tmp_path / "commands.py").write_text(f"import os\ndef app():\n{body}\n")
    (tmp_path / "swallowing.py").write_text(f"import os\n{LOST['swallowed']}\nprint('went on', flush=True)\n")
    (tmp_path / "sitecustomize.py").write_text(REPLACING)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "regard"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (interrupts.STATUS, "", "")


def test_a_process_that_ignores_interrupts_goes_on(start, tmp_path):
    process = start("script", "help", tmp_path, ignoring=True)  # as a shell has what runs in the background
    status, said, _ = interrupted(process, 0.0)
    assert (status, said) == (0, "")


def test_an_import_of_the_package_changes_nothing(tmp_path):
    program = "import signal, regard; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    (tmp_path / "other.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    for arguments in (["-c", program], [str(tmp_path / "other.py")], ["-m", "other"]):
        subprocess.run([sys.executable, *arguments], check=True, env=environment)


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        (["/usr/bin/regard", "look"], ["python", "/usr/bin/regard", "look"], True),
        (["C:/Scripts/regard.exe"], [], True),
        (["-m", "look"], ["python", "-X", "dev", "-m", "regard", "look"], True),
        (["-m", "look"], ["python", "-mregard", "look"], True),
        (["-m"], ["python", "-m", "pytest"], False),
        (["-c"], ["python", "-c", "import regard"], False),
        (["regard.py"], ["python", "regard.py"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_which_process_is_the_command(monkeypatch, arguments, given, expected):
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(sys, "orig_argv", given)
    assert interrupts.is_command() is expected


def test_an_interrupt_within_a_command_is_an_exception_again(regard, monkeypatch, tmp_path):
    from regard.cli import look

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(look, "_html", interrupt)
    status, _, err = regard("look")
    assert status == interrupts.STATUS and err == "" and not any(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
