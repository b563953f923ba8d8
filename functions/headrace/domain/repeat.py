"""A request under an ``Idempotency-Key``: what identifies it, what is known of the first.

Everything here is pure.  The first request under a key runs; a repeat of it gets the first answer;
another request under the same key is a conflict.  A failed request is forgotten, and its repeat
runs.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from headrace.domain.errors import IdempotencyConflict, Unavailable
from headrace.domain.ids import is_tagged
from headrace.domain.task import State, Task

KEPT: Final = timedelta(minutes=15)
"""So long a repeat is answered as the first request was, counted from when that began."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What a caller asks under a key; the same *fingerprint* is the same request."""

    caller: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer as it is given again."""

    status: int
    content_type: str | None
    body: str


@dataclass(frozen=True, slots=True)
class First:
    """What is known of the first request under a key.

    It began *at* an instant and is over *until* another, even if its process died.  ``answer`` is
    None while it runs; ``failed`` means that there is nothing to repeat.
    """

    fingerprint: str
    at: datetime
    until: datetime
    answer: RecordedAnswer | None = None
    failed: bool = False
    begun_at: datetime | None = None
    """When the first try of all began, where that was before: what it has made is known by that."""

    @property
    def began(self) -> datetime:
        """When the first try of all began."""
        return self.at if self.begun_at is None else self.begun_at

    def tried_again(self, request: KeyedRequest, *, now: datetime, until: datetime) -> "First":
        """Return *request* as the next to run; of the same one this may have done a part."""
        again = self.fingerprint == request.fingerprint and now < self.at + KEPT
        return First(request.fingerprint, now, until, begun_at=self.began if again else None)

    def repeated_by(self, request: KeyedRequest, *, now: datetime) -> bool:
        """Return whether *request* repeats this one; False: *request* comes first now.

        Raises IdempotencyConflict when it is another request.
        """
        if self.failed or now >= self.at + KEPT:
            return False
        if self.fingerprint != request.fingerprint:
            raise IdempotencyConflict(
                "this Idempotency-Key was sent with another request within the last 15 minutes: "
                "each request takes a key of its own, which only its repeats carry"
            )
        return True

    def answer_to(self, request: KeyedRequest, *, now: datetime) -> RecordedAnswer | None:
        """Return the recorded answer to *request*; None: it runs, as if it was the first.

        Raises IdempotencyConflict when it is another request, and Unavailable while the first one
        still runs.
        """
        if not self.repeated_by(request, now=now):
            return None
        if self.answer is None and now < self.until:
            raise still_running(self.at, self.until, now=now)
        return self.answer  # None: its process died


@dataclass(frozen=True, slots=True)
class NotedBatch:
    """What a dequeue under a key set out to lease: noted before the first lease is written.

    It began *at* an instant and leases nothing more after *until*.  Its leases are made with *tag*,
    the latest of which were noted at *latest*: of tasks that were due then.
    A *closed* batch was given to a repeat: no task joins it.
    """

    at: datetime
    until: datetime
    tag: str
    task_ids: tuple[str, ...] = ()
    closed: bool = False
    latest: datetime | None = None  # None: not known

    def holds(self, task: Task, *, now: datetime) -> bool:
        """Return whether *task* is under a lease of this batch that is still good."""
        return (
            task.state is State.INFLIGHT
            and task.lease_id is not None
            and task.lease_expires_at is not None
            and is_tagged(task.lease_id, self.tag)
            and task.lease_expires_at > now
        )

    def check_over(self, tasks: Iterable[Task], *, queues: Collection[str], now: datetime) -> None:
        """Raise Unavailable while some of *tasks*, as read, may still come under its leases.

        Those are of *queues*, the names that the request has.
        """
        waiting = (task for task in tasks if task.queue in queues)
        if now < self.until and any(map(self._may_come, waiting)):
            raise still_running(self.at, self.until, now=now)

    def _may_come(self, task: Task) -> bool:
        """A task that waits and was not delivered since: it may be leased the next moment.

        Not a task that fell due after its leases, such as one that was restarted since, or a later
        task of its id: a lease asks for that by one of the two times, whichever it saw.
        """
        delivered_since = task.started_at is not None and task.started_at >= self.at
        due = self.latest is None or min(task.due_at, task.scheduled_at) <= self.latest
        return task.state is State.ENQUEUED and not delivered_since and due


def still_running(at: datetime, until: datetime, *, now: datetime) -> Unavailable:
    """Return the refusal of a repeat that came while the first request runs.

    It may come again after as long as the first has been running: soon at first, and hardly
    later than *until*, when one that has died is over.
    """
    wait = min(now - at, until - now).total_seconds()
    return Unavailable(
        "the first request under this Idempotency-Key is still being worked on",
        retry_after_seconds=max(1, ceil(wait)),
    )
