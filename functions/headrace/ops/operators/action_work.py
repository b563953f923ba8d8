"""Work on actions: change their tasks in parts until they are complete.

A worker claims an action for a while.  It records the part that it begins, and the time that the
changed tasks of the part will carry.  After a part, one write records the progress and the next
part.  If a worker is cut off, another one takes over the part when the claim has lapsed, and
records its own time beside the first.  A task that carries one of these times is done already.  So
each task is changed once and counted once, even if two workers have the part.  A worker whose part
was taken over counts nothing.

Pausing or cancelling changes the record only; the worker sees it after its part.  A part that was
begun is still finished: a slow worker must find nothing left to do.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.access import ID
from headrace.domain.errors import Conflict, HeadraceError, Unauthenticated, Unavailable
from headrace.domain.operate import ActionStatus
from headrace.ops.operators.actions import entry_of
from headrace.ops.operators.bulk import BulkOutcome
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record, every_record
from headrace.store.records import readable
from headrace.store.records.actions import UNDER_WAY, ActionPart, ActionRun
from headrace.store.records.selections import TaskSelection

if TYPE_CHECKING:
    from headrace.runtime.service import Service


PART: Final = 250

CLAIMED_FOR: Final = timedelta(seconds=20)
"""Longer than a part takes; what a killed worker had goes on after that."""

_SLICE: Final = timedelta(seconds=2)  # then it is another action's turn
_UNFOUNDED_AFTER: Final = timedelta(hours=1)  # a mark without an action
_PAGE: Final = 100


def _long() -> float:
    return timedelta(hours=1).total_seconds()


class ActionWork(ServicePart):
    """Works on actions; *part* is the largest number of tasks of one part."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.part: int = PART

    def run(self, *, time_left: Callable[[], float] = _long) -> int:
        """Work on all actions by turns, until nothing is left to do or no *time_left* (seconds).

        Return how many tasks were dealt with.  Raises Unavailable.
        """
        dealt_with, moved = 0, True
        while moved and time_left() > 0:
            moved = False
            for mark in list(every_record(self.store, UNDER_WAY, page=_PAGE)):
                number = self.resume(mark, time_left=time_left)
                moved = moved or number is not None
                dealt_with += number or 0
        return dealt_with

    def resume(self, mark: Record, *, time_left: Callable[[], float] = _long) -> int | None:
        """Work on one action for a moment; return how many tasks were dealt with.

        None if there was nothing to do, or somebody else is at it.
        """
        record = self.store.record("action", mark.name)
        if record is None:
            began = datetime.fromisoformat(mark.body["started_at"])
            if self.now() > began + _UNFOUNDED_AFTER:
                self.store.drop_record(UNDER_WAY, mark.name)
            return None
        run = next(readable([record], ActionRun.of), None)
        if run is None:
            return None
        if run.has_ended:
            self.store.drop_record(UNDER_WAY, run.id)
            return None
        busy = run.busy_until is not None and self.now() < run.busy_until
        if busy or run.status is ActionStatus.PAUSED:
            return None
        try:
            return self._go_on(run, time_left)
        except Unavailable:
            raise
        except HeadraceError as error:
            self._fail(run.id, error.detail)
            return 0

    def _go_on(self, run: ActionRun, time_left: Callable[[], float]) -> int | None:
        if run.goes_on and (trouble := self._lost_rights(run)):
            self._put(replace(run, status=ActionStatus.PAUSED, trouble=trouble))
            return 0
        if run.status is ActionStatus.LOOKING:
            return self._look(run)
        found = self.service.selections.get(run.set_name)
        if run.status is not ActionStatus.RUNNING or run.at == run.until:
            return self._end(run, found)
        until, dealt_with = self.now() + _SLICE, 0
        claimed = self._put(self._with_part(run, found))
        while claimed is not None and claimed.part is not None:
            outcomes = self._act(claimed, found)
            dealt_with += len(outcomes)
            more = self.now() < until and time_left() > 0
            claimed = self._saved(claimed, found, outcomes, more=more)
        if claimed is not None and claimed.at == claimed.until:
            self._end(claimed, found)
        return dealt_with

    def _lost_rights(self, run: ActionRun) -> str:
        """Return why the key that *run* works for has lost its rights; empty if it has not."""
        if run.by_id is None or not ID.fullmatch(run.by_id):  # the service, the deployment or IAM
            return ""
        try:
            self.service.keys.known(run.by_id)
        except Unauthenticated:
            return f"key {run.by} ({run.by_id}), on whose behalf it ran, is revoked or has expired"
        return ""

    def _look(self, run: ActionRun) -> int | None:
        """Look for its tasks a little further."""
        before = self.service.selections.get(run.set_name)
        found = self.service.selections.resume(run.set_name, raises=True)
        if not found.looking:
            seen = replace(run, until=found.count, status=ActionStatus.RUNNING)
            if self._put(seen) is not None:
                self.service.actions.hand_over(seen)
            return 0
        return 0 if found.version > before.version else None

    def _with_part(self, run: ActionRun, found: TaskSelection) -> ActionRun:
        """Return *run* with a part begun now: the one that was begun before, or the next."""
        now, stamps = self.now(), () if run.part is None else run.part.stamps
        end = run.at if run.part is None else run.part.end
        if run.part is None:
            queue, end = self._next_part(run, found)
            if run.undo_for and queue not in run.undos:
                undo = self.service.undos.begin(queue, run.undo_for)
                if undo is not None:
                    run = replace(run, undos={**run.undos, queue: undo.id})
        return replace(run, part=ActionPart(end, (*stamps, now)), busy_until=now + CLAIMED_FOR)

    def _next_part(self, run: ActionRun, found: TaskSelection) -> tuple[str, int]:
        """Return the queue of the next part of *run*, and where that ends."""
        begin, until = 0, found.count if run.until is None else run.until
        for place, amount in found.chunks:
            if run.at < begin + amount:
                return found.queues[place], min(begin + amount, until, run.at + self.part)
            begin += amount
        raise AssertionError(run.at)

    def _act(
        self, run: ActionRun, found: TaskSelection, *, only_look: bool = False
    ) -> list[BulkOutcome]:
        """Carry out the part that is begun.

        Raises Conflict if the time to undo it is over, or if the selection is gone.
        """
        part = run.part
        assert part is not None  # noqa: S101  the caller has begun it
        kept = self.service.selections.snapshots(found, run.at, part.end)
        if kept is None:
            message = "the selected tasks are no longer kept; make the selection again"
            raise Conflict(message)
        queue, seen = kept
        undo = self.service.undos.known(run.undos.get(queue))
        if run.undo_for and undo is None and not only_look:
            message = "the time in which it could be undone is over"
            raise Conflict(message)
        return self.service.bulk.as_seen(
            queue,
            run.action,
            seen,
            run.where,
            stamps=part.stamps,
            to_queue=run.to_queue,
            undo=undo,
            only_look=only_look,
        )

    def _saved(
        self, run: ActionRun, found: TaskSelection, outcomes: list[BulkOutcome], *, more: bool
    ) -> ActionRun | None:
        """Record the results of a part, and with *more* begin the next one.

        Return None if another worker has taken the part over: then its results count.  If an
        operator has paused or cancelled the action in the meantime, it stays so.
        """
        done = _counted(run, outcomes).released()
        if done.at != done.until and done.goes_on and (trouble := self._lost_rights(run)):
            done = replace(done, status=ActionStatus.PAUSED, trouble=trouble)
        while True:
            goes_on = more and done.status is ActionStatus.RUNNING and done.at != done.until
            saved = self._put(self._with_part(done, found) if goes_on else done)
            if saved is not None:
                return saved
            stored = self.service.actions.get(run.id)
            if stored.part != run.part:
                return None
            done = replace(
                done, status=stored.status, trouble=stored.trouble, version=stored.version
            )

    def _end(self, run: ActionRun, found: TaskSelection) -> int | None:
        """End it, after a part that was cut off is finished, or what was done of it is counted."""
        if run.part is not None:
            counted = self._finished(run, found)
            settled = self._put(counted.released())
            if settled is None:
                return None
            run = settled
        status = ActionStatus.DONE if run.status is ActionStatus.RUNNING else run.status
        ended = replace(run, status=status, ended_at=self.now())
        self.service.actions.hand_over(ended)
        self.service.audit.write(ended.noted, entry_of(ended))
        if self._put(ended) is not None:
            self.store.drop_record(UNDER_WAY, ended.id)
        return 0

    def _finished(self, run: ActionRun, found: TaskSelection) -> ActionRun:
        """Return *run* with what its part came to: all of it if it was cancelled."""
        if run.status is ActionStatus.CANCELLED:
            with suppress(Conflict):  # the time to undo it is over, so the rest is skipped
                return _counted(run, self._act(run, found))
        outcomes = [one for one in self._act(run, found, only_look=True) if one.changed]
        return replace(_counted(run, outcomes), at=run.at + len(outcomes))

    def _fail(self, run_id: str, trouble: str) -> None:
        """Note that it cannot go on; it is ended with the next look at it."""
        run = self.service.actions.get(run_id)
        if run.goes_on:
            failed = replace(run, status=ActionStatus.FAILED, trouble=trouble, busy_until=None)
            self._put(failed)
        elif not run.has_ended:  # not even what was done of its last part can be told
            ended = replace(run.released(), trouble=trouble, ended_at=self.now())
            self.service.audit.write(ended.noted, entry_of(ended))
            self._put(ended)

    def _put(self, changed: ActionRun) -> ActionRun | None:
        """Write *changed* and return it as it is then; None if somebody else has written."""
        written = replace(changed, version=changed.version + 1)
        if self.service.actions.put(changed):
            return written
        # The answer to an earlier try may have been lost.
        return written if self.service.actions.get(changed.id) == written else None


def _counted(run: ActionRun, outcomes: list[BulkOutcome]) -> ActionRun:
    """Return *run* with its part dealt with."""
    left = Counter(run.left)
    left.update(one.detail or one.outcome for one in outcomes if not one.changed)
    changed = run.changed + sum(one.changed for one in outcomes)
    end = run.at if run.part is None else run.part.end
    return replace(run, at=end, changed=changed, left=dict(left))
