"""Batches in the recorder: what a write of a task changes in its batches, and recounts of a batch.

No index knows the members of a batch.  So a recount reads every task that has ended, step by step;
what it has found is in the cursor.  The batch takes the numbers only if

- all members are found: as many as the total that no report spawned, and no spawned one missing;
- and each ended ``_SETTLED`` before the recount began.

Every change of these members is then older than ``_MARGIN`` before the beginning, and every other
change is later, whatever clocks, slow writes and the index are late by.  So from then on the batch
skips changes from before that time, which the recorder may get later.  In every other case the
batch stays as it is: a member that is not kept cannot be told from one that never was.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.batch import HASHES, BatchDelta, FoundMembers, TaskBatch, hash_of
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.lifecycle import Action
from headrace.domain.task import Membership, Place, State, Task
from headrace.domain.write import TaskWrite, last_spot_of
from headrace.ops.shared.audit import Audit
from headrace.ops.shared.paging import Cursors
from headrace.ops.tasks.batches import BatchOperations
from headrace.store.base import Position, Store
from headrace.store.call_scope import flat_rate
from headrace.store.records import queues as queue_records

_STATES: Final = (State.SUCCEEDED, State.DEAD)
_SETTLED: Final = timedelta(minutes=10)
_MARGIN: Final = timedelta(minutes=5)
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class RecountedBatch:
    """The progress of a recount of a batch: final without a ``cursor``.

    ``was`` is the batch before.  ``refusal`` says why it stays as it was, None if it is corrected.
    """

    found: FoundMembers
    was: TaskBatch
    refusal: str | None
    cursor: str | None


@dataclass(slots=True, eq=False, repr=False)
class BatchRecounting:
    """The use case, with what it needs from outside; a step counts for *patience* seconds."""

    store: Store
    batches: BatchOperations
    cursors: Cursors
    audit: Audit
    now: Callable[[], datetime]
    patience: float = 5.0

    def step(self, batch_id: str, cursor: str | None = None) -> RecountedBatch:
        """Begin to recount the members of a batch, or continue; the last step corrects the batch.

        Raises NotFound for the batch, and InvalidRequest for a cursor of another list.
        """
        was = self.batches.get(batch_id)
        scope = f"recount batch {was.key}"
        began, found, where, after = self.now(), FoundMembers(), ("", 0), None
        if cursor is not None:
            micros, numbers, queue, number, end = self.cursors.read(scope, cursor)
            dead_ids = tuple(numbers.pop("dead_ids"))
            began, found = instant_of(micros), FoundMembers(**numbers, dead_ids=dead_ids)
            where = (queue, number)
            after = None if end is None else Position(instant_of(end[0]), end[1])
        until = self.now() + timedelta(seconds=self.patience)
        while (place := self._place(*where)) is not None:
            with flat_rate():  # most of them are none of the batch
                page = self.store.entries(place, after=after, limit=_PAGE)
                ids = [entry.task_id for entry in page.entries]
                tasks = self.store.read(ids, payload=False)
            for task_id in ids:
                found = _with_task(found, was.key, tasks.get(task_id), place, began - _SETTLED)
            after = page.last
            where = (place.queue, _number(place) + (after is None))
            if self.now() >= until:
                end = None if after is None else (micros_of(after.scheduled_at), after.task_id)
                state = (micros_of(began), asdict(found), *where, end)
                return RecountedBatch(found, was, None, self.cursors.write(scope, state))
        return self._finish(was, found, began - _MARGIN)

    def _finish(self, was: TaskBatch, found: FoundMembers, until: datetime) -> RecountedBatch:
        with self.audit.action("recount", where={"batch": was.id}) as outcome:
            outcome.matched, outcome.changed = found.created, 0
            now = self.batches.recount(was.id, found, until)
            outcome.changed = int(now.version != was.version)
        return RecountedBatch(found, was, _refusal(now, found), None)

    def _place(self, queue: str, number: int) -> Place | None:
        """Return a place of *queue* by its number, or the first one behind that queue."""
        record = self.store.record(queue_records.KIND, queue) if queue else None
        if record is not None:
            stored = queue_records.from_record(record)
            shard, dead = divmod(number, 2)
            if shard < max(stored.shards_ever, stored.shards_in_use):
                return Place(queue, _STATES[dead], shard)
        records, _ = self.store.records(queue_records.KIND, after=queue, limit=1)
        return Place(records[0].name, _STATES[0], 0) if records else None


def _number(place: Place) -> int:
    """Return the number of a place in its queue: the same, however many shards that has."""
    return 2 * place.shard + _STATES.index(place.state)


def _with_task(
    found: FoundMembers, key: str, task: Task | None, place: Place, settled: datetime
) -> FoundMembers:
    """Return what was *found* with *task*, if it is a member that ended by *settled*."""
    if task is None or task.spent is not None or task.place != place:
        return found
    if task.finished_at is None or task.finished_at > settled:
        return found
    member = next((one for one in task.batches or () if one.batch == key), None)
    if member is None:
        return found
    return found.with_member(task.id, member, dead=task.state is State.DEAD)


def _refusal(batch: TaskBatch, found: FoundMembers) -> str | None:
    """Return why *found* cannot be what *batch* comes to; None if it can, or is that."""
    if batch.total is None:
        return "total is not known: close the batch, then count it again"
    if found.direct != batch.total:
        return (
            f"{found.direct} of the total of {batch.total} members are kept and ended "
            f"ten minutes before: of the others it cannot be told whether and how they ended"
        )
    if found.owed:
        return "members that others spawned are not kept, or did not end ten minutes before"
    if not batch.says(found):
        return "something was counted in the last minutes: count again in ten"
    return None


_LIVE: Final = "live"
_STANDING: Final = {State.SUCCEEDED: "succeeded", State.DEAD: "dead"}


def batch_deltas(write: TaskWrite) -> tuple[tuple[str, BatchDelta], ...]:
    """Return for each batch of the task its id, and by how much *write* changes its numbers.

    A member that is removed after its end stays counted as it ended; only one that is removed
    before is a deleted one.
    """
    was = (write.before and write.before.batches) or ()
    now = (write.after and write.after.batches) or ()
    if not was and not now:  # as with most tasks
        return ()
    before, after = {one.batch: one for one in was}, {one.batch: one for one in now}
    deltas = (
        (batch, _delta(write, before.get(batch), after.get(batch))) for batch in before | after
    )
    return tuple((batch, delta) for batch, delta in deltas if delta is not None)


def _delta(
    write: TaskWrite, before: Membership | None, after: Membership | None
) -> BatchDelta | None:
    was = _standing(write.before) if before is not None else None
    now = _standing(write.after) if after is not None else None
    if write.after is not None and write.after.last_move == Action.UNDELETE:
        # What had ended stayed counted; the others wait again.
        return BatchDelta(live=1, deleted=-1, moves=1) if now == _LIVE else None
    spawned = 0
    if after is not None:
        spawned = (after.spawned - (before.spawned if before is not None else 0)) % HASHES
    ended_before = now is None and was != _LIVE
    if ended_before or (was == now and not spawned):
        return None
    moved = was != now and (now != _LIVE or was is not None)
    delta = BatchDelta(owed=spawned, moves=int(moved or spawned > 0))
    if was is not None:
        setattr(delta, was, getattr(delta, was) - 1)
    name = now or "deleted"
    setattr(delta, name, getattr(delta, name) + 1)
    if was is None and after is not None and write.after is not None:
        _add_birth(delta, write.after, after)
    task = write.after or write.before
    if task is not None and was != now and now == "dead":
        delta.deaths = 1
        delta.died.append(task.id)
    elif task is not None and was != now and was == "dead":
        delta.revived.append(task.id)
    return delta


def _add_birth(delta: BatchDelta, task: Task, member: Membership) -> None:
    delta.created = 1
    spot = last_spot_of(task)
    delta.born, delta.queues = [task.id], [spot[0]] if spot else []
    if member.inherited:
        delta.owed = (delta.owed - hash_of(task.id)) % HASHES
    else:
        delta.direct = 1


def _standing(task: Task | None) -> str | None:
    """Return the name of the number that counts *task*; None for a task that was deleted."""
    spot = last_spot_of(task)
    if spot is None:
        return None
    return _STANDING.get(spot[1], _LIVE)
