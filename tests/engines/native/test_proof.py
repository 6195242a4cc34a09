"""A build that dies, hangs or is wrong is found out in a child process, left aside with a warning, and remembered."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import regard as rg
from regard.engines import native
from regard.engines.native import abi, library
from regard.engines.native import proof as trial
from regard.engines.native.marshal import HALVES
from regard.errors import EngineError

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "native"
DIES, WRONG, RIGHT, HANGS = "raise(SIGILL);", "return 3;", "return 0;", "sleep(60);"
linux = pytest.mark.skipif(sys.platform != "linux", reason="signals and processes as Linux has them")
pytestmark = linux


def compiled(source: Path, to: Path, *flags: str | Path) -> Path:
    """A library made of a source; without a compiler the test is skipped."""
    compiler = shutil.which("g++") or pytest.skip("needs a C++ compiler")
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{NATIVE}", source, *flags, "-o", to]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return to


def forget() -> None:
    """What a new process does not know yet."""
    for known in (library._opened, library.builds, library._warn, trial.prove):
        known.cache_clear()


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A process that knows nothing, with a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(library.ENVIRONMENT, raising=False)
    forget()
    yield tmp_path / "cache" / "regard"
    forget()


@pytest.fixture
def stub(tmp_path, monkeypatch, fresh):
    """Makes the library in use one that does nothing but prove itself, or not: a statement of C for each build."""

    def make(door: str = "regard_prove", **builds: str) -> Path:
        sizes = ", ".join(str(ctypes.sizeof(structure)) for structure in abi.STRUCTURES)
        names = ", ".join(f'"{name}"' for name in builds)
        cases = "\n".join(
            f"if (build == {number}) {{ {body} }}" for number, body in enumerate(builds.values())
        )
        source = tmp_path / "stub.cpp"
        source.write_text(
            f"""
            #include <signal.h>
            #include <stdint.h>
            #include <unistd.h>
            extern "C" int64_t regard_size(int i) {{
              int64_t sizes[] = {{{sizes}}};
              return i < {len(abi.STRUCTURES)} ? sizes[i] : 0;
            }}
            extern "C" const char* regard_build(int i, int* here) {{
              const char* names[] = {{{names}}};
              *here = 1;
              return i < {len(builds)} ? names[i] : nullptr;
            }}
            extern "C" int {door}(int build) {{ {cases} return 2; }}
            """
        )
        folder = tmp_path / "library"
        folder.mkdir(exist_ok=True)
        made = compiled(source, tmp_path / "made.so")
        shutil.move(made, folder / "_native.so")  # another file: the one that is loaded stays as it is
        monkeypatch.setattr(library, "FOLDER", folder)
        forget()
        return folder / "_native.so"

    return make


@pytest.fixture
def runs(monkeypatch) -> list[list[str]]:
    """The command lines of the children that were started."""
    started: list[list[str]] = []
    run = subprocess.run

    def counting(command, **keywords):
        if trial.PROGRAM in command:
            started.append(command)
        return run(command, **keywords)

    monkeypatch.setattr(trial.subprocess, "run", counting)
    return started


@pytest.mark.parametrize(
    "body, said",
    [(DIES, "died of SIGILL"), ("raise(SIGSEGV);", "died of SIGSEGV"), ("raise(SIGABRT);", "died of SIGABRT"),
     (WRONG, "gave wrong numbers")],
)  # fmt: skip
def test_a_build_that_fails_its_trial_is_left_aside_with_a_warning(stub, runs, body, said):
    stub(first=body, second=RIGHT, last=RIGHT)
    with pytest.warns(
        RuntimeWarning, match=rf"the build 'first' of the native engine {said} in a trial on this"
    ):
        assert native.build() == "second"
    assert native.build() == "second"  # and no second warning, which would be an error here
    assert len(runs) == 2


def test_what_was_found_is_remembered_by_the_next_process(stub, runs, fresh):
    stub(first=DIES, second=RIGHT)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="died of SIGILL"):
            assert native.build() == "second"
        forget()
    assert len(runs) == 2
    said = {path.name.split("-")[-1]: json.loads(path.read_text())["said"] for path in fresh.iterdir()}
    assert said == {"first.json": "died of SIGILL", "second.json": "proved"}


def test_another_library_at_the_same_place_is_tried_again(stub, runs, fresh):
    stub(first=DIES, second=RIGHT)
    with pytest.warns(RuntimeWarning, match="died of SIGILL"):
        native.build()
    stub(first=RIGHT, second=RIGHT)
    assert native.build() == "first" and len(runs) == 3
    assert len(list(fresh.iterdir())) == 2  # its verdict took the place of the old one


def test_a_library_that_cannot_prove_itself_is_of_another_version(stub, runs):
    stub(door="something_else", first=RIGHT)
    assert (
        str(native.why_not()).startswith("its library was built for another version of Regard") and runs == []
    )


def test_another_processor_is_asked_again(stub, runs, monkeypatch, tmp_path):
    stub(first=RIGHT)
    for text in (
        "model name : A\nflags : x\n",
        "model name : A\nflags : x y\n",
        "model name : A\nflags : x y\ncpu MHz : 2\n",
    ):
        (tmp_path / "cpuinfo").write_text(text + "\nmodel name : the second core\n")
        monkeypatch.setattr(trial, "CPU_FACTS", tmp_path / "cpuinfo")
        forget()
        assert native.build() == "first" and trial.processor() == "A"
    assert len(runs) == 2  # the clock is not the processor


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"null", b"\xff\x00", b'{"library": 1}', b"[" * 100_000, None],
    ids=["empty", "cut", "list", "null", "bytes", "fields missing", "deep", "wrong types"],
)
def test_a_damaged_file_is_ignored_and_written_again(stub, runs, fresh, damage):
    file = stub(first=RIGHT)
    assert native.build() == "first"
    (entry,) = fresh.iterdir()
    whole = entry.read_bytes()
    if damage is None:
        digest = trial._digest(str(file))
        damage = json.dumps({"library": digest, "good": "no", "said": 3}).encode()
    entry.write_bytes(damage)
    forget()
    assert native.build() == "first" and len(runs) == 2
    assert entry.read_bytes() == whole


@pytest.mark.parametrize("what", ["a file in its place", "a folder in the verdict's", "no home", "relative"])
def test_where_nothing_can_be_written_the_process_remembers(stub, runs, fresh, monkeypatch, tmp_path, what):
    stub(first=RIGHT)
    if what == "a file in its place":
        fresh.parent.write_text("not a folder")
    elif what == "a folder in the verdict's":
        native.build()
        (entry,) = fresh.iterdir()
        entry.unlink()
        entry.mkdir()
        forget()
        runs.clear()
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "" if what == "no home" else "relative")
        monkeypatch.setattr(trial.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("nobody")))
    assert native.build() == "first" and native.build() == "first" and len(runs) == 1
    left = list(fresh.iterdir()) if fresh.is_dir() else []
    assert not any(path.name.startswith(".") for path in left)
    assert not Path("relative").exists()


def test_a_build_that_hangs_is_left_aside_for_this_process_alone(stub, fresh, monkeypatch):
    run = subprocess.run

    def impatient(command, **keywords):
        """Half a second for the first build; a busy machine may need more for the second."""
        if trial.PROGRAM in command and command[-1] == "0":
            keywords["timeout"] = 0.5
        return run(command, **keywords)

    stub(first=HANGS, second=RIGHT)
    monkeypatch.setattr(trial, "_openmp", list)
    monkeypatch.setattr(trial.subprocess, "run", impatient)
    with pytest.warns(RuntimeWarning, match=r"'first' of the native engine did not finish within 60 s"):
        assert native.build() == "second"
    assert [path.name.split("-")[-1] for path in fresh.iterdir()] == ["second.json"]


@pytest.mark.parametrize(
    "body", ["raise(SIGKILL);", "raise(SIGTERM);", "_exit(1);", "_exit(0);", "return 1;"]
)
def test_what_comes_from_outside_is_no_verdict(stub, runs, fresh, body):
    stub(first=body, second=RIGHT)
    assert native.build() == "first" and native.verdict("first").said.startswith("not proved: ")
    assert not fresh.exists()
    forget()
    assert native.build() == "first" and len(runs) == 2


def test_the_child_may_not_load_the_library(stub, fresh, monkeypatch):
    stub(first=RIGHT)
    monkeypatch.setattr(trial, "_openmp", lambda: ["/nowhere/libgomp.so.1"])
    assert native.build() == "first" and "status 1" in native.verdict("first").said


@pytest.mark.parametrize(
    "error",
    [
        OSError("no processes here"),
        RuntimeError("can't fork at interpreter shutdown"),
        PermissionError(1, "no"),
    ],
)
def test_where_no_process_can_be_made_the_processor_is_believed(stub, fresh, monkeypatch, error):
    def refused(*_, **__):
        raise error

    stub(first=DIES, second=RIGHT)
    monkeypatch.setattr(trial.subprocess, "run", refused)
    assert native.build() == "first" and "no child process could be made" in native.verdict("first").said
    assert not fresh.exists()


def test_an_application_that_embeds_python_is_not_started(stub, runs, monkeypatch, tmp_path):
    stub(first=RIGHT)
    for executable in (None, "", "/usr/bin/an-editor", str(tmp_path / "python-that-is-not-there")):
        monkeypatch.setattr(sys, "executable", executable)
        monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path))
        forget()
        assert native.build() == "first" and "no Python was found" in native.verdict("first").said
    monkeypatch.undo()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert trial._interpreter() is None and runs == []


def test_the_embedded_python_has_one_beside_it(monkeypatch, tmp_path):
    own = tmp_path / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    own.parent.mkdir()
    own.write_text("#!/bin/sh")
    own.chmod(0o755)
    monkeypatch.setattr(sys, "executable", "/usr/bin/an-editor")
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path))
    assert trial._interpreter() == str(own)


def test_a_build_that_dies_cannot_be_asked_for(stub, monkeypatch):
    stub(first=DIES, second=RIGHT)
    monkeypatch.setenv(library.ENVIRONMENT, "first")
    told = r"REGARD_CPU must name a build that computes right on this processor \(.*\), got 'first': "
    with pytest.raises(EngineError, match=told + "in a trial it died of SIGILL"):
        native.build()
    monkeypatch.setenv(library.ENVIRONMENT, "second")
    assert native.build() == "second"


def test_without_a_build_that_is_right_the_engine_refuses(stub):
    stub(first=DIES, second=WRONG)
    q = torch.randn(1, 2, 3, 5)
    with pytest.warns(RuntimeWarning) as warned:
        assert rg.observe(q, q, q).engine == "tiles"
    assert len(warned) == 2
    told = r"native: none of its builds computes right on this processor \(.*\): "
    with pytest.raises(EngineError, match=told + "first died of SIGILL, second gave wrong numbers"):
        rg.observe(q, q, q, engine="native")
    with pytest.raises(EngineError, match="must have a build that runs here: none of its builds"):
        native.build()


def test_threads_and_processes_that_ask_at_once_find_the_same(stub, fresh):
    file = stub(first=DIES, second=RIGHT)
    program = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('proof', sys.argv[1]);"
        "proof = importlib.util.module_from_spec(spec); sys.modules['proof'] = proof; spec.loader.exec_module(proof);"
        "print(*(proof.prove(sys.argv[2], name, i).said for i, name in enumerate(('first', 'second'))), sep='; ')"
    )
    command = [sys.executable, "-I", "-S", "-c", program, trial.__file__, str(file)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(native.verdict("first").said)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["died of SIGILL"] * 4
    assert [child.communicate()[0].strip() for child in children] == ["died of SIGILL; proved"] * 4
    assert sorted(path.name.split("-")[-1] for path in fresh.iterdir()) == ["first.json", "second.json"]


def test_a_fork_knows_what_its_parent_found(stub, runs):
    stub(first=RIGHT)
    assert native.build() == "first"
    child = os.fork()
    if child == 0:
        os._exit(native.build() != "first" or len(runs) != 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_import_starts_no_process():
    program = (
        "import sys; started = [];"
        "sys.addaudithook(lambda event, _: event in ('subprocess.Popen', 'os.fork', 'os.exec', 'os.posix_spawn')"
        " and started.append(event));"
        "import torch; before = len(started); import regard; from regard.engines import native; native.builds();"
        "print(len(started) - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["0"], done.stderr


# --- the real library --------------------------------------------------------------------------------------

BUILDS = [name for name, (_, here) in native.builds().items() if here]
SPOILED = (
    "output", "lse", "entropy", "squares", "column", "count", "received", "received_max", "by offset", "weighted",
    "query", "key", "value", "nan"
)  # fmt: skip


@pytest.mark.parametrize("name", BUILDS)
def test_every_build_that_runs_here_is_right_in_a_child_without_torch(fresh, runs, name):
    assert native.verdict(name) == trial.PROVED and len(runs) == 1
    assert json.loads(next(fresh.iterdir()).read_text())["said"] == "proved"


@pytest.fixture(scope="module")
def spoil(tmp_path_factory):
    """Asks whether a build's proof is right where one number is not."""
    reason = native.why_not()
    if reason:
        pytest.skip(f"no native engine: {reason}")
    to = tmp_path_factory.mktemp("shim") / "shim.so"
    shim = ctypes.CDLL(str(compiled(HERE / "proof_shim.cpp", to, NATIVE / "proof.cpp")))
    loaded = library.library()
    doors = [
        ctypes.cast(getattr(loaded, f"regard_{name}"), ctypes.c_void_p)
        for name in ("rows", "columns", "gradients")
    ]

    def ask(name: str, what: int, dtype: int, queries: int) -> int:
        halves, number = HALVES.get(name, 0), native.builds()[name][0]
        sizes = [ctypes.c_int64(x) for x in (dtype, queries)]
        return shim.prove_spoiled(*doors, number, ctypes.c_int64(halves), what, *sizes)

    return ask


@pytest.mark.parametrize("queries", [61, 2], ids=["many queries", "few"])
@pytest.mark.parametrize("dtype", abi.TYPES)
@pytest.mark.parametrize("name", BUILDS)
def test_one_wrong_number_is_seen(spoil, name, dtype, queries):
    assert spoil(name, 0, abi.TYPES[dtype], queries) == 0
    for what, spoiled in enumerate(SPOILED, start=1):
        assert spoil(name, what, abi.TYPES[dtype], queries) == 3, spoiled
