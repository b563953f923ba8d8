"""Search all queues by id or indexed value.

A search that would have to read every task is left to the list of one queue, which shows its
progress.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.domain.access import Permission, Principal, as_seen_by
from headrace.domain.filters import TaskFilter
from headrace.domain.task import Task
from headrace.ops.shared.service_part import ServicePart

QUEUES: Final = 100
"""The most queues of one search."""

_READ: Final = 50
_LOOKS_FOR: Final = timedelta(seconds=2)
_LOOKS_AT: Final = 20_000  # entries of a queue, where ids have no order


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """What a search found; ``more`` where there is more of it.

    ``left`` are queues that were not looked through, for it would take a look at each task.
    """

    tasks: tuple[Task, ...]
    more: bool
    left: tuple[str, ...] = ()


class Search(ServicePart):
    """Searches all queues."""

    def across(self, by: Principal, where: TaskFilter, *, limit: int = 50) -> FoundTasks:
        """Return up to *limit* tasks of *by*'s queues that *where* means.

        Raises InvalidRequest for a word that is no state.
        """
        by.require(Permission.LIST)
        where = self.service.versions.resolved(where)
        ids = self.service.inspect.known_ids(where)
        if ids is not None:
            found = list(self._of_ids(by, where, ids, limit))
            return FoundTasks(tuple(found[:limit]), len(found) > limit)
        page = self.service.queues.list(limit=QUEUES)
        until = self.now() + _LOOKS_FOR
        tasks: list[Task] = []
        left: list[str] = []
        more = page.cursor is not None
        for queue in page.shown:
            if self.now() > until or not (
                where.id_prefix or self.service.inspect.knows(queue, where)
            ):
                left.append(queue.name)
                continue
            if len(tasks) > limit:  # there is more than is shown, whatever the rest has
                continue
            listed = self.service.inspect.list(queue.name, where, limit=limit, look_at=_LOOKS_AT)
            tasks += [as_seen_by(by, task) for task in listed.tasks]
            if where.id_prefix and listed.cursor is not None and len(listed.tasks) < limit:
                left.append(queue.name)
            else:
                more = more or listed.cursor is not None
        return FoundTasks(tuple(tasks[:limit]), more or len(tasks) > limit, tuple(left))

    def _of_ids(
        self, by: Principal, where: TaskFilter, ids: Sequence[str], limit: int
    ) -> Iterator[Task]:
        """Yield the tasks of *ids* that are meant, one more than *limit* at most."""
        spans, now, number = where.spans(self.now()), self.now(), 0
        for start in range(0, len(ids), _READ):
            some = ids[start : start + _READ]
            found = self.service.inspect.read(some, where)
            for task_id in some:
                task = found.get(task_id)
                if task is None or task.is_hidden(now) or not by.covers(task.queue):
                    continue
                if where.matches(task) and any(span.holds(task) for span in spans):
                    number += 1
                    yield as_seen_by(by, task)
                if number > limit:
                    return
