"""The processes below another one, to kill some of them."""

import os
import signal
from pathlib import Path
from typing import Final

FORKED: Final = "-m headrace.spark.stations.daemon"
SOURCE: Final = "python_streaming_source_runner"


def descendants(pid: int) -> dict[int, int]:
    """Return the processes below *pid*, each with its parent."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    below = {pid}
    while grown := {one for one, parent in parents.items() if parent in below} - below:
        below |= grown
    return {one: parents[one] for one in below if one != pid}


def command(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def python(pid: int) -> list[int]:
    """Return the Python processes below *pid* that run tasks of Spark or sources of streams."""
    below = descendants(pid)
    return [
        one
        for one, parent in below.items()
        if SOURCE in command(one) or (FORKED in command(one) and FORKED in command(parent))
    ]


def killed(pid: int) -> bool:
    """Kill a process; return whether it was still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
