"""Making an index of values complete: a look at all tasks that were there before it was asked for.

From when fields are named, the recorder writes what comes to a queue (``history.matching``).  What
was there before is looked at once everybody knows of it: state after state, in the order in which
tasks go through them, waiting ones first.  A task is missed only if it went against that order
meanwhile, to wait again, and then the recorder has written it.

An index that lacks tasks, as after the recorder was away for too long, is built anew: nothing is
written into it for a while, all of it is taken out, and its fields are named again.

It goes on with each pass of the reaper where the one before has stopped, and may be done by two at
once.  Fields that are named no more are taken out, and a queue that is gone with all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.errors import NotFound
from headrace.domain.filters import EVERY_TASK
from headrace.domain.indexing import Match, field_digest, needs_payload, terms_of
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.ops.shared.offloaded import OffloadedTexts
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.tasks.inspect import Inspect
from headrace.ops.tasks.walks import Walk
from headrace.store.base import Store
from headrace.store.records.indexes import KIND, QueueIndex, every_index, save_index

KNOWN_AFTER: Final = timedelta(seconds=90)
"""So long after fields are named every recorder knows of it, with a batch under way."""

_READ: Final = 50


@dataclass(frozen=True, slots=True)
class Indexing:
    """The use case, with what it needs from outside; *patience* is seconds of one run."""

    store: Store
    queues: QueueOperations
    inspect: Inspect
    texts: OffloadedTexts
    now: Callable[[], datetime]
    patience: float = 10.0
    at_once: int = 250  # tasks, or entries

    def run(self) -> int:
        """Go on with what is to do; return how many queues have still something to do.

        Raises Unavailable.
        """
        until = self.now() + timedelta(seconds=self.patience)
        left = 0
        for index in every_index(self.store).values():
            queue = self._queue(index.queue)
            at: QueueIndex | None = index
            if queue is None and index.wanted:
                at = self._saved(index.changed((), self.now()))
            while at is not None and self.now() < until and not self._over(at, queue):
                at = self._step(at, queue)
            left += at is not None and not at.built
        return left

    def _queue(self, name: str) -> Queue | None:
        try:
            return self.queues.get(name)
        except NotFound:
            return None

    def _over(self, index: QueueIndex, queue: Queue | None) -> bool:
        if index.built and (index.fields or queue is not None):
            return True
        return self.now() < index.since + KNOWN_AFTER

    def _step(self, index: QueueIndex, queue: Queue | None) -> QueueIndex | None:
        """Do a part of what is to do; return what is left then, None where others are at it."""
        if index.gone:
            field, *rest = index.gone
            more = self.store.drop_matches(index.queue, field_digest(field), limit=self.at_once)
            return index if more else self._saved(replace(index, gone=tuple(rest)))
        if queue is None:
            self.store.drop_record(KIND, index.queue, version=index.version)
            return None
        if index.again:
            return self._saved(index.changed(index.again, self.now()))
        return self._saved(self._look(index, queue))

    def _look(self, index: QueueIndex, queue: Queue) -> QueueIndex:
        """Look at more tasks, and write what the index has to know of them."""
        walk = Walk.read(index.walk) if index.walk else Walk(self.now())
        looked_at, seen, over = index.looked_at, list[Task](), True
        payload = needs_payload(index.fields)
        for task, after in self.inspect.walk(queue, EVERY_TASK, walk, page=_READ, payload=payload):
            walk = after
            if task is not None:
                seen.append(task)
            if walk.looked_at >= self.at_once:
                over = False
                break
        tasks = self.texts.filled(seen, ("payload",)) if payload else seen
        self.store.note_matches(
            [
                Match(queue.name, term, task.id)
                for task in tasks
                for term in terms_of(index.fields, task.tags, task.payload)
            ],
            (),
        )
        looked_at += walk.looked_at
        if over:
            return replace(index, ready=index.fields, walk=None, looked_at=looked_at)
        return replace(index, walk=walk.state(), looked_at=looked_at)

    def _saved(self, index: QueueIndex) -> QueueIndex | None:
        saved = save_index(self.store, index)
        return replace(index, version=index.version + 1) if saved else None
