"""Undo: record what an action deletes, and restore each task unless another has taken its place.

An undo is recorded before the first task is deleted.  A lagging index may not show a task that was
deleted a moment ago; another call finds it, and restores nothing twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.change import Done
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound
from headrace.domain.operate import BACK_ALREADY, Undo, Unfit, takes_place, undelete
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.task import State, Task
from headrace.domain.task_groups import Turn
from headrace.ops.operators.bulk import BulkAnswer, BulkOutcome
from headrace.ops.shared.commits import commit_with_key
from headrace.ops.shared.paging import pages_of
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_unused
from headrace.store.base import Record
from headrace.store.call_scope import caller, draw_undo_id, not_shown, visible
from headrace.store.records import body_of, read_body

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_KIND: Final = "undo"
_PAGE: Final = 100
_MOST: Final = 1_000  # tasks that one call restores
_RESTORED: Final = "RESTORED"


class Undos(ServicePart):
    """Begins undos, and restores their tasks for up to *patience* seconds per call."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 20.0

    def begin(
        self,
        queue: str,
        seconds: Seconds,
        *,
        ids: Sequence[str] | None = None,
        by: str | None = None,
        reason: str = "",
    ) -> Undo | None:
        """Return an undo for *seconds* of what is about to be deleted in *queue*; 0: None.

        *ids* are the tasks where they are known: the index need not show those.  The caller deletes
        them, unless *by* names another key.
        """
        if not seconds:
            return None
        now = self.now()
        named = None if ids is None else tuple(dict.fromkeys(ids))
        until = now + timedelta(seconds=seconds)
        who = by or caller().actor
        undo = Undo(draw_undo_id(now), queue, now, until, named, who, reason)
        while not self.store.put_record(_record(undo), replaces=None):
            found = self.find(undo.id)
            if found is not None and found.queue == queue:
                return found  # begun by this very request, whose process died: it goes on
            undo = replace(undo, id=draw_undo_id(now))
        return undo

    def join(self, queue: str, undo_id: str) -> Undo:
        """Return an undo of *queue* for what is about to be deleted besides, of whatever ids.

        Raises InvalidRequest naming ``undo_id`` for one that is not there, over or of another
        queue.
        """
        undo = self.find(undo_id)
        if undo is None or undo.queue != queue:
            raise InvalidRequest.of("undo_id", "is no undo of this queue, or one that is over")
        if undo.ids is not None:  # what it brings back is found by the index from now on
            undo = replace(undo, ids=None)
            self.store.renew_record(_record(undo))
        return undo

    def find(self, undo_id: str | None) -> Undo | None:
        """Return an undo that is not over."""
        record = None if undo_id is None else self.store.record(_KIND, undo_id)
        undo = None if record is None else read_body(record.body, Undo, id=record.name)
        return None if undo is None or undo.until <= self.now() else undo

    def of_task(self, task_id: str) -> Undo | None:
        """Return the undo that restores a deleted task of a queue that the caller may see."""
        task = self.store.tombstones([task_id]).get(task_id)
        undo = None if task is None else self.find(task.deleted_by)
        return undo if undo is not None and visible(undo.queue) else None

    def undo(
        self,
        undo_id: str,
        *,
        cursor: str | None = None,
    ) -> BulkAnswer:
        """Bring back what was deleted under *undo_id*; one result for each task that is met.

        With a cursor in the answer there are more.
        Raises NotFound for an undo that is not known, or over, and where the queue was deleted
        since; InvalidRequest for a forged cursor.  A caller that may not know all queues gets
        Forbidden for an undo that is not known, and for one of another queue.
        """
        undo = self.find(undo_id)
        if undo is None or not visible(undo.queue):
            missing = NotFound(f"there is no undo {undo_id[:64]}, or it is over")
            raise not_shown(missing, Forbidden("this key is not for the queue of this undo"))
        queue = self.service.queues.get(undo.queue)
        if queue.created_at > undo.at:
            message = f"queue {queue.name} was deleted since, and its tasks with it"
            raise NotFound(message)
        if undo.ids is None:
            self.service.jobs.give_up(undo.id)
            self.service.actions.give_up(undo.id)
        scope = f"undo {undo_id}"
        start = None if cursor is None else self.service.cursors.read(scope, cursor)
        results: list[BulkOutcome] = []
        until = self.now() + timedelta(seconds=self.patience)
        with self.service.audit.action(
            "undo", queue=queue.name, where={"undo": undo_id}, by_parts=True
        ) as outcome:
            if undo.ids is None:
                positions = self._visit(queue, undo, start, results)
            else:
                positions = iter(())
                results += self._named(queue, undo, undo.ids)
            try:
                after = self.service.cursors.walk(
                    scope, positions, lambda: len(results) >= _MOST or self.now() > until
                )
            finally:
                outcome.matched = len(results)
                outcome.changed = sum(one.outcome == _RESTORED for one in results)
        return BulkAnswer(outcome.matched, outcome.changed, tuple(results), after)

    def remains(self, undo_id: str) -> bool:
        """Return whether *undo_id* still has tasks to restore."""
        undo = self.find(undo_id)
        if undo is None:
            return False
        try:
            queue = self.service.queues.cached(undo.queue)
        except NotFound:
            return False
        if queue.created_at > undo.at:
            return False
        if undo.ids is not None:
            tasks = self.store.tombstones(undo.ids).values()
            return any(task.deleted_by == undo.id for task in tasks)
        return any(
            self.store.entries(place, since=undo.at, until=undo.at, limit=1).entries
            for place in queue.places(State.DELETED)
        )

    def _named(self, queue: Queue, undo: Undo, ids: tuple[str, ...]) -> Iterator[BulkOutcome]:
        """Restore tasks that are known by their ids."""
        deleted, there = self.store.tombstones(ids), self.store.read(ids, payload=False)
        for task_id in ids:
            task = deleted.get(task_id)
            if task is not None and task.deleted_by == undo.id:
                yield self._restored(queue, task)
            elif task_id in there:
                again = there[task_id].created_at > undo.at
                detail = "the id is in use: it was enqueued again" if again else BACK_ALREADY
                yield BulkOutcome(task_id, "SKIPPED", detail)
            else:
                yield BulkOutcome(task_id, "NOT_FOUND")

    def _visit(
        self, queue: Queue, undo: Undo, start: list[Any] | None, results: list[BulkOutcome]
    ) -> Iterator[list[Any]]:
        """Restore what the index shows, page after page; yield the position of the next page."""
        places = queue.places(State.DELETED)
        pages = pages_of(self.store, places, start, at=undo.at, limit=_PAGE)
        for entries, position in pages:
            tasks = self.store.tombstones(entry.task_id for entry in entries)
            results += [
                self._restored(queue, task) for task in tasks.values() if task.deleted_by == undo.id
            ]
            if position is not None:
                yield position

    def _restored(self, queue: Queue, task: Task) -> BulkOutcome:
        """Bring one task back, unless its key is held or its retention over."""
        if not takes_place(task, queue):
            return self._brought(queue, task, None)
        turn = self.service.lines.take_once(queue, task)
        result = self._brought(queue, task, turn)
        if result.outcome != _RESTORED:
            note_unused(self.store, queue.name, [(task.id, turn)])
        return result

    def _brought(self, queue: Queue, task: Task, turn: Turn | None) -> BulkOutcome:
        change = undelete(task, queue, now=self.now(), turn=turn)
        if isinstance(change, Unfit):
            return BulkOutcome(task.id, "SKIPPED", change.detail)
        outcome, holder = commit_with_key(self.service, change, queue.name)
        if isinstance(outcome, Done):
            return BulkOutcome(task.id, _RESTORED)
        if holder is not None:
            return BulkOutcome(task.id, "SKIPPED", "dedupe_conflict")
        return BulkOutcome(task.id, "SKIPPED", "the id is in use, or the task is back already")


def _record(undo: Undo) -> Record:
    return Record(_KIND, undo.id, body_of(undo, "id"), expires_at=undo.until)
