"""What tests and tools need to start programs: a free port, and an end with those that began."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_STILL_WITHIN_SECONDS: Final = 30.0
_PROC: Final = Path("/proc")

DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(parent):  # it may have died before the signal was set
    os.execv(command[0], command)
"""
"""Becomes a program that is killed when the parent's thread ends (Linux): PARENT COMMAND ARG...

A program of its own, because a hook between fork and exec is unsafe in a process that has threads,
and Python 3.12 warns about it.
"""


def free_port() -> int:
    """Find a TCP port of this machine's loopback address that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def standing_still(*pids: int) -> Iterator[None]:
    """Let these processes do nothing for the length of a with block (Linux).

    A thread that runs goes on for a moment after the signal, so it is waited for.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for pid in pids:
            until = time.monotonic() + _STILL_WITHIN_SECONDS
            while not all(_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()):
                assert time.monotonic() < until, f"process {pid} goes on"
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _stopped(task: Path) -> bool:
    try:
        stat = (task / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return True
    # Behind the name of the program, which may have anything in it.
    return stat.rpartition(")")[2].split()[0] == "T"


@dataclass(frozen=True, slots=True)
class CpuProcess:
    """A process: its parent, and the CPU seconds it and its ended children have used."""

    parent: int
    seconds: float


def processes() -> dict[int, CpuProcess]:
    """Return the processes of this machine by process id; an empty dictionary off Linux."""
    found = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # Behind the name, which may hold spaces: parent is field 4, the four times 14 to 17.
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        found[int(path.parent.name)] = CpuProcess(int(fields[1]), seconds)
    return found
