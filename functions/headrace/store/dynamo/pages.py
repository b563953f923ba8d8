"""The tasks table read in bulk: whole pages of DynamoDB's own JSON.

Nothing here is decoded, so that a reader of millions of tasks can decode a page at a time.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.task import Place
from headrace.domain.times import micros_of
from headrace.store import keys
from headrace.store.dynamo.connect import aws_errors
from headrace.store.dynamo.raw_client import RawClient
from headrace.store.items import EVER, Between, Item, partition

_NOT_FORGOTTEN: Final = "attribute_not_exists(#ttl) OR #ttl > :now"
# Without these conditions, tombstones and deleted tasks would be pages too.
_A_TASK: Final = (
    f"attribute_exists(#place) AND attribute_not_exists(deleted_by) AND ({_NOT_FORGOTTEN})"
)


@dataclass(frozen=True, slots=True)
class Pages:
    """One page a call, as bytes: ``Items``, ``ConsumedCapacity`` and ``LastEvaluatedKey``.

    What is past its retention at *now* is left out.  Every method raises Unavailable when the
    table is throttled or away.
    """

    client: RawClient
    table: str

    def parts(self, number: int) -> list[tuple[int, int]]:
        """Return *number* parts of the table: which segment, of how many."""
        return [(segment, number) for segment in range(number)]

    def scan(
        self,
        part: tuple[int, int],
        *,
        attributes: Sequence[str],
        now: datetime,
        start: Item | None,
        consistent: bool = False,
    ) -> bytes:
        """Return a page of one of the *parts*, behind the key *start*."""
        wanted = self._wanted(attributes, now)
        request = {
            **wanted,
            "FilterExpression": _A_TASK,
            "ExpressionAttributeNames": {
                **wanted["ExpressionAttributeNames"],
                "#place": keys.QUEUE_STATE,
            },
            "TableName": self.table,
            "Segment": part[0],
            "TotalSegments": part[1],
            "ConsistentRead": consistent,
        }
        return self._page("Scan", request, start)

    def entries(
        self, place: Place, *, now: datetime, start: Item | None, between: Between = EVER
    ) -> bytes:
        """Return a page of one partition of the index, behind the key *start*.

        *between* are the first and the last microsecond of `scheduled_at` that are wanted.
        """
        wanted = self._wanted((), now)
        first, last = between
        request = {
            "TableName": self.table,
            "IndexName": keys.BY_STATE,
            "KeyConditionExpression": "#place = :place AND #at BETWEEN :first AND :last",
            "FilterExpression": wanted["FilterExpression"],
            "ExpressionAttributeNames": {
                **wanted["ExpressionAttributeNames"],
                "#place": keys.QUEUE_STATE,
                "#at": keys.SCHEDULED_AT,
            },
            "ExpressionAttributeValues": {
                **wanted["ExpressionAttributeValues"],
                ":place": {"S": partition(place)},
                ":first": {"N": str(first)},
                ":last": {"N": str(last)},
            },
        }
        return self._page("Query", request, start)

    def tasks(self, task_ids: Sequence[str], *, attributes: Sequence[str]) -> bytes:
        """Return up to READ_AT_ONCE tasks, as last written, as a page."""
        aliases = {f"#a{place}": name for place, name in enumerate(attributes)}
        pending: dict[str, Any] = {
            self.table: {
                "Keys": [{keys.TASK_ID: {"S": task_id}} for task_id in task_ids],
                "ConsistentRead": True,
                "ProjectionExpression": ",".join(aliases),
                "ExpressionAttributeNames": aliases,
            }
        }
        items: list[Item] = []
        units = 0.0
        while pending:
            with aws_errors():
                answer = self.client.batch_get_item(
                    RequestItems=pending, ReturnConsumedCapacity="TOTAL"
                )
            found = answer["Responses"].get(self.table, [])
            pending = answer.get("UnprocessedKeys") or {}
            if pending and not found:
                message = "the table is throttled; not every task could be read"
                raise Unavailable(message)
            items += found
            units += sum(part["CapacityUnits"] for part in answer.get("ConsumedCapacity") or ())
        page = {"Items": items, "ConsumedCapacity": {"CapacityUnits": units}}
        return json.dumps(page, ensure_ascii=False).encode()

    @staticmethod
    def _wanted(attributes: Sequence[str], now: datetime) -> dict[str, Any]:
        aliases = {f"#a{place}": name for place, name in enumerate(attributes)}
        wanted: dict[str, Any] = {
            "FilterExpression": _NOT_FORGOTTEN,
            "ExpressionAttributeNames": {**aliases, "#ttl": keys.TTL},
            "ExpressionAttributeValues": {":now": {"N": str(micros_of(now) // 1_000_000)}},
        }
        return wanted | ({"ProjectionExpression": ",".join(aliases)} if aliases else {})

    def _page(self, operation: str, request: dict[str, Any], start: Item | None) -> bytes:
        request["ReturnConsumedCapacity"] = "TOTAL"
        if start is not None:
            request["ExclusiveStartKey"] = start
        with aws_errors():
            return self.client.page(operation, request)
