"""Writes of batches: their callbacks, their numbers, and the names of their members.

A batch is a control record that is changed by version.  A write also makes the callbacks that fall
due, in the same transaction, with ids made from the batch and the event.  So each callback is made
once, whatever is repeated and wherever a process ends.

The record keeps the latest names of members as long as they do not raise the cost of its write; see
``store.records.batches``.  After that they move to separate records: members in chunks, dead
members in one.  A move writes these first, so that a crash leaves a name in two places and loses
none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from headrace.domain import limits, plan
from headrace.domain.batch import (
    DEAD_IDS,
    RESULTS,
    BatchDelta,
    BatchEvent,
    Callback,
    Fired,
    FoundMembers,
    TaskBatch,
)
from headrace.domain.change import Change
from headrace.domain.errors import (
    NotFound,
    Unavailable,
)
from headrace.domain.ids import new_task_id
from headrace.domain.task import Membership
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger
from headrace.store.base import Record, Store
from headrace.store.records import batches as batch_records

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_TRIES: Final = 50
_log: Final = safe_logger(__name__)
_KNOWN: Final = 10_000  # batches of which something is remembered between calls


class Uncounted(NamedTuple):
    """What a *version* of a *buffer* of the recorder holds of batches, by their ids."""

    buffer: str
    version: int
    at: datetime
    deltas: Mapping[str, Any]  # as BatchDelta.body() wrote them


@dataclass(slots=True, eq=False, repr=False)
class BatchNames:
    """Keeps and finds the names of members."""

    store: Store
    _apart: dict[str, int] = field(default_factory=dict)  # members in chunks, as last seen
    _dead: dict[str, int] = field(default_factory=dict)  # the dead that are named

    def full(self, key: str) -> bool:
        """Return whether a batch is known to have the most names of members."""
        return self._apart.get(key, 0) >= RESULTS

    def dead_full(self, key: str) -> bool:
        """Return whether a batch is known to have the most names of dead members."""
        return self._dead.get(key, 0) >= DEAD_IDS

    def members(self, batch: TaskBatch) -> list[str]:
        """Return the first members of *batch* in the order they were counted."""
        return _first(RESULTS, self._in_chunks(self._chunks(batch.key)), batch.members)

    def dead(self, batch: TaskBatch) -> tuple[str, ...]:
        """Return the dead that *batch* names."""
        apart = self._dead_record(batch) if batch.dead_apart else None
        return tuple(_first(DEAD_IDS, batch_records.members_of(apart), batch.dead_ids))

    def add(self, batch: TaskBatch, names: Iterable[str]) -> bool:
        """Add *names* to the chunks of *batch*; return whether no other write conflicted."""
        chunks = self._chunks(batch.key)
        known = self._in_chunks(chunks)
        fresh = _first(RESULTS, known, names)[len(known) :]
        if fresh:
            number, version, record = len(chunks), 0, None
            if chunks:
                number, version = len(chunks) - 1, chunks[-1].version
                both = [*batch_records.members_of(chunks[-1]), *fresh]
                record = _chunk(batch, number, both, version + 1)
            if record is None or not batch_records.is_small(record):
                number, version = len(chunks), 0
                record = _chunk(batch, number, fresh, 1)
            if not self.store.put_record(record, replaces=version or None):
                return False
        note(self._apart, batch.key, len(known) + len(fresh))
        return True

    def fitting(self, batch: TaskBatch, delta: BatchDelta) -> TaskBatch | None:
        """Return *batch*, to which *delta* was added, without names that make its write dearer.

        They are kept apart then.  None where somebody was in the way.
        """
        if batch.dead_apart and delta.revived:
            apart = batch_records.members_of(self._dead_record(batch))
            kept = [task_id for task_id in apart if task_id not in delta.revived]
            if len(kept) < len(apart) and not self._write_dead(batch, kept):
                return None
            batch = replace(batch, dead_apart=len(kept))
        if not batch_records.fits(batch):
            if batch.members and not self.add(batch, batch.members):
                return None
            dead = self.dead(batch)
            if batch.dead_ids and not self._write_dead(batch, dead):
                return None
            batch = replace(batch, members=(), dead_ids=(), dead_apart=len(dead))
        note(self._dead, batch.key, batch.dead_apart + len(batch.dead_ids))
        named = self._apart.get(batch.key, 0)
        # A name may be in both places, so the sum alone says only that it is time to look.
        if named < RESULTS <= named + len(batch.members) and len(self.members(batch)) == RESULTS:
            note(self._apart, batch.key, RESULTS)
        return batch

    def forget(self, batch: TaskBatch) -> None:
        """Drop what is kept apart of *batch*."""
        names = [chunk.name for chunk in self._chunks(batch.key)]
        names += [batch_records.dead_name(batch.key)] if batch.dead_apart else []
        for name in names:
            self.store.drop_record(batch_records.MEMBERS, name)
        self._apart.pop(batch.key, None)
        self._dead.pop(batch.key, None)

    def _chunks(self, key: str) -> Sequence[Record]:
        """Return the records of the first members, in their order."""
        found: list[Record] = []
        while len(self._in_chunks(found)) < RESULTS:
            name = batch_records.chunk_name(key, len(found))
            chunk = self.store.record(batch_records.MEMBERS, name)
            if chunk is None:
                break
            found.append(chunk)
        return found

    def _in_chunks(self, chunks: Iterable[Record]) -> list[str]:
        return _first(RESULTS, *map(batch_records.members_of, chunks))

    def _dead_record(self, batch: TaskBatch) -> Record | None:
        return self.store.record(batch_records.MEMBERS, batch_records.dead_name(batch.key))

    def _write_dead(self, batch: TaskBatch, dead: Sequence[str]) -> bool:
        there = self._dead_record(batch)
        version = 0 if there is None else there.version
        record = batch_records.dead_record(batch, dead, version=version + 1)
        return self.store.put_record(record, replaces=version or None)


def _chunk(batch: TaskBatch, number: int, members: Sequence[str], version: int) -> Record:
    until = batch.expires_at
    return batch_records.members_record(batch.key, number, members, version=version, until=until)


def _first(most: int, *lists: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(one for some in lists for one in some))[:most]


def note(numbers: dict[str, int], key: str, number: int) -> None:
    """Remember *number* of a batch, and forget the oldest if there are too many."""
    numbers[key] = number
    if len(numbers) > _KNOWN:
        numbers.pop(next(iter(numbers)))


class BatchWrites(ServicePart):
    """Writes batches with their callbacks, and counts their members for the recorder."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.names = BatchNames(service.store)
        self._failure_known: dict[str, int] = {}

    def find(self, batch_id: str) -> TaskBatch | None:
        if not limits.TASK_ID_RE.fullmatch(batch_id):
            return None
        record = self.store.record(batch_records.KIND, batch_id)
        batch = None if record is None else batch_records.from_record(record)
        return batch if batch is not None and batch.expires_at > self.now() else None

    def count(
        self, key: str, delta: BatchDelta, *, buffer: str, version: int, at: datetime
    ) -> None:
        """Count *delta* of a *version* of a recorder's *buffer*; a repetition changes nothing.

        A delta of a batch that was removed is dropped, even if another batch has its id.  A mark
        names the batch while it is stuck.  Raises Unavailable after too many conflicts.
        """
        was_stuck = False

        def counted(batch: TaskBatch) -> TaskBatch | None:
            nonlocal was_stuck
            was_stuck = batch.stuck
            if batch.key != key:
                return batch
            changed = batch.with_delta(delta, buffer=buffer, version=version, at=at)
            return batch if changed is batch else self.names.fitting(changed, delta)

        batch = self.change(_id_of(key), counted)
        if batch is not None and batch.stuck:
            mark = Record(batch_records.STALLED, batch.id, {}, expires_at=batch.expires_at)
            self.store.renew_record(mark)
        elif batch is not None and was_stuck:
            self.store.drop_record(batch_records.STALLED, batch.id)
        if batch is None or batch.key != key or batch.failure_known:
            note(self._failure_known, key, 1)

    def remember(self, key: str, members: Sequence[str]) -> None:
        """Add *members* to the names of a batch while it has room; names are kept for good.

        Raises Unavailable after too many conflicts.
        """
        for _ in range(_TRIES):
            batch = self.find(_id_of(key))
            if (
                batch is None
                or batch.key != key
                or self.names.add(batch, [*batch.members, *members])
            ):
                return
        raise Unavailable("too many others count this batch at once")

    def failure_known(self, key: str) -> bool:
        """Return whether a death in the batch is known to make no callback."""
        return key in self._failure_known

    def recount(self, batch_id: str, found: FoundMembers, until: datetime) -> TaskBatch:
        """Make the numbers of a batch those of *found*, as of *until*, if they are all its members.

        Otherwise, and where something later than *until* is counted already, it stays as it is.
        Raises NotFound.
        """

        def recounted(batch: TaskBatch) -> TaskBatch:
            moved = batch.counted_at is not None and batch.counted_at > until
            if (found.direct, found.owed) != (batch.total, 0) or moved:
                return batch
            return batch.with_found(found, until)

        batch = self.change(batch_id, recounted)
        if batch is None:
            raise missing_batch(batch_id)
        return batch

    def change(
        self, batch_id: str, change: Callable[[TaskBatch], TaskBatch | None]
    ) -> TaskBatch | None:
        """Apply *change* and make the callbacks that fall due; None if there is no batch.

        If *change* returns None or another write was faster, it is applied again.  Raises
        Unavailable after too many conflicts, and as *change*.
        """
        for _ in range(_TRIES):
            batch = self.find(batch_id)
            if batch is None:
                return None
            changed = change(batch)
            if changed is None:
                continue
            if changed is batch and not batch.due:
                return batch
            written = self._write(replace(changed, version=batch.version + 1), batch.version)
            if written is not None:
                return written
        raise Unavailable("too many others count this batch at once")

    def create(self, batch: TaskBatch, on: Mapping[BatchEvent, Callback]) -> TaskBatch | None:
        """Write a new batch; None where one of its id is there already."""
        stored = self.store.record(batch_records.KIND, batch.id)
        if stored is not None and batch_records.from_record(stored).expires_at > self.now():
            return None
        for event, callback in on.items():  # before it: what has a batch has its callbacks
            record = batch_records.callback_record(batch, event, callback)
            there = self.store.record(record.kind, record.name)
            version = 0 if there is None else there.version
            record = replace(record, version=version + 1)
            if not self.store.put_record(record, replaces=version or None):
                raise Unavailable("another call creates this batch; try again")
        new = replace(batch, version=1 if stored is None else stored.version + 1)
        return self._write(new, None if stored is None else stored.version)

    def _write(self, batch: TaskBatch, replaces: int | None) -> TaskBatch | None:
        """Write *batch* and the callbacks that are due; None where somebody else was faster."""
        now = self.now()
        batch = batch.finish_if_complete(now)
        births = {event: self._birth(batch, event, now) for event in batch.due}
        births = self._with_free_ids(batch, births, now)
        fired = {
            event: Fired(None if birth is None else birth.task_id, now)
            for event, birth in births.items()
        }
        batch = replace(batch, fired={**batch.fired, **fired})
        new = [birth for birth in births.values() if birth is not None]
        record = batch_records.to_record(batch)
        if new:
            made = self.store.put_records([(record, replaces)], tasks=new)
        else:
            made = self.store.put_record(record, replaces=replaces)
        return batch if made else None

    def _birth(self, batch: TaskBatch, event: BatchEvent, now: datetime) -> Change | None:
        """Plan a callback; None if its queue was deleted."""
        name = batch_records.callback_name(batch, event)
        record = self.store.record(batch_records.CALLBACKS, name)
        if record is None:
            return None
        callback = batch_records.callback_of(record)
        try:
            queue = self.service.queues.cached(callback.queue)
        except NotFound:
            return None
        task_id = self.callback_id(batch, event)
        due_at = callback.new.due_at(now)
        birth = plan.enqueue(
            callback.new, queue, task_id=task_id, due_at=due_at, now=now, token=None
        )
        end = replace(batch.end, relay=callback.relay)
        return structs.replace(
            birth, insert=birth.insert and structs.replace(birth.insert, batch=end)
        )

    def callback_id(self, batch: TaskBatch, event: BatchEvent) -> str:
        """Return the id of the task that a callback made, or would make."""
        fired = batch.fired.get(event)
        made = None if fired is None else fired.task_id
        return made or self.service.derived_ids.task_id(
            batch.created_at, "callback", batch.key, event
        )

    def _with_free_ids(
        self, batch: TaskBatch, births: Mapping[BatchEvent, Change | None], now: datetime
    ) -> dict[BatchEvent, Change | None]:
        """Return *births*, under random ids where another task holds the usual one.

        No callback was made before: the batch is written in one transaction with its callbacks.
        """
        ids = [birth.task_id for birth in births.values() if birth is not None]
        there = {**self.store.read(ids), **self.store.tombstones(ids)} if ids else {}
        free = dict(births)
        for event, birth in births.items():
            if birth is None or birth.task_id not in there:
                continue
            task_id = new_task_id(now)
            _log.error(
                "Another task has the id %s of the callback %s of batch %s."
                " The callback is made under the id %s.",
                birth.task_id,
                event,
                batch.id,
                task_id,
            )
            insert = birth.insert and structs.replace(birth.insert, id=task_id)
            free[event] = structs.replace(birth, task_id=task_id, insert=insert)
        return free


def missing_batch(batch_id: str) -> NotFound:
    return NotFound(f"there is no batch {batch_id[:128]}")


def _id_of(key: str) -> str:
    return Membership(key).batch_id
