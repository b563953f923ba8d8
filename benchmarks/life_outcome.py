"""What the runs of ``life`` came to: their medians, the bars, and what keeps them from more."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from rich.table import Table

from benchmarks import machine
from benchmarks.results import Bar, PartOutcome, table
from benchmarks.sizes import BATCH

SHARE_OF_BARE: Final = 0.05
"""Half of what a busy machine has shown, where one service stands against four writers."""

CPU_OF_BARE: Final = 12.0
"""CPU of the service, to that of bare SQLite: 7.5 to 9.1 in turns at a load of 15 to 20."""

CPU_PER_THOUSAND: Final = 2.0
WANTED: Final = 2_000
"""Whole lives a second that design 7 wants, where the emulator gave 700 to 800."""

_BUSY: Final = 0.85
"""The share of a processor, or of all, from which it is called busy."""
_SYNCING: Final = 0.7
WRITES: Final = 3
"""Of a batch's life, each of which waits for a sync."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement; CPU in seconds per 1,000 tasks, units per task, latencies in ms.

    ``service_cpu`` is that of the service with its timers, ``answering_cpu`` of the process that
    answers; ``others_busy`` is how many processors everything else on this machine kept busy.
    """

    tasks_per_second: float
    seconds: float
    service_cpu: float
    answering_cpu: float
    clients_cpu: float
    others_busy: float
    write: float
    read: float
    enqueue_p50: float
    enqueue_p99: float
    dequeue_p50: float
    dequeue_p99: float
    succeed_p50: float
    succeed_p99: float

    def cores(self, cpu: float) -> float:
        """Return how many processors *cpu* (seconds per 1,000 tasks) kept busy."""
        return cpu * self.tasks_per_second / 1000


def _median_run(runs: Sequence[Measurement]) -> Measurement:
    """Return the median of each figure by itself."""
    names = [field.name for field in fields(Measurement)]
    return Measurement(
        **{name: statistics.median(getattr(one, name) for one in runs) for name in names}
    )


def outcome(
    ours: Sequence[Measurement],
    bare: Sequence[Measurement],
    syncs: Sequence[float],
    *,
    tasks: int,
    clients: int,
    parent: Path,
) -> PartOutcome:
    """Put together what the runs, of *tasks* each, came to.

    *syncs* are the disk's, in ms, one before each run.
    """
    service, file = _median_run(ours), _median_run(bare)
    share = statistics.median(
        one.tasks_per_second / other.tasks_per_second for one, other in zip(ours, bare, strict=True)
    )
    cpu = statistics.median(
        one.service_cpu / other.clients_cpu for one, other in zip(ours, bare, strict=True)
    )
    sync = statistics.median(syncs)
    bound = what_bounds(service, sync, machine.cores())
    filesystem = machine.filesystem(parent)
    notes = [
        bound,
        f"A sync of this disk ({filesystem}) takes {sync:.1f} ms.",
        f"{service.tasks_per_second:,.0f} whole lives/s over HTTP, of {WANTED:,} that are wanted.",
    ]
    if not machine.is_disk(parent):
        notes.append("The data was in memory, not on a disk: choose another folder (--data-dir).")
    title = f"Whole lives on disk, {clients} clients: median of {len(ours)} times {tasks:,} tasks"
    return PartOutcome(
        figures={
            "tasks": tasks * len(ours),
            "tasks_per_turn": tasks,
            "batch": BATCH,
            "clients": clients,
            "filesystem": filesystem,
            "sync_ms": list(syncs),
            "service": {"median": asdict(service), "runs": [asdict(one) for one in ours]},
            "bare_sqlite": {"median": asdict(file), "runs": [asdict(one) for one in bare]},
            "share_of_bare_sqlite": share,
            "cpu_of_bare_sqlite": cpu,
        },
        tables=[_table(title, service, file, share)],
        notes=notes,
        bars=[
            Bar("Whole lives over HTTP : bare SQLite", share, SHARE_OF_BARE, at_most=False),
            Bar("CPU of the service : of bare SQLite", cpu, CPU_OF_BARE, at_most=True),
            Bar(
                "CPU of the service per 1,000 tasks",
                service.service_cpu,
                CPU_PER_THOUSAND,
                at_most=True,
                unit="s",
            ),
        ],
    )


def what_bounds(one: Measurement, sync_ms: float, cores: int) -> str:
    """Say in a sentence what keeps *one* from being faster.

    CPU of a process is shown as the number of processors it kept busy.
    """
    syncing = one.tasks_per_second * WRITES / BATCH * sync_ms / 1000
    parts = {
        "service": one.cores(one.service_cpu),
        "clients": one.cores(one.clients_cpu),
        "all else": one.others_busy,
    }
    total = sum(parts.values())
    shares = ", ".join(f"{name} {busy:.2f}" for name, busy in parts.items())
    facts = (
        f"{total:.2f} of {cores} processors were busy ({shares}), and syncs to disk, at most"
        f" {WRITES} for a batch of {BATCH}, took up to {min(syncing, 1):.0%} of the time; by its"
        f" CPU alone the process that answers ends at {1000 / one.answering_cpu:,.0f} tasks/s"
    )
    if syncing >= _SYNCING:
        return f"The disk bounds it: {facts}."
    if one.cores(one.answering_cpu) >= _BUSY:
        return f"The service's one interpreter bounds it (GIL): {facts}."
    if total >= _BUSY * cores:
        return f"The processors bound it, with all else on this machine: {facts}."
    return f"Waiting of calls for each other bounds it: {facts}."


def _table(title: str, service: Measurement, file: Measurement, share: float) -> Table:
    made = table(title, "Figure", "Over HTTP", "Bare SQLite")
    made.add_row("tasks/s", f"{service.tasks_per_second:,.0f}", f"{file.tasks_per_second:,.0f}")
    made.add_row("share of bare SQLite", f"{share:.0%}", "")
    made.add_section()
    rows = (
        ("CPU s per 1,000 tasks: service", "service_cpu"),
        ("CPU s per 1,000 tasks: clients", "clients_cpu"),
        ("processors busy with all else", "others_busy"),
        ("write units per task", "write"),
        ("read units per task", "read"),
    )
    for label, name in rows:
        made.add_row(label, *(f"{getattr(one, name):.2f}" for one in (service, file)))
    made.add_section()
    for name in ("enqueue", "dequeue", "succeed"):
        for percent in ("p50", "p99"):
            values = (getattr(one, f"{name}_{percent}") for one in (service, file))
            made.add_row(f"{name} {percent}, ms", *(f"{value:.1f}" for value in values))
    return made
