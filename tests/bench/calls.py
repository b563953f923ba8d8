"""Each call by itself: rate, latency and units, with few and many tasks waiting.

One caller at a time. Every depth has an engine and a service of its own, and they are measured in
turns, so that whatever else the machine does meets all of them alike.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from rich.progress import Progress
from rich.table import Table

from tests.bench.bare import BareClient
from tests.bench.engines import EngineWorld, world
from tests.bench.results import Bar, PartOutcome, median, percentile, table
from tests.bench.sizes import BATCH, Sizes
from tests.bench.targets import CallFailed, Target, Units

Returned = TypeVar("Returned")

QUEUE: Final = "calls"
CALLS: Final = ("enqueue", "dequeue", "heartbeat", "succeed")
FINISHING: Final = ("dequeue", "succeed")
FLOOR_WRITE: Final = {"enqueue": 2.0, "dequeue": 3.0, "heartbeat": 1.0, "succeed": 3.0}
"""Units per task, of design 2."""
FLOOR_READ: Final = {"enqueue": 0.0, "dequeue": 0.5, "heartbeat": 0.0, "succeed": 0.0}
"""Units per call."""
DEQUEUE_RATIO: Final = 1.5
_WARM_UP_ROUNDS: Final = 3


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


def run(sizes: Sizes, progress: Progress) -> PartOutcome:
    """Measure all calls on both paths at all depths."""
    calls: dict[Kind, list[Call]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        filling = progress.add_task("calls: filling queues", total=sum(sizes.depths))
        worlds = {depth: stack.enter_context(world(QUEUE)) for depth in sizes.depths}
        for depth, one in worlds.items():
            _fill(one, depth, lambda count: progress.advance(filling, count))
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
    return PartOutcome(
        figures={"calls": [asdict(figure) for figure in figures]},
        tables=[
            *(_speed_table(figures, path) for path in dict.fromkeys(f.path for f in figures)),
            _units_table(figures),
        ],
        notes=["One caller, data in memory; a rate is what this one caller reaches."],
        bars=_bars(figures, sizes),
    )


def _fill(one: EngineWorld, depth: int, done: Callable[[int], object]) -> None:
    with BareClient(one.engine.url, QUEUE) as client:
        for start in range(0, depth, BATCH):
            count = min(BATCH, depth - start)
            client.fill(count)
            done(count)


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
