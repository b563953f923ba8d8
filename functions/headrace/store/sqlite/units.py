"""What reads and writes of a row would cost on DynamoDB."""

import json
from collections.abc import Iterable
from math import ceil

from headrace.domain.task import Place
from headrace.store.base import Record
from headrace.store.items import item_bytes, to_item
from headrace.store.sqlite.rows import Row, task_of

_KB = 1024
_ENTRY_BYTES = 100  # of an index entry, besides the name of its queue
_SURELY_SMALL = 800
"""Characters of a row whose item surely takes less than a kilobyte."""


def _bytes(row: Row) -> int:
    """Return what the item of a row takes, or less where that is surely under a kilobyte."""
    *_, rest, payload = row
    length = len(rest) + len(payload or "") * 4
    return length if length < _SURELY_SMALL else item_bytes(to_item(task_of(row)))


def write_units(row: Row | None) -> int:
    return 0 if row is None else max(1, ceil(_bytes(row) / _KB))


def read_units(row: Row | None) -> int:
    return 0 if row is None else max(1, ceil(_bytes(row) / (4 * _KB)))


def change_units(old: Row | None, new: Row | None) -> int:
    return max(write_units(old), write_units(new)) + _entry_units(old, new)


def _entry_units(old: Row | None, new: Row | None) -> int:
    left = None if old is None or old[1] is None else old[1:7]
    entered = None if new is None or new[1] is None else new[1:7]
    if left is None or entered is None:
        return int(left is not entered)
    if left[:4] != entered[:4]:
        return 2
    return int(left != entered)  # what the index projects besides its keys


def entries_units(place: Place, entries: int) -> float:
    """Return the read units of so many index entries of *place*, read as the index is."""
    size = len(place.queue) + _ENTRY_BYTES
    return max(1, ceil(entries * size / (4 * _KB))) / 2


def record_units(record: Record | None, *, read: bool = False) -> int:
    """Return the units of one record, written unless *read*."""
    size = 0
    if record is not None:
        size = len(json.dumps(record.body)) + len(record.note or "") + len(record.name) + 100
    return max(1, ceil(size / (4 * _KB if read else _KB)))


def texts_units(texts: Iterable[str]) -> int:
    """Return the read units of what holds *texts*, read at once and consistently."""
    return max(1, ceil(sum(map(len, texts)) / (4 * _KB)))
