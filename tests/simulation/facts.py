"""What callers know: what was acknowledged, and when each call began and ended."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Enqueued:
    """One acknowledged enqueue call.  Times are virtual seconds."""

    queue: str
    began: float
    ended: float
    ids: list[str]  # of the entries that were CREATED, in order
    groups: list[str | None]


@dataclass
class Batch:
    """A batch as its producer knows it."""

    id: str
    queue: str
    members: list[str] = field(default_factory=list)
    sure: bool = True  # every enqueue into it was answered
    closed: bool = False
    told: bool = False  # it has a callback for `ended`


@dataclass
class Purge:
    """A purge, or the deletion of a queue."""

    queue: str
    began: float
    states: tuple[str, ...]
    answered: bool = False
    ended: float = math.inf


@dataclass
class Dequeued:
    """One dequeue call, until its last try was answered or given up."""

    worker: str
    began: float
    ids: frozenset[str] = frozenset()
    ended: float | None = None  # None: it had no answer


@dataclass
class Facts:
    """All that the actors know."""

    enqueued: list[Enqueued] = field(default_factory=list)
    dequeued: list[Dequeued] = field(default_factory=list)
    delivered: list[tuple[str, str, float]] = field(default_factory=list)  # task, lease, when
    settled: list[tuple[str, str, str]] = field(default_factory=list)  # task, lease, status: OK
    purges: list[Purge] = field(default_factory=list)
    pauses: list[tuple[str, float, float]] = field(default_factory=list)  # acknowledged, resumed
    undos: list[str] = field(default_factory=list)
    batches: dict[str, Batch] = field(default_factory=dict)
    schedules: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    puts: Counter[tuple[str, str]] = field(default_factory=Counter)  # how often each was put
    schedules_ended: float = 0.0
    spawned: list[str] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)  # queues that had other settings for a while
    deleted: set[str] = field(default_factory=set)  # queues that were deleted and made again
    actions: list[str] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)  # queues: recounts not known to be exact
