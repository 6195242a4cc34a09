"""The box for code of strangers: what an attacker in it reaches, and that it is had only where that is nothing."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from regard import learn
from regard.errors import ArgumentError
from regard.learn import box, running, seccomp, trespass
from regard.learn.checking import check_in
from regard.learn.exercise import Case

# As root the package is installed by `make`; elsewhere a system may let nobody else make a box.
MUST = bool(os.environ.get("CI")) and os.geteuid() == 0
ATTENTION = learn.exercise("attention")
SECRET = "what-nobody-may-read"


@pytest.fixture(scope="module")
def strict() -> box.Box:
    """The box of this machine; without one the test is skipped, and as root in CI it fails."""
    try:
        return box.find()
    except box.NoBoxError as error:
        pytest.fail(str(error)) if MUST else pytest.skip(str(error))


@pytest.fixture
def attack(strict, tmp_path):
    """Runs lines in the box as a solution whose number says what they got: 1 for nothing, 7 for what they wanted."""

    def run(lines: str, **options) -> running.Run:
        body = "".join(f"    {line}\n" for line in lines.strip().splitlines())
        file = tmp_path / "attack.py"
        file.write_text(f"import numpy as np\ndef attack(query):\n{body}")
        cases = [Case({"query": np.ones((2, 3))})]
        return running.file(file, "attack", cases, box=strict, **options)

    return run


def got(run: running.Run) -> object:
    """The number that came back, or the name of the error."""
    (outcome,) = run.outcomes
    if outcome.failure is not None:
        return outcome.failure.kind
    if run.unreadable is not None:
        return run.unreadable.kind
    return outcome.state if outcome.value is None else float(outcome.value.ravel()[0])


def test_solutions_pass_and_mistakes_are_named_as_outside(strict, tmp_path):
    file = tmp_path / ATTENTION.file
    for text in (ATTENTION.solved, ATTENTION.solved.replace(" / np.sqrt(query.shape[-1])", ""), "def f(): ("):
        file.write_text(text)
        assert check_in(strict, file, "attention") == learn.check_file(file, "attention")


def test_torch_can_be_imported(attack):
    assert got(attack("import torch\nreturn np.full(2, torch.arange(8).max().item())")) == 7


def test_threads_may_be_begun_and_processes_not(attack):
    threads = "import threading\nout = []\nt = threading.Thread(target=out.append, args=(7,))\nt.start()\nt.join()\n"
    assert got(attack(threads + "return np.array(out)")) == 7
    for lines in (
        "import os\nos.fork()",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print).start()",
    ):
        assert got(attack(lines)) in ("PermissionError", "OSError", "BlockingIOError"), lines


def test_a_fork_bomb_is_over_at_once(attack):
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        return np.array([1.0])"
    assert got(attack(bomb)) == 1


def test_the_home_folder_is_not_there(attack):
    home = Path.home()
    names = {entry.name for entry in home.iterdir()}
    # On the way to Python's own folders there may be a folder of the same name, with nothing else in it.
    on_the_way = {
        folder.relative_to(home).parts[0] for folder in box.readable() if folder.is_relative_to(home)
    }
    lines = (
        f"import os\nhome = {str(home)!r}\nleft = set(os.listdir(home)) if os.path.isdir(home) else set()\n"
    )
    lines += f"return np.array([1.0 + len(left - {on_the_way!r})])"
    assert got(attack(lines)) == 1
    assert names - on_the_way, "there must be something to be kept away"


def test_the_database_and_its_folder_are_not_there(attack, tmp_path):
    database = tmp_path / "learn.db"
    database.write_text(SECRET)
    # `attack.py` lies beside it, and is seen at another path.
    assert (
        got(attack(f"return np.array([float(len(open({str(database)!r}).read()))])")) == "FileNotFoundError"
    )
    assert (
        got(attack(f"import os\nreturn np.array([1.0 + len(os.listdir({str(tmp_path)!r}))])"))
        == "FileNotFoundError"
    )


def test_the_servers_environment_and_memory_are_not_there(attack, monkeypatch):
    monkeypatch.setenv("REGARD_PASSWORD", SECRET)
    assert (
        SECRET.encode() in Path("/proc/self/environ").read_bytes() or os.environ["REGARD_PASSWORD"] == SECRET
    )
    lines = "import glob, os\nseen = [str(dict(os.environ)).encode()]\n"
    lines += "for name in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n"
    lines += "    try:\n        seen.append(open(name, 'rb').read())\n    except OSError:\n        pass\n"
    lines += f"return np.array([7.0 if {SECRET.encode()!r} in b''.join(seen) else 1.0])"
    assert got(attack(lines)) == 1
    for name in ("environ", "mem", "maps", "fd", "root"):
        assert got(attack(f"import os\nos.stat('/proc/{os.getpid()}/{name}')")) == "FileNotFoundError"
    # The first process in there is bwrap's own.
    count = "import glob\nreturn np.array([float(len(glob.glob('/proc/[0-9]*')))])"
    assert got(attack(count)) <= 3


def test_the_network_is_not_there_not_even_the_server_itself(attack):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    socket.create_connection(("127.0.0.1", port), 5).close()
    for address in (("127.0.0.1", port), ("10.0.0.1", 80), ("8.8.8.8", 53)):
        lines = f"import socket\nsocket.create_connection({address!r}, 2)\nreturn np.array([7.0])"
        assert got(attack(lines)) in ("ConnectionRefusedError", "OSError", "TimeoutError")
    server.shutdown()
    # Sockets with a name but no file belong to the network as well.
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0regard-test")
        abstract.listen()
        lines = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0regard-test')\nreturn np.array([7.0])"
        assert got(attack(lines)) == "ConnectionRefusedError"


@pytest.mark.parametrize(
    "name",
    [
        "/usr/x",
        "/x",
        "/dev/x",
        "/dev/shm/x",
        "/box/x",
        "/proc/sys/kernel/core_pattern",
        "/etc/x",
        sys.prefix + "/x",
    ],
)
def test_nothing_can_be_written_outside_of_one_small_folder(attack, name):
    assert got(attack(f"open({name!r}, 'w').write('x')\nreturn np.array([7.0])")) in (
        *("OSError", "PermissionError", "FileNotFoundError"),
    )
    assert not Path(name).exists() or name.startswith("/proc")


def test_the_disk_cannot_be_filled(attack):
    fill = "n = 0\ntry:\n    for number in range(40):\n"
    fill += "        with open(f'/tmp/{number}', 'wb') as file:\n"
    fill += "            for _ in range(8):\n                n += file.write(bytes(1 << 20))\n"
    fill += "except OSError:\n    pass\n"
    assert 1 <= got(attack(fill + "return np.array([n / (1 << 20)])")) <= box.BYTES >> 20


@pytest.mark.parametrize(
    "lines",
    [
        "held = []\nwhile True:\n    held.append(bytes(10 << 20))",
        "import mmap\nheld = []\nwhile True:\n    held.append(mmap.mmap(-1, 1 << 28))",
        "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))",
        "import os\nos.memfd_create('x')",
        "import ctypes\nif ctypes.CDLL(None).shmget(0, 1 << 30, 0o1600) < 0:\n    raise OSError()",
        "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) < 0:\n    raise OSError()",
        "import ctypes\nif ctypes.CDLL(None).ptrace(0, 0, 0, 0) < 0:\n    raise OSError()",
        "import os\nos.execv('/usr/bin/bwrap', ['bwrap', '--ro-bind', '/', '/', '/bin/true'])",
    ],
)
def test_limits_cannot_be_passed(attack, lines):
    outcome = got(attack(lines + "\nreturn np.array([7.0])"))
    # Of the last one: another program takes the place of this one, and can do nothing more than it.
    assert outcome in ("MemoryError", "ValueError", "OSError", "PermissionError", "memory", "ended"), outcome


def test_a_loop_that_heeds_no_signal_ends(attack):
    stubborn = "import signal\nfor one in (signal.SIGXCPU, signal.SIGTERM):\n    signal.signal(one, signal.SIG_IGN)\n"
    assert got(attack(stubborn + "while True: pass", patience=3.0)) in ("time", "TimeoutError")


@pytest.mark.parametrize(
    "written",
    [
        "b'{\"case\": 0}\\n'",
        "b'[]\\n'",
        "b'not json\\n'",
        'b\'{"case": 0, "returned": {"type": 1, "array": {"dtype": "O", "shape": [9], "data": ""}}}\\n\'',
        "b'{\"unreadable\": 3}\\n'",
        "b'{\"began\": {}}\\n'",
        "b'[' * 100000 + b'\\n'",
    ],
)
def test_what_is_forged_is_no_fault_of_the_server(strict, tmp_path, written):
    """Whoever writes past its function among the lines of the child gets a verdict like any other."""
    file = tmp_path / ATTENTION.file
    file.write_text(
        f"import os\nfor handle in range(3, 10):\n    try:\n        os.write(handle, {written})\n"
        "    except OSError:\n        pass\nos._exit(0)\n"
    )
    verdict = check_in(strict, file, "attention")
    assert not verdict.passed and verdict.messages


def test_an_answer_without_an_end_is_not_read_to_its_end(strict, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "MOST", 1 << 20)
    file = tmp_path / ATTENTION.file
    file.write_text(
        "import os\nwhile True:\n    for n in range(3, 10):\n"
        "        try: os.write(n, b'x' * 65536)\n        except OSError: pass\n"
    )
    assert not check_in(strict, file, "attention").passed


def test_a_box_that_keeps_nothing_away_is_none(monkeypatch, tmp_path, strict):
    """The proof must be able to fail: outside of a box, everything is reached."""
    secret = tmp_path / "learn.db"
    secret.write_text(SECRET)

    class Open(box.Box):
        def command(self, python, files, seccomp_fd):
            return [sys.executable, "-I", str(box.TRESPASS), *python[1:]]

    with pytest.raises(box.NoBoxError) as raised:
        box.prove(Open("", ()), [secret])
    for reached in (f"the file {secret}", "the server's process", "the server's port", "another process"):
        assert reached in str(raised.value), reached

    class Nowhere(box.Box):
        def command(self, python, files, seccomp_fd):
            return ["sh", "-c", "echo no such thing >&2; exit 1"]

    with pytest.raises(box.NoBoxError, match="no such thing"):
        box.prove(Nowhere("", ()), [])
    # Each guard by itself: without it the proof finds what it was for.
    for option, reached in (
        ("--unshare-all", "the server's port"),
        ("--seccomp", "another process"),
        ("--remount-ro", "the box's own folder"),
    ):

        class Without(box.Box):
            def command(self, python, files, seccomp_fd, option=option):
                return without(super().command(python, files, seccomp_fd), option)

        with pytest.raises(box.NoBoxError, match=reached):
            box.prove(Without(strict.program, strict.readable), [secret])


def without(command: list[str], option: str) -> list[str]:
    """A command without an option and what it takes."""
    takes = {"--unshare-all": 0, "--seccomp": 1, "--remount-ro": 1}[option]
    left, skip = [], 0
    for part in command:
        if part == option and "--" not in left:
            skip = takes + 1
            # A network is what all else goes over.
            left += ["--unshare-pid"] if option == "--unshare-all" else []
        if skip:
            skip -= 1
        else:
            left.append(part)
    return left


def test_without_bwrap_there_is_no_box(monkeypatch):
    monkeypatch.setattr(box.shutil, "which", lambda _: None)
    with pytest.raises(box.NoBoxError, match="bubblewrap"):
        box.find()


def test_python_in_a_folder_with_the_home_folder_in_it_gives_no_box(monkeypatch, tmp_path):
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(box.sys, "prefix", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(box.NoBoxError, match="has the home folder in it"):
        box.readable()


def test_the_database_that_is_kept_away_is_that_of_the_url(tmp_path):
    assert box.secrets(f"sqlite:///{tmp_path}/learn.db") == [tmp_path / "learn.db"]
    assert box.secrets("postgresql://me@localhost/learn") == [] == box.secrets("sqlite:///:memory:")
    with pytest.raises(ArgumentError):
        box.secrets("mysql://x")


def test_the_filter_is_a_program_for_each_machine():
    for machine, (architecture, calls) in seccomp.MACHINES.items():
        content = seccomp.program(machine)
        lines = [struct.unpack("=HBBI", content[at : at + 8]) for at in range(0, len(content), 8)]
        # Every jump stays within, and the last line answers.
        assert all(at + 1 + max(line[1], line[2]) < len(lines) for at, line in enumerate(lines[:-1]))
        assert lines[-1][0] == seccomp.RETURN and lines[1][3] == architecture
        assert {line[3] for line in lines} >= set(calls.values())
    with pytest.raises(seccomp.NoFilterError, match="sparc"):
        seccomp.program("sparc")


@pytest.mark.skipif(seccomp.platform.machine() != "x86_64", reason="headers of this machine alone")
def test_the_numbers_of_calls_are_those_of_the_headers():
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.is_file():
        pytest.skip("no headers of Linux here")
    known = dict(
        line.split()[1:3] for line in header.read_text().splitlines() if line.startswith("#define __NR_")
    )
    for name, number in seccomp.MACHINES["x86_64"][1].items():
        if f"__NR_{name}" in known:
            assert int(known[f"__NR_{name}"]) == number, name


def test_trespassing_is_refused_where_there_is_nothing():
    """A script of its own, which says what it reached; NumPy is all that it needs."""
    question = '{"files": [], "process": 0, "port": 1, "bytes": 1048576}'
    done = subprocess.run(
        [sys.executable, trespass.__file__, question], capture_output=True, text=True, timeout=60
    )
    assert '"another process"' in done.stdout and "the server's port" not in done.stdout
