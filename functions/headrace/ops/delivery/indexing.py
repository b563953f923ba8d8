"""The job that completes an index of values: it visits all tasks that were there before the call.

From when fields are named, the recorder writes what comes to a queue (``history.matching``).  Once
every process knows the fields, the job visits the tasks that were there before: state after state,
in the order in which tasks go through them, waiting ones first.  It misses only a task that moved
against that order, to wait again, and the recorder has written that move.

An index that lacks tasks, as after the recorder was away for too long, is rebuilt: for a while
nothing is written into it, the job empties it, and its fields are named again.  The job also takes
out fields that are no longer named, and the whole index of a deleted queue.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.errors import NotFound
from headrace.domain.filters import EVERY_TASK
from headrace.domain.indexing import Match, field_digest, needs_payload, terms_of
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.ops.shared.paging import Walk
from headrace.ops.shared.service_part import ServicePart
from headrace.store.records.indexes import (
    KIND,
    KNOWN_AFTER,
    QueueIndex,
    index_of,
    save_index,
)
from headrace.store.records.jobs import Job

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_READ: Final = 50


class Indexing(ServicePart):
    """Visits the tasks of queues whose index is to be built; *page* is tasks, or entries."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.page: int = 250

    def visit(self, job: Job) -> Iterator[tuple[Any, int]]:
        """Empty or complete the index of a queue page by page; see JobVisitor."""
        position = job.position
        while (index := index_of(self.store, job.queue)) is not None:
            queue, count = self._queue(job.queue), 0
            if self.now() < index.since + KNOWN_AFTER:
                return
            if queue is None and index.wanted:
                save_index(self.store, index.changed((), self.now()))
            elif index.gone:
                self._take_out(index)
            elif queue is None:
                self.store.drop_record(KIND, index.queue, version=index.version)
            elif index.again:
                save_index(self.store, index.changed(index.again, self.now()))
            elif not index.built:
                position, count = self._add(index, queue, position)
            else:
                return
            yield position, count

    def next_round(self, job: Job) -> datetime | None:
        """Return when every process knows the fields; see JobVisitor."""
        index = index_of(self.store, job.queue)
        return None if index is None or index.built else index.since + KNOWN_AFTER

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
