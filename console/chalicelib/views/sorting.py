"""Heads of a task list that sort it: by time always, by the rest where the whole list is there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..parts import Heading
from .task_rows import TaskRow

TIME: Final = "time"
_COLUMNS: Final[Mapping[str, tuple[str, Callable[[TaskRow], Any]]]] = {
    "task": ("Task", lambda row: (row.call.function if row.call else "", row.id)),
    "state": ("State", lambda row: (list(type(row.status)).index(row.status), row.dead_reason)),
    "priority": ("Priority", lambda row: row.priority),
    TIME: ("", lambda row: row.at),
    "attempts": ("Attempts", lambda row: row.attempts),
    "worker": ("Worker", lambda row: row.worker),
    "error": ("Latest error, tags", lambda row: row.error),
}
_OF_WHOLE: Final = "A list that is longer than a page has the order of its time."


def ordered(rows: Sequence[TaskRow], sort: str) -> tuple[TaskRow, ...]:
    """Return all the tasks of a list by the column *sort*, with a minus the greatest first."""
    column = _COLUMNS.get(sort.removeprefix("-"))
    if column is None:
        return tuple(rows)
    return tuple(sorted(rows, key=column[1], reverse=sort.startswith("-")))


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
    by = sort.removeprefix("-") if whole else ""
    by = by if by in _COLUMNS else ""
    for name, (text, _) in _COLUMNS.items():
        if name == "priority" and not ranked:
            continue
        now = ""
        if by == name:
            now = "descending" if sort.startswith("-") else "ascending"
        elif name == TIME and not by and order:
            now = "descending" if order == "desc" else "ascending"
        number, wide = name == "attempts", name == "error"
        if name == TIME:
            other = "asc" if now == "descending" or (not now and order == "desc") else "desc"
            yield Heading(time, url("", other), now, number=False)
        elif whole:
            first, then = (f"-{name}", name) if number else (name, f"-{name}")
            to = then if now == ("descending" if number else "ascending") else first
            yield Heading(text, url(to, ""), now, number=number, wide=wide)
        else:
            yield Heading(text, "", title=_OF_WHOLE, number=number, wide=wide)
