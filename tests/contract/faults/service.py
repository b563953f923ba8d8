"""A service on a faulty client, what it is asked, and what it holds afterwards."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.domain.errors import Unavailable
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.local.tables import TableNames
from headrace.store import keys
from tests.contract.conftest import World
from tests.contract.faults.client import Answer, Faults, FaultyClient

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=100, base_seconds=0, jitter=0)
T = TypeVar("T")

REPORTS: list[tuple[str, dict[str, Any], State]] = [
    ("SUCCEEDED", {"result": "1"}, State.SUCCEEDED),
    ("INFLIGHT", {"progress": "1"}, State.INFLIGHT),
    ("FAILED", {}, State.ENQUEUED),
    ("FAILED", {"retryable": False}, State.DEAD),
    ("RELEASED", {}, State.ENQUEUED),
    ("MOVED", {"to_queue": "other", "payload": "2"}, State.ENQUEUED),
]


@dataclass
class FaultyService:
    """A service on a faulty client, and what it takes to make it faulty for a while."""

    world: World
    client: FaultyClient
    tables: TableNames

    @contextmanager
    def suffering(self, **faults: Any) -> Iterator[Faults]:
        """Let these faults happen inside the block."""
        self.client.faults = Faults(**faults)
        yield self.client.faults
        self.client.faults = Faults()

    def see(self, task_id: str) -> Task:
        return self.world.see(task_id)


def tasks_of(dequeue: Callable[[], Sequence[Task]]) -> list[Task]:
    """The tasks handed out; none when the table does not answer."""
    try:
        return list(dequeue())
    except Unavailable:
        return []


def everything(service: FaultyService) -> list[Answer]:
    """Return every item of both tables, read past the faults."""
    scan = service.client.real.scan
    items = [
        item
        for table in (service.tables.tasks, service.tables.control)
        for item in scan(TableName=table)["Items"]
        if not re.match("job$", item.get(keys.PK, {"S": ""})["S"])
    ]
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
