"""What tests and tools need to start programs: a free port, and an end with those that began."""

import socket
from typing import Final

HOST: Final = "127.0.0.1"

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
