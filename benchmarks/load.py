"""How busy the machine was while a part was measured, and with what besides the measurement."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import machine

_PROC: Final = Path("/proc")
_NAMED: Final = 5
_WORTH_NAMING: Final = 0.02
"""Processors that a program must keep busy to be named."""


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """A process: its program, its parent, and its CPU seconds; *ended* are its ended children's."""

    program: str
    parent: int
    seconds: float
    ended: float


@dataclass(frozen=True, slots=True)
class BusyProgram:
    """A program, and how many processors all its processes kept busy."""

    program: str
    cores: float


@dataclass(frozen=True, slots=True)
class StateOfLoad:
    """What one part was measured beside.

    Load averages are those of 1, 5 and 15 minutes.  ``others`` is how many processors all that
    the benchmark did not start kept busy (NaN off Linux), ``programs`` the busiest of that.
    """

    before: tuple[float, float, float]
    after: tuple[float, float, float]
    others: float
    programs: tuple[BusyProgram, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it for the JSON file."""
        return asdict(self)

    def __str__(self) -> str:
        """Say it in one line."""
        named = ", ".join(f"{one.program} {one.cores:.2f}" for one in self.programs)
        return (
            f"Load {self.before[0]:.1f} before, {self.after[0]:.1f} after; others kept"
            f" {self.others:.2f} of {machine.cores()} processors busy"
            + (f" ({named})." if named else ".")
        )


class LoadWatch:
    """Watches the machine from its making on."""

    def __init__(self) -> None:
        """Begin."""
        self._before = os.getloadavg()
        self._started = time.monotonic()
        self._everything = machine.all_cpu_seconds()
        self._processes = processes()

    def state(self) -> StateOfLoad:
        """Return what it was until now."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        everything = machine.all_cpu_seconds() - self._everything
        now = processes()
        ours = family(os.getpid(), now)
        own = sum(_used(self._processes, now, pid) for pid in ours)
        own += sum(_ended(self._processes, now, pid) for pid in ours)
        return StateOfLoad(
            before=self._before,
            after=os.getloadavg(),
            others=max(0.0, (everything - own) / seconds),
            programs=busiest(self._processes, now, leave_out=ours, seconds=seconds),
        )


def processes() -> dict[int, ProcessCpu]:
    """Return the processes of this machine by process id; nothing off Linux."""
    found = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        # Behind the name, which may hold spaces: parent is field 4, the four times 14 to 17.
        fields = rest.split()
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]
        found[int(path.parent.name)] = ProcessCpu(
            head.partition("(")[2], int(fields[1]), sum(ticks[:2]), sum(ticks[2:])
        )
    return found


def family(root: int, running: Mapping[int, ProcessCpu]) -> set[int]:
    """Return *root* and all that descend from it."""
    found = {root}
    while True:
        more = {pid for pid, one in running.items() if one.parent in found} - found
        if not more:
            return found
        found |= more


def busiest(
    before: Mapping[int, ProcessCpu],
    after: Mapping[int, ProcessCpu],
    *,
    leave_out: Iterable[int],
    seconds: float,
) -> tuple[BusyProgram, ...]:
    """Return the busiest programs of *seconds*, by those processes that were there at the end."""
    cores: dict[str, float] = {}
    for pid in after.keys() - set(leave_out):
        program = after[pid].program
        cores[program] = cores.get(program, 0.0) + _used(before, after, pid) / seconds
    ranked = sorted((-busy, program) for program, busy in cores.items() if busy >= _WORTH_NAMING)
    return tuple(BusyProgram(program, -busy) for busy, program in ranked[:_NAMED])


def _used(before: Mapping[int, ProcessCpu], after: Mapping[int, ProcessCpu], pid: int) -> float:
    was = before[pid].seconds if pid in before else 0.0
    return after[pid].seconds - was if pid in after else 0.0


def _ended(before: Mapping[int, ProcessCpu], after: Mapping[int, ProcessCpu], pid: int) -> float:
    was = before[pid].ended if pid in before else 0.0
    return after[pid].ended - was if pid in after else 0.0
