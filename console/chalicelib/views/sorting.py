"""Heads of a task list that sort it: by time always, by the rest where the whole list is there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ..parts import Heading
from . import columns
from .columns import Column, Columns, head
from .task_rows import TaskRow

TIME: Final = "time"
_COLUMNS: Final[Columns[TaskRow]] = {
    "task": Column("Task", lambda row: (row.call.function if row.call else "", row.id)),
    "state": Column(
        "State", lambda row: (list(type(row.status)).index(row.status), row.dead_reason)
    ),
    "priority": Column("Priority", lambda row: row.priority),
    TIME: Column("", lambda row: row.at),
    "attempts": columns.numbers("Attempts", lambda row: row.attempts),
    "worker": Column("Worker", lambda row: row.worker),
    "error": Column("Latest error, tags", lambda row: row.error, wide=True),
}


def ordered(rows: Sequence[TaskRow], sort: str) -> tuple[TaskRow, ...]:
    """Return all the tasks of a list by the column *sort*, with a minus the greatest first."""
    return columns.ordered(_COLUMNS, rows, sort)


def headings(
    time: str,
    sort: str,
    *,
    order: str,
    whole: bool,
    ranked: bool,
    url: Callable[[str, str], str],
) -> Iterator[Heading]:
    """Yield the heads: *time* names that of the states' own time, by which *order* is now.

    *order* is asc or desc, and empty where it is not that time's.  *sort* is the column that the
    tasks are sorted by where the list is *whole*; *url* leads to a column and an order.
    """
    sorted_by = sort if whole and sort.removeprefix("-") in _COLUMNS else ""
    for name, column in _COLUMNS.items():
        if name == "priority" and not ranked:
            continue
        if name == TIME:
            now = sorted_by if sorted_by.removeprefix("-") == TIME else ""
            if not sorted_by and order:
                now = f"-{TIME}" if order == "desc" else TIME
            shown = head(TIME, replace(column, text=time), now, None)
            falls = now.startswith("-") or (not now and order == "desc")
            yield replace(shown, url=url("", "asc" if falls else "desc"))
        else:
            yield head(name, column, sorted_by, (lambda to: url(to, "")) if whole else None)
