"""The whole life of many tasks over HTTP, against the same writes driven directly at the engine.

Both kinds have their data on disk, four client processes, and take turns.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.progress import Progress, TaskID

from headrace.local.launch import launched
from tests.bench import machine
from tests.bench.clients import Clients, Job, Work, clients
from tests.bench.engines import bare_engine, folder_on_disk
from tests.bench.life_outcome import Measurement, outcome
from tests.bench.results import PartOutcome, median, percentile
from tests.bench.sizes import BATCH, Sizes
from tests.bench.targets import CallFailed, OverHttp

CLIENTS: Final = 4
QUEUE: Final = "life"
_ENOUGH_SECONDS: Final = 150.0
"""After so long no new service is started: a disk may be very slow."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two that are compared; *pids* are those of service and engine, 0 for none."""

    url: str
    key: str | None
    pids: tuple[int, int]
    runs: list[Measurement]


def run(sizes: Sizes, progress: Progress, parent: Path) -> PartOutcome:
    """Measure both kinds in turns; their data goes to new folders inside *parent*."""
    turn = sizes.life_tasks // sizes.life_turns
    turns = sizes.life_rounds * sizes.life_turns
    bar = progress.add_task("whole lives", total=2 * turns * turn)
    ours: list[Measurement] = []
    bare: list[Measurement] = []
    syncs: list[float] = []
    started = time.monotonic()
    with clients(CLIENTS) as crew:
        while len(ours) < turns and time.monotonic() - started < _ENOUGH_SECONDS:
            with _both(parent, ours, bare) as (sides, succeeded):
                for number in range(sizes.life_turns):
                    # Short turns, because a disk may be quick and slow by the minute.
                    for side in sides if number % 2 == 0 else reversed(sides):
                        before = (len(ours) + len(bare)) * turn
                        done = partial(_show, progress, bar, before)
                        syncs.append(machine.sync_ms(parent))
                        side.runs.append(_measured(crew, side, turn, done))
                if succeeded() != sizes.life_turns * turn:
                    raise CallFailed(f"the service has {succeeded()} tasks that succeeded")
    return outcome(ours, bare, syncs, tasks=turn, clients=CLIENTS, parent=parent)


def _show(progress: Progress, bar: TaskID, before: int, done: int) -> None:
    progress.update(bar, completed=before + done)


@contextlib.contextmanager
def _both(
    parent: Path, ours: list[Measurement], bare: list[Measurement]
) -> Iterator[tuple[list[_Side], Callable[[], int]]]:
    """Run a service and a bare engine with new data; also give how many tasks succeeded."""
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(folder_on_disk(parent)) for _ in range(2)]
        service = stack.enter_context(launched(data_dir=folders[0]))
        engine = stack.enter_context(bare_engine(folders[1]))
        target = stack.enter_context(OverHttp(service.url, service.admin_key, QUEUE))
        target.create_queue()
        pids = (service.pid, 0)
        sides = [
            _Side(service.url, service.admin_key, pids, ours),
            _Side(engine.url, None, (0, engine.pid), bare),
        ]
        yield sides, lambda: target.count()["SUCCEEDED"]


def _measured(crew: Clients, side: _Side, total: int, done: Callable[[int], object]) -> Measurement:
    """Let the clients bring *total* tasks through their life."""
    shares = _shares(total, crew.number)
    jobs = [Job(side.url, side.key, QUEUE, share, total) for share in shares]
    before = _used(side.pids)
    works = crew.run(jobs, done)
    used = [now - was for now, was in zip(_used(side.pids), before, strict=True)]
    service, engine, everything, elapsed = used
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
        engine_cpu=engine / thousands,
        clients_cpu=own / thousands,
        others_busy=(everything - service - engine - own) / elapsed,
        write=sum(work.write for work in works) / total,
        read=sum(work.read for work in works) / total,
        **_latencies(works),
    )


def _used(pids: tuple[int, int]) -> list[float]:
    """Return the CPU seconds that each of *pids* and the whole machine have used, and the time."""
    own = [machine.cpu_seconds(pid) if pid else 0.0 for pid in pids]
    return [*own, machine.all_cpu_seconds(), time.monotonic()]


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
