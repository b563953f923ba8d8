"""Delete, restart, run now, move or cancel many tasks: by ids, by a filter, or as selected.

Each task is changed in its own transaction, and only if it has not changed since it was read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from headrace.domain.change import Change, Done, Outcome
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.filters import TaskFilter, check_states
from headrace.domain.operate import (
    STATES_BY_ACTION,
    BulkAction,
    TaskSnapshot,
    Undo,
    Unfit,
    hide_for_undo,
    operate,
    shows_action,
    takes_turn,
)
from headrace.domain.queue import Queue, kept_turn
from headrace.domain.retry import Seconds
from headrace.domain.task import State, Task
from headrace.ops.shared.audit import ActionOutcome, checked_reason
from headrace.ops.shared.commits import commit, commit_with_key, key_holder
from headrace.ops.shared.leases import note_cancelled
from headrace.ops.shared.paging import Walk
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_dying, note_left

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_PAGE: Final = 100
_LOOKS: Final = 3  # at a task that changes while it is acted on
_DONE: Final = {
    BulkAction.DELETE: "DELETED",
    BulkAction.RESTART: "RESTARTED",
    BulkAction.RUN: "DUE",
    BulkAction.MOVE: "MOVED",
    BulkAction.CANCEL: "CANCELLED",
}


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """The outcome of one task."""

    id: str
    outcome: str
    detail: str | None = None

    @property
    def changed(self) -> bool:
        """Return whether the action was carried out."""
        return self.outcome in _DONE.values()

    @property
    def matched(self) -> bool:
        """Return whether the action takes the task; a held key counts as matched."""
        return self.changed or self.detail == _CONFLICT


_CONFLICT: Final = "dedupe_conflict"
_Meant = Callable[[Task, datetime], bool]


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """How many tasks the action takes, how many it changed, and where to continue."""

    matched: int
    changed: int
    results: tuple[BulkOutcome, ...] = ()
    cursor: str | None = None
    undo: Undo | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """An action, with its queues and options."""

    queue: Queue
    action: BulkAction
    target: Queue | None
    dry_run: bool
    undo: Undo | None = None
    at: datetime | None = None  # the time to write into tasks, instead of now


class BulkOperations(ServicePart):
    """Changes many tasks, for up to *patience* seconds per call."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 20.0

    def by_ids(
        self,
        queue: str,
        action: BulkAction,
        ids: Sequence[str],
        *,
        to_queue: str | None = None,
        dry_run: bool = False,
        undo_in_seconds: Seconds = 0,
        undo_id: str | None = None,
        reason: str = "",
    ) -> BulkAnswer:
        """Do *action* to the tasks named; one result for each, in the order given.

        The answer's undo restores deleted tasks within *undo_in_seconds*; *undo_id* joins the undo
        of an earlier call.  The audit keeps the *reason*.  Raises NotFound for either queue,
        InvalidRequest for a move to the same queue, and as Undos.join(), checked_reason().
        """
        job, why = self._job(queue, action, to_queue, dry_run=dry_run), checked_reason(reason)
        undo = None if undo_id is None else self.service.undos.join(queue, undo_id)
        found = self.store.read(ids)
        results: list[BulkOutcome] = []
        met: dict[str, BulkOutcome] = {}
        with self._audited(job, None, why, ids=ids) as outcome:
            if undo is None and not dry_run:
                undo = self.service.undos.begin(queue, undo_in_seconds, ids=ids, reason=why)
            outcome.undo = None if undo is None else undo.id
            job = replace(job, undo=undo)
            for task_id in ids:
                task = found.get(task_id)
                if before := met.get(task_id):  # the task that was read is out of date
                    again = None if dry_run else self.store.read([task_id])
                    task = self._after(job, task, before) if again is None else again.get(task_id)
                results.append(self._one(job, task_id, task))
                _count(results[-1], job, outcome)
                met.setdefault(task_id, results[-1])
        undo = None if dry_run else undo
        return BulkAnswer(outcome.matched, outcome.changed, tuple(results), undo=undo)

    def by_filter(  # noqa: PLR0913  the fields of the API
        self,
        queue: str,
        action: BulkAction,
        where: TaskFilter,
        *,
        to_queue: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        undo_in_seconds: Seconds = 0,
        reason: str = "",
    ) -> BulkAnswer:
        """Do *action* to up to *limit* tasks that match *where* and that the action takes.

        With a cursor in the answer there may be more; all calls share the undo of the first.
        Raises as by_ids(), and InvalidRequest for a forged cursor and an unknown state.
        """
        job, why = self._job(queue, action, to_queue, dry_run=dry_run), checked_reason(reason)
        scope = f"bulk {action} {queue} {to_queue} {where}"
        walk, undo_id = Walk(self.now()), None
        if cursor is not None:
            *state, undo_id = self.service.cursors.read(scope, cursor)
            walk = Walk.read(state)
        check_states(where.states, name="filter.state")
        until = self.now() + timedelta(seconds=self.patience)
        where = self.service.versions.resolved(where.as_of(walk.as_of))
        taken = replace(where, states=where.states or tuple(map(str, STATES_BY_ACTION[action])))
        page = _PAGE if limit is None else min(_PAGE, limit)

        def visit(job: _Job, outcome: ActionOutcome) -> Iterator[list[Any]]:
            for task, after in self.service.inspect.walk(job.queue, taken, walk, page=page):
                # A restarted task matches again; skip it.
                if task is not None and not _came_later(task, walk.as_of):
                    result = self._one(job, task.id, task, partial(_meant_by, taken))
                    _count(result, job, outcome)
                yield [*after.state(), job.undo and job.undo.id]

        with self._audited(job, where.fields(), why) as outcome:
            undo = self.service.undos.find(undo_id)
            if cursor is None and not dry_run:
                undo = self.service.undos.begin(queue, undo_in_seconds, reason=why)
            outcome.undo = None if undo is None else undo.id
            after = self.service.cursors.walk(
                scope,
                visit(replace(job, undo=undo), outcome),
                lambda: outcome.matched == limit or self.now() > until,
            )
        return BulkAnswer(outcome.matched, outcome.changed, (), after, undo)

    def as_seen(
        self,
        queue: str,
        action: BulkAction,
        seen: Sequence[TaskSnapshot],
        where: TaskFilter,
        *,
        stamps: Sequence[datetime],
        to_queue: str | None = None,
        undo: Undo | None = None,
        only_look: bool = False,
    ) -> list[BulkOutcome]:
        """Do *action* to the tasks *seen* that have not changed since and that *where* matches.

        *undo* can restore deleted tasks.  *stamps* are the start times of all tries of this part,
        the current one last: a task with one of them was changed before, and is reported as done.
        With *only_look*, change nothing and report all other tasks as skipped.  The caller writes
        the audit.  Raises as by_ids().
        """
        where = self.service.versions.resolved(where)
        job = replace(self._job(queue, action, to_queue, dry_run=False), undo=undo, at=stamps[-1])
        found = self.store.read([each.id for each in seen])
        gone = [each.id for each in seen if each.id not in found]
        tombstones = self.store.tombstones(gone) if gone else {}
        undo_id = None if undo is None else undo.id
        all_gone = action is BulkAction.DELETE and undo is None and len(stamps) > 1

        def plan_of(each: TaskSnapshot) -> Change | BulkOutcome:
            task = found.get(each.id) or tombstones.get(each.id)
            if all_gone if task is None else shows_action(action, task, stamps, undo_id):
                return BulkOutcome(each.id, _DONE[action])
            if only_look or task is None or task.queue != queue or task.is_hidden(self.now()):
                return BulkOutcome(each.id, "NOT_FOUND")
            change = self._planned(job, task, partial(_as_seen, each, where))
            if isinstance(change, Unfit):
                return BulkOutcome(each.id, "SKIPPED", change.detail)
            return change

        def became(each: TaskSnapshot, change: Change, outcome: Outcome) -> BulkOutcome:
            if isinstance(outcome, Done):
                left = _leaves(found[each.id], change, outcome)
                return self._noted(job, found[each.id], gone=left)
            # Changed since it was read, perhaps by an earlier try, or its key is held: read it.
            now = found[each.id] if outcome.blocked else outcome.task
            if now is not None and shows_action(action, now, stamps, undo_id):
                return BulkOutcome(each.id, _DONE[action])
            return self._one(job, each.id, now, partial(_as_seen, each, where))

        planned = [(each, plan_of(each)) for each in seen]
        changes = [(each, plan) for each, plan in planned if isinstance(plan, Change)]
        if action is BulkAction.CANCEL:
            note_dying(self.store, job.queue, [found[each.id] for each, _ in changes])
        outcomes = commit(self.service, [change for _, change in changes])
        results = {each.id: plan for each, plan in planned if isinstance(plan, BulkOutcome)}
        for (each, change), outcome in zip(changes, outcomes, strict=True):
            results[each.id] = became(each, change, outcome)
        return [results[each.id] for each in seen]

    def _job(self, queue: str, action: BulkAction, to_queue: str | None, *, dry_run: bool) -> _Job:
        source = self.service.queues.cached(queue)
        if to_queue is None:
            return _Job(source, action, None, dry_run)
        if to_queue == queue:
            message = "to_queue must be another queue"
            raise InvalidRequest(message, errors=(FieldError("to_queue", message),))
        return _Job(source, action, self.service.queues.cached(to_queue), dry_run)

    @contextmanager
    def _audited(
        self,
        job: _Job,
        where: Mapping[str, Any] | None,
        reason: str,
        *,
        ids: Sequence[str] | None = None,
    ) -> Iterator[ActionOutcome]:
        """Record the block and the numbers that it counts in the audit, unless it is a dry run."""
        if job.dry_run:
            yield ActionOutcome(0, 0)
            return
        if job.target is not None:
            where = {**(where or {}), "to_queue": job.target.name}
        with self.service.audit.action(
            job.action, queue=job.queue.name, where=where, ids=ids, by_parts=True, reason=reason
        ) as outcome:
            yield outcome

    def _after(self, job: _Job, task: Task | None, first: BulkOutcome) -> Task | None:
        """Return *task* as the action would leave it if the dry run ended with *first*."""
        if task is None or first.outcome != _DONE[job.action]:
            return task
        change = self._planned(job, task, None)
        return change.apply(task) if isinstance(change, Change) else task

    def _one(
        self, job: _Job, task_id: str, task: Task | None, meant: _Meant | None = None
    ) -> BulkOutcome:
        """Act on one task as it was read; read it again if it has changed."""
        for _ in range(_LOOKS):
            if task is None or task.queue != job.queue.name or task.is_hidden(self.now()):
                return BulkOutcome(task_id, "NOT_FOUND")
            change = self._planned(job, task, meant)
            if isinstance(change, Unfit):
                return BulkOutcome(task_id, "SKIPPED", change.detail)
            if job.dry_run:
                return self._foreseen(job, task)
            if job.action is BulkAction.CANCEL:
                note_dying(self.store, job.queue, [task])
            outcome, holder = commit_with_key(self.service, change, job.queue.name)
            gone = job.action is BulkAction.DELETE and not task.same_as(outcome.task)
            if isinstance(outcome, Done) or gone:  # gone since it was read
                return self._noted(job, task, gone=gone or _leaves(task, change, outcome))
            if holder is not None:
                return BulkOutcome(task_id, "SKIPPED", _CONFLICT)
            task = task if outcome.blocked else outcome.task
        return BulkOutcome(task_id, "SKIPPED", "the task keeps changing; try again")

    def _noted(self, job: _Job, task: Task, *, gone: bool) -> BulkOutcome:
        """Notify the lines and lease groups that wait for *task*; return the outcome."""
        if job.action is BulkAction.CANCEL:
            note_cancelled(self.store, task)
        if gone:
            note_left(self.store, job.queue.name, [task])
        return BulkOutcome(task.id, _DONE[job.action])

    def _planned(self, job: _Job, task: Task, meant: _Meant | None) -> Change | Unfit:
        now = job.at or self.now()
        if meant is not None and not meant(task, now):
            return Unfit("the task has changed")
        plan = partial(operate, job.action, task, job.queue, target=job.target, now=now)
        change = plan()
        if isinstance(change, Unfit):
            return change
        to = takes_turn(job.action, task, job.queue, target=job.target, now=now)
        if to is not None and not job.dry_run:
            change = self._in_line(to, task, plan)
        if isinstance(change, Unfit) or job.action is not BulkAction.DELETE:
            return change
        return hide_for_undo(change, task, job.undo)

    def _in_line(
        self, to: Queue, task: Task, plan: Callable[..., Change | Unfit]
    ) -> Change | Unfit:
        """Plan the action with the turn of *task* in queue *to*: a new one, or the kept one."""
        if to.strict and self.service.lines.keeps_place(to, task):
            return plan(turn=kept_turn(task))
        turn = self.service.lines.take_once(to, task)
        change = plan(turn=turn)
        return change if isinstance(change, Unfit) else structs.replace(change, turn=turn)

    def _foreseen(self, job: _Job, task: Task) -> BulkOutcome:
        """Return the outcome that a dry run predicts for *task*."""
        if job.action is BulkAction.RESTART and task.dedupe_key is not None:
            key = task.dedupe_key
            if key_holder(self.store, job.queue.name, key, self.now())[1] is not None:
                return BulkOutcome(task.id, "SKIPPED", _CONFLICT)
        return BulkOutcome(task.id, _DONE[job.action])


def _leaves(task: Task, change: Change, outcome: Outcome) -> bool:
    """Return whether *change* took *task* out of its place in a strict order."""
    after = outcome.task
    if change.gone or after is None or after.state is State.DELETED:
        return True
    return (after.queue, after.after) != (task.queue, task.after)


def _meant_by(where: TaskFilter, task: Task, now: datetime) -> bool:
    where = where.without_payloads()  # compared before, and they never change
    return where.matches(task) and any(span.holds(task) for span in where.spans(now))


def _as_seen(snapshot: TaskSnapshot, where: TaskFilter, task: Task, now: datetime) -> bool:
    return snapshot.shows(task) and _meant_by(where, task, now)


def _count(result: BulkOutcome, job: _Job, outcome: ActionOutcome) -> None:
    outcome.matched += result.matched
    outcome.changed += result.changed and not job.dry_run


def _came_later(task: Task, as_of: datetime) -> bool:
    """Return whether *task* entered its state after the action on the whole filter began."""
    return max(task.enqueued_at, task.finished_at or task.enqueued_at) > as_of
