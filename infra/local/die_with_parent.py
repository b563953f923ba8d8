"""Become a program that dies with its parent (Linux): `die_with_parent.py PARENT COMMAND ARG...`.

Run as a program of its own, because a hook between fork and exec is unsafe in a process that has
threads, and Python 3.12 warns about it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process by `command`, to be killed when the parent's thread ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the signal was set.
    if os.getppid() == parent:
        os.execv(command[0], command)  # noqa: S606 (no shell is the point)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
