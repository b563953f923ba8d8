"""Batches: made, counted, ended.  What they are is in ``domain.batch``.

A batch is a control record that is changed by version.  Whoever changes it also makes the
callbacks whose time has come, in the same transaction, with ids made from the batch and the event:
so each is made once, whatever is repeated and wherever a process ends.

Long, because every change goes through that one write, whoever makes it: maker, member, recorder.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headrace.domain import limits, plan
from headrace.domain.batch import (
    BatchDelta,
    BatchEvent,
    Callback,
    Fired,
    FoundMembers,
    TaskBatch,
)
from headrace.domain.change import Change
from headrace.domain.errors import (
    BatchExists,
    BatchFinished,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from headrace.domain.ids import new_task_id
from headrace.domain.limits import AnswerRoom
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.retry import Seconds
from headrace.domain.task import Membership, Task
from headrace.domain.times import micros_of
from headrace.domain.workflow import part_of
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.tasks.batch_names import BatchNames, Uncounted, note
from headrace.ops.tasks.uploads import OffloadedTexts
from headrace.safe_logging import safe_logger
from headrace.store.base import Record
from headrace.store.call_scope import draw_batch_id, visible
from headrace.store.records import batches as batch_records

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_TRIES: Final = 50
_RESULT_BYTES: Final = 512  # of what else an answer says of one

_log: Final = safe_logger(__name__)


@dataclass(frozen=True, slots=True)
class CreatedBatch:
    """A batch, and whether it is new."""

    batch: TaskBatch
    new: bool


class BatchOperations(ServicePart):
    """The use cases of batches, with what they need from outside.

    *uncounted* is what the recorder has seen and still holds, to be shown with what is counted.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.new_id: Callable[[datetime], str] = draw_batch_id
        self.names: BatchNames = BatchNames(service.store)
        self._failure_known: dict[str, int] = {}

    # -- create and show ---------------------------------------------------------------

    def create(
        self,
        on: Mapping[BatchEvent, Callback],
        *,
        batch_id: str | None = None,
        total: int | None = None,
        expires_in_seconds: Seconds | None = None,
        made_for: Sequence[str] = (),
    ) -> CreatedBatch:
        """Make a batch; the same again answers with the one that is there.

        Before its members are seen, only who is for all the queues of *made_for* may know of it.

        Raises BatchExists for another one of this id, and InvalidRequest naming the callback whose
        queue, or whose batch, is not there.
        """
        now = self.now()
        digest = _digest(batch_records.body_text(total, on, expires_in_seconds))
        given = on
        found = None if batch_id is None else self._find(batch_id)
        if found is None:
            on = self._checked(on)
        while True:
            if found is not None and not visible_batch(found):
                raise BatchExists(f"batch {found.id} exists")
            if found is not None and found.digest != digest:
                raise BatchExists(f"batch {found.id} exists, and was created otherwise")
            if found is not None:
                uncounted = () if found.finished_at else self.service.counters.uncounted()
                return CreatedBatch(self._shown(found, uncounted), new=False)
            length = expires_in_seconds or limits.BATCH_EXPIRES_DEFAULT
            new_id = batch_id or self.new_id(now)
            batch = TaskBatch(
                new_id,
                total,
                digest,
                tuple(event for event in BatchEvent if event in on),
                created_at=now,
                expires_at=now + timedelta(seconds=length),
                queues=tuple(dict.fromkeys(callback.queue for callback in on.values())),
                part_of=part_of(new_id, given.values(), self._whole_of),
                made_for=tuple(made_for),
                generation=f"{micros_of(now):x}",
            )
            made = self._put_new(batch, on)
            if made is not None:
                return CreatedBatch(made, new=True)
            found = self._find(batch.id)

    def close(self, batch_id: str, total: int) -> TaskBatch:
        """Say how many members a batch has; until it has ended that may be said again.

        Raises NotFound, and BatchFinished where it ended with another total.
        """

        def closed(batch: TaskBatch) -> TaskBatch:
            if batch.finished_at is not None and batch.total != total:
                raise BatchFinished(f"batch {batch_id} has ended with a total of {batch.total}")
            return batch if batch.total == total else replace(batch, total=total)

        batch = self.change(batch_id, closed)
        if batch is None:
            raise _missing(batch_id)
        return batch

    def get(self, batch_id: str) -> TaskBatch:
        """Return a batch, as last seen.  Raises NotFound."""
        batch = self._find(batch_id)
        if batch is None:
            raise _missing(batch_id)
        return self._shown(batch, () if batch.finished_at else self.service.counters.uncounted())

    def list(
        self,
        *,
        prefix: str = "",
        parts: bool = True,
        where: ListQuery[TaskBatch] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[TaskBatch]:
        """Return a page of the batches that the caller may see, by id; generated ids are by age.

        Without *parts*, the parts of a workflow are listed only if *prefix* names the workflow.
        Raises InvalidRequest for a forged cursor.
        """
        now = self.now()
        uncounted: list[Uncounted] = []

        def shown(record: Record) -> TaskBatch | None:
            batch = batch_records.from_record(record)
            inside = batch.part_of is not None and not prefix.startswith(f"{batch.part_of}-")
            if batch.expires_at <= now or (inside and not parts):
                return None
            if not batch.finished_at and not uncounted:
                uncounted.extend(self.service.counters.uncounted())
            batch = self._shown(batch, () if batch.finished_at else uncounted)
            return batch if visible_batch(batch) and where.means(batch, now) else None

        kind = "batches" if parts else "whole batches"
        return seek(
            self.store,
            batch_records.KIND,
            shown,
            self.service.cursors,
            f"{kind} {prefix} {where.text}",
            limit=limit,
            cursor=cursor,
            prefix=prefix,
            now=self.now,
        )

    def delete(self, batch_id: str) -> None:
        """Forget a batch and its callbacks; its members stay.  Raises NotFound."""
        batch = self.get(batch_id)
        self.store.drop_record(batch_records.KIND, batch_id)
        for event in batch.on:
            name = batch_records.callback_name(batch, event)
            self.store.drop_record(batch_records.CALLBACKS, name)
        self.names.forget(batch)

    def results(self, batch_id: str) -> Sequence[Task]:
        """Return the first existing members, in the order they were counted, without payloads.

        Members that the caller may not see are left out: a member may have moved to another queue.
        Raises NotFound for the batch.
        """
        return [task for _, task in self._members(batch_id, 0)]

    def results_page(self, batch_id: str, texts: OffloadedTexts, cursor: str | None) -> Found[Task]:
        """Return as many of results() as one answer holds, each with its result from *texts*.

        Raises NotFound for a batch that is not there, InvalidRequest for a forged cursor.
        """
        scope = f"results {batch_id}"
        shown, room = list[Task](), AnswerRoom()
        for place, member in self._members(
            batch_id, self.service.cursors.read(scope, cursor) if cursor else 0
        ):
            (task,) = texts.filled([member], ("result",))
            if not room.takes(task.result or "", besides=_RESULT_BYTES) and shown:
                return Found(tuple(shown), self.service.cursors.write(scope, place))
            shown.append(task)
        return Found(tuple(shown), None)

    def _members(self, batch_id: str, first: int) -> Iterator[tuple[int, Task]]:
        """Yield the members of results() from the place *first* on, each with its place."""
        ids = self.names.members(self.get(batch_id))[first:]
        found, now = self.store.read(ids, payload=False), self.now()
        for place, id_ in enumerate(ids, first):
            task = found.get(id_)
            if task is not None and not task.hidden(now) and visible(task.queue):
                yield place, task

    # -- for new members ------------------------------------------------------------

    def joining(
        self, wanted: Iterable[str], *, parent: Task | None = None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the keys of the batches *wanted*, and for closed ones the reason.

        It costs one read for each.  A member may create members in its own batch as long as that
        exists.
        """
        own = parent.batch_keys if parent is not None else ()
        keys: dict[str, str] = {}
        refused: dict[str, str] = {}
        for batch_id in dict.fromkeys(wanted):
            batch = self._find(batch_id)
            if batch is None or not visible_batch(batch):
                refused[batch_id] = f"there is no batch {batch_id}"
            elif batch.cancelled_at is not None:
                refused[batch_id] = f"batch {batch_id} was cancelled"
            elif batch.finished_at is not None and batch.key not in own:
                refused[batch_id] = f"batch {batch_id} has ended"
            else:
                keys[batch_id] = batch.key
        return keys, refused

    # -- for the recorder ----------------------------------------------------------------------

    def count(
        self, key: str, delta: BatchDelta, *, buffer: str, version: int, at: datetime
    ) -> None:
        """Count *delta* of a *version* of a recorder's *buffer*; a repetition changes nothing.

        A delta of a batch that was removed is dropped, even if another batch has its id.  Raises
        Unavailable after too many conflicts.
        """

        def counted(batch: TaskBatch) -> TaskBatch | None:
            if batch.key != key:
                return batch
            changed = batch.counted(delta, buffer=buffer, version=version, at=at)
            return batch if changed is batch else self.names.fitting(changed, delta)

        batch = self.change(_id_of(key), counted)
        if batch is None or batch.key != key or batch.failure_known:
            note(self._failure_known, key, 1)

    def remember(self, key: str, members: Sequence[str]) -> None:
        """Add *members* to the names of a batch while it has room; names are kept for good.

        Raises Unavailable after too many conflicts.
        """
        for _ in range(_TRIES):
            batch = self._find(_id_of(key))
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
            return batch.recounted(found, until)

        batch = self.change(batch_id, recounted)
        if batch is None:
            raise _missing(batch_id)
        return batch

    def change(
        self, batch_id: str, change: Callable[[TaskBatch], TaskBatch | None]
    ) -> TaskBatch | None:
        """Apply *change* and make the callbacks that fall due; None if there is no batch.

        If *change* returns None or another write was faster, it is applied again.  Raises
        Unavailable after too many conflicts, and as *change*.
        """
        for _ in range(_TRIES):
            batch = self._find(batch_id)
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

    # ------------------------------------------------------------------------------------------

    def _find(self, batch_id: str) -> TaskBatch | None:
        if not limits.TASK_ID_RE.fullmatch(batch_id):
            return None
        record = self.store.record(batch_records.KIND, batch_id)
        batch = None if record is None else batch_records.from_record(record)
        return batch if batch is not None and batch.expires_at > self.now() else None

    def _shown(self, batch: TaskBatch, uncounted: Iterable[Uncounted]) -> TaskBatch:
        """Return *batch* with what of it is *uncounted*, and with all the dead that it names."""
        for one in uncounted:
            if batch.key in one.deltas:
                delta = BatchDelta.of(one.deltas[batch.key])
                batch = batch.counted(delta, buffer=one.buffer, version=one.version, at=one.at)
        return replace(batch, dead_ids=self.names.dead(batch)) if batch.dead_apart else batch

    def _checked(self, on: Mapping[BatchEvent, Callback]) -> dict[BatchEvent, Callback]:
        """Return callbacks with the keys of the batches that they join."""
        checked: dict[BatchEvent, Callback] = {}
        for event, callback in on.items():
            try:
                queue = self.service.queues.cached(callback.queue)
            except NotFound as missing:
                raise InvalidRequest.of(f"on.{event}.queue", f"is missing: {missing}") from None
            if fault := queue.priority_fault(callback.new.priority):
                raise InvalidRequest.of(f"on.{event}.priority", fault)
            if fault := queue.group_fault(callback.new.group_key):
                raise InvalidRequest.of(f"on.{event}.group_key", fault)
            if queue.strict:
                raise InvalidRequest.of(f"on.{event}.queue", "is strict, where callbacks have none")
            keys, wrong = self.joining(callback.new.batches)
            for place, batch_id in enumerate(callback.new.batches):
                if batch_id in wrong:
                    field_ = f"on.{event}.batches[{place}]"
                    raise InvalidRequest.of(field_, f"takes no members: {wrong[batch_id]}")
            joined = replace(callback.new, batches=tuple(keys[one] for one in callback.new.batches))
            checked[event] = replace(callback, new=joined)
        return checked

    def _whole_of(self, batch_id: str) -> str | None:
        batch = self._find(batch_id)
        return None if batch is None else batch.part_of

    def _put_new(self, batch: TaskBatch, on: Mapping[BatchEvent, Callback]) -> TaskBatch | None:
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
        batch = batch.looked_at(now)
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
        return replace(birth, insert=birth.insert and replace(birth.insert, batch=end))

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
        there = {**self.store.read(ids), **self.store.spent(ids)} if ids else {}
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
            insert = birth.insert and replace(birth.insert, id=task_id)
            free[event] = replace(birth, task_id=task_id, insert=insert)
        return free


def visible_batch(batch: TaskBatch) -> bool:
    """Return whether the caller may see *batch*: all of its queues."""
    return all(map(visible, batch.known_by))


def _id_of(key: str) -> str:
    return Membership(key).batch_id


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _missing(batch_id: str) -> NotFound:
    return NotFound(f"there is no batch {batch_id[:128]}")
