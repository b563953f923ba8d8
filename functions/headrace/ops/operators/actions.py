"""Actions of operators on many tasks: find the tasks, begin, show, pause, resume and cancel.

An action first finds its tasks, as they are at one moment, and keeps a snapshot of each.  In the
console that is a dry run, which the operator then confirms; over the API the action begins at once.
The service works on it (``action_work``) until it is complete, so the caller may leave, and its
record shows the progress.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from headrace.domain import access
from headrace.domain.errors import Conflict, Finished, InvalidRequest, NotFound
from headrace.domain.filters import TaskFilter, check_states
from headrace.domain.ids import action_id, new_request_token
from headrace.domain.limits import ACTION_QUEUES, BULK_IDS
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.operate import STATES_BY_ACTION, ActionStatus, BulkAction, Undo
from headrace.domain.task import Task
from headrace.ops.shared.audit import AuditRecord, checked_reason
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record, every_record
from headrace.store.call_scope import caller, not_shown, visible
from headrace.store.records.actions import KIND, OVER, SNAPSHOTS, UNDER_WAY, Action

SAMPLES: Final = 5
_PAGE: Final = 100

ShownAction: TypeAlias = Action
"""An action, for modules that show it and do not import records."""


def _shows(run: Action) -> bool:
    """Return whether *run* was begun, and the caller may see it."""
    return run.started_at is not None and all(map(visible, run.touches))


class ActionOperations(ServicePart):
    """Find tasks, and begin, show, pause, resume and cancel actions on them."""

    def look(
        self,
        action: BulkAction,
        queues: Sequence[str],
        where: TaskFilter,
        *,
        ids: Sequence[str] = (),
    ) -> Action:
        """Begin a dry run: find the tasks of *queues* that *where* matches and *action* takes.

        With *ids*, only these tasks.  Raises NotFound for a queue, and InvalidRequest for a word
        that is not a state and for too many ids.
        """
        if len(ids) > BULK_IDS:
            raise InvalidRequest.of("id", f"must name at most {BULK_IDS} tasks")
        run = replace(self._new(action, queues, where), ids=tuple(dict.fromkeys(ids)))
        self._save(run)
        return run

    def begin_all(
        self,
        action: BulkAction,
        queues: Sequence[str],
        where: TaskFilter,
        *,
        to_queue: str | None = None,
        undo_in_seconds: int = 0,
        reason: str = "",
    ) -> Action:
        """Begin an action on all tasks that *where* matches now in *queues*.

        *to_queue* is the target of a move.  Deleted tasks can be restored within *undo_in_seconds*.
        Raises as look(), InvalidRequest naming ``to_queue`` or ``reason``, and NotFound for the
        target.
        """
        run = self._new(action, queues, where)
        run = self._started(run, to_queue, undo_in_seconds, reason)
        self._save(run)
        self.begin_audit(run)
        return run

    def confirm(
        self,
        found: Action,
        *,
        most: int | None = None,
        to_queue: str | None = None,
        undo_in_seconds: int = 0,
        reason: str = "",
    ) -> Action:
        """Begin an action on the tasks that its dry run has *found*: on *most* of them, or all.

        Raises Conflict if it was begun before, or has not found all of them, and as begin_all().
        """
        message = "the action has progressed since; open its page again"
        if found.status is not ActionStatus.PAUSED or found.started_at is not None:
            raise Conflict(message)
        run = self._started(replace(found, most=most), to_queue, undo_in_seconds, reason)
        self.store.renew_record(run.mark())
        if not self._put(self.ready(run)):
            raise Conflict(message)
        self.begin_audit(run)
        self.service.work_on_actions()
        return self.get(run.id)

    def ready(self, run: Action) -> Action:
        """Return *run*, whose tasks are found, to be worked on once it was begun."""
        if run.started_at is None:
            return replace(run, status=ActionStatus.PAUSED)
        undos = {
            queue: undo.id
            for queue in dict.fromkeys(run.queues[place] for place, _, _ in run.chunks)
            if (undo := self._undo(run, queue)) is not None
        }
        return replace(run, status=ActionStatus.RUNNING, undos=undos)

    def _undo(self, run: Action, queue: str) -> Undo | None:
        ids = run.ids or None
        return self.service.undos.begin(queue, run.undo_for, ids=ids, by=run.by, reason=run.reason)

    def begin_audit(self, run: Action) -> None:
        """Write the audit entry of *run*, if it is not there."""
        self.service.audit.begin(run.audit or "", entry_of(run))

    def get(self, run_id: str, *, dry_run: bool = False) -> Action:
        """Return an action, also one that was not begun with *dry_run*.

        Raises NotFound if it does not exist.  A caller that may not know all queues gets Forbidden
        for that, and for an action on another queue.
        """
        record = self.store.record(KIND, run_id)
        run = None if record is None else Action.of(record)
        if (
            run is None
            or run.expires_at <= self.now()
            or not (dry_run or run.started_at)
            or not all(map(visible, run.touches))
        ):
            missing = NotFound(f"there is no action {run_id[:64]}, or no longer")
            raise not_shown(missing, access.not_all_queues_of("action", run_id))
        return run

    def list(
        self,
        *,
        queue: str | None = None,
        where: ListQuery[Action] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[Action]:
        """Return a page of the actions on the caller's queues, the latest first; or on one *queue*.

        A page may be short and not the last.  Raises InvalidRequest for a forged cursor.
        """
        now = self.now()

        def meant(record: Record) -> Action | None:
            run = Action.of(record)
            own = _shows(run) and queue in (None, *run.touches)
            return run if own and where.matches(run, now) else None

        return seek(
            self.store,
            KIND,
            meant,
            self.service.cursors,
            f"actions {queue} {where.text}",
            limit=limit,
            cursor=cursor,
            now=self.now,
        )

    def under_way(self) -> tuple[Action, ...]:
        """Return the caller's unfinished actions, the latest first; at most a hundred."""
        marks, _ = self.store.records(UNDER_WAY, limit=_PAGE)
        records = (self.store.record(KIND, mark.name) for mark in marks)
        runs = (Action.of(record) for record in records if record is not None)
        return tuple(run for run in runs if not run.has_ended and _shows(run))

    def any_unfinished(self) -> bool:
        """Return whether there is an action that is not complete, or a dry run."""
        return bool(self.store.records(UNDER_WAY, limit=1)[0])

    def samples(self, found: Action) -> Sequence[Task]:
        """Return the first tasks that a dry run has found as they are now, without missing ones."""
        ids: list[str] = []
        for number in range(len(found.chunks)):
            record = self.store.record(SNAPSHOTS, found.chunk_name(number))
            ids += [task_id for task_id, _ in (record.body["tasks"] if record else ())]
            if len(ids) >= SAMPLES:
                break
        tasks = self.store.read(ids[:SAMPLES], payload=False)
        return [task for task in tasks.values() if task.queue in found.queues]

    def pause(self, run_id: str) -> Action:
        """Pause an action after its current part.

        Raises NotFound, and Finished for an action that is over.
        """
        return self._turn(run_id, ActionStatus.PAUSED)

    def resume(self, run_id: str) -> Action:
        """Resume a paused action with the rights of the caller.  Raises as pause()."""
        return self._turn(run_id, ActionStatus.RUNNING)

    def cancel(self, run_id: str) -> Action:
        """End an action after its current part; changed tasks stay changed.  May be repeated.

        Raises as pause().
        """
        return self._turn(run_id, ActionStatus.CANCELLED)

    def give_up(self, undo_id: str) -> None:
        """Cancel the action of an undo, which would delete the restored tasks again."""
        for mark in every_record(self.store, UNDER_WAY, page=_PAGE):
            record = self.store.record(KIND, mark.name)
            run = None if record is None else Action.of(record)
            if run is not None and undo_id in run.undos.values() and run.status not in OVER:
                self.cancel(run.id)

    # -- beginning -----------------------------------------------------------------------------

    def _new(self, action: BulkAction, queues: Sequence[str], where: TaskFilter) -> Action:
        if not 1 <= len(queues) <= ACTION_QUEUES:
            raise InvalidRequest.of("queue", f"must name 1 to {ACTION_QUEUES} queues")
        check_states(where.states)
        for queue in queues:
            self.service.queues.cached(queue)
        who, now = caller(), self.now()
        states = where.states or tuple(map(str, STATES_BY_ACTION[action]))
        return Action(
            name=action_id(now, new_request_token()),
            as_of=now,
            action=action,
            queues=tuple(queues),
            where=replace(where.as_of(now), states=states),
            by=who.actor,
            by_id=who.actor_id,
            request_id=who.request_id,
        )

    def _started(
        self, run: Action, to_queue: str | None, undo_in_seconds: int, reason: str
    ) -> Action:
        why, who = checked_reason(reason), caller()
        if run.action is BulkAction.MOVE:
            self._check_target(run, to_queue)
        return replace(
            run,
            by=who.actor,
            by_id=who.actor_id,
            request_id=who.request_id,
            reason=why,
            to_queue=to_queue if run.action is BulkAction.MOVE else None,
            undo_for=undo_in_seconds if run.action is BulkAction.DELETE else 0,
            started_at=self.now(),
            audit=self.service.audit.new_name(),
        )

    def _check_target(self, run: Action, to_queue: str | None) -> None:
        if not to_queue:
            raise InvalidRequest.of("to_queue", "is needed")
        if to_queue in run.queues:
            raise InvalidRequest.of("to_queue", "must be another queue")
        self.service.queues.cached(to_queue)

    # -- the record ----------------------------------------------------------------------------

    def _save(self, run: Action) -> None:
        """Write a new action, its mark first, and have the service work on it."""
        self.store.renew_record(run.mark())
        self.store.put_record(run.record(), replaces=None)
        self.service.work_on_actions()

    def _turn(self, run_id: str, wanted: ActionStatus) -> Action:
        while True:
            run = self.get(run_id)
            looks = wanted is ActionStatus.RUNNING and run.total is None
            status = ActionStatus.LOOKING if looks else wanted
            if run.status is status:
                return run
            if run.status in OVER:
                message = f"action {run.id} is over: it is {run.status}"
                raise Finished(message)
            changed = replace(run, status=status, trouble="")
            if wanted is ActionStatus.RUNNING:
                changed = self._taken_over(changed)
            if self._put(changed):
                self.service.work_on_actions()
                return self.get(run_id)

    def _taken_over(self, run: Action) -> Action:
        """Return *run* with the rights of the caller, who resumes it."""
        who = caller()
        if who.actor_id == run.by_id:
            return run
        begun_by, begun_by_id = run.begun_by or run.by, run.begun_by_id or run.by_id
        with self.service.audit.action("resume_action", where={"action": run.id}):
            return replace(
                run, by=who.actor, by_id=who.actor_id, begun_by=begun_by, begun_by_id=begun_by_id
            )

    def _put(self, changed: Action) -> bool:
        """Write *changed*; return whether its version was still current."""
        record = replace(changed, version=changed.version + 1).record()
        return self.store.put_record(record, replaces=changed.version)


def entry_of(run: Action) -> AuditRecord:
    """Return the audit entry of *run*; it is complete once *run* is over."""
    where = {
        **({} if run.ids else run.where.fields()),
        **({"to_queue": run.to_queue} if run.to_queue else {}),
        **({"queues": ",".join(run.queues)} if len(run.queues) > 1 else {}),
        "seen_at": run.as_of.isoformat(),
    }
    stopped = None
    if run.status is ActionStatus.CANCELLED:
        stopped = "cancelled"
    elif run.status is ActionStatus.FAILED:
        stopped = run.trouble
    return AuditRecord(
        run.started_at or run.as_of,
        run.begun_by or run.by,
        str(run.action),
        run.queues[0] if len(run.queues) == 1 else None,
        where,
        run.ids or None,
        matched=run.total if run.has_ended else None,
        changed=run.changed if run.has_ended else None,
        request_id=run.request_id,
        actor_id=run.begun_by_id if run.begun_by else run.by_id,
        reason=run.reason or None,
        run=run.id,
        left=dict(run.left) if run.has_ended and run.left else None,
        stopped=stopped if run.has_ended else None,
        undos=tuple(run.undos.values()) or None,
    )
