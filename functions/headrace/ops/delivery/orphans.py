"""Objects that no task refers to: left by a crash between two writes, or by a lost deletion.

An object is written before its task, and dropped by the recorder after the task has let go of it.
Between those, anything may end.  What is left over is found by looking at every object that is
older than any such write could be, a page at a time, and asking for its task.  Age alone tells
nothing: a task may wait for a year, and its payload with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.instants import instant_of, micros_of
from headrace.domain.offload import ObjectStore, StoredObject, owner_of
from headrace.domain.task import Task
from headrace.store.base import Record, Store

ORPHAN_AGE: Final = timedelta(days=1)
"""How long an object is left alone: longer than any call, and any lag of the recorder by far."""

ROUND: Final = timedelta(days=1)
"""From the end of one look at all objects to the begin of the next."""

PAGE: Final = 1000
_READ: Final = 100  # tasks asked for at once
_KIND, _NAME = "orphans", "round"


@dataclass(frozen=True, slots=True)
class Orphans:
    """The use case, with what it needs from outside; *objects* is None where there are none."""

    store: Store
    objects: ObjectStore | None
    now: Callable[[], datetime]

    def sweep(self) -> int:
        """Look at the next page of objects, if the round is not over; return how many it dropped.

        It may be done by two at once, and ended anywhere.  Raises Unavailable.
        """
        if self.objects is None:
            return 0
        now = self.now()
        record = self.store.record(_KIND, _NAME)
        after, until = ("", None) if record is None else _place(record)
        if until is not None and now < until <= now + ROUND:
            return 0
        page = self.objects.list(after, PAGE)
        orphans = self._orphans([one for one in page if one.written_at <= now - ORPHAN_AGE])
        self.objects.drop(orphans)
        rest = None if len(page) == PAGE else now + ROUND
        body = {
            "after": page[-1].name if rest is None else "",
            "until": None if rest is None else micros_of(rest),
        }
        version = 1 if record is None else record.version + 1
        self.store.put_record(
            Record(_KIND, _NAME, body, version), replaces=None if record is None else record.version
        )
        return len(orphans)

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


def _place(record: Record) -> tuple[str, datetime | None]:
    """Return behind which object to go on, and until when the round is over."""
    until = record.body["until"]
    return str(record.body["after"]), None if until is None else instant_of(until)
