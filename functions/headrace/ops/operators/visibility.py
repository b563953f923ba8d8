"""The tasks, queues and audit entries that one key may see, and no trace of others."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.domain import access
from headrace.domain.access import Permission, Principal
from headrace.domain.batch import TaskBatch
from headrace.domain.errors import Forbidden, NotFound
from headrace.domain.lease import LeaseGroup
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.operate import Undo
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.task import Task
from headrace.ops.operators.bulk import BulkAnswer
from headrace.ops.operators.undo import Undoing
from headrace.ops.shared.audit import TOLD, Audit, AuditFilter, AuditRecord
from headrace.ops.shared.leases import Leases
from headrace.ops.shared.paging import Found, read_units, seek
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.tasks.batches import BatchOperations
from headrace.ops.tasks.cancel import Cancelling, CancelResult
from headrace.ops.tasks.enqueue import TaskOperations
from headrace.ops.tasks.inspect import TaskListing
from headrace.ops.tasks.wait import Waiting
from headrace.store.base import Record
from headrace.store.call_scope import flat_rate
from headrace.store.records import queues as queue_records

if TYPE_CHECKING:
    from headrace.ops.operators.actions import ActionOperations
    from headrace.store.records.actions import Action

_TARGET: Final = "to_queue"


def task(tasks: TaskOperations, by: Principal, task_id: str) -> Task:
    """Return a task as *by* may see it.

    Raises NotFound; a *by* that is not for all queues gets Forbidden for that, and for a task of
    another queue, and cannot tell one from the other.
    """
    by.require(Permission.READ)
    try:
        found = tasks.get(task_id)
    except NotFound:
        raise no_task(by, task_id) from None
    if not by.covers(found.queue):
        raise access.not_this_task(task_id)
    return access.as_seen_by(by, found)


def ended_task(waiting: Waiting, by: Principal, task_id: str, *, seconds: float) -> Task:
    """Return a task once it has ended, or when *seconds* are over, as *by* may see it.

    Raises as task(), also when it has moved to a queue that is not *by*'s, and as Waiting.wait().
    """
    by.require(Permission.READ)

    def check(found: Task) -> None:
        if not by.covers(found.queue):
            raise access.not_this_task(task_id)

    try:
        found = waiting.wait(task_id, seconds=seconds, check=check)
    except NotFound:
        raise no_task(by, task_id) from None
    return access.as_seen_by(by, found)


def delete_task(
    tasks: TaskOperations,
    by: Principal,
    task_id: str,
    *,
    if_not_inflight: bool = False,
    undo_in_seconds: Seconds = 0,
    reason: str = "",
) -> Undo | None:
    """Remove a task, if it is in one of *by*'s queues at that moment.

    Return the undo that restores it within *undo_in_seconds*; 0: None.  *reason* is for the audit.
    Raises as task() and checked_reason(), and Inflight when *if_not_inflight* and a worker has it.
    """
    by.require(Permission.OPERATE)

    def check(found: Task) -> None:
        if not by.covers(found.queue):
            raise access.not_this_task(task_id)

    try:
        return tasks.delete(
            task_id,
            if_not_inflight=if_not_inflight,
            undo_in_seconds=undo_in_seconds,
            check=check,
            reason=reason,
        )
    except NotFound:
        raise no_task(by, task_id) from None


def undo(undoing: Undoing, by: Principal, undo_id: str, *, cursor: str | None) -> BulkAnswer:
    """Bring back what was deleted in one of *by*'s queues.

    Raises as Undoing.undo(); a *by* that is not for all queues gets Forbidden for one of another
    queue, and for one that there is not.
    """
    by.require(Permission.OPERATE)
    refused = Forbidden("this key is not for the queue of this undo")

    def check(queue: str) -> None:
        if not by.covers(queue):
            raise refused

    try:
        return undoing.undo(undo_id, cursor=cursor, check=check)
    except NotFound:
        if by.everywhere:
            raise
        raise refused from None


def action(
    whole: "ActionOperations", by: Principal, run_id: str, *, dry_run: bool = False
) -> "Action":
    """Return an action whose queues are all *by*'s, also one that was not begun with *dry_run*.

    Raises NotFound; a *by* that is not for all queues gets Forbidden for that, and for an action
    on another queue.
    """
    by.require(Permission.OPERATE)
    try:
        run = whole.get(run_id, dry_run=dry_run)
    except NotFound:
        if by.everywhere:
            raise
        raise access.not_this_action(run_id) from None
    if not by.covers_all(run.touches):
        raise access.not_this_action(run_id)
    return run


def actions(
    whole: "ActionOperations",
    by: Principal,
    *,
    queue: str | None,
    where: "ListQuery[Action]" = EVERY_ROW,
    limit: int,
    cursor: str | None,
) -> "Found[Action]":
    """Return a page of the actions whose queues are all *by*'s, the latest first.

    Raises as ActionOperations.list(), and Forbidden for a *queue* that is not *by*'s.
    """
    by.require(Permission.OPERATE)
    with flat_rate() as rate:
        page = whole.list(queue=queue, where=where, limit=limit, cursor=cursor, by=by)
        rate.read = read_units(page.shown)
    return page


def cancel_task(
    cancelling: Cancelling, by: Principal, task_id: str, *, reason: str = ""
) -> CancelResult:
    """Cancel a task of a queue that *by* may put tasks into, and return it as *by* may see it.

    Raises as task(), and as Cancelling.cancel().
    """
    by.require(Permission.CANCEL)

    def check(found: Task) -> None:
        if not by.covers(found.queue):
            raise access.not_this_task(task_id)

    try:
        done = cancelling.cancel(task_id, check=check, reason=reason)
    except NotFound:
        raise no_task(by, task_id) from None
    return replace(done, task=access.as_seen_by(by, done.task))


def batch(batches: BatchOperations, by: Principal, batch_id: str) -> TaskBatch:
    """Return a batch whose queues are all *by*'s.

    Raises NotFound; a *by* that is not for all queues gets Forbidden for that, and for a batch of
    another queue, and cannot tell one from the other.
    """
    try:
        found = batches.get(batch_id)
    except NotFound:
        if by.everywhere:
            raise
        raise access.not_this_batch(batch_id) from None
    if not by.covers_all(found.known_by):
        raise access.not_this_batch(batch_id)
    return found


def close_lease(leases: Leases, by: Principal, group_id: str) -> None:
    """Close a group lease, if *by* is for each queue it was used with.

    Raises Forbidden, and as Leases.close().
    """
    by.require(Permission.WORK)

    def check(group: LeaseGroup) -> None:
        if not by.covers_all(sorted(group.queues)):
            raise Forbidden("this key is not for all queues of this lease")

    leases.close(group_id, check=check)


def no_task(by: Principal, task_id: str) -> NotFound | Forbidden:
    """Return the error that *by* gets for a task that is not there."""
    if by.everywhere:
        return NotFound(f"there is no task {task_id[:128]}")
    return access.not_this_task(task_id)


def page(by: Principal, tasks: TaskListing) -> TaskListing:
    """Return a page of tasks as *by* may see them."""
    return replace(tasks, tasks=tuple(access.as_seen_by(by, task) for task in tasks.tasks))


def queues(
    all_queues: QueueOperations,
    by: Principal,
    *,
    prefix: str = "",
    where: ListQuery[Queue] = EVERY_ROW,
    limit: int = 50,
    cursor: str | None = None,
) -> Found[Queue]:
    """Return a page of *by*'s queues by name.  Raises InvalidRequest for a forged cursor.

    A page may be short or empty and still have a cursor; see ``paging``.  Only names that begin
    as the patterns do are read.
    """
    by.require(Permission.READ)
    if by.everywhere and not where.terms:
        return all_queues.list(prefix=prefix, limit=limit, cursor=cursor)
    cursors, now = all_queues.service.cursors, all_queues.now()
    scope = f"queues {prefix} of {by.patterns} {where.text}"

    def meant(record: Record) -> Record | None:
        own = by.covers(record.name)
        if own and where.terms:
            own = where.means(queue_records.from_record(record).as_seen(now), now)
        return record if own else None

    head = access.common_head(by.patterns)
    if not head.startswith(prefix) and not prefix.startswith(head):
        return Found((), None)
    found = seek(
        all_queues.store,
        queue_records.KIND,
        meant,
        cursors,
        scope,
        limit=limit,
        cursor=cursor,
        prefix=max(head, prefix, key=len),
        now=all_queues.now,
    )
    shown = tuple(queue_records.from_record(record).as_seen(now) for record in found.shown)
    return Found(shown, found.cursor)


def audit(
    whole: Audit,
    by: Principal,
    where: AuditFilter,
    *,
    limit: int = 50,
    cursor: str | None = None,
) -> Found[AuditRecord]:
    """Return a page of the manual changes in *by*'s queues, newest first."""
    by.require(Permission.OPERATE)
    if by.everywhere:
        return whole.list(where, limit=limit, cursor=cursor)
    own = {one.name: getattr(where, one.name) for one in fields(AuditFilter)}
    where = _OwnAudit(**own, patterns=by.patterns)
    with flat_rate() as rate:
        page = whole.list(where, limit=limit, cursor=cursor)
        entries = tuple(_entry_seen_by(by, entry) for entry in page.shown)
        rate.read = read_units(entries)
    return replace(page, shown=entries)


def _entry_seen_by(by: Principal, entry: AuditRecord) -> AuditRecord:
    """Return *entry* without the queues that it names, where those are not *by*'s."""

    def shown(values: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any] | None:
        named = {name: values.get(name) for name in names} if values else {}
        hidden = {name: None for name, queue in named.items() if queue and not by.covers(queue)}
        return {**(values or {}), **hidden} if hidden else values

    return replace(
        entry,
        filter=shown(entry.filter, _TARGET),
        before=shown(entry.before, *TOLD),
        after=shown(entry.after, *TOLD),
    )


@dataclass(frozen=True, slots=True)
class _OwnAudit(AuditFilter):
    """Entries about queues that the patterns cover."""

    patterns: tuple[str, ...] = ()

    def means(self, entry: AuditRecord) -> bool:
        return (
            entry.queue is not None
            and any(access.covers(pattern, entry.queue) for pattern in self.patterns)
            and AuditFilter.means(self, entry)
        )
