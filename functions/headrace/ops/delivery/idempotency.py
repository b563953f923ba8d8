"""Dequeues with an ``Idempotency-Key``: a repeat gets the tasks that the first try has leased.

A call writes a record of the tasks that it is about to lease, before the first lease or in one
transaction with it, and the ids of all its leases begin with one tag.  So a repeat finds the tasks
even if the answer was lost, the process died, or the store did not answer.  A call that finds no
task writes no record, unless the caller says that it is a repeat: then the record stops a first try
that still waits for tasks.

A call under a lease group writes no record: the tag is derived from the key, and the group's tasks
can be listed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from headrace.domain import repeat
from headrace.domain.change import Change, Outcome
from headrace.domain.errors import Unavailable
from headrace.domain.ids import lease_tag_of, new_lease_tag
from headrace.domain.lease import LeaseGroup
from headrace.domain.queue import Queue
from headrace.domain.repeat import KeyedRequest, still_running
from headrace.domain.task import State, Task
from headrace.ops.shared.leases import with_present_ends
from headrace.store.base import Record, RecordConflict, RecordWrite, Store

if TYPE_CHECKING:
    from headrace.runtime.service import Service

NotedState: TypeAlias = tuple[repeat.NotedBatch | None, int | None]


class Overtaken(Unavailable):
    """Another try of the same dequeue has precedence; this one leases nothing."""


@dataclass(slots=True)
class DeliveryBatch:
    """The leases of one dequeue call, and their record.

    The call takes at most *within*.  *grouped* is whether its tasks are put under a lease group.
    *attempt* is the number of the caller's try from 1, None if unknown: the first try need not look
    for earlier ones.
    """

    service: "Service"
    request: KeyedRequest
    within: timedelta
    grouped: bool = False
    attempt: int | None = None
    noted: repeat.NotedBatch | None = field(default=None, init=False)
    version: int | None = field(default=None, init=False)
    tag: str = field(init=False)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        key = f"{self.request.caller} {self.request.key} {self.request.fingerprint}"
        self.tag = lease_tag_of(key) if self.grouped else new_lease_tag()
        self.store = self.service.store

    @property
    def state(self) -> NotedState:
        """Return the recorded tasks and the version of the record, for ``restore``."""
        return self.noted, self.version

    def restore(self, before: NotedState) -> None:
        """Return to the state *before*."""
        self.noted, self.version = before

    def leased_before(self, group: LeaseGroup | None, queues: Sequence[Queue]) -> list[Task] | None:
        """Return the tasks that an earlier try of the same call leased and still holds.

        None if there was no earlier try, or it leased nothing.  Under a *group* the index finds the
        tasks; it may not show the latest yet.
        Raises IdempotencyConflict when the key was sent with another request, and Unavailable while
        an earlier try may still be leasing.
        """
        if self.attempt == 1:
            return None
        return self._under(group, queues) if group is not None else self._recorded(queues)

    def commit(self, changes: Sequence[Change], *, now: datetime) -> list[Outcome]:
        """Commit *changes*, the leases of tasks at *now*; note them before they are visible.

        The note is one more write; a lease group needs no note.  Returns the known outcomes.
        Raises Overtaken when another try of the same call leases tasks, or has been answered, and
        Unavailable.
        """
        noted = self._with(changes, now)
        if self.grouped or not changes or noted == self.noted:
            return self.store.commit(changes, partly=True)
        record = self._record(noted)
        write = RecordWrite(record, self.version)
        try:
            outcomes = self.store.commit(changes, partly=True, noting=write)
        except RecordConflict:
            why = "another try of this call is leasing, or has been answered"
            raise Overtaken(why) from None
        self.noted, self.version = noted, record.version
        return outcomes

    def _with(self, changes: Sequence[Change], now: datetime) -> repeat.NotedBatch:
        before = self.noted or repeat.NotedBatch(now, now + self.within, self.tag)
        new = [one.task_id for one in changes if one.task_id not in before.task_ids]
        return replace(before, task_ids=(*before.task_ids, *new), latest=now)

    def note_nothing(self, *, now: datetime) -> bool:
        """Record that a caller that repeats itself got no task.

        Returns False when an earlier try has leased tasks since: they are its answer.
        """
        if self.grouped or self.attempt in (None, 1):
            return True
        return self._write(repeat.NotedBatch(now, now, self.tag, closed=True))

    def _record(self, batch: repeat.NotedBatch) -> Record:
        body, version = batch.body(self.request), (self.version or 0) + 1
        return Record(self.request.kind, repeat.FIRST, body, version, batch.at + repeat.KEPT)

    def _write(self, batch: repeat.NotedBatch) -> bool:
        record = self._record(batch)
        if not self.store.put_record(record, replaces=self.version):
            return False
        self.noted, self.version = batch, record.version
        return True

    def _recorded(self, queues: Sequence[Queue]) -> list[Task] | None:
        record = self.store.record(self.request.kind, repeat.FIRST)
        if record is None:
            return None
        now = self.service.now()
        if not repeat.First.of(record.body).repeated_by(self.request, now=now):
            self.version = record.version  # expired: the next record replaces it
            return None
        batch = repeat.NotedBatch.of(record.body)
        tasks = list(self.store.read(batch.task_ids).values())
        batch.check_finished(tasks, queues=[queue.name for queue in queues], now=now)
        if now < batch.until and not batch.closed:  # the first try may still be running
            self.version = record.version
            if not self._write(replace(batch, closed=True)):
                raise still_running(batch.at, batch.until, now=now)
        return [task for task in tasks if batch.holds(task, now=now)]

    def _under(self, group: LeaseGroup, queues: Sequence[Queue]) -> list[Task] | None:
        now = self.service.now()
        ours = repeat.NotedBatch(now, now, self.tag)
        found = chain.from_iterable(
            self.service.leases.held(group.id, queue.name, place.shard)
            for queue in queues
            for place in queue.places(State.INFLIGHT)
        )
        held = [
            task for task in with_present_ends(self.store, list(found)) if ours.holds(task, now=now)
        ]
        return held or None
