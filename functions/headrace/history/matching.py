"""Updates the index of values from the store's log of writes.

A task enters the index when it enters a queue that has indexed fields, and again each time it is
enqueued there; it leaves the index when it leaves the queue.  A rebuild of the index reads the
tasks of all states, waiting tasks first (``ops.delivery.indexing``).  It misses only tasks that are
enqueued again during the rebuild, and these are written here.

Queues without indexed fields cost nothing.  The settings are read twice a minute.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.domain.indexing import Match, needs_payload, terms_of
from headrace.domain.task import State, Task
from headrace.domain.transitions import TaskWrite, spot_of
from headrace.ops.shared.service_part import ServicePart
from headrace.store.records.indexes import every_index

if TYPE_CHECKING:
    from headrace.runtime.service import Service


FRESH: Final = timedelta(seconds=30)
"""The largest age of the cached settings."""

_READ: Final = 50  # payloads in one call


class _Move(NamedTuple):
    """A task that entered the index of a queue (``there``), or left it."""

    task: Task
    there: bool


class Matching(ServicePart):
    """Updates the index."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._fields: Mapping[str, tuple[str, ...]] = {}
        self._read_at: datetime | None = None

    def write(self, writes: Sequence[TaskWrite]) -> None:
        """Update the index with *writes*; repeated writes change nothing.  Raises Unavailable."""
        fields = self._known()
        if not fields:
            return
        moves: dict[tuple[str, str], _Move] = {}  # the last one counts
        for write in writes:
            moves.update(_moves(write, fields))
        if not moves:
            return
        payloads = self._payloads(moves, fields)
        entered: list[Match] = []
        left: list[Match] = []
        for (queue, task_id), move in moves.items():
            payload = payloads.get(task_id)
            terms = terms_of(fields[queue], move.task.tags, payload)
            matches = [Match(queue, term, task_id) for term in terms]
            if move.there:
                entered += matches
            else:
                left += matches or [Match(queue, "", task_id)]
        self.store.note_matches(entered, left)

    def _known(self) -> Mapping[str, tuple[str, ...]]:
        now = self.now()
        if self._read_at is None or not timedelta() <= now - self._read_at < FRESH:
            found = every_index(self.store)
            self._fields = {name: one.fields for name, one in found.items() if one.fields}
            self._read_at = now
        return self._fields

    def _payloads(
        self, moves: Mapping[tuple[str, str], _Move], fields: Mapping[str, tuple[str, ...]]
    ) -> Mapping[str, str | None]:
        """Return the payloads that are needed and still exist, by task id."""
        found: dict[str, str | None] = {}
        asked: list[str] = []
        for (queue, task_id), move in moves.items():
            if not needs_payload(fields[queue]):
                continue
            found[task_id] = move.task.payload
            if found[task_id] is None and move.there:
                asked.append(task_id)
            elif found[task_id] is None and move.task.offloaded:
                (whole,) = self.service.texts.filled([move.task], ("payload",))
                found[task_id] = whole.payload
        for start in range(0, len(asked), _READ):
            tasks = self.store.read(asked[start : start + _READ])
            for task in self.service.texts.filled([*tasks.values()], ("payload",)):
                found[task.id] = task.payload
        return found


def _moves(
    write: TaskWrite, fields: Mapping[str, tuple[str, ...]]
) -> Mapping[tuple[str, str], _Move]:
    """Return how *write* changes the indexes of the queues that have *fields*."""
    before, after = write.before, write.after
    left, entered = spot_of(before), spot_of(after)
    found: dict[tuple[str, str], _Move] = {}
    goes = left is not None and (entered is None or entered[0] != left[0])
    if before is not None and left is not None and goes and left[0] in fields:
        found[left[0], before.id] = _Move(before, there=False)
    if after is not None and entered is not None and entered[0] in fields:
        comes = left is None or left[0] != entered[0]
        if comes or (entered[1] is State.ENQUEUED and _comes_to_wait(before, after)):
            found[entered[0], after.id] = _Move(after, there=True)
    return found


def _comes_to_wait(before: Task | None, after: Task) -> bool:
    if before is None or before.remains or before.state is not State.ENQUEUED:
        return True
    return before.scheduled_at != after.scheduled_at or before.place.label != after.place.label
