"""A change that must be made together with others: all of it, or nothing."""

from typing import Any

from headrace.domain.change import Change, KeyLock
from headrace.store.dynamo.control import key_lock_write
from headrace.store.statements import single_write

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
