"""The whole life of many tasks over HTTP, against the same writes straight to a SQLite file.

Both kinds have their data on disk, four client processes, and take turns.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.progress import Progress, TaskID

from benchmarks import machine
from benchmarks.bare import new_file
from benchmarks.clients import Clients, Job, Work, clients
from benchmarks.life_outcome import Measurement, outcome
from benchmarks.peers.cpu import below
from benchmarks.results import PartOutcome, median, percentile
from benchmarks.services import folder_on_disk
from benchmarks.sizes import BATCH, Sizes
from benchmarks.targets import CallFailed, OverHttp
from infra.launch import launched
from tests.processes import processes

CLIENTS: Final = 4
QUEUE: Final = "life"
_ENOUGH_SECONDS: Final = 150.0
"""After so long no new service is started: a disk may be very slow."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two that are compared; *service* is the process id of its service, if any."""

    url: str
    key: str | None
    service: int | None
    tasks: int
    runs: list[Measurement]


def run(sizes: Sizes, progress: Progress, parent: Path) -> PartOutcome:
    """Measure both kinds in turns; their data goes to new folders inside *parent*."""
    turns = sizes.life_rounds * sizes.life_turns
    bar = progress.add_task("whole lives", total=2 * turns)
    ours: list[Measurement] = []
    bare: list[Measurement] = []
    syncs: list[float] = []
    started = time.monotonic()
    with clients(CLIENTS) as crew:
        while len(ours) < turns and time.monotonic() - started < _ENOUGH_SECONDS:
            with _both(sizes, parent, ours, bare) as (sides, succeeded):
                for number in range(sizes.life_turns):
                    # Short turns, because a disk may be quick and slow by the minute.
                    for side in sides if number % 2 == 0 else reversed(sides):
                        before = len(ours) + len(bare)
                        done = partial(_show, progress, bar, before, side.tasks)
                        syncs.append(machine.sync_ms(parent))
                        side.runs.append(_measured(crew, side, done))
                if succeeded() != sizes.life_tasks:
                    raise CallFailed(f"the service has {succeeded()} tasks that succeeded")
    turn = sizes.life_tasks // sizes.life_turns
    return outcome(ours, bare, syncs, tasks=turn, clients=CLIENTS, parent=parent)


def _show(progress: Progress, bar: TaskID, before: int, tasks: int, done: int) -> None:
    progress.update(bar, completed=before + done / tasks)


@contextlib.contextmanager
def _both(
    sizes: Sizes, parent: Path, ours: list[Measurement], bare: list[Measurement]
) -> Iterator[tuple[list[_Side], Callable[[], int]]]:
    """Run a service, and make a file, with new data; also give how many tasks succeeded."""
    turn, bare_turn = (tasks // sizes.life_turns for tasks in (sizes.life_tasks, sizes.bare_tasks))
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(folder_on_disk(parent)) for _ in range(2)]
        service = stack.enter_context(launched(data_dir=folders[0]))
        file = folders[1] / "bare.db"
        new_file(file)
        target = stack.enter_context(OverHttp(service.url, service.admin_key, QUEUE))
        target.create_queue()
        sides = [
            _Side(service.url, service.admin_key, service.pid, turn, ours),
            _Side(str(file), None, None, bare_turn, bare),
        ]
        yield sides, lambda: target.count()["SUCCEEDED"]


def _measured(crew: Clients, side: _Side, done: Callable[[int], object]) -> Measurement:
    """Let the clients bring the tasks of one turn through their life."""
    total = side.tasks
    shares = _shares(total, crew.number)
    jobs = [Job(side.url, side.key, QUEUE, share, total) for share in shares]
    before = _used(side.service)
    works = crew.run(jobs, done)
    used = [now - was for now, was in zip(_used(side.service), before, strict=True)]
    service, answering, everything, elapsed = used
    own = sum(work.cpu_seconds for work in works)
    finished = sum(work.done for work in works)
    if finished != total:
        raise CallFailed(f"{finished} tasks were finished, of {total}")
    seconds = max(work.ended for work in works) - min(work.started for work in works)
    thousands = total / 1000
    return Measurement(
        tasks_per_second=total / seconds,
        seconds=seconds,
        service_cpu=service / thousands,
        answering_cpu=answering / thousands,
        clients_cpu=own / thousands,
        others_busy=(everything - service - own) / elapsed,
        write=sum(work.write for work in works) / total,
        read=sum(work.read for work in works) / total,
        **_latencies(works),
    )


def _used(service: int | None) -> list[float]:
    """Return CPU seconds so far, of a service with its timers, without, and of all, and the time.

    The first two are 0 for no service, NaN off Linux.
    """
    running, ours = processes(), [0.0, 0.0]
    if service is not None:
        known = service in running
        ours = [below([service], running), running[service].seconds] if known else [math.nan] * 2
    return [*ours, machine.all_cpu_seconds(), time.monotonic()]


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
