"""Workers: heartbeats, commands to workers, and their shares of the tasks.

Every process computes the same shares from the list of living workers, so no worker asks another.
With as many shards as workers, each worker has its own shards.  With fewer shards, the workers
of a shard divide it by a hash of the task's id.  Every few seconds each worker takes over the share
of the one before it.  A share decides only who tries to lease a task first: a conditional write
decides who gets it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final
from zlib import crc32

from headrace.domain.change import Entry
from headrace.domain.limits import WORKER_TASKS
from headrace.domain.times import about

FORGOTTEN_AFTER: Final = timedelta(minutes=5)
"""How long a worker may be silent before it counts as gone."""

REMEMBERED_FOR: Final = timedelta(hours=1)
"""How long people see a silent worker."""

_ON_DUTY_FOR: Final = timedelta(seconds=75)  # without a heartbeat: 2.5 times the usual


class WorkerStanding(StrEnum):
    """The condition of a worker, by the time of its last heartbeat."""

    ALIVE = "alive"
    LATE = "late"  #: it has missed heartbeats
    GONE = "gone"


class Command(StrEnum):
    """A command to a worker: take no more tasks, or finish and stop."""

    QUIET = "quiet"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """A heartbeat, as the worker sent it; ``started_at`` tells a process from the next one.

    ``running`` are ids of tasks; None where they are not shown.  ``stopped`` marks the last
    heartbeat of a worker that ends.
    """

    name: str
    queues: tuple[str, ...]
    started_at: datetime
    concurrency: int = 1
    running: tuple[str, ...] | None = ()
    version: str = ""
    stopped: bool = False

    @property
    def host(self) -> str:
        """The host of a worker that is named as the SDK does, host:process; else empty."""
        host, colon, process = self.name.rpartition(":")
        return host if colon and process.isdecimal() else ""


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker as of its last heartbeat, and the command for it."""

    heartbeat: WorkerHeartbeat
    seen_at: datetime
    command: Command | None = None

    def is_alive(self, now: datetime) -> bool:
        """Return whether the last heartbeat is recent, and was not one of a stop."""
        return not self.heartbeat.stopped and now - self.seen_at < FORGOTTEN_AFTER

    def remembered(self, now: datetime) -> bool:
        """Return whether people see the worker: silent ones for a while, stopped ones not."""
        return not self.heartbeat.stopped and now - self.seen_at < REMEMBERED_FOR

    def standing(self, now: datetime) -> WorkerStanding:
        """Return the condition of the worker."""
        if not self.is_alive(now):
            return WorkerStanding.GONE
        return WorkerStanding.LATE if now - self.seen_at >= _ON_DUTY_FOR else WorkerStanding.ALIVE

    @property
    def busy(self) -> bool:
        """Whether the worker runs as many tasks as it can, as far as a heartbeat names them."""
        running = self.heartbeat.running or ()
        return len(running) >= min(self.heartbeat.concurrency, WORKER_TASKS)

    def on_duty(self, now: datetime) -> tuple[str, ...]:
        """Return the queues whose tasks the worker takes now; none after a command to stop."""
        silent = now - self.seen_at >= _ON_DUTY_FOR
        if silent or self.heartbeat.stopped or self.command is not None:
            return ()
        return self.heartbeat.queues


@dataclass(frozen=True, slots=True)
class QueueWorkers:
    """The workers of one queue, how many of them run all they can, and the tasks they can run.

    ``started`` is the number of tasks of the queue that are started in a second.
    """

    count: int = 0
    busy: int = 0
    slots: int = 0
    started: float = 0.0

    @property
    def all_busy(self) -> bool:
        """Whether there are workers and each runs as many tasks as it can."""
        return 0 < self.count == self.busy

    def busy_words(self, ahead: int = 0) -> str:
        """Return that all are busy, and how long a task behind *ahead* others may wait."""
        who = f"all {self.count} workers" if self.count > 1 else "the only worker"
        slots = f"{self.slots} slot{'' if self.slots == 1 else 's'}"
        words = f"{who} ({slots}) {'are' if self.count > 1 else 'is'} busy"
        if self.started <= 0:
            return f"{words} with other tasks"
        return f"{words} at {self.started:.2g} tasks/s: about {about((ahead + 1) / self.started)}"


TURN: Final = timedelta(seconds=5)
"""How long a worker has the same share."""


@lru_cache
def _sharing(members: int, shards: int, shard: int) -> int:
    return members if shard >= shards else max(1, -((shard - members) // shards))


@lru_cache(maxsize=4_000)  # of who is not first in line, each is asked again and again
def _number(task_id: str) -> int:
    return crc32(task_id.encode())


@dataclass(frozen=True, slots=True)
class Portion:
    """The share of the worker that is *rank*-th of *members*, in a queue with so many *shards*."""

    rank: int
    members: int
    shards: int

    @property
    def of(self) -> int:
        """The number of workers that have a share."""
        return self.members

    @property
    def own_shards(self) -> list[int]:
        """The shards with tasks of this worker's share."""
        if self.members >= self.shards:
            return [self.rank % self.shards]
        return list(range(self.rank, self.shards, self.members))

    def shares(self, shard: int) -> bool:
        """Return whether the share has tasks of *shard*; always True for a retiring shard."""
        return shard >= self.shards or shard in self.own_shards

    def sharing(self, shard: int) -> int:
        """Return how many members divide *shard*; a retiring shard is divided by all."""
        return _sharing(self.members, self.shards, shard)

    def away(self, entry: Entry) -> int:
        """Return how many members come before this worker for *entry*; 0 if it is in the share."""
        shard = entry.place.shard
        number = _number(entry.task_id) // self.shards  # without the shard's part
        if shard >= self.shards:
            owner = number % self.members
        elif self.members <= self.shards:
            owner = shard % self.members
        else:
            owner = shard + number % _sharing(self.members, self.shards, shard) * self.shards
        return (self.rank - owner) % self.members

    def may_take(self, entry: Entry, overtaken: int) -> bool:
        """Return whether to take *entry*, which this process has overtaken so many times.

        Each time twice as many members may take it: 1, 2, 4, and in the end all of them.
        """
        return self.away(entry) < 1 << overtaken


def portion(members: Sequence[str], name: str, shards: int, now: datetime) -> Portion | None:
    """Return the share of *name* among *members* now; None if it is not a member."""
    if name not in members:
        return None
    order = sorted(members, key=lambda one: (crc32(one.encode()), one))  # a host's are not in a row
    turn = int(now.timestamp() // TURN.total_seconds())
    return Portion((order.index(name) + turn) % len(order), len(order), shards)
