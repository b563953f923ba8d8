"""Each call by itself: rate, latency and units, with few and many tasks waiting.

One caller at a time. Every depth has a service with a file of its own, and they are measured in
turns, so that whatever else the machine does meets all of them alike.  Besides, one task into a
file on disk, and the sync that this cannot do without.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeVar

from rich.progress import Progress
from rich.table import Table

from benchmarks import machine
from benchmarks.bare import PAYLOAD, BareClient
from benchmarks.results import Bar, PartOutcome, median, percentile, table
from benchmarks.services import both_ways, folder_on_disk
from benchmarks.sizes import BATCH, Sizes
from benchmarks.targets import CallFailed, Target, Units
from headrace.client.client import Client

Returned = TypeVar("Returned")

QUEUE: Final = "calls"
CALLS: Final = ("enqueue", "dequeue", "heartbeat", "succeed")
FINISHING: Final = ("dequeue", "succeed")
FLOOR_WRITE: Final = {"enqueue": 2.0, "dequeue": 3.0, "heartbeat": 1.0, "succeed": 3.0}
"""Units per task, of design 2."""
FLOOR_READ: Final = {"enqueue": 0.0, "dequeue": 0.5, "heartbeat": 0.0, "succeed": 0.0}
"""Units per call."""
DEQUEUE_RATIO: Final = 1.5
ENQUEUE_MS: Final = 1.0
"""To enqueue one task over ``file:``, one sync of the disk left out."""
_WARM_UP_ROUNDS: Final = 3
_FILLED_AT_ONCE: Final = 1_000
_NOTE: Final = (
    "One caller; a rate is what this one caller reaches. Data in memory, but for the one task into"
    " a file on disk."
)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a measurement is of."""

    path: str
    call: str
    tasks: int
    depth: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it was measured."""

    seconds: float
    units: Units


@dataclass(frozen=True, slots=True)
class CallFigure:
    """What the calls of one kind came to; units per task, and read units per call."""

    path: str
    call: str
    tasks_per_call: int
    waiting: int
    calls: int
    tasks_per_second: float
    p50_ms: float
    p99_ms: float
    write_per_task: float
    read_per_call: float


@dataclass(frozen=True, slots=True)
class FileEnqueue:
    """One task into a file on disk, and beside it one sync there; in ms, with the CPU (mean)."""

    calls: int
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    sync_p50_ms: float
    sync_p99_ms: float

    @property
    def besides_ms(self) -> float:
        """What it takes besides one sync (p50)."""
        return self.p50_ms - self.sync_p50_ms


def run(sizes: Sizes, progress: Progress, parent: Path) -> PartOutcome:
    """Measure all calls on both paths at all depths, and one in a new folder inside *parent*."""
    calls: dict[Kind, list[Call]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        filling = progress.add_task("calls: filling queues", total=sum(sizes.depths))
        worlds = {depth: stack.enter_context(both_ways(QUEUE)) for depth in sizes.depths}
        for depth, one in worlds.items():
            _fill(one.file, depth, lambda count: progress.advance(filling, count))
        bar = progress.add_task("calls: measuring", total=_WARM_UP_ROUNDS + sizes.call_rounds)
        for number in range(_WARM_UP_ROUNDS + sizes.call_rounds):
            if number == _WARM_UP_ROUNDS:
                calls.clear()
            for depth, one in worlds.items():
                for target in one.targets:
                    for count in (BATCH, 1):
                        for call, measured in _life(target, count).items():
                            calls[Kind(target.name, call, count, depth)].append(measured)
            progress.advance(bar)
    figures = [_figure(kind, measured) for kind, measured in calls.items()]
    on_disk = _file_enqueue(sizes, progress, parent)
    return PartOutcome(
        figures={
            "calls": [asdict(figure) for figure in figures],
            "file_enqueue": asdict(on_disk),
            "filesystem": machine.filesystem(parent),
        },
        tables=[
            *(_speed_table(figures, path) for path in dict.fromkeys(f.path for f in figures)),
            _units_table(figures),
            _file_table(on_disk, parent),
        ],
        notes=[_NOTE],
        bars=[*_bars(figures, sizes), _file_bar(on_disk)],
    )


def _fill(file: Path, depth: int, done: Callable[[int], object]) -> None:
    """Insert tasks in the quickest way, for which nothing is measured."""
    with BareClient(file, QUEUE) as client:
        for start in range(0, depth, _FILLED_AT_ONCE):
            count = min(_FILLED_AT_ONCE, depth - start)
            client.insert(count)
            done(count)


def _file_enqueue(sizes: Sizes, progress: Progress, parent: Path) -> FileEnqueue:
    """Enqueue one task after the other, and sync a page of another file in between."""
    bar = progress.add_task("calls: one task, on disk", total=sizes.file_calls)
    enqueued: list[float] = []
    synced: list[float] = []
    used = 0.0
    with (
        folder_on_disk(parent) as folder,
        machine.sync_timer(folder) as sync,
        Client(f"file:{folder}/headrace.db") as client,
    ):
        client.create_queue(QUEUE)
        for number in range(-_WARM_UP_ROUNDS, sizes.file_calls):
            started, used_before = time.perf_counter(), time.process_time()
            client.enqueue(QUEUE, PAYLOAD)
            seconds = time.perf_counter() - started
            if number >= 0:
                used += time.process_time() - used_before
                enqueued.append(seconds)
                synced.append(sync())
                progress.advance(bar)
    return FileEnqueue(
        calls=len(enqueued),
        p50_ms=1000 * median(enqueued),
        p99_ms=1000 * percentile(enqueued, 99),
        cpu_ms=1000 * used / len(enqueued),
        sync_p50_ms=1000 * median(synced),
        sync_p99_ms=1000 * percentile(synced, 99),
    )


def _file_bar(one: FileEnqueue) -> Bar:
    name = "Enqueue of one task over file:, p50 less one sync"
    return Bar(name, one.besides_ms, ENQUEUE_MS, at_most=True, unit="ms")


def _file_table(one: FileEnqueue, parent: Path) -> Table:
    disk = machine.filesystem(parent)
    made = table(f"One task into a file on disk ({disk}), {one.calls} times", "ms", "p50", "p99")
    made.add_row("enqueue", f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}")
    made.add_row("a sync of one page there", f"{one.sync_p50_ms:.2f}", f"{one.sync_p99_ms:.2f}")
    made.add_row("enqueue less one sync", f"{one.besides_ms:.2f}", "")
    made.add_row("CPU of an enqueue (mean)", f"{one.cpu_ms:.2f}", "")
    return made


def _life(target: Target, count: int) -> dict[str, Call]:
    """Put *count* tasks in at the end, and take as many from the head through their life."""
    _, enqueue = _timed(lambda: (None, target.enqueue(count)))
    held, dequeue = _timed(lambda: target.dequeue(count))
    if len(held) != count:
        raise CallFailed(f"dequeue gave {len(held)} of {count} tasks")
    _, heartbeat = _timed(lambda: (None, target.heartbeat(held)))
    _, succeed = _timed(lambda: (None, target.succeed(held)))
    return dict(zip(CALLS, (enqueue, dequeue, heartbeat, succeed), strict=True))


def _timed(call: Callable[[], tuple[Returned, Units]]) -> tuple[Returned, Call]:
    started = time.perf_counter()
    returned, units = call()
    return returned, Call(time.perf_counter() - started, units)


def _figure(kind: Kind, calls: Sequence[Call]) -> CallFigure:
    seconds = [call.seconds for call in calls]
    number = len(calls)
    return CallFigure(
        path=kind.path,
        call=kind.call,
        tasks_per_call=kind.tasks,
        waiting=kind.depth,
        calls=number,
        tasks_per_second=kind.tasks * number / sum(seconds),
        p50_ms=1000 * median(seconds),
        p99_ms=1000 * percentile(seconds, 99),
        write_per_task=sum(call.units.write for call in calls) / number / kind.tasks,
        read_per_call=sum(call.units.read for call in calls) / number,
    )


def _bars(figures: Sequence[CallFigure], sizes: Sizes) -> list[Bar]:
    few, many = sizes.depths[0], sizes.depths[-1]
    latency = {
        (figure.path, figure.tasks_per_call, figure.waiting): figure.p50_ms
        for figure in figures
        if figure.call == "dequeue"
    }
    return [
        Bar(
            f"Dequeue of {tasks} {path}: latency at {many:,} : {few:,} waiting",
            latency[path, tasks, many] / latency[path, tasks, few],
            DEQUEUE_RATIO,
            at_most=True,
        )
        for path, tasks in dict.fromkeys((path, tasks) for path, tasks, _ in latency)
    ]


def _speed_table(figures: Sequence[CallFigure], path: str) -> Table:
    """Show one path: a row for each kind of call, a column for each depth in each group."""
    ours = {(f.call, f.tasks_per_call, f.waiting): f for f in figures if f.path == path}
    depths = list(dict.fromkeys(waiting for _, _, waiting in ours))
    made = table(
        f"Calls {path}, by the number of tasks waiting; p50 and p99 in ms",
        "Call",
        "Tasks",
        *(f"{group}\n{depth:,}" for group in ("tasks/s", "p50", "p99") for depth in depths),
    )
    for count in (BATCH, 1):
        for call in CALLS:
            kinds = [ours[call, count, depth] for depth in depths]
            made.add_row(
                call,
                f"{count}",
                *(f"{one.tasks_per_second:,.0f}" for one in kinds),
                *(f"{one.p50_ms:.2f}" for one in kinds),
                *(f"{one.p99_ms:.2f}" for one in kinds),
            )
        both = [
            1 / sum(1 / ours[call, count, depth].tasks_per_second for call in FINISHING)
            for depth in depths
        ]
        made.add_row("+".join(FINISHING), f"{count}", *(f"{rate:,.0f}" for rate in both))
        made.add_section()
    return made


def _units_table(figures: Sequence[CallFigure]) -> Table:
    """Show the dearest of all depths and paths: they should not differ."""
    made = table(
        "Units of the calls (the dearest of all paths and depths)",
        "Call",
        "Tasks a call",
        "Write/task",
        "Floor",
        "Read/call",
        "Floor",
    )
    for call in CALLS:
        for count in (BATCH, 1):
            same = [f for f in figures if f.call == call and f.tasks_per_call == count]
            made.add_row(
                call,
                f"{count}",
                f"{max(f.write_per_task for f in same):.3g}",
                f"{FLOOR_WRITE[call]:g}",
                f"{max(f.read_per_call for f in same):.3g}",
                f"{FLOOR_READ[call]:g}",
            )
    return made
