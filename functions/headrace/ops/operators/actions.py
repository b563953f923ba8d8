"""Actions of operators on many tasks: begin, show, pause, resume and cancel them.

An action covers the tasks of a selection as they were seen (``selections``), so the caller may
leave: the service works on it (``action_work``) until it is complete, and its record shows the
progress.  A repeated request does nothing twice: the id of an action is derived from the selection
and its first task in it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from headrace.domain.errors import Conflict, Finished, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.ids import action_id
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.ops.operators.selections import Check
from headrace.ops.shared.audit import AuditRecord, checked_reason
from headrace.ops.shared.paging import Found
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record, every_record
from headrace.store.call_scope import caller
from headrace.store.records.actions import KIND, OVER, UNDER_WAY, ActionRun
from headrace.store.records.selections import TaskSelection

_PAGE: Final = 100
_LOOKED_AT: Final = 500  # actions one call looks at before it answers with what it has

Allowed: TypeAlias = Callable[[ActionRun], bool]
"""Returns whether the caller may see an action."""

ShownRun: TypeAlias = ActionRun
"""An action, for modules that show it and do not import records."""


def _anyone(_run: ActionRun) -> bool:
    return True


class ActionOperations(ServicePart):
    """Begin, show, pause, resume and cancel actions on many tasks."""

    def begin(
        self,
        set_name: str,
        *,
        at: int,
        most: int | None = None,
        to_queue: str | None = None,
        undo_in_seconds: int = 0,
        reason: str = "",
        check: Check = lambda _: None,
    ) -> ActionRun:
        """Begin an action on the tasks of a selection from *at* on: up to *most* of them, or all.

        *at* is the number of its tasks that earlier actions have taken, as the caller saw it, so a
        repeated request begins nothing twice.  *to_queue* is the target of a move, fixed by the
        first action.  Deleted tasks can be restored within *undo_in_seconds*.  Raises NotFound for
        the selection and the queue, InvalidRequest naming ``to_queue`` or ``reason``, Conflict for
        a selection that has progressed, and as *check* does for the selection with its target.
        """
        why = checked_reason(reason)
        found = self.service.selections.get(set_name, check=check)
        if found.looking or found.at != at or at == found.count:
            message = "the action has progressed since; open its page again"
            raise Conflict(message)
        target = self._target(found, to_queue, check)
        until = found.count if most is None else min(found.count, at + most)
        run = self._new(found, why, target, undo_in_seconds)
        return self._begin(replace(run, until=until))

    def begin_all(
        self,
        action: BulkAction,
        queues: Sequence[str],
        where: TaskFilter,
        *,
        to_queue: str | None = None,
        undo_in_seconds: int = 0,
        reason: str = "",
    ) -> ActionRun:
        """Begin an action on all tasks that *where* matches now in *queues*.

        The service finds them.  Raises as begin(), and InvalidRequest for queues and states as
        Selections.look() does.
        """
        why = checked_reason(reason)
        if action is BulkAction.MOVE:
            self.service.selections.check_target(queues, to_queue)
        found = self.service.selections.look(
            action,
            queues,
            where,
            by=caller().actor,
            to_queue=to_queue if action is BulkAction.MOVE else None,
            only_begin=True,
        )
        run = self._new(found, why, found.to_queue, undo_in_seconds)
        return self._begin(replace(run, status=ActionStatus.LOOKING))

    def get(self, run_id: str, *, allowed: Allowed = _anyone) -> ActionRun:
        """Return an action.  Raises NotFound if it does not exist, or is not *allowed*."""
        record = self.store.record(KIND, run_id)
        run = None if record is None else ActionRun.of(record)
        if run is None or not allowed(run):
            message = f"there is no action {run_id[:64]}, or no longer"
            raise NotFound(message)
        return run

    def list(
        self,
        *,
        queue: str | None = None,
        where: ListQuery[ActionRun] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
        allowed: Allowed = _anyone,
    ) -> Found[ActionRun]:
        """Return a page of actions, the latest first, of one *queue* or all.

        A page may be short and not the last.  Raises InvalidRequest for a forged cursor.
        """
        scope, now = f"actions {queue} {where.text}", self.now()
        after = self.service.cursors.read(scope, cursor) if cursor else ""
        runs: list[ActionRun] = []
        for number, record in enumerate(self._records(after)):
            if len(runs) == limit or number == _LOOKED_AT:
                return Found(tuple(runs), self.service.cursors.write(scope, after))
            after = record.name
            run = ActionRun.of(record)
            if queue in (None, *run.touches) and allowed(run) and where.means(run, now):
                runs.append(run)
        return Found(tuple(runs), None)

    def under_way(self, *, allowed: Allowed = _anyone) -> tuple[ActionRun, ...]:
        """Return the unfinished actions, the latest first; at most a hundred."""
        marks, _ = self.store.records(UNDER_WAY, limit=_PAGE)
        records = (self.store.record(KIND, mark.name) for mark in marks)
        runs = (ActionRun.of(record) for record in records if record is not None)
        return tuple(run for run in runs if not run.has_ended and allowed(run))

    def pause(self, run_id: str, *, allowed: Allowed = _anyone) -> ActionRun:
        """Pause an action after its current part.

        Raises NotFound, and Finished for an action that is over.
        """
        return self._turn(run_id, ActionStatus.PAUSED, allowed)

    def resume(self, run_id: str, *, allowed: Allowed = _anyone) -> ActionRun:
        """Resume a paused action with the rights of the caller.

        Raises as pause().
        """
        return self._turn(run_id, ActionStatus.RUNNING, allowed)

    def cancel(self, run_id: str, *, allowed: Allowed = _anyone) -> ActionRun:
        """End an action after its current part; changed tasks stay changed.  May be repeated.

        Raises as pause().
        """
        return self._turn(run_id, ActionStatus.CANCELLED, allowed)

    def give_up(self, undo_id: str) -> None:
        """Cancel the action of an undo, which would delete the restored tasks again."""
        for mark in every_record(self.store, UNDER_WAY, page=_PAGE):
            record = self.store.record(KIND, mark.name)
            if record is not None and undo_id in ActionRun.of(record).undos.values():
                self.cancel(mark.name)

    # -- beginning -----------------------------------------------------------------------------

    def _target(self, found: TaskSelection, to_queue: str | None, check: Check) -> str | None:
        if found.action is not BulkAction.MOVE:
            return None
        target = found.to_queue or to_queue
        check(replace(found, to_queue=target))
        self.service.selections.check_target(found.queues, target)
        return target

    def _new(
        self, found: TaskSelection, reason: str, to_queue: str | None, undo_in_seconds: int
    ) -> ActionRun:
        who = caller()
        deletes = found.action is BulkAction.DELETE
        return ActionRun(
            id=action_id(found.seen_at, f"{found.name} {found.at}"),
            set_name=found.name,
            action=found.action,
            queues=found.queues,
            where=found.where,
            by=who.actor,
            by_id=who.actor_id,
            request_id=who.request_id,
            reason=reason,
            seen_at=found.seen_at,
            started_at=self.now(),
            noted=self.service.audit.new_name(),
            to_queue=to_queue,
            undo_for=undo_in_seconds if deletes else 0,
            first=found.at,
            at=found.at,
        )

    def _begin(self, run: ActionRun) -> ActionRun:
        """Write the records of *run*, its mark first; the service works on it from then on.

        A repetition finds it written.  If this process ends before it has updated the selection and
        the audit, the worker writes both.
        """
        self.store.renew_record(run.mark())
        if not self.store.put_record(run.record(), replaces=None):
            run = self.get(run.id)
        self.hand_over(run)
        if not run.has_ended:
            self.service.audit.begin(run.noted, entry_of(run))
        self.service.work_on_actions()
        return run

    def any_unfinished(self) -> bool:
        """Return whether an action is running or paused."""
        return bool(self.store.records("acting", limit=1)[0])

    def hand_over(self, run: ActionRun) -> None:
        """Record in the selection which of its tasks *run* has taken."""
        if run.until is not None:
            found = self.service.selections.get(run.set_name)
            if found.at < run.until:
                self.service.selections.hand_over(found, until=run.until, to_queue=run.to_queue)

    # -- the record ----------------------------------------------------------------------------

    def _turn(self, run_id: str, wanted: ActionStatus, allowed: Allowed) -> ActionRun:
        while True:
            run = self.get(run_id, allowed=allowed)
            status = wanted
            if wanted is ActionStatus.RUNNING and run.until is None:
                status = ActionStatus.LOOKING
            if run.status is status:
                return run
            if run.status in OVER:
                message = f"action {run.id} is over: it is {run.status}"
                raise Finished(message)
            changed = replace(run, status=status, trouble="")
            if wanted is ActionStatus.RUNNING:
                changed = self._taken_over(changed)
            if self.put(changed):
                self.service.work_on_actions()
                return self.get(run_id)

    def _taken_over(self, run: ActionRun) -> ActionRun:
        """Return *run* with the rights of the caller, who resumes it."""
        who = caller()
        if who.actor_id == run.by_id:
            return run
        begun_by, begun_by_id = run.begun_by or run.by, run.begun_by_id or run.by_id
        with self.service.audit.action("resume_action", where={"action": run.id}):
            return replace(
                run, by=who.actor, by_id=who.actor_id, begun_by=begun_by, begun_by_id=begun_by_id
            )

    def put(self, changed: ActionRun) -> bool:
        """Write *changed*; return whether its version was still current."""
        record = replace(changed, version=changed.version + 1).record()
        return self.store.put_record(record, replaces=changed.version)

    def _records(self, after: str) -> Iterator[Record]:
        more = True
        while more:
            records, more = self.store.records(KIND, after=after, limit=_PAGE)
            for record in records:
                yield record
                after = record.name


def entry_of(run: ActionRun) -> AuditRecord:
    """Return the audit entry of *run*; it is complete once *run* is over."""
    where = {
        **run.where.fields(),
        **({"to_queue": run.to_queue} if run.to_queue else {}),
        **({"queues": ",".join(run.queues)} if len(run.queues) > 1 else {}),
        "seen_at": run.seen_at.isoformat(),
        "set": run.set_name,
    }
    stopped = None
    if run.status is ActionStatus.CANCELLED:
        stopped = "cancelled"
    elif run.status is ActionStatus.FAILED:
        stopped = run.trouble
    return AuditRecord(
        run.started_at,
        run.begun_by or run.by,
        str(run.action),
        run.queues[0] if len(run.queues) == 1 else None,
        where,
        matched=run.total if run.has_ended else None,
        changed=run.changed if run.has_ended else None,
        request_id=run.request_id,
        actor_id=run.begun_by_id if run.begun_by else run.by_id,
        reason=run.reason or None,
        run=run.id,
        left=dict(run.left) if run.has_ended and run.left else None,
        stopped=stopped if run.has_ended else None,
    )
