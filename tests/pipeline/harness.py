"""Queues on a file, for what works on the tasks themselves."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import DEFAULT_RETRY, Backoff, RetryStrategy
from headrace.domain.task import Task
from headrace.runtime.service import Service
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.sources.connect import StoreConnection, opened, store

AT_ONCE = RetryStrategy(Backoff.FIXED, 3, 0)
"""Three retries, none of them waited for."""

Again = Callable[[LakeFrames], LakeFrames]
"""Gives a copy of a lake that several tests begin with, for one of them to change."""

_CHUNK = 500


_TOO_SLOW = "Python worker failed to connect back"
"""What Spark says when the process of a stream took more than ten seconds to start, which it may
on a busy machine; how long it waits cannot be set."""
_TRIES = 20


def drained(start: Callable[[], StreamingQuery]) -> StreamingQueryException | None:
    """Start a query and wait for its end; return what it failed with, if it did."""
    failure: StreamingQueryException | None = None
    for _ in range(_TRIES):
        query = start()
        try:
            while not query.awaitTermination(1):
                pass  # signals are heard between two looks
        except StreamingQueryException as error:
            failure = error
            if _TOO_SLOW not in str(error):
                break
        else:
            return None
    return failure


@dataclass(frozen=True, slots=True)
class PipelineHarness:
    """The file of one test, and what it does with it."""

    connection: StoreConnection

    @property
    def uses(self) -> Service:
        return opened(self.connection)

    def queue(self, name: str, *, shards: int = 2, retry: RetryStrategy = DEFAULT_RETRY) -> None:
        self.uses.queues.create(name, QueueSettings(shards=shards, retry_strategy=retry))

    def fill(self, queue: str, number: int, *, start: int = 0) -> list[str]:
        """Enqueue tasks with the payloads ``{"n": …}``; return their ids."""
        ids: list[str] = []
        for first in range(start, start + number, _CHUNK):
            numbers = range(first, min(first + _CHUNK, start + number))
            new = [TaskSpec(json.dumps({"n": n})) for n in numbers]
            ids += [done.id or "" for done in self.uses.tasks.enqueue(queue, new)]
        return ids

    def tasks(self, queue: str) -> list[Task]:
        """Return all tasks of a queue, whatever their state."""
        return list(self._all(queue))

    def states(self, queue: str) -> dict[str, int]:
        return dict(Counter(str(task.state) for task in self._all(queue)))

    def numbers(self, queue: str) -> list[int]:
        """Return the numbers in the payloads of a queue's tasks, in order."""
        return sorted(json.loads(task.payload or "{}")["n"] for task in self._all(queue))

    def read(self, *ids: str) -> list[Task]:
        found = store(self.connection).read(ids)
        return [found[one] for one in ids]

    def _all(self, queue: str) -> Iterator[Task]:
        cursor = None
        while True:
            page = self.uses.inspect.list(queue, limit=250, cursor=cursor, payload=True)
            yield from page.tasks
            cursor = page.cursor
            if cursor is None:
                return
