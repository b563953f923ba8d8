"""The CPU that a drain takes: unlike a rate, much the same on a machine that others use too."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class CpuProcess:
    """A process: its parent, and the CPU seconds of it and of the children it has outlived."""

    parent: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds used so far by the workers and by all else that we have started."""

    tasks: int
    workers: float
    broker: float


def processes() -> dict[int, CpuProcess]:
    """The processes of this machine, by process id; nothing off Linux."""
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


def below(roots: Iterable[int], running: Mapping[int, CpuProcess]) -> float:
    """Return the CPU seconds of these processes and of all that descend from them."""
    children: dict[int, list[int]] = {}
    for pid, process in running.items():
        children.setdefault(process.parent, []).append(pid)
    total, waiting = 0.0, [pid for pid in roots if pid in running]
    while waiting:
        pid = waiting.pop()
        total += running[pid].seconds
        waiting += children.get(pid, [])
    return total


def reading(tasks: int, workers: Iterable[int]) -> CpuReading | None:
    """The CPU time used when so many *tasks* had run; None off Linux."""
    running = processes()
    us = os.getpid()
    if us not in running:
        return None
    ours = [pid for pid, process in running.items() if process.parent == us]
    of_workers = below(workers, running)
    return CpuReading(tasks, of_workers, below(ours, running) - of_workers)
