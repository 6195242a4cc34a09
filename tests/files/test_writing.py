"""Every file is there whole or not at all: on a full disk, after an interrupt, after a kill, beside another process."""

import contextlib
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.calls import a_record, same
from regard import files
from regard.errors import ArgumentError, ModelError, RecordError, RegardError
from regard.files import sealing
from regard.record import load
from regard.tasks.common.task import write_card
from regard.tasks.common.tokenizer import Vocabulary
from regard.training import Recipe

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="limits and signals are a matter of POSIX")
TESTS = Path(__file__).parents[1]


def contents(folder: Path) -> dict[str, object]:
    """Every file below a folder by its name, and what is in it."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in paths}


# --- each kind of file, in two versions --------------------------------------------------------------------


def record(folder, version):
    a_record(version).save(folder / "record")


def history(folder, version):
    from files.test_sealing import history

    history().save(folder / "history.safetensors")


def recipe(folder, version):
    Recipe(max_steps=version).save(folder / "recipe.json")


def card(folder, version):
    write_card(folder, {"task": "t" * 3000, "version": version})


def words(folder, version):
    Vocabulary(tuple(f"word{i}" for i in range(500 + version))).save(folder / "words.json")


def seal(folder, version):
    (folder / "weights").write_bytes(b"")
    sealing.seal(folder, [folder / "weights"] * version)


def model(folder, version):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from regard.tasks.common.catalogue import tasks

    torch.manual_seed(version)
    network = GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    tasks("translate", "transformer")[0].save(network, Vocabulary(("a", "b")), folder)


def page(folder, version):
    from regard.cli.look import write

    write(folder / "report.html", f"{version}" * 5000, "report")


def figures(folder, version):
    from matplotlib.figure import Figure

    from regard.cli.figures import write

    figure = Figure(figsize=(1, 1))
    figure.text(0.5, 0.5, str(version))
    write([("one", figure)], folder / "figures")


KINDS = [record, history, recipe, card, words, seal, model, page, figures]


@contextlib.contextmanager
def longest_file(size):
    """Within it no file grows beyond `size` bytes: what is written then fails in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_written_whole_leaves_the_old_one_and_nothing_else(tmp_path, kind):
    kind(tmp_path, 1)
    before = contents(tmp_path)
    largest = max(len(content) for content in before.values() if content)
    for limit in (0, 10, largest // 2, largest - 1):
        with pytest.raises(RegardError, match=str(tmp_path)), longest_file(limit):
            kind(tmp_path, 2)
        if kind is figures:  # each is whole, be it the old one or the new
            assert contents(tmp_path).keys() == before.keys()
        else:
            assert contents(tmp_path) == before
    kind(tmp_path, 2)
    assert len(contents(tmp_path)) == len(before)


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 256 KiB, where this process may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    if not done:
        pytest.skip("this process may not mount a disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(small_disk, kind):
    place = small_disk / "place"
    place.mkdir()
    kind(place, 1)
    before = contents(place)
    with (small_disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    for spare in (0, 1, 2):  # pages
        os.truncate(small_disk / "filler", (small_disk / "filler").stat().st_size - 4096 * spare)
        with contextlib.suppress(RegardError):
            kind(place, 2)
            break
        assert contents(place).keys() == before.keys()
        assert kind is figures or contents(place) == before
    else:
        spare = 3
    (small_disk / "filler").unlink()
    kind(place, 2)
    assert spare > 0 and len(contents(place)) == len(before)


@pytest.mark.parametrize("kind", [page, record])
def test_an_interrupt_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, kind):
    kind(tmp_path, 1)
    before = contents(tmp_path)

    def interrupted(*_):
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, name, interrupted)
            kind(tmp_path, 2)
        assert contents(tmp_path) == before


# --- where it goes -----------------------------------------------------------------------------------------


def test_permissions_are_those_of_a_plain_write(tmp_path):
    for mask in (0o022, 0o077, 0o002):
        before = os.umask(mask)
        try:
            (tmp_path / f"plain{mask}").write_text("")
            files.write(tmp_path / f"whole{mask}", "")
            a_record().save(tmp_path / f"record{mask}")
        finally:
            os.umask(before)
        expected = stat.S_IMODE((tmp_path / f"plain{mask}").stat().st_mode)
        for path in (tmp_path / f"whole{mask}", *(tmp_path / f"record{mask}").iterdir()):
            assert stat.S_IMODE(path.stat().st_mode) == expected
    (tmp_path / "kept").write_text("")
    (tmp_path / "kept").chmod(0o640)
    files.write(tmp_path / "kept", "new")
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("old")
    for name, target in (("link", "real/file"), ("chain", "link"), ("dangling", "real/new")):
        (tmp_path / name).symlink_to(target)
        files.write(tmp_path / name, name)
        assert (tmp_path / name).is_symlink() and (tmp_path / name).read_text() == name
    assert sorted(os.listdir(tmp_path / "real")) == ["file", "new"]
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(RegardError, match="round"):
        files.write(tmp_path / "round", "")
    assert (tmp_path / "round").is_symlink()


def test_devices_and_pipes_are_written_to(tmp_path):
    files.write("/dev/null", "nothing")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(
        ModelError, match="the report must go where files can be written, got '/dev/full': No space"
    ):
        files.write("/dev/full", "much", error=ModelError, what="report")
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    files.write(tmp_path / "pipe", "through")
    assert reader.communicate()[0] == b"through" and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_standard_output_is_written_to_and_not_replaced(tmp_path):
    program = "from regard import files; print('before'); files.write('/dev/stdout', 'page'); print('after')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "before\npageafter\n"
    for mode in ("w", "a"):
        with (tmp_path / mode).open(mode) as out:
            subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
        assert (tmp_path / mode).read_text() == "before\npageafter\n"


def test_what_may_not_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("old")
    for wrong in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(
            ArgumentError, match=f"the table must go where files can be written, got '{wrong}': "
        ):
            files.write(wrong, "", error=ArgumentError, what="table")
    (tmp_path / "file").chmod(0o444)
    if os.geteuid():
        with pytest.raises(RegardError, match="Permission denied"):
            files.write(tmp_path / "file", "new")
        assert (tmp_path / "file").read_text() == "old"


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path):
    (tmp_path / "there").write_text("old")
    before = contents(tmp_path)
    for name in ("there", "new"):
        files.check_writable(tmp_path / name)
    files.check_writable(Path("/dev/null"))
    assert contents(tmp_path) == before
    with pytest.raises(OSError, match="directory"):
        files.check_writable(tmp_path)


# --- what killed processes leave ---------------------------------------------------------------------------

SAVING = """
import sys, signal, os, threading, time
sys.path.insert(0, {tests!r})
import safetensors.torch, pandas, pyarrow
from helpers.calls import a_record
seed, folder = int(sys.argv[1]), sys.argv[2]
record = a_record(seed)
record.heads
print("ready", flush=True)
for _ in range(int(sys.argv[3])):
    record.save(folder)
print("done", flush=True)
"""


def saving(folder, seed, times):
    command = [sys.executable, "-c", SAVING.format(tests=str(TESTS)), str(seed), str(folder), str(times)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_save_that_is_killed_at_any_moment_leaves_a_whole_record_and_its_leavings_go(tmp_path):
    chance = random.Random(5)
    a_record(0).save(tmp_path)
    left, seed = 0, 0
    # Four at least, and more while none was killed in the middle: how long a save takes is the machine's affair.
    while seed < 4 or (not left and seed < 40):
        seed += 1
        process = saving(tmp_path, seed, 10_000)
        time.sleep(chance.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        left += len(list(tmp_path.glob(".regard-*.tmp")))
        found = load(tmp_path)
        assert any(same(found, a_record(each)) is None for each in range(seed + 1))
    a_record(70).save(tmp_path)
    assert same(load(tmp_path), a_record(70)) is None
    assert len(list(tmp_path.iterdir())) == 3
    assert left, "no save was killed in the middle"


def test_what_a_killed_write_left_goes_with_the_next_write_beside_it(tmp_path):
    program = (
        "import os, signal, sys; from regard import files\n"
        "with files.replacing(sys.argv[1]) as path:\n"
        "    path.write_text('half'); (path.parent / 'more').mkdir()\n"
        "    (path.parent / '.tmp9x').write_text('half of what a library writes')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "page.html")], check=False)
    (left,) = tmp_path.iterdir()
    assert files.UNFINISHED.fullmatch(left.name)
    (tmp_path / ".regard-0123456789abcdef.tmp").mkdir()  # killed before it had a lock
    (tmp_path / ".regard-mine.tmp").mkdir()
    files.write(tmp_path / "another.html", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".regard-mine.tmp", "another.html"]


def test_what_another_process_is_writing_stays(tmp_path):
    with files.replacing(tmp_path / "slow") as unfinished:
        unfinished.write_text("half")
        program = "import sys; from regard import files; files.write(sys.argv[1], 'fast')"
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "fast")], check=True)
        files.write(tmp_path / "own", "of this process")
        assert unfinished.read_text() == "half"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "slow": "half",
        "fast": "fast",
        "own": "of this process",
    }


def test_of_two_processes_that_save_at_once_one_wins_whole(tmp_path):
    a_record(0).save(tmp_path)
    known = [a_record(seed) for seed in range(3)]
    processes = [saving(tmp_path, seed, 25) for seed in (1, 2)]
    loads = 0
    while any(process.poll() is None for process in processes):
        found = load(tmp_path)  # a reader is never disturbed either
        assert any(same(found, each) is None for each in known)
        loads += 1
    assert [process.wait() for process in processes] == [0, 0] and loads > 3
    found = load(tmp_path)
    assert any(same(found, each) is None for each in known[1:])
    assert len(list(tmp_path.iterdir())) == 3


def test_a_save_does_not_wait_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(files.one_at_a_time.__wrapped__, "__defaults__", (0.05,))
    a_record(0).save(tmp_path)
    with (
        files.one_at_a_time(tmp_path),
        pytest.raises(RecordError, match="another process is writing into this"),
    ):
        a_record(1).save(tmp_path)
    assert same(load(tmp_path), a_record(0)) is None and len(list(tmp_path.iterdir())) == 3
