"""The filter of system calls of a box: one process, and nothing that takes memory past its limits.

A classic BPF program, as `bwrap --seccomp` takes it; its numbers are those of Linux's headers. Threads are allowed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import struct
from collections.abc import Iterator

from regard.errors import RegardError

# Of seccomp_data: the number of the call, the machine, and the lower half of the first argument.
NUMBER, ARCHITECTURE, FIRST = 0, 4, 16
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
CLONE_THREAD = 0x00010000
# Calls of another table of numbers on x86-64, which would go past a list of these.
X32 = 0x40000000

# Machine → its number for seccomp, and those of its calls.
MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {"clone": 56, "clone3": 435, "fork": 57, "vfork": 58, "execveat": 322}
        | {"shmget": 29, "msgget": 68, "semget": 64, "memfd_create": 319, "memfd_secret": 447}
        | {"io_uring_setup": 425, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "ptrace": 101}
        | {"unshare": 272, "setns": 308, "mount": 165, "keyctl": 250, "add_key": 248, "request_key": 249},
    ),
    "aarch64": (
        0xC00000B7,
        {"clone": 220, "clone3": 435, "execveat": 281}
        | {"shmget": 194, "msgget": 186, "semget": 190, "memfd_create": 279, "memfd_secret": 447}
        | {"io_uring_setup": 425, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "ptrace": 117}
        | {"unshare": 97, "setns": 268, "mount": 40, "keyctl": 219, "add_key": 217, "request_key": 218},
    ),
}


class NoFilterError(RegardError):
    """There is no filter for this machine."""


def program(machine: str = "") -> bytes:
    """The filter.

    Args:
        machine: "x86_64" or "aarch64"; "": this one.

    Raises:
        NoFilterError: another machine.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise NoFilterError(f"the machine must be one of {', '.join(MACHINES)}, got {machine!r:.40}")
    architecture, calls = MACHINES[machine]
    refuse = REFUSE | errno.EPERM
    lines = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        lines += [(ABOVE, 0, 1, X32), (RETURN, 0, 0, refuse)]
    for name, number in calls.items():
        # Its flags lie in memory, where no filter sees them; the C library then takes the older call.
        answer = REFUSE | errno.ENOSYS if name == "clone3" else refuse
        if name != "clone":
            lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, answer)]
    # The last one, as it loads something else: a thread may be begun, a process may not.
    lines += [
        (EQUAL, 0, 3, calls["clone"]),
        (LOAD, 0, 0, FIRST),
        (ANY_BIT, 1, 0, CLONE_THREAD),
        (RETURN, 0, 0, refuse),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


@contextlib.contextmanager
def pipe() -> Iterator[int]:
    """A pipe from which the filter can be read once."""
    content = program()
    reading, writing = os.pipe()
    try:
        # Smaller than what a pipe holds, so that writing does not wait.
        os.write(writing, content)
        os.close(writing)
        yield reading
    finally:
        os.close(reading)
