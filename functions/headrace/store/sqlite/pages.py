"""The tasks of a file read in bulk: pages of the JSON in which DynamoDB has them.

Who reads millions of tasks has one way to decode them, wherever they are.  Each page is a read of
its own: no snapshot is held for longer, which would keep the log beside the file from being reused.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import msgspec

from headrace.domain.task import SHOWN_STATES, Place
from headrace.domain.times import instant_of, micros_of
from headrace.store import keys
from headrace.store.items import EVER, SECONDS, Between, Item, to_item
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.rows import Row, read_rows, task_of

ROW: Final = "row"
"""Where a scan goes on: the number of the row, which a task keeps for as long as it is there."""

_ROWS: Final = 5_000  # of a page
_CHARACTERS: Final = 1024 * 1024  # likewise, as of DynamoDB's pages; one row may be more
_UNIT: Final = 4096
_PAYLOAD: Final = "payload"
_IN_COLUMNS: Final = frozenset(
    {
        keys.TASK_ID,
        keys.QUEUE_STATE,
        keys.SCHEDULED_AT,
        keys.EXPIRES_AT,
        keys.TTL,
        keys.DUE_AT,
        _PAYLOAD,
    }
)
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class FilePages:
    """One page a call, as bytes: ``Items``, ``ConsumedCapacity`` and ``LastEvaluatedKey``.

    What is past its retention at *now* is left out, and what is left of tasks that are gone.
    Units are what DynamoDB would count for what was read.  Every method raises Unavailable.
    """

    db: Database

    def parts(self, number: int) -> list[tuple[int, int]]:
        """Return *number* parts of the rows that there are now: behind which one, and up to which.

        A task that is there all the while is in one of them; one that comes later may be in none.
        """
        with self.db.reading() as db:
            first, last = db.execute(
                "SELECT (SELECT min(rowid) FROM tasks), (SELECT max(rowid) FROM tasks)"
            ).fetchone()
        if last is None:
            return [(0, 0)] * number
        rows = last - first + 1
        ends = [first - 1 + rows * part // number for part in range(number + 1)]
        return list(pairwise(ends))

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
        after, until = part
        rest = "NULL" if _IN_COLUMNS.issuperset(attributes) else "rest"
        payload = "payload" if _PAYLOAD in attributes else "NULL"
        statement = (
            "SELECT rowid, id, queue, state, label, scheduled_at, expires_at, retained_until,"
            f" due_at, {rest}, {payload}"
            " FROM tasks WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"
        )
        after = after if start is None else int(start[ROW]["N"])
        rows, read, more = self._some(statement, (after, until, _ROWS))
        moment = micros_of(now)
        items = [
            _item(row[1:], attributes)
            for row in rows
            if row[3] in SHOWN_STATES and (row[7] is None or row[7] > moment)
        ]
        last = {ROW: {"N": str(rows[-1][0])}} if more else None
        return _page(items, read / _UNIT * (1 if consistent else 0.5), last)

    def entries(
        self, place: Place, *, now: datetime, start: Item | None, between: Between = EVER
    ) -> bytes:
        """Return a page of one partition of the index, behind the key *start*.

        *between* are the first and the last microsecond of `scheduled_at` that are wanted.
        """
        first, until = between
        after: tuple[int, str] = (first, "")
        if start is not None:
            after = (int(start[keys.SCHEDULED_AT]["N"]), start[keys.TASK_ID]["S"])
        statement = (
            "SELECT id, queue, state, label, scheduled_at, expires_at, retained_until, due_at,"
            " NULL, NULL FROM tasks WHERE queue = ? AND state = ? AND label = ?"
            " AND (scheduled_at, id) > (?, ?) AND scheduled_at <= ?"
            " AND (retained_until IS NULL OR retained_until > ?)"
            " ORDER BY scheduled_at, id LIMIT ?"
        )
        spot = (place.queue, str(place.state), place.label)
        rows, read, more = self._some(statement, (*spot, *after, until, micros_of(now), _ROWS))
        items = [_item(row, sorted(_IN_COLUMNS)) for row in rows]
        last = None
        if more:
            last = {name: items[-1][name] for name in (keys.TASK_ID, keys.SCHEDULED_AT)}
        return _page(items, read / _UNIT / 2, last)

    def tasks(self, task_ids: Sequence[str], *, attributes: Sequence[str]) -> bytes:
        """Return those of the tasks that there are, as last written, as a page."""
        with self.db.reading() as db:
            rows = read_rows(db, task_ids, payload=_PAYLOAD in attributes)
        items = [_item(row, attributes) for row in rows.values() if row[2] in SHOWN_STATES]
        return _page(items, sum(map(_size, rows.values())) / _UNIT, None)

    def _some(self, statement: str, values: Sequence[object]) -> tuple[list[Row], int, bool]:
        """Return the first rows, as many as make a page, how long they are, and if there are more.

        The last of *values* is how many there are at the most.
        """
        rows: list[Row] = []
        read = 0
        with self.db.reading() as db, closing(db.execute(statement, values)) as found:
            for row in found:
                rows.append(row)
                read += _size(row)
                if read >= _CHARACTERS:
                    return rows, read, True
        return rows, read, len(rows) == values[-1]


def _size(row: Row) -> int:
    """Return about how long the item of a row is, as far as it was read."""
    *_, rest, payload = row
    size = payload if isinstance(payload, int) else len(payload or "")  # of one that was left out
    return 100 + len(rest or "") + size


def _item(row: Row, attributes: Sequence[str]) -> Item:
    """Return the *attributes* of a row, as far as the task has them."""
    if row[8] is not None:
        whole = to_item(task_of(row))
        return {name: whole[name] for name in attributes if name in whole}
    id_, queue, state, label, scheduled_at, expires_at, retained_until, due_at, _, payload = row
    known: dict[str, Any] = {
        keys.TASK_ID: {"S": id_},
        keys.QUEUE_STATE: {"S": f"{queue}#{state}#{label}"},
        keys.SCHEDULED_AT: {"N": str(scheduled_at)},
        keys.DUE_AT: {"N": str(due_at)},
    }
    if expires_at is not None:
        known[keys.EXPIRES_AT] = {"N": str(expires_at)}
    if retained_until is not None:
        known[keys.TTL] = SECONDS.encode(instant_of(retained_until))
    if payload is not None:
        known[_PAYLOAD] = {"S": payload}
    return {name: known[name] for name in attributes if name in known}


def _page(items: Sequence[Item], units: float, last: Item | None) -> bytes:
    page = {"Items": items, "ConsumedCapacity": {"CapacityUnits": units}}
    return _encode(page if last is None else page | {"LastEvaluatedKey": last})
