"""Runs: in a process of their own, one after the other, canceled at once; the server lives on."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

from regard import RegardError
from regard.explorer import jobs as module
from regard.explorer.opened import NotOpenError

STAND_IN = Path(__file__).parent / "stand_in.py"


@pytest.fixture(scope="module")
def saved(record, tmp_path_factory) -> str:
    """The folder of a record."""
    folder = tmp_path_factory.mktemp("saved") / "record"
    record.save(folder)
    return str(folder)


def until(condition, seconds=20.0):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def pid_of(jobs, job) -> int:
    """The process that a slow run says it is in."""
    until(lambda: jobs[job.id].message.startswith("pid"))
    return int(jobs[job.id].message.split()[1])


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_a_run_becomes_a_record(jobs, opened, saved, record):
    job = jobs.submit(opened.model("fast"), f"noise {saved}")
    assert job.state == "waiting" and not job.over
    done = jobs.wait(job.id)
    assert (done.state, done.progress, done.message) == ("done", 1.0, done.message)
    assert done.message.startswith("ran fast in ")
    run = opened[done.record]
    assert run.title.startswith("Fast · ") and run.code == "record = ..."
    assert run.record[0].weights(2).equal(record[0].weights(2))


def test_a_second_run_waits_in_line(jobs, opened, saved):
    first = jobs.submit(opened.model("fast"), "slow")
    second = jobs.submit(opened.model("fast"), f"copy {saved}")
    until(lambda: jobs[first.id].state == "running")
    time.sleep(0.2)
    assert jobs[second.id].state == "waiting"
    jobs.cancel(first.id)
    assert jobs.wait(second.id).state == "done" and jobs[first.id].state == "canceled"


def test_too_many_do_not_wait(jobs, opened):
    started = [jobs.submit(opened.model("fast"), "slow")]
    until(lambda: jobs[started[0].id].state == "running")
    started += [jobs.submit(opened.model("fast"), "slow") for _ in range(3)]
    with pytest.raises(RegardError, match="at most 3 runs may wait"):
        jobs.submit(opened.model("fast"), "slow")
    for job in started[::-1]:
        jobs.cancel(job.id)
    assert {state.state for state in jobs.states()} == {"canceled"}


def test_canceling_kills_the_process_at_once(jobs, opened, saved):
    job = jobs.submit(opened.model("fast"), "slow")
    pid = pid_of(jobs, job)
    begun = time.monotonic()
    assert jobs.cancel(job.id).state == "canceled"
    assert time.monotonic() - begun < 2 and gone(pid)
    assert jobs.cancel(job.id).state == "canceled"
    assert jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id).state == "done"


def test_what_is_canceled_before_the_process_has_it_is_not_run(jobs, opened, saved, worker, monkeypatch):
    handed, run = [], worker.run

    def canceled_first(request, *arguments):
        if request["text"] == "slow":
            jobs.cancel(job.id)
        handed.append(request["text"])
        return run(request, *arguments)

    monkeypatch.setattr(worker, "run", canceled_first)
    with jobs.line._changed:  # the run does not begin before its identity is known here
        job = jobs.submit(opened.model("fast"), "slow")
    begun = time.monotonic()
    after = jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id)
    # A slow run takes half a minute.
    assert (after.state, jobs[job.id].state) == ("done", "canceled") and time.monotonic() - begun < 15
    assert handed == ["slow", f"copy {saved}"]


def test_what_begins_while_it_is_canceled_is_stopped(jobs, opened, saved, monkeypatch):
    change = jobs._change

    def begun_meanwhile(identity, **changes):
        if changes.get("state") == "canceled":
            free.set()
            until(lambda: jobs[identity].message.startswith("pid"))
        elif changes.get("state") == "running" and identity == job.id:
            free.wait(20)
        return change(identity, **changes)

    free = threading.Event()
    monkeypatch.setattr(jobs, "_change", begun_meanwhile)
    with jobs.line._changed:
        job = jobs.submit(opened.model("fast"), "slow")
    assert jobs.cancel(job.id).state == "canceled"
    begun = time.monotonic()
    assert jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id).state == "done"
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("crash", "the model crashed"),
        ("memory", "ran out of memory; take a shorter text"),
        ("killed", "killed, most likely because the machine ran out of memory"),
        ("copy /nowhere", "No such file"),
    ],
)
def test_a_failure_is_told_and_the_next_run_is_well(jobs, opened, saved, text, reason):
    failed = jobs.wait(jobs.submit(opened.model("fast"), text).id)
    assert failed.state == "failed" and reason in failed.message and failed.record is None
    assert jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id).state == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_memory_ends_before_that_of_the_machine_does(jobs, opened, saved, monkeypatch):
    monkeypatch.setenv("MEMORY", str(300 << 20))
    failed = jobs.wait(jobs.submit(opened.model("fast"), "grow").id)
    assert failed.state == "failed" and "the model ran out of memory" in failed.message
    after = jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id)
    assert after.state == "done", "the process lives on, and its memory is free again"


def test_a_process_is_kept_from_run_to_run(jobs, opened, saved):
    first = jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id)
    jobs.wait(jobs.submit(opened.model("fast"), "crash").id)
    second = jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id)
    assert first.message == second.message


def test_a_picture_reaches_the_model_as_a_file(jobs, opened, saved):
    done = jobs.wait(jobs.submit(opened.model("eye"), "", saved.encode()).id)
    assert done.state == "done", done.message


def test_records_have_a_limit(jobs, opened, saved):
    for _ in range(3):
        jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id)
    with pytest.raises(RegardError, match="at most 4 records may be open: close one first"):
        jobs.submit(opened.model("fast"), f"copy {saved}")
    opened.close("r1")
    job = jobs.wait(jobs.submit(opened.model("fast"), f"copy {saved}").id)
    assert job.record == "r5", "an identity is never given twice"


def test_a_run_stops_when_its_last_listener_leaves(jobs, opened, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.3)
    job = jobs.submit(opened.model("fast"), "slow")

    async def listen(seconds):
        with anyio.move_on_after(seconds):
            async for _ in jobs.events(job.id):
                pass

    async def two():
        async with anyio.create_task_group() as group:
            group.start_soon(listen, 0.4)
            group.start_soon(listen, 1.5)
            await anyio.sleep(1.2)
            # One has left; the other still listens.
            assert not jobs[job.id].over

    anyio.run(two)
    assert not jobs[job.id].over, "a page that is loaded again has some time"
    pid = pid_of(jobs, job)
    until(lambda: jobs[job.id].state == "canceled")
    until(lambda: gone(pid))


def test_who_comes_back_in_time_keeps_the_run(jobs, opened, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.5)
    job = jobs.submit(opened.model("fast"), "slow")

    async def listen(seconds):
        with anyio.move_on_after(seconds):
            async for _ in jobs.events(job.id):
                pass

    anyio.run(listen, 0.3)
    anyio.run(listen, 1.0)
    assert not jobs[job.id].over


def test_events_end_with_the_last_state(jobs, opened, saved):
    job = jobs.submit(opened.model("fast"), f"copy {saved}")

    async def listen():
        return [state async for state in jobs.events(job.id)]

    states = anyio.run(listen)
    assert states[-1].state == "done" and states[-1].record == "r2"
    assert len(states) == len({repr(state) for state in states})


def test_closing_leaves_nothing(opened, worker):
    jobs = module.Jobs(opened, worker)
    job = jobs.submit(opened.model("fast"), "slow")
    pid, folder = pid_of(jobs, job), Path(jobs._folder.name)
    assert folder.is_dir()
    jobs.close()
    assert gone(pid) and not folder.exists() and jobs[job.id].state == "canceled"


def test_what_a_server_leaves_that_was_killed_is_cleared_away(tmp_path):
    program = (
        "import importlib.util, sys, time\n"
        "from regard.explorer.jobs import Jobs\n"
        "from regard.explorer.opened import Model, Opened\n"
        "from regard.explorer.worker import Worker\n"
        f"jobs = Jobs(Opened(), Worker([sys.executable, {str(STAND_IN)!r}]))\n"
        "job = jobs.submit(Model('fast', 'Fast', 'transformers'), 'slow')\n"
        "while not jobs[job.id].message.startswith('pid'): time.sleep(0.02)\n"
        "print(jobs[job.id].message, jobs._folder.name, flush=True)\n"
        "time.sleep(100)"
    )
    here = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    server = subprocess.Popen([sys.executable, "-c", program], env=here, stdout=subprocess.PIPE, text=True)
    _, pid, folder = server.stdout.readline().split()
    assert Path(folder).is_dir()
    server.kill()
    server.wait()
    server.stdout.close()
    until(lambda: gone(int(pid)))
    assert not Path(folder).exists()


def test_what_was_never_begun_is_not_known(jobs):
    for ask in (jobs.__getitem__, jobs.cancel):
        with pytest.raises(NotOpenError, match="must be one that was begun here"):
            ask("j9")


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="processes of this system have no such priorities")
def test_a_run_comes_after_what_a_reader_waits_for(jobs, opened):
    job = jobs.submit(opened.model("fast"), "slow")
    pid = pid_of(jobs, job)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    # A priority counts within a session; Ctrl-C is for a group.
    assert os.getsid(pid) == os.getsid(0) and os.getpgid(pid) != os.getpgid(0)
    jobs.cancel(job.id)
