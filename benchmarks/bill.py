"""What a load costs in a month, in US dollars: what the deploy guide says, as formulas."""

import math
from dataclasses import dataclass
from typing import Final

from headrace.domain.limits import DEQUEUE_QUEUES
from headrace.store.call_scope import read_units

OVERHEAD_BYTES: Final = 600
"""What a task's item holds besides payload and result: names, times, tags, lease."""

REFERENCE_BYTES: Final = 160
"""What an item has in place of a payload that is kept elsewhere: its size, digest and name."""

OFFLOAD_BYTES: Final = 32 * 1024
"""Over which size a deployment keeps payloads in S3, unless its template says otherwise."""

SHARD_DELIVERIES: Final = 500
"""Deliveries per second of one shard: 1,000 write units, and a task passes it with two."""

ENTRY_BYTES: Final = 400
"""What its index entry takes, and what DynamoDB adds to item and entry, while it is stored."""

MONTH_SECONDS: Final = 30 * 86_400
IDLE_POLL_SECONDS: Final = 3.1
"""How often an idle worker asks in the cloud, once it has waited for a while: a mean, measured."""

WORKER_HEARTBEAT_SECONDS: Final = 30.0
"""How often a worker sends a heartbeat, idle or not."""

_KB: Final = 1024
_GB: Final = 1_000_000_000
_QUERY: Final = 0.5  # read units: one page of the index, of up to 4 KB


@dataclass(frozen=True, slots=True)
class Units:
    """Write and read units."""

    write: float = 0.0
    read: float = 0.0

    def __add__(self, other: "Units") -> "Units":
        """Return both together."""
        return Units(self.write + other.write, self.read + other.read)

    def __mul__(self, times: float) -> "Units":
        """Return the units of so many."""
        return Units(self.write * times, self.read * times)


def item_units(payload_bytes: int) -> int:
    """Return the write units of one write of a task's item, its index entries left out."""
    return max(1, math.ceil((OVERHEAD_BYTES + payload_bytes) / _KB))


def bytes_inside(payload_bytes: int, offload_bytes: int) -> int:
    """Return the bytes of a payload in its item: a reference's if it is over *offload_bytes*.

    0 is no such bound; see ``domain.offload``.
    """
    outside = 0 < offload_bytes < payload_bytes
    return REFERENCE_BYTES if outside else payload_bytes


def enqueue(payload_bytes: int = 0) -> Units:
    """Return the cost of one new task: its item and its entry.  No dedupe key, no transaction."""
    return Units(item_units(payload_bytes) + 1)


def dequeue(payload_bytes: int = 0, *, batch: int = 1) -> Units:
    """Return the cost of one delivery: the item, the entry moved; a share of the index query."""
    return Units(item_units(payload_bytes) + 2, _QUERY / batch)


def noted_batch() -> Units:
    """Return the extra cost of a dequeue under a key: one record that names the batch."""
    return Units(1)


def heartbeat(payload_bytes: int = 0) -> Units:
    """Return the cost of prolonging one lease: it touches no entry."""
    return Units(item_units(payload_bytes))


def settle(payload_bytes: int = 0, *, kept: bool = True) -> Units:
    """Return the cost of a report that ends an attempt; a task not *kept* goes at once."""
    return Units(item_units(payload_bytes) + (2 if kept else 1))


def failure(payload_bytes: int = 0) -> Units:
    """Return the cost of a report that a task failed; a release and a move cost as much."""
    return settle(payload_bytes) + Units(read=read_units(OVERHEAD_BYTES + payload_bytes))


def life(
    payload_bytes: int = 0,
    *,
    batch: int = 1,
    kept: bool = True,
    retries: float = 0.0,
    heartbeats: float = 0.0,
) -> Units:
    """Return the cost of one task from enqueue to success.

    *retries* and *heartbeats* are how many a task has on average, *batch* the tasks of one call.
    """
    again = (dequeue(payload_bytes, batch=batch) + failure(payload_bytes)) * retries
    return (
        enqueue(payload_bytes)
        + dequeue(payload_bytes, batch=batch)
        + heartbeat(payload_bytes) * heartbeats
        + settle(payload_bytes, kept=kept)
        + again
    )


def shards_for(rate: float, *, retries: float = 0.0) -> int:
    """Return how many shards carry *rate* tasks per second, each tried ``1 + retries`` times."""
    return max(1, math.ceil(round(rate * (1 + retries) / SHARD_DELIVERIES, 9)))


def calls_per_task(*, batch: int = 1, retries: float = 0.0, heartbeats: float = 0.0) -> float:
    """Return how many calls of the API a task takes, when every call carries *batch* tasks."""
    return (3 + 2 * retries + heartbeats) / batch


@dataclass(frozen=True, slots=True)
class Prices:
    """What AWS asks, in US dollars: us-east-1, November 2026, without free tiers.

    DynamoDB on demand has had these prices since November 2024.  API Gateway is the first tier,
    of 333 million calls a month; what lies above costs less.
    """

    write: float = 0.625  # a million write units
    read: float = 0.125  # a million read units
    storage: float = 0.25  # a GB of DynamoDB, a month
    put: float = 5.00  # a million objects written to S3
    get: float = 0.40  # a million objects read from S3
    objects: float = 0.023  # a GB of S3, a month
    api: float = 3.50  # a million calls of API Gateway (REST)
    invocations: float = 0.20  # a million calls of Lambda
    gb_second: float = 0.0000133334  # a GB-second of Lambda, arm64


@dataclass(frozen=True, slots=True)
class CallTime:
    """How long Lambda works on a call: an estimate from the local service, not from an account."""

    memory_gb: float = 0.5
    call_ms: float = 15.0
    task_ms: float = 1.3

    def gb_seconds(self, batch: float) -> float:
        """Return the GB-seconds of one call of *batch* tasks."""
        return self.memory_gb * (self.call_ms + self.task_ms * batch) / 1000


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a queue.

    Attributes:
        rate: tasks per second, day and night.
        payload_bytes: of one task, as JSON.
        history_seconds: how long tasks that succeeded are kept; 0 keeps none.
        batch: tasks in one call.
        retries: how often a task is tried again, on average.
        heartbeats: how often a worker prolongs its lease, on average.
        offload_bytes: over which size a payload is kept in S3; 0 keeps all in the table.

    """

    rate: float
    payload_bytes: int
    history_seconds: float = 86_400
    batch: int = 25
    retries: float = 0.0
    heartbeats: float = 0.0
    offload_bytes: int = OFFLOAD_BYTES

    @property
    def inside_bytes(self) -> int:
        """What the payload takes of the task's item."""
        return bytes_inside(self.payload_bytes, self.offload_bytes)

    @property
    def offloads(self) -> bool:
        """Whether the payload is kept in S3."""
        return self.inside_bytes != self.payload_bytes


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill: so much of something, at a price (USD) for each *per* of it."""

    name: str
    amount: float
    price: float
    per: float

    @property
    def usd(self) -> float:
        """What it costs."""
        return self.amount / self.per * self.price


@dataclass(frozen=True, slots=True)
class Bill:
    """What a load takes, and costs in a month of 30 days."""

    load: Load
    item_units: int
    units: Units
    calls: float
    shards: int
    lines: tuple[Line, ...]

    @property
    def tasks(self) -> float:
        """Tasks in a month."""
        return self.load.rate * MONTH_SECONDS

    @property
    def usd(self) -> float:
        """What all lines cost together."""
        return sum(line.usd for line in self.lines)


def bill(
    load: Load,
    prices: Prices | None = None,
    time: CallTime | None = None,
    *,
    over_tables: bool = False,
) -> Bill:
    """Return the cost of *load* in a month; logs, alarms, transfer and idle workers left out.

    *over_tables*: programs use the tables themselves (``dynamodb://REGION/STACK``), and no call
    goes through API Gateway and Lambda.
    """
    prices, time = prices or Prices(), time or CallTime()
    units = life(
        load.inside_bytes,
        batch=load.batch,
        kept=load.history_seconds > 0,
        retries=load.retries,
        heartbeats=load.heartbeats,
    )
    calls = calls_per_task(batch=load.batch, retries=load.retries, heartbeats=load.heartbeats)
    tasks = load.rate * MONTH_SECONDS
    kept = load.rate * load.history_seconds
    stored = kept * (load.inside_bytes + OVERHEAD_BYTES + ENTRY_BYTES)
    tables: tuple[Line, ...] = (
        Line("DynamoDB writes", tasks * units.write, prices.write, 1e6),
        Line("DynamoDB reads", tasks * units.read, prices.read, 1e6),
        Line("DynamoDB storage", stored / _GB, prices.storage, 1),
    )
    if load.offloads:
        tables += (
            Line("S3 writes", tasks, prices.put, 1e6),
            Line("S3 reads", tasks * (1 + load.retries), prices.get, 1e6),
            Line("S3 storage", kept * load.payload_bytes / _GB, prices.objects, 1),
        )
    api = (
        Line("API Gateway calls", tasks * calls, prices.api, 1e6),
        Line("Lambda calls", tasks * calls, prices.invocations, 1e6),
        Line("Lambda GB-seconds", tasks * calls * time.gb_seconds(load.batch), prices.gb_second, 1),
    )
    return Bill(
        load,
        item_units(load.inside_bytes),
        units,
        0.0 if over_tables else calls,
        shards_for(load.rate, retries=load.retries),
        tables if over_tables else tables + api,
    )


def idle_worker_usd(
    prices: Prices | None = None,
    time: CallTime | None = None,
    *,
    queues: int = 1,
    over_tables: bool = False,
) -> float:
    """Return the cost in a month of one worker that asks and gets nothing.

    One call asks for up to 32 of its *queues*; each takes a read unit, a heartbeat a write unit.
    *over_tables* as for a bill.
    """
    prices, time = prices or Prices(), time or CallTime()
    polls, heartbeats = MONTH_SECONDS / IDLE_POLL_SECONDS, MONTH_SECONDS / WORKER_HEARTBEAT_SECONDS
    calls = polls * math.ceil(queues / DEQUEUE_QUEUES[1]) + heartbeats
    calls = 0.0 if over_tables else calls
    each = (prices.api + prices.invocations) / 1e6 + time.gb_seconds(0) * prices.gb_second
    return calls * each + (polls * queues * prices.read + heartbeats * prices.write) / 1e6
