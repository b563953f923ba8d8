"""Which tasks a removal names: those that were in its states at the moment it was asked for.

A task shows where it was by its last two states (see ``domain.snapshot``).  That leaves a doubt
only where what waits is to go and what is in flight is not: a task that was delivered and came back
since may have been either.  So such a purge keeps the ids of what was in flight when it was asked
for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.domain.snapshot import LIVE, states_at
from headrace.domain.task import State, Task
from headrace.store.base import Record, Store
from headrace.store.records.removals import Removal

_KIND: Final = "spared"
_MOST: Final = 4_000  # ids that fit a record


@dataclass(frozen=True, slots=True)
class Named:
    """What *removal* names of the tasks as they were *before* a moment.

    *spared* is what was in flight then; None where that is not known: then whatever may have been
    is left alone.
    """

    removal: Removal
    before: datetime
    spared: frozenset[str] | None = None

    def means(self, task: Task) -> bool:
        """Tell whether *task* was one of them, and still is or may be again."""
        states = frozenset(self.removal.states)
        there = task.state in states or task.state is State.INFLIGHT
        if task.queue != self.removal.queue or not there:
            return False
        at = states_at(task, self.before)
        if at <= states:
            return bool(at)
        doubtful = State.ENQUEUED in at & states
        return doubtful and self.spared is not None and task.id not in self.spared


def leaves_doubt(removal: Removal) -> bool:
    """Tell whether it must be known what was in flight when *removal* was asked for."""
    return LIVE.intersection(removal.states) == {State.ENQUEUED}


def keep_spared(store: Store, removal: Removal, in_flight: Iterable[Task]) -> None:
    """Keep which of the tasks *in_flight* were so when *removal* was asked for, if a record can."""
    sure = frozenset({State.INFLIGHT})
    ids = [task.id for task in in_flight if states_at(task, removal.requested_at) == sure]
    if len(ids) <= _MOST:
        store.put_record(Record(_KIND, removal.name, {"ids": ids}), replaces=None)


def spared(store: Store, removal: Removal) -> frozenset[str] | None:
    """Return the ids kept for *removal*."""
    record = store.record(_KIND, removal.name)
    return None if record is None else frozenset(record.body["ids"])


def forget_spared(store: Store, removal: Removal) -> None:
    """Drop what was kept for *removal*."""
    store.drop_record(_KIND, removal.name)
