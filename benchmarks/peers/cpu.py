"""The CPU that a drain takes: unlike a rate, much the same on a machine that others use too."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.processes import CpuProcess, processes


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds used so far by the workers and by all else that we have started."""

    tasks: int
    workers: float
    broker: float


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
