"""What callers know: what was acknowledged, and when each call began and ended."""

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
class Facts:
    """All that the actors know."""

    enqueued: list[Enqueued] = field(default_factory=list)
    delivered: list[tuple[str, str, float]] = field(default_factory=list)  # task, lease, when
    settled: list[tuple[str, str, str]] = field(default_factory=list)  # task, lease, status: OK
    purges: list[tuple[str, float]] = field(default_factory=list)  # queue, when it began
    pauses: list[tuple[str, float, float]] = field(default_factory=list)  # acknowledged, resumed
    undos: list[tuple[str, list[str]]] = field(default_factory=list)
    batches: dict[str, Batch] = field(default_factory=dict)
    schedules: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    dedupe_until_start: set[str] = field(default_factory=set)  # keys
    answers: dict[str, Any] = field(default_factory=dict)  # by Idempotency-Key
