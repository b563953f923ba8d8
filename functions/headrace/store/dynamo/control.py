"""The control table: records, one partition a kind, by version; and writes of both tables."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.domain.change import Change, KeyLock
from headrace.domain.ids import new_request_token
from headrace.store import keys
from headrace.store.base import Record
from headrace.store.call_scope import charge
from headrace.store.dynamo.connect import aws_errors, charge_all
from headrace.store.items import SECONDS, Item
from headrace.store.services import AwsClient
from headrace.store.statements import single_write


class ControlTable:
    """Implements the records of ``headrace.store.base.Store``."""

    def __init__(
        self,
        client: AwsClient,
        table: str,
        tasks: str,
    ) -> None:
        self._client = client
        self._control = table
        self._tasks = tasks

    def key_lock(self, kind: str, name: str) -> str | None:
        item = self._item(kind, name)
        return item[keys.KEY_LOCK]["S"] if item else None

    def key_locks(self, kind: str) -> dict[str, str]:
        found = self._items(
            KeyConditionExpression="#pk = :kind",
            ExpressionAttributeNames={"#pk": keys.PK},
            ExpressionAttributeValues={":kind": {"S": kind}},
            ConsistentRead=True,
        )
        return {item[keys.SK]["S"]: item[keys.KEY_LOCK]["S"] for item in found}

    def set_key_lock(self, lock: KeyLock) -> bool:
        ((operation, arguments),) = key_lock_write(lock, self._control).items()
        write = self._client.put_item if operation == "Put" else self._client.delete_item
        answer, stored = self._write(
            write, **arguments, ReturnValuesOnConditionCheckFailure="ALL_OLD"
        )
        now = stored.get(keys.KEY_LOCK, {}).get("S")
        return answer is not None or bool(now == lock.value)  # a repeat after a lost answer

    def record(self, kind: str, name: str) -> Record | None:
        item = self._item(kind, name)
        return _record(item) if item else None

    def _item(self, kind: str, name: str, *, consistent: bool = True) -> Item | None:
        with aws_errors():
            answer = self._client.get_item(
                TableName=self._control,
                Key=control_key(kind, name),
                ConsistentRead=consistent,
                ReturnConsumedCapacity="TOTAL",
            )
        charge_all(answer, write=False)
        item: Item | None = answer.get("Item")
        return item

    def _items(self, **query: object) -> Iterator[Item]:
        """Yield what a query finds, page after page."""
        while True:
            with aws_errors():
                answer = self._client.query(
                    TableName=self._control, ReturnConsumedCapacity="TOTAL", **query
                )
            charge_all(answer, write=False)
            yield from answer["Items"]
            last = answer.get("LastEvaluatedKey")
            if last is None:
                return
            query["ExclusiveStartKey"] = last

    def _write(
        self,
        write: Callable[..., dict[str, Any]],
        **arguments: object,
    ) -> tuple[dict[str, Any] | None, Item]:
        """Make one write; return its answer, or None and what stands there instead.

        What stands there is empty unless the arguments request it.
        """
        with aws_errors():
            try:
                answer = write(
                    **{"TableName": self._control, **arguments}, ReturnConsumedCapacity="TOTAL"
                )
            except self._client.exceptions.ConditionalCheckFailedException as error:
                charge(write=1.0)
                return None, error.response.get("Item") or {}
        charge_all(answer, write=True)
        return answer, {}

    def records(
        self,
        kind: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
        consistent: bool = True,
    ) -> tuple[Sequence[Record], bool]:
        condition, values = "#pk = :kind", {":kind": {"S": kind}}
        names = {"#pk": keys.PK}
        if prefix:
            condition += " AND begins_with(#sk, :prefix)"
            values[":prefix"] = {"S": prefix}
            names["#sk"] = keys.SK
        query = {
            "TableName": self._control,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ConsistentRead": consistent,
            "Limit": limit,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if after:
            query["ExclusiveStartKey"] = control_key(kind, after)
        with aws_errors():
            answer = self._client.query(**query)
        charge_all(answer, write=False)
        return tuple(_record(item) for item in answer["Items"]), "LastEvaluatedKey" in answer

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:  # noqa: ARG002  every write lasts
        token = new_request_token()  # by which a repeat after a lost answer knows its own write
        answer, stored = self._write(self._client.put_item, **self._put(record, replaces, token))
        return answer is not None or _written_by(stored, token)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        token = new_request_token()
        items = [{"Put": self._put(record, replaces, token)} for record, replaces in writes]
        items += [_task_write(new, self._tasks) for new in tasks]
        with aws_errors():
            try:
                answer = self._client.transact_write_items(
                    TransactItems=items, ReturnConsumedCapacity="TOTAL"
                )
            except self._client.exceptions.TransactionCanceledException as error:
                charge(write=2.0 * len(items))
                reasons = error.response["CancellationReasons"]
                records = reasons[: len(writes)]
                if all(_written_by(reason.get("Item") or {}, token) for reason in records):
                    return True
                if any(reason.get("Code") == "ConditionalCheckFailed" for reason in reasons):
                    return False
                raise  # others are writing it, or the table is throttled
        charge_all(answer, write=True)
        return True

    def _put(self, record: Record, replaces: int | None, token: str) -> dict[str, Any]:
        item = control_key(record.kind, record.name) | {
            keys.WRITTEN_BY: {"S": token},
            keys.BODY: {"S": json.dumps(record.body, ensure_ascii=False)},
            keys.VERSION: {"N": str(record.version)},
        }
        if record.expires_at is not None:
            item[keys.TTL] = SECONDS.encode(record.expires_at)
        return {
            "TableName": self._control,
            "Item": item,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **_has_version(replaces),
        }

    def renew_record(self, record: Record) -> Record:
        names = {"#body": keys.BODY, "#version": keys.VERSION}
        values: Item = {
            ":body": {"S": json.dumps(record.body, ensure_ascii=False)},
            ":version": {"N": str(record.version)},
        }
        ttl = "REMOVE #ttl"
        if record.expires_at is not None:
            values[":ttl"] = SECONDS.encode(record.expires_at)
            ttl = ", #ttl = :ttl"
        with aws_errors():
            answer = self._client.update_item(
                TableName=self._control,
                Key=control_key(record.kind, record.name),
                UpdateExpression=f"SET #body = :body, #version = :version {ttl}",
                ExpressionAttributeNames={**names, "#ttl": keys.TTL},
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
                ReturnConsumedCapacity="TOTAL",
            )
        charge_all(answer, write=True)
        return _record(answer["Attributes"])

    def leave_note(self, kind: str, name: str, note: str, *, expects: str | None) -> bool:
        values: Item = {":note": {"S": note}}
        condition = "attribute_exists(#pk) AND attribute_not_exists(#note)"
        if expects is not None:
            values[":expected"] = {"S": expects}
            condition = "attribute_exists(#pk) AND #note = :expected"
        answer, stored = self._write(
            self._client.update_item,
            Key=control_key(kind, name),
            UpdateExpression="SET #note = :note",
            ConditionExpression=condition,
            ExpressionAttributeNames={"#pk": keys.PK, "#note": keys.NOTE},
            ExpressionAttributeValues=values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        # What stands there may be our own, where an answer was lost.
        return answer is not None or stored.get(keys.NOTE) == {"S": note}

    def drop_record(self, kind: str, name: str, *, version: int | None = None) -> bool:
        condition = {} if version is None else _has_version(version)
        answer, _ = self._write(
            self._client.delete_item,
            Key=control_key(kind, name),
            ReturnValues="ALL_OLD",
            **condition,
        )
        return answer is not None and "Attributes" in answer


def _has_version(version: int | None) -> dict[str, Any]:
    """Return the condition that a record has *version*; None: that there is none."""
    if version is None:
        return {
            "ConditionExpression": "attribute_not_exists(#name)",
            "ExpressionAttributeNames": {"#name": keys.PK},
        }
    return {
        "ConditionExpression": "#name = :version",
        "ExpressionAttributeNames": {"#name": keys.VERSION},
        "ExpressionAttributeValues": {":version": {"N": str(version)}},
    }


def _written_by(stored: Item, token: str) -> bool:
    """Tell whether what refused a write was written by it before, and the answer lost."""
    return stored.get(keys.WRITTEN_BY) == {"S": token}


def key_lock_write(lock: KeyLock, table: str) -> dict[str, dict[str, Any]]:
    """Return the write of a key lock, under the name of its operation in a transaction."""
    key = control_key(lock.kind, lock.name)
    condition: dict[str, Any] = {
        "TableName": table,
        "ConditionExpression": "attribute_not_exists(#mark)",
        "ExpressionAttributeNames": {"#mark": keys.KEY_LOCK},
    }
    if lock.expects is not None:
        condition |= {
            "ConditionExpression": "#mark = :expected",
            "ExpressionAttributeValues": {":expected": {"S": lock.expects}},
        }
    if lock.value is None:
        return {"Delete": {**condition, "Key": key}}
    return {"Put": {**condition, "Item": {**key, keys.KEY_LOCK: {"S": lock.value}}}}


def control_key(kind: str, name: str) -> Item:
    """Return the key of a record or key lock."""
    return {keys.PK: {"S": kind}, keys.SK: {"S": name}}


def _record(item: Item) -> Record:
    return Record(
        item[keys.PK]["S"],
        item[keys.SK]["S"],
        json.loads(item[keys.BODY]["S"]),
        int(item[keys.VERSION]["N"]),
        SECONDS.decode(item[keys.TTL]) if keys.TTL in item else None,
        item[keys.NOTE]["S"] if keys.NOTE in item else None,
    )


_OPERATIONS = {"put_item": "Put", "update_item": "Update", "delete_item": "Delete"}
_ARGUMENTS = frozenset(
    {
        "TableName",
        "Key",
        "Item",
        "UpdateExpression",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)


def transaction(change: Change, tasks: str, control: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the items of TransactWriteItems, and for each but the first its place in ``also``."""
    items, places = [_task_write(change, tasks)], []
    for place, also in enumerate(change.also):
        for part in _flat(also):
            write = (
                key_lock_write(part, control)
                if isinstance(part, KeyLock)
                else _task_write(part, tasks)
            )
            items.append(write)
            places.append(place)
    return items, places


def _flat(also: KeyLock | Change) -> list[KeyLock | Change]:
    if isinstance(also, KeyLock):
        return [also]
    return [also, *(part for inner in also.also for part in _flat(inner))]


def _task_write(change: Change, table: str) -> dict[str, Any]:
    write = single_write(change, table)
    arguments = {name: write.arguments[name] for name in _ARGUMENTS & write.arguments.keys()}
    return {_OPERATIONS[write.operation]: arguments}
