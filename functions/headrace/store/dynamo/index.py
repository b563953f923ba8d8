"""The index of the tasks table: what is in a queue and state, by the time that it is due."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headrace.domain.task import Place
from headrace.domain.times import instant_of, micros_of
from headrace.store import keys
from headrace.store.base import CountPage, EntryPage, Position
from headrace.store.dynamo.connect import aws_errors, charge_all
from headrace.store.items import Item, entry_from_item, partition


class StateIndex:
    """Implements the reads by place of ``headrace.store.base.Store``."""

    _client: Any  # boto3 makes its clients at run time
    _tasks: str

    def ids(self, prefix: str, *, limit: int) -> tuple[Sequence[str], bool] | None:  # noqa: ARG002  see below
        return None  # keys are hashed

    def entries(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        descending: bool = False,
        limit: int,
    ) -> EntryPage:
        query = self._query(place, since, until, after)
        with aws_errors():
            answer = self._client.query(**query, ScanIndexForward=not descending, Limit=limit)
        charge_all(answer, write=False)
        return EntryPage(tuple(entry_from_item(item) for item in answer["Items"]), _last(answer))

    def count(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        now: datetime | None,
    ) -> CountPage:
        query = self._query(place, since, until, after)
        if now is not None:
            query["ExpressionAttributeNames"]["#ttl"] = keys.TTL
            query["ExpressionAttributeValues"][":now"] = {"N": str(micros_of(now) // 1_000_000)}
            query["FilterExpression"] = "attribute_not_exists(#ttl) OR #ttl > :now"
        with aws_errors():
            answer = self._client.query(**query, Select="COUNT")
        charge_all(answer, write=False)
        return CountPage(answer["Count"], _last(answer))

    def _query(
        self,
        place: Place,
        since: datetime | None,
        until: datetime | None,
        after: Position | None,
    ) -> dict[str, Any]:
        names = {"#place": keys.QUEUE_STATE}
        values: Item = {":place": {"S": partition(place)}}
        condition = "#place = :place"
        if since is not None:
            values[":since"] = {"N": str(micros_of(since))}
        if until is not None:
            values[":until"] = {"N": str(micros_of(until))}
        if since is not None and until is not None:
            condition += " AND #at BETWEEN :since AND :until"
        elif since is not None:
            condition += " AND #at >= :since"
        elif until is not None:
            condition += " AND #at <= :until"
        if len(values) > 1:
            names["#at"] = keys.SCHEDULED_AT
        query = {
            "TableName": self._tasks,
            "IndexName": keys.BY_STATE,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if after is not None:
            query["ExclusiveStartKey"] = {
                keys.QUEUE_STATE: {"S": partition(place)},
                keys.SCHEDULED_AT: {"N": str(micros_of(after.scheduled_at))},
                keys.TASK_ID: {"S": after.task_id},
            }
        return query


def _last(answer: dict[str, Any]) -> Position | None:
    """Return where in its partition a query stopped; None at the end."""
    last = answer.get("LastEvaluatedKey")
    if last is None:
        return None
    return Position(instant_of(int(last[keys.SCHEDULED_AT]["N"])), last[keys.TASK_ID]["S"])
