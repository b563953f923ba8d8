"""The job that drops objects of no task: left by a crash between two writes, or a lost deletion.

An object is written before its task, and dropped by the recorder after the task has let go of it.
A crash between these leaves an orphan.  Once a day the job reads every object that is older than
any such write could be, and its task.  Age alone tells nothing: a task may wait for a year, and its
payload with it.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.domain.offload import StoredObject, owner_of
from headrace.domain.task import Task
from headrace.ops.shared.service_part import ServicePart
from headrace.store.records.jobs import Job, JobKind

ORPHAN_AGE: Final = timedelta(days=1)
"""How long an object is left alone: longer than any call, and any lag of the recorder by far."""

ROUND: Final = timedelta(days=1)
"""From the end of one visit of all objects to the begin of the next."""

PAGE: Final = 1000
_READ: Final = 100  # tasks asked for at once

EVERY_OBJECT: Final = Job(
    name="orphans", kind=JobKind.DROP_ORPHANS, queue="", as_of=datetime.fromtimestamp(0, UTC)
)
"""The job, which never ends."""


class Orphans(ServicePart):
    """Visits all objects and drops those of no task; *objects* is None where there are none."""

    def visit(self, job: Job) -> Iterator[tuple[Any, int]]:
        """Drop orphans page by page; see JobVisitor."""
        after = job.position or ""
        while self.service.objects is not None:
            page = self.service.objects.list(after, PAGE)
            old = [one for one in page if one.written_at <= self.now() - ORPHAN_AGE]
            orphans = self._orphans(old)
            if orphans:
                self.service.objects.drop(orphans)
            if len(page) < PAGE:
                yield "", len(orphans)
                return
            after = page[-1].name
            yield after, len(orphans)

    def next_round(self, _job: Job) -> datetime | None:
        """Return when to visit all objects again; see JobVisitor."""
        return None if self.service.objects is None else self.now() + ROUND

    def _orphans(self, old: Sequence[StoredObject]) -> list[str]:
        orphans: list[str] = []
        for start in range(0, len(old), _READ):
            some = [one.name for one in old[start : start + _READ]]
            owners = {owner_of(name) for name in some}
            found = self.store.read(owners, payload=False)
            gone = owners - found.keys()
            hidden = self.store.spent(gone) if gone else {}  # an undo may bring it back
            used = {name for task in (*found.values(), *hidden.values()) for name in _names(task)}
            orphans += [name for name in some if name not in used]
        return orphans


def _names(task: Task) -> set[str]:
    return {one.name for one in task.offloaded.values()}
