"""How large on DynamoDB would be what is read and written, so that ``domain.cost`` can tell units.

Control records count as the items that ``store.dynamo`` makes of them.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Any, Final

from headrace.domain import cost
from headrace.domain.limits import utf8_bytes
from headrace.domain.patch import Fields, Value
from headrace.domain.task import Place
from headrace.store.items import item_bytes, to_item
from headrace.store.sqlite.rows import Row, task_of

_KB: Final = 1024
_INSTANT_BYTES: Final = 9  # microseconds since 1970, a byte for two digits
_SECONDS_BYTES: Final = 6
_BESIDES: Final = 250
"""What a task's item takes at most besides its texts in columns, and the rest as it is in JSON."""


def task_bytes(row: Row | None, payload: int | None = None) -> int:
    """Return the bytes that the item of a row takes, or less where that is surely under a kilobyte.

    *payload* is its bytes where the row is without it.
    """
    if row is None:
        return 0
    if payload is None:
        payload = utf8_bytes(row[-1] or "")
    most = utf8_bytes(row[-2]) + payload + len(row[0]) + len(row[1] or "") + _BESIDES
    if most < _KB:
        return most
    task = replace(task_of((*row[:-1], None)), payload="") if payload else task_of(row)
    return item_bytes(to_item(task)) + payload


def change_units(old: Row | None, new: Row | None) -> int:
    """Return the write units of a task's change, its index entry's among them."""
    left = None if old is None or old[1] is None else old[1:8]
    entered = None if new is None or new[1] is None else new[1:8]
    return cost.write_units(task_bytes(old), task_bytes(new)) + cost.entry_units(
        was=left is not None,
        is_=entered is not None,
        moved=left is not None and entered is not None and left[:4] != entered[:4],
        changed=left != entered,
    )


def entries_bytes(place: Place, entries: Iterable[tuple[Any, ...]]) -> int:
    """Return the bytes of index entries of *place*: (id, scheduled_at, expires_at, ttl, …)."""
    each = len("queue#state") + len(f"{place.queue}#{place.state}#{place.label}")
    each += len("scheduled_at") + _INSTANT_BYTES + len("task_id") + len("due_at") + _INSTANT_BYTES
    expires, retained = len("expires_at") + _INSTANT_BYTES, len("ttl") + _SECONDS_BYTES
    return sum(
        each + len(id_) + (expires if until is not None else 0) + (retained if ttl else 0)
        for id_, _, until, ttl, *_ in entries
    )


def counted_bytes(place: Place, entries: int) -> int:
    """Return the bytes of so many index entries of *place*, with ids of ours and without ends."""
    return entries_bytes(place, [("tsk_" + 26 * "0", 0, None, None, 0)]) * entries


def control_bytes(kind: str, name: str, fields: Fields | None) -> int:
    """Return the bytes of a control item, 0 where there is none."""
    if fields is None:
        return 0
    size = len("pk") + utf8_bytes(kind) + len("sk") + utf8_bytes(name)
    return size + sum(utf8_bytes(name) + _value_bytes(value) for name, value in fields.items())


def _value_bytes(value: Value) -> int:
    match value:
        case int():
            return number_bytes(value)
        case str():
            return utf8_bytes(value)
    return sum(map(utf8_bytes, value))


def number_bytes(number: int) -> int:
    """Return the bytes of a number."""
    digits = str(number).strip("-0")
    return ceil(len(digits) / 2) + 1 + (number < 0)
