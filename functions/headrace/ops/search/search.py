"""Search all queues of a caller, one after the other, in short steps.

A step reads at most a few thousand tasks, so its memory does not depend on the size of a queue, and
it ends long before API Gateway gives up.  The cursor says in which queue the next step continues.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from headrace.domain.access import Permission, Principal, as_seen_by
from headrace.domain.filters import TaskFilter
from headrace.domain.task import Task
from headrace.ops.shared.service_part import ServicePart

_QUEUES: Final = 100  # read at once
_COUNTED: Final = 1_000  # queues; with more of them the number is not known
_READ: Final = 50
_LOOKS_FOR: Final = timedelta(milliseconds=300)
_LOOKS_AT: Final = 2_000  # tasks of a queue in one step
_ENTRIES: Final = 20_000  # the same, where only ids are compared


@dataclass(frozen=True, slots=True)
class SearchStep:
    """The tasks that one step found, and the numbers of queues done, tasks read and tasks found.

    ``queues`` is None if the number is not known.  Without a ``cursor`` the search is over; ids
    that are known are found in one step, which shows only the first of them.
    """

    tasks: tuple[Task, ...]
    cursor: str | None = None
    done: int = 0
    queues: int | None = 0
    looked_at: int = 0
    found: int = 0


class Search(ServicePart):
    """Searches all queues."""

    def step(
        self, by: Principal, where: TaskFilter, *, limit: int = 50, cursor: str | None = None
    ) -> SearchStep:
        """Return up to *limit* more tasks of *by*'s queues that match *where*.

        Raises InvalidRequest for a word that is no state, and for a forged cursor.
        """
        by.require(Permission.LIST)
        where = self.service.versions.resolved(where)
        ids = self.service.inspect.known_ids(where)
        if ids is not None:
            known = tuple(self._of_ids(by, where, ids))
            return SearchStep(known[:limit], found=len(known))
        scope = f"search {sorted(by.patterns)} {where}"
        first: list[Any] = [None, "", None, 0, self._number(), 0, 0]
        state = self.service.cursors.read(scope, cursor) if cursor else first
        page, name, inner, done, queues, looked_at, found = state
        until = self.now() + _LOOKS_FOR
        look_at = _LOOKS_AT if where.id_prefix is None else _ENTRIES
        tasks: list[Task] = []
        after: str | None = None
        for queue, of_page in self._queues(page, name):
            room = limit - len(tasks)
            if room and self.now() <= until:
                listed = self.service.inspect.list(
                    queue,
                    where,
                    limit=room,
                    cursor=inner,
                    payload=by.may(Permission.DETAILS),
                    look_at=look_at,
                    fetch=False,
                )
                inner = listed.cursor
                tasks += [as_seen_by(by, task) for task in listed.tasks]
                looked_at, found = looked_at + listed.looked_at, found + len(listed.tasks)
                if inner is None:
                    done += 1
                    continue
            state = [of_page, queue, inner, done, queues, looked_at, found]
            after = self.service.cursors.write(scope, state)
            break
        return SearchStep(tuple(tasks), after, done, queues, looked_at, found)

    def _queues(self, cursor: str | None, name: str) -> Iterator[tuple[str, str | None]]:
        """Yield the names of the queues from *name* on, each with the cursor of its page."""
        while True:
            page = self.service.queues.list(limit=_QUEUES, cursor=cursor)
            for queue in page.shown:
                if queue.name >= name:
                    yield queue.name, cursor
            if page.cursor is None:
                return
            cursor = page.cursor

    def _number(self) -> int | None:
        number, cursor = 0, None
        while number < _COUNTED:
            page = self.service.queues.list(limit=_QUEUES, cursor=cursor)
            number, cursor = number + len(page.shown), page.cursor
            if cursor is None:
                return number
        return None

    def _of_ids(self, by: Principal, where: TaskFilter, ids: Sequence[str]) -> Iterator[Task]:
        """Yield the tasks of *ids* that match."""
        spans, now = where.spans(self.now()), self.now()
        for start in range(0, len(ids), _READ):
            some = ids[start : start + _READ]
            found = self.service.inspect.read(some, where)
            for task_id in some:
                task = found.get(task_id)
                if task is None or task.is_hidden(now) or not by.covers(task.queue):
                    continue
                if where.matches(task) and any(span.holds(task) for span in spans):
                    yield as_seen_by(by, task)
