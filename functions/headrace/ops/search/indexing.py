"""The index of values: written from the store's log, and completed by a job.

A task enters the index when it enters a queue that has indexed fields, and again each time it is
enqueued there; it leaves the index when it leaves the queue.  The recorder passes the log to
``Matching``.  Queues without indexed fields cost nothing.  The settings are read twice a minute.

When fields are named, and every process knows them, a job visits the tasks that were there before:
state after state, in the order in which tasks go through them, waiting tasks first.  It misses only
a task that is enqueued again in the meantime, and ``Matching`` writes that one.

An index that lacks tasks, for example after the recorder was down for too long, is rebuilt: the job
empties it, and its fields are named again.  The job also removes fields that are no longer named,
and the index of a deleted queue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.domain.errors import NotFound
from headrace.domain.filters import EVERY_TASK
from headrace.domain.indexing import Match, field_digest, needs_payload, terms_of
from headrace.domain.queue import Queue
from headrace.domain.task import State, Task
from headrace.domain.transitions import TaskWrite, spot_of
from headrace.ops.shared.paging import Walk
from headrace.ops.shared.service_part import ServicePart
from headrace.store.records.jobs import QueueJob
from headrace.store.records.queues import (
    INDEXES,
    KNOWN_AFTER,
    QueueIndex,
    every_index,
    index_of,
    save_index,
)

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_READ: Final = 50  # payloads in one call


class Indexing(ServicePart):
    """Visits the tasks of queues whose index is built, *page* tasks or entries at a time."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.page: int = 250

    def visit(self, job: QueueJob) -> QueueJob:
        """Empty or complete the index of a queue a little further; see JobVisitor."""
        job, index = job.released(), index_of(self.store, job.queue)
        if index is None or self.now() < index.since + KNOWN_AFTER:
            return replace(job, visited=True)
        queue = self._queue(job.queue)
        if queue is None and index.wanted:
            save_index(self.store, index.with_fields((), self.now()))
        elif index.gone:
            self._take_out(index)
        elif queue is None:
            self.store.drop_record(INDEXES, index.queue, version=index.version)
        elif index.again:
            save_index(self.store, index.with_fields(index.again, self.now()))
        elif not index.built:
            position, count = self._add(index, queue, job.position)
            return replace(job, position=position, count=job.count + count)
        else:
            return replace(job, visited=True)
        return job

    def end(self, job: QueueJob) -> QueueJob | None:
        """Continue when every process knows the fields; see JobVisitor."""
        index = index_of(self.store, job.queue)
        if index is None or index.built:
            return None
        return job.next_round(index.since + KNOWN_AFTER)

    def _queue(self, name: str) -> Queue | None:
        try:
            return self.service.queues.get(name)
        except NotFound:
            return None

    def _take_out(self, index: QueueIndex) -> None:
        field, *rest = index.gone
        if not self.store.drop_matches(index.queue, field_digest(field), limit=self.page):
            save_index(self.store, replace(index, gone=tuple(rest)))

    def _add(self, index: QueueIndex, queue: Queue, position: list[Any] | None) -> tuple[Any, int]:
        """Add more tasks to the index; return the next position, and how many tasks were read."""
        walk, seen = Walk.read(position) if position else Walk(self.now()), list[Task]()
        payload = needs_payload(index.fields)
        for task, after in self.service.inspect.walk(
            queue, EVERY_TASK, walk, page=_READ, payload=payload
        ):
            walk = after
            if task is not None:
                seen.append(task)
            if walk.looked_at >= self.page:
                position = walk.state()
                break
        else:
            position = None
        tasks = self.service.texts.filled(seen, ("payload",)) if payload else seen
        self.store.note_matches(
            [
                Match(queue.name, term, task.id)
                for task in tasks
                for term in terms_of(index.fields, task.tags, task.payload)
            ],
            (),
        )
        if position is None:
            save_index(self.store, replace(index, ready=index.fields))
        return position, walk.looked_at


FRESH: Final = timedelta(seconds=30)
"""The largest age of the cached settings."""


class _Move(NamedTuple):
    """A task that entered the index of a queue (``there``), or left it."""

    task: Task
    there: bool


class Matching(ServicePart):
    """Updates the index."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._fields: Mapping[str, tuple[str, ...]] = {}
        self._read_at: datetime | None = None

    def write(self, writes: Sequence[TaskWrite]) -> None:
        """Update the index with *writes*; repeated writes change nothing.  Raises Unavailable."""
        fields = self._known()
        if not fields:
            return
        moves: dict[tuple[str, str], _Move] = {}  # the last one counts
        for write in writes:
            moves.update(_moves(write, fields))
        if not moves:
            return
        payloads = self._payloads(moves, fields)
        entered: list[Match] = []
        left: list[Match] = []
        for (queue, task_id), move in moves.items():
            payload = payloads.get(task_id)
            terms = terms_of(fields[queue], move.task.tags, payload)
            matches = [Match(queue, term, task_id) for term in terms]
            if move.there:
                entered += matches
            else:
                left += matches or [Match(queue, "", task_id)]
        self.store.note_matches(entered, left)

    def _known(self) -> Mapping[str, tuple[str, ...]]:
        now = self.now()
        if self._read_at is None or not timedelta() <= now - self._read_at < FRESH:
            found = every_index(self.store)
            self._fields = {name: one.fields for name, one in found.items() if one.fields}
            self._read_at = now
        return self._fields

    def _payloads(
        self, moves: Mapping[tuple[str, str], _Move], fields: Mapping[str, tuple[str, ...]]
    ) -> Mapping[str, str | None]:
        """Return the payloads that are needed and still exist, by task id."""
        found: dict[str, str | None] = {}
        asked: list[str] = []
        for (queue, task_id), move in moves.items():
            if not needs_payload(fields[queue]):
                continue
            found[task_id] = move.task.payload
            if found[task_id] is None and move.there:
                asked.append(task_id)
            elif found[task_id] is None and move.task.offloaded:
                (whole,) = self.service.texts.filled([move.task], ("payload",))
                found[task_id] = whole.payload
        for start in range(0, len(asked), _READ):
            tasks = self.store.read(asked[start : start + _READ])
            for task in self.service.texts.filled([*tasks.values()], ("payload",)):
                found[task.id] = task.payload
        return found


def _moves(
    write: TaskWrite, fields: Mapping[str, tuple[str, ...]]
) -> Mapping[tuple[str, str], _Move]:
    """Return how *write* changes the indexes of the queues that have *fields*."""
    before, after = write.before, write.after
    left, entered = spot_of(before), spot_of(after)
    found: dict[tuple[str, str], _Move] = {}
    goes = left is not None and (entered is None or entered[0] != left[0])
    if before is not None and left is not None and goes and left[0] in fields:
        found[left[0], before.id] = _Move(before, there=False)
    if after is not None and entered is not None and entered[0] in fields:
        comes = left is None or left[0] != entered[0]
        if comes or (entered[1] is State.ENQUEUED and _comes_to_wait(before, after)):
            found[entered[0], after.id] = _Move(after, there=True)
    return found


def _comes_to_wait(before: Task | None, after: Task) -> bool:
    if before is None or before.is_tombstone or before.state is not State.ENQUEUED:
        return True
    return before.scheduled_at != after.scheduled_at or before.place.label != after.place.label
