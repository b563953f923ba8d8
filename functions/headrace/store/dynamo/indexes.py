"""The index of tasks by queue, state and time, and the index of values.

The index of values is kept as items of the control table that have a key and no other field.  The
values of a queue are in several partitions, because a partition takes a thousand writes a second.
"""

import random
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.indexing import PARTS, TERM_LENGTH, Match, part_of
from headrace.domain.task import Place
from headrace.domain.times import instant_of, micros_of
from headrace.store import keys
from headrace.store.base import CountPage, EntryPage, Position
from headrace.store.dynamo.connect import aws_errors, charge_all
from headrace.store.dynamo.control import ControlTable, control_key
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


_AT_ONCE: Final = 25  # writes of one BatchWriteItem
_TRIES: Final = 6
_PAUSE: Final = 0.05  # seconds, doubled with each try


class MatchTable(ControlTable):
    """Implements the index of values of ``headrace.store.base.Store``."""

    def note_matches(self, there: Collection[Match], gone: Collection[Match]) -> None:
        writes = [{"PutRequest": {"Item": _key(one)}} for one in dict.fromkeys(there)]
        writes += [{"DeleteRequest": {"Key": _key(one)}} for one in dict.fromkeys(gone) if one.term]
        for start in range(0, len(writes), _AT_ONCE):
            self._write_some(writes[start : start + _AT_ONCE])

    def _write_some(self, writes: list[dict[str, Any]]) -> None:
        pause = _PAUSE
        for _ in range(_TRIES):
            with aws_errors():
                answer = self._client.batch_write_item(
                    RequestItems={self._control: writes}, ReturnConsumedCapacity="TOTAL"
                )
            for part in answer.get("ConsumedCapacity") or ():
                charge_all({"ConsumedCapacity": part}, write=True)
            writes = (answer.get("UnprocessedItems") or {}).get(self._control, [])
            if not writes:
                return
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  jitter is no secret
            pause *= 2
        message = "the table is throttled; not all of the index could be written"
        raise Unavailable(message)

    def matches(
        self, queue: str, term: str, *, after: str = "", descending: bool = False, limit: int
    ) -> tuple[Sequence[str], bool]:
        query = _query(queue, part_of(term), term)
        if after:
            query["ExclusiveStartKey"] = _key(Match(queue, term, after))
        ids, more = self._names_of(query, ScanIndexForward=not descending, Limit=limit)
        return [task_id[TERM_LENGTH:] for task_id in ids], more

    def drop_matches(self, queue: str, field: str, *, limit: int) -> bool:
        left = limit
        for part in PARTS:
            names, more = self._names_of(_query(queue, part, field), Limit=left)
            self.note_matches(
                (), [Match(queue, one[:TERM_LENGTH], one[TERM_LENGTH:]) for one in names]
            )
            left -= len(names)
            if more or left <= 0:
                return True
        return False

    def _names_of(self, query: dict[str, Any], **more: object) -> tuple[list[str], bool]:
        with aws_errors():
            answer = self._client.query(
                TableName=self._control, ReturnConsumedCapacity="TOTAL", **query, **more
            )
        charge_all(answer, write=False)
        names = [item[keys.SK]["S"] for item in answer["Items"]]
        return names, "LastEvaluatedKey" in answer


def _kind(queue: str, part: int) -> str:
    return keys.MATCHES.format(f"{queue}:{part:x}")


def _key(match: Match) -> dict[str, Any]:
    kind = _kind(match.queue, part_of(match.term))
    return control_key(kind, match.term + match.task_id)


def _query(queue: str, part: int, begins: str) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "#pk = :kind AND begins_with(#sk, :begins)",
        "ExpressionAttributeNames": {"#pk": keys.PK, "#sk": keys.SK},
        "ExpressionAttributeValues": {
            ":kind": {"S": _kind(queue, part)},
            ":begins": {"S": begins},
        },
    }
