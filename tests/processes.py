"""What tests and tools need to start programs: a free port, and an end with those that began."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
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
