"""What a task costs: write and read units, beside the floor that design and DynamoDB allow.

By the cost model over a file; and as DynamoDB Local, AWS's own engine, counts, where it can run.
"""

import math
import statistics
from dataclasses import asdict, dataclass

from rich.progress import Progress
from rich.table import Table

from benchmarks import bill
from benchmarks.results import Bar, PartOutcome, table
from benchmarks.services import both_ways, on_dynamodb_local
from benchmarks.sizes import BATCH, Sizes
from benchmarks.targets import CallFailed, LeasedTarget, Target, Units
from tests.engine import EngineMissing

_TASKS = 100
_EMPTY_CALLS = 20
_LIFE = bill.life(batch=BATCH)
_BEAT = bill.heartbeat()
_NOTE = (
    "Reads per task are the index query of each dequeue, and the queue's settings once a second"
    " (1 unit). An empty dequeue also looks for lapsed leases. A dequeue of the SDK notes its batch"
    " for one write unit, 0.04 a task."
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Units per task, save for the empty dequeue, whose read units are per call (NaN: not told)."""

    path: str
    life_write: float
    life_read: float
    heartbeat_write: float
    heartbeat_read: float
    empty_dequeue_read: float
    empty_dequeue_read_mean: float


def run(_sizes: Sizes, progress: Progress) -> PartOutcome:
    """Measure the life of 100 small tasks in batches of 25, a heartbeat, and an empty dequeue."""
    bar = progress.add_task("cost per task", total=3)
    costs: list[Cost] = []
    notes = [_NOTE]
    with both_ways("cost") as one:
        for target in one.targets:
            costs.append(_measure(target))
            progress.advance(bar)
    try:
        with on_dynamodb_local("cost") as counted:
            costs.append(_measure(counted, tells_empty=False))
        notes.append("DynamoDB Local tells no units of a query that finds nothing.")
    except EngineMissing as missing:
        notes.append(f"Left out: the same as DynamoDB Local counts. {missing}")
    progress.advance(bar)
    return PartOutcome(
        figures={"tasks": _TASKS, "batch": BATCH, "paths": [asdict(cost) for cost in costs]},
        tables=[_table(costs)],
        notes=notes,
        bars=[bar for cost in costs for bar in _bars(cost)],
    )


def _measure(target: Target, *, tells_empty: bool = True) -> Cost:
    """Measure *target*; *tells_empty* is whether it tells units of queries that find nothing."""
    life: list[Units] = []
    beats: list[Units] = []
    held: list[LeasedTarget] = []
    for _ in range(_TASKS // BATCH):
        life.append(target.enqueue(BATCH))
        found, units = target.dequeue(BATCH)
        life.append(units)
        beats.append(target.heartbeat(found))
        life.append(target.succeed(found))
        held += found
    if len(held) != _TASKS:
        raise CallFailed(f"{len(held)} of {_TASKS} tasks were delivered")
    calls = _EMPTY_CALLS if tells_empty else 0
    empty = [target.dequeue(BATCH)[1].read for _ in range(calls)] or [math.nan]
    return Cost(
        path=target.name,
        life_write=sum(units.write for units in life) / _TASKS,
        life_read=sum(units.read for units in life) / _TASKS,
        heartbeat_write=sum(units.write for units in beats) / _TASKS,
        heartbeat_read=sum(units.read for units in beats) / _TASKS,
        empty_dequeue_read=statistics.median(empty),
        empty_dequeue_read_mean=statistics.mean(empty),
    )


def _bars(cost: Cost) -> list[Bar]:
    bars = [
        Bar(
            f"Write units of a life, {cost.path}", cost.life_write, _LIFE.write + 0.1, at_most=True
        ),
        Bar(f"Read units of a life, {cost.path}", cost.life_read, 0.2, at_most=True),
        Bar(
            f"Write units of a heartbeat, {cost.path}",
            cost.heartbeat_write,
            _BEAT.write + 0.05,
            at_most=True,
        ),
    ]
    if not math.isnan(cost.empty_dequeue_read):
        name = f"Read units of an empty dequeue, {cost.path}"
        bars.append(Bar(name, cost.empty_dequeue_read, 1.0, at_most=True))
    return bars


def _table(costs: list[Cost]) -> Table:
    made = table(
        f"Units per task: life of {_TASKS} small tasks in batches of {BATCH}",
        "Figure",
        "Floor",
        *(cost.path for cost in costs),
    )
    rows = (
        ("life, write", f"{_LIFE.write:g}", "life_write"),
        ("life, read", f"{_LIFE.read:g}", "life_read"),
        ("heartbeat, write", f"{_BEAT.write:g}", "heartbeat_write"),
        ("heartbeat, read", f"{_BEAT.read:g}", "heartbeat_read"),
        ("empty dequeue, read (a call, median)", "1", "empty_dequeue_read"),
        ("empty dequeue, read (a call, mean)", "1", "empty_dequeue_read_mean"),
    )
    for label, floor, name in rows:
        made.add_row(label, floor, *(_shown(getattr(cost, name)) for cost in costs))
    return made


def _shown(units: float) -> str:
    return "-" if math.isnan(units) else f"{units:.3g}"
