"""Batches: create, close, show and delete them, and admit members.  See ``domain.batch``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from msgspec import structs

from headrace.domain import access, limits
from headrace.domain.batch import (
    BatchDelta,
    BatchEvent,
    Callback,
    TaskBatch,
)
from headrace.domain.errors import (
    BatchExists,
    BatchFinished,
    InvalidRequest,
    NotFound,
)
from headrace.domain.limits import AnswerRoom
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.retry import Seconds
from headrace.domain.task import Task
from headrace.domain.times import micros_of
from headrace.domain.workflow import part_of
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.tasks.batch_writes import Uncounted, missing_batch
from headrace.ops.tasks.uploads import OffloadedTexts
from headrace.store.base import Record
from headrace.store.call_scope import draw_batch_id, flat_rate, not_shown, visible
from headrace.store.records import batches as batch_records

_RESULT_BYTES: Final = 512  # of what else an answer says of one


@dataclass(frozen=True, slots=True)
class CreatedBatch:
    """A batch, and whether it is new."""

    batch: TaskBatch
    new: bool


class BatchOperations(ServicePart):
    """Creates, closes, shows and deletes batches, and admits members."""

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
        found = None if batch_id is None else self.service.batch_writes.find(batch_id)
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
            new_id = batch_id or draw_batch_id(now)
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
            made = self.service.batch_writes.create(batch, on)
            if made is not None:
                return CreatedBatch(made, new=True)
            found = self.service.batch_writes.find(batch.id)

    def close(self, batch_id: str, total: int) -> TaskBatch:
        """Say how many members a batch has; until it has ended that may be said again.

        Raises NotFound, and BatchFinished where it ended with another total.
        """

        def closed(batch: TaskBatch) -> TaskBatch:
            if batch.finished_at is not None and batch.total != total:
                raise BatchFinished(f"batch {batch_id} has ended with a total of {batch.total}")
            return batch if batch.total == total else replace(batch, total=total)

        batch = self.service.batch_writes.change(batch_id, closed)
        if batch is None:
            raise missing_batch(batch_id)
        return batch

    def get(self, batch_id: str) -> TaskBatch:
        """Return a batch, as last seen.

        Raises NotFound.  A caller that may not know all queues gets Forbidden for that, and for a
        batch of another queue.
        """
        batch = self.service.batch_writes.find(batch_id)
        if batch is not None:
            uncounted = () if batch.finished_at else self.service.counters.uncounted()
            batch = self._shown(batch, uncounted)
        if batch is None or not visible_batch(batch):
            raise not_shown(missing_batch(batch_id), access.not_all_queues_of("batch", batch_id))
        return batch

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
            return batch if visible_batch(batch) and where.matches(batch, now) else None

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

    def stalled(self, *, limit: int = 50) -> Sequence[TaskBatch]:
        """Return up to *limit* stalled batches that the caller may see."""
        with flat_rate():  # the cost must not disclose batches of others
            records, _ = self.store.records(batch_records.STALLED, limit=limit)
            found = [self.service.batch_writes.find(record.name) for record in records]
        uncounted = list(self.service.counters.uncounted()) if any(found) else []
        shown = [self._shown(batch, uncounted) for batch in found if batch is not None]
        return [one for one in shown if one.is_stalled(self.now()) and visible_batch(one)]

    def delete(self, batch_id: str) -> None:
        """Forget a batch and its callbacks; its members stay.  Raises NotFound."""
        batch = self.get(batch_id)
        self.store.drop_record(batch_records.KIND, batch_id)
        for event in batch.on:
            name = batch_records.callback_name(batch, event)
            self.store.drop_record(batch_records.CALLBACKS, name)
        self.service.batch_writes.names.forget(batch)

    def results(self, batch_id: str, *, payload: bool = False) -> Sequence[Task]:
        """Return the first existing members, in the order they were counted.

        Members that the caller may not see are left out: a member may have moved to another queue.
        Raises NotFound for the batch.
        """
        return [task for _, task in self._members(batch_id, 0, payload=payload)]

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

    def _members(
        self, batch_id: str, first: int, *, payload: bool = False
    ) -> Iterator[tuple[int, Task]]:
        """Yield the members of results() from the place *first* on, each with its place."""
        ids = self.service.batch_writes.names.members(self.get(batch_id))[first:]
        found, now = self.store.read(ids, payload=payload), self.now()
        for place, id_ in enumerate(ids, first):
            task = found.get(id_)
            if task is not None and not task.is_hidden(now) and visible(task.queue):
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
            batch = self.service.batch_writes.find(batch_id)
            if batch is None or not visible_batch(batch):
                refused[batch_id] = f"there is no batch {batch_id}"
            elif batch.cancelled_at is not None:
                refused[batch_id] = f"batch {batch_id} was cancelled"
            elif batch.finished_at is not None and batch.key not in own:
                refused[batch_id] = f"batch {batch_id} has ended"
            else:
                keys[batch_id] = batch.key
        return keys, refused

    def _shown(self, batch: TaskBatch, uncounted: Iterable[Uncounted]) -> TaskBatch:
        """Return *batch* with what of it is *uncounted*, and with all the dead that it names."""
        for one in uncounted:
            if batch.key in one.deltas:
                delta = BatchDelta.of(one.deltas[batch.key])
                batch = batch.with_delta(delta, buffer=one.buffer, version=one.version, at=one.at)
        return (
            replace(batch, dead_ids=self.service.batch_writes.names.dead(batch))
            if batch.dead_apart
            else batch
        )

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
            joined = structs.replace(
                callback.new, batches=tuple(keys[one] for one in callback.new.batches)
            )
            checked[event] = replace(callback, new=joined)
        return checked

    def _whole_of(self, batch_id: str) -> str | None:
        batch = self.service.batch_writes.find(batch_id)
        return None if batch is None else batch.part_of


def visible_batch(batch: TaskBatch) -> bool:
    """Return whether the caller may see *batch*: all of its queues."""
    return all(map(visible, batch.known_by))


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
