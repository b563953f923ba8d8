"""The whole life of many tasks over HTTP, against the same writes driven directly at the engine.

Both kinds have their data on disk, four client processes, and take turns.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress, TaskID
from rich.table import Table

from infra.local.launch import launched
from tests.bench import machine
from tests.bench.clients import Clients, Job, Work, clients
from tests.bench.engines import bare_engine, folder_on_disk
from tests.bench.results import Bar, Outcome, median, percentile, table
from tests.bench.sizes import BATCH, Sizes
from tests.bench.targets import CallFailed, OverHttp

CLIENTS: Final = 4
QUEUE: Final = "life"
SHARE_OF_ENGINE: Final = 0.45
CPU_PER_THOUSAND: Final = 2.0
_BUSY: Final = 0.85
"""The share of a processor, or of all, from which it is called busy."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement; CPU in seconds per 1,000 tasks, units per task, latencies in ms."""

    tasks_per_second: float
    seconds: float
    service_cpu: float
    engine_cpu: float
    clients_cpu: float
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


def run(sizes: Sizes, progress: Progress, parent: Path) -> Outcome:
    """Measure both kinds in turns; their data goes to new folders inside *parent*."""
    total = sizes.life_tasks
    bar = progress.add_task("whole lives", total=2 * sizes.life_rounds * total)
    ours: list[Run] = []
    bare: list[Run] = []
    with clients(CLIENTS) as crew:
        for number in range(sizes.life_rounds):
            measures = [(_over_http, ours), (_at_engine, bare)]
            for measure, runs in measures if number % 2 == 0 else reversed(measures):
                before = (len(ours) + len(bare)) * total
                done = partial(_show, progress, bar, before)
                with folder_on_disk(parent) as folder:
                    runs.append(measure(crew, folder, total, done))
    return _outcome(ours, bare, sizes, parent)


def _show(progress: Progress, bar: TaskID, before: int, done: int) -> None:
    progress.update(bar, completed=before + done)


def _over_http(crew: Clients, folder: Path, total: int, done: Callable[[int], object]) -> Run:
    with launched(data_dir=folder) as service:
        with OverHttp(service.url, service.admin_key, QUEUE) as target:
            target.create_queue()
            pids = (service.pid, service.engine_pid or 0)
            run_ = _measured(crew, service.url, service.admin_key, pids, total, done)
            by_state = target.count()
        if by_state.get("SUCCEEDED") != total:
            raise CallFailed(f"of {total} tasks the service has {by_state}")
        return run_


def _at_engine(crew: Clients, folder: Path, total: int, done: Callable[[int], object]) -> Run:
    with bare_engine(folder) as engine:
        return _measured(crew, engine.url, None, (0, engine.pid), total, done)


def _measured(
    crew: Clients,
    url: str,
    key: str | None,
    pids: tuple[int, int],
    total: int,
    done: Callable[[int], object],
) -> Run:
    """Let the clients work; *pids* are those of service and engine, 0 for none."""
    jobs = [Job(url, key, QUEUE, share, total) for share in _shares(total, crew.number)]
    before = [_cpu(pid) for pid in pids]
    works = crew.run(jobs, done)
    service, engine = (_cpu(pid) - was for pid, was in zip(pids, before, strict=True))
    finished = sum(work.done for work in works)
    if finished != total:
        raise CallFailed(f"{finished} tasks were finished, of {total}")
    seconds = max(work.ended for work in works) - min(work.started for work in works)
    thousands = total / 1000
    return Run(
        tasks_per_second=total / seconds,
        seconds=seconds,
        service_cpu=service / thousands,
        engine_cpu=engine / thousands,
        clients_cpu=sum(work.cpu_seconds for work in works) / thousands,
        write=sum(work.write for work in works) / total,
        read=sum(work.read for work in works) / total,
        **_latencies(works),
    )


def _cpu(pid: int) -> float:
    return machine.cpu_seconds(pid) if pid else 0.0


def _shares(total: int, number: int) -> list[int]:
    """Split *total* into whole batches as evenly as they go."""
    batches = -(-total // BATCH)
    shares = [BATCH * (batches // number + (place < batches % number)) for place in range(number)]
    shares[0] -= sum(shares) - total
    return shares


def _latencies(works: Sequence[Work]) -> dict[str, float]:
    found = {}
    for name in ("enqueue", "dequeue", "succeed"):
        seconds = [second for work in works for second in work.call_seconds[name]]
        found[f"{name}_p50"] = 1000 * median(seconds)
        found[f"{name}_p99"] = 1000 * percentile(seconds, 99)
    return found


def _median_run(runs: Sequence[Run]) -> Run:
    """Return the median of each figure by itself."""
    names = [field.name for field in fields(Run)]
    return Run(**{name: statistics.median(getattr(one, name) for one in runs) for name in names})


def _outcome(ours: Sequence[Run], bare: Sequence[Run], sizes: Sizes, parent: Path) -> Outcome:
    service, engine = _median_run(ours), _median_run(bare)
    share = statistics.median(
        one.tasks_per_second / other.tasks_per_second for one, other in zip(ours, bare, strict=True)
    )
    own = service.service_cpu
    bound = what_bounds(service, machine.cores())
    figures: dict[str, Any] = {
        "tasks": sizes.life_tasks,
        "batch": BATCH,
        "clients": CLIENTS,
        "filesystem": machine.filesystem(parent),
        "service": {"median": asdict(service), "runs": [asdict(one) for one in ours]},
        "bare_engine": {"median": asdict(engine), "runs": [asdict(one) for one in bare]},
        "share_of_engine": share,
        "bound_by": bound,
    }
    notes = [bound]
    if not machine.is_disk(parent):
        notes.append("The data was in memory, not on a disk: choose another folder (--data-dir).")
    return Outcome(
        figures=figures,
        tables=[_table(service, engine, share, sizes)],
        notes=notes,
        bars=[
            Bar(
                "Whole lives, share of the engine's own rate", share, SHARE_OF_ENGINE, at_most=False
            ),
            Bar(
                "CPU of the service per 1,000 tasks", own, CPU_PER_THOUSAND, at_most=True, unit="s"
            ),
        ],
    )


def what_bounds(one: Run, cores: int) -> str:
    """Say in a sentence what keeps *one* from being faster."""
    parts = {
        "service": one.cores(one.service_cpu),
        "engine": one.cores(one.engine_cpu),
        "clients": one.cores(one.clients_cpu),
    }
    total = sum(parts.values())
    shares = ", ".join(f"{name} {busy:.2f}" for name, busy in parts.items())
    used = f"{total:.2f} of {cores} processors were busy ({shares})"
    if parts["service"] >= _BUSY:
        alone = 1000 / one.service_cpu
        return (
            f"The service's one interpreter bounds it (GIL): {used}; at"
            f" {one.service_cpu:.2f} s of CPU per 1,000 tasks one process ends at {alone:,.0f}/s."
        )
    if total >= _BUSY * cores:
        return f"The processors bound it: {used}."
    return (
        f"No processor bounds it: {used}; what is left is waiting, for the engine's one writer and"
        " its syncs to disk, and for the interpreter's lock."
    )


def _table(service: Run, engine: Run, share: float, sizes: Sizes) -> Table:
    made = table(
        f"Whole life of {sizes.life_tasks:,} tasks, batches of {BATCH}, {CLIENTS} clients, data on"
        f" disk (median of {sizes.life_rounds})",
        "Figure",
        "Over HTTP",
        "Bare engine",
    )
    made.add_row("tasks/s", f"{service.tasks_per_second:,.0f}", f"{engine.tasks_per_second:,.0f}")
    made.add_row("share of the bare engine", f"{share:.0%}", "")
    made.add_section()
    rows = (
        ("CPU s per 1,000 tasks: service", "service_cpu"),
        ("CPU s per 1,000 tasks: clients", "clients_cpu"),
        ("CPU s per 1,000 tasks: engine", "engine_cpu"),
        ("write units per task", "write"),
        ("read units per task", "read"),
    )
    for label, name in rows:
        made.add_row(label, *(f"{getattr(one, name):.2f}" for one in (service, engine)))
    made.add_section()
    for name in ("enqueue", "dequeue", "succeed"):
        for percent in ("p50", "p99"):
            values = (getattr(one, f"{name}_{percent}") for one in (service, engine))
            made.add_row(f"{name} {percent}, ms", *(f"{value:.1f}" for value in values))
    return made
