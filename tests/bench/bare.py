"""The engine without us: the same three writes per task from a client that does nothing else.

Its statements are made once by our own code and then only filled in, so what it reaches is what
the engine can do.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import urllib3

from headrace.domain import plan, settle
from headrace.domain.change import Change, Entry
from headrace.domain.ids import new_task_id
from headrace.domain.instants import micros_of
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.settle import Held
from headrace.local.tables import TableNames
from headrace.store.items import to_item
from headrace.store.statements import statement

PAYLOAD: Final = {"sensor": "urn:ngsi-ld:WeatherObserved:0042", "values": list(range(40))}
"""Of every task the benchmark makes: some 200 bytes, so that a task stays below 1 KB."""

_TABLE: Final = TableNames().tasks
_TASK: Final = "@TASK@"
_LEASE: Final = "@LEASE@"
_HEADERS: Final = {
    "Content-Type": "application/x-amz-json-1.0",
    # The engine asks for a signature and believes any.
    "Authorization": (
        "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request,"
        " SignedHeaders=host;x-amz-date, Signature=0"
    ),
    "X-Amz-Date": "20260101T000000Z",
}


class BareClientFailed(Exception):
    """The engine refused what the bare client sent."""


@dataclass(frozen=True, slots=True)
class _Writes:
    """The three writes of a task's life as JSON text, and its item, with marks to fill in."""

    insert: str
    lease: str
    succeed: str
    item: str
    now: str


def _writes(queue: str) -> _Writes:
    now = datetime.now(UTC)
    target = Queue(queue, QueueSettings(), now, now)
    new = TaskSpec(json.dumps(PAYLOAD))
    insert = plan.enqueue(new, target, task_id=_TASK, due_at=now, now=now, token=None)
    if insert.insert is None:
        raise BareClientFailed("an enqueue inserts nothing")
    entry = Entry(_TASK, insert.insert.place, now, insert.insert.expires_at)
    lease = plan.dequeue(entry, target, lease_id=_LEASE, now=now, worker="bench:1", keepalive=None)
    held = Held(_TASK, queue, _LEASE, 1, "bench:1")
    succeed = settle.succeed(held, target, now=now, result=None)
    return _Writes(
        insert=_text(insert),
        lease=_text(lease),
        succeed=_text(succeed),
        item=json.dumps(to_item(insert.insert)),
        now=str(micros_of(now)),
    )


def _text(change: Change) -> str:
    return json.dumps(statement(change, _TABLE))


class BareClient:
    """One connection to the engine, without boto3 and without our store.

    ``write_units`` is what its statements have cost so far.
    """

    def __init__(self, url: str, queue: str) -> None:
        """Prepare the statements for tasks of *queue*, which need not exist."""
        self._pool = urllib3.connection_from_url(url, maxsize=1, retries=False, timeout=60)
        self._writes = _writes(queue)
        self.write_units = 0.0

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._pool.close()

    def insert(self, count: int) -> list[str]:
        """Insert up to 25 tasks; return their ids."""
        ids = _new_ids(count)
        self._execute(self._writes.insert, ids)
        return ids

    def lease(self, ids: Sequence[str]) -> None:
        """Lease tasks."""
        self._execute(self._writes.lease, ids)

    def succeed(self, ids: Sequence[str]) -> None:
        """Finish leased tasks."""
        self._execute(self._writes.succeed, ids)

    def fill(self, count: int) -> None:
        """Insert up to 25 tasks in the quickest way, for which nothing is measured."""
        now = str(micros_of(datetime.now(UTC)))
        items = [
            self._writes.item.replace(_TASK, name).replace(self._writes.now, now)
            for name in _new_ids(count)
        ]
        puts = ",".join(f'{{"PutRequest":{{"Item":{item}}}}}' for item in items)
        answer = self._send("BatchWriteItem", f'{{"RequestItems":{{"{_TABLE}":[{puts}]}}}}')
        if answer.get("UnprocessedItems"):
            raise BareClientFailed("the engine left items unwritten")

    def _execute(self, text: str, ids: Sequence[str]) -> None:
        now = str(micros_of(datetime.now(UTC)))
        text = text.replace(self._writes.now, now)
        statements = ",".join(text.replace(_TASK, name).replace(_LEASE, f"l{name}") for name in ids)
        body = f'{{"Statements":[{statements}],"ReturnConsumedCapacity":"TOTAL"}}'
        answer = self._send("BatchExecuteStatement", body)
        self.write_units += sum(part["CapacityUnits"] for part in answer["ConsumedCapacity"])
        for response in answer["Responses"]:
            if "Error" in response:
                raise BareClientFailed(f"the engine refused a statement: {response['Error']}")

    def _send(self, operation: str, body: str) -> dict[str, Any]:
        headers = {**_HEADERS, "X-Amz-Target": f"DynamoDB_20120810.{operation}"}
        response = self._pool.request("POST", "/", body=body.encode(), headers=headers)
        if response.status != 200:
            raise BareClientFailed(f"the engine answers {response.status}: {response.data[:300]!r}")
        answer: dict[str, Any] = json.loads(response.data)
        return answer


def _new_ids(count: int) -> list[str]:
    """Make ids that come in order, as the service's own do."""
    now = datetime.now(UTC)
    return sorted(new_task_id(now) for _ in range(count))
