"""What one key may see: tasks, queues and audit of its own patterns, and no trace of others."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from headrace.domain import access
from headrace.domain.access import Permission, Principal
from headrace.domain.errors import Forbidden, NotFound
from headrace.domain.lease import Group
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.ops.shared.audit import Audit, AuditFilter, AuditRecord
from headrace.ops.shared.leases import Leases
from headrace.ops.shared.paging import Found, read_units, seek
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.tasks.enqueue import EnqueueResult, TaskOperations
from headrace.ops.tasks.inspect import TaskListing
from headrace.store.base import flat_rate
from headrace.store.records import queues as queue_records

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


def delete_task(
    tasks: TaskOperations, by: Principal, task_id: str, *, if_not_inflight: bool = False
) -> None:
    """Remove a task, if it is in one of *by*'s queues at that moment.

    Raises as task(), and Inflight when *if_not_inflight* and a worker has it.
    """
    by.require(Permission.OPERATE)

    def check(found: Task) -> None:
        if not by.covers(found.queue):
            raise access.not_this_task(task_id)

    try:
        tasks.delete(task_id, if_not_inflight=if_not_inflight, check=check)
    except NotFound:
        raise no_task(by, task_id) from None


def enqueued(by: Principal, results: Sequence[EnqueueResult]) -> list[EnqueueResult]:
    """Return the results as *by* may know them: no queue that is not one of its own."""
    return [
        result
        if result.elsewhere is None or by.covers(result.elsewhere)
        else replace(result, elsewhere=None)
        for result in results
    ]


def close_lease(leases: Leases, by: Principal, group_id: str) -> None:
    """Close a group lease, if *by* is for each queue it was used with.

    Raises Forbidden, and as Leases.close().
    """
    by.require(Permission.WORK)

    def check(group: Group) -> None:
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
    limit: int = 50,
    cursor: str | None = None,
) -> Found[Queue]:
    """Return a page of *by*'s queues by name.  Raises InvalidRequest for a forged cursor.

    A page may be short or empty and still have a cursor; see ``paging``.  Only names that begin
    as the patterns do are read.
    """
    by.require(Permission.READ)
    if by.everywhere:
        return all_queues.list(prefix=prefix, limit=limit, cursor=cursor)
    cursors, now = all_queues.cursors, all_queues.now()
    scope = f"queues {prefix} of {by.patterns}"
    head = access.common_head(by.patterns)
    if not head.startswith(prefix) and not prefix.startswith(head):
        return Found((), None)
    found = seek(
        all_queues.store,
        queue_records.KIND,
        lambda record: record if by.covers(record.name) else None,
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
    """Return a page of what was changed by hand in *by*'s queues, newest first.

    What was changed outside of queues (keys) is only for keys that are for all queues, and where
    tasks went is null if that is not one of *by*'s.
    Raises InvalidRequest as Audit.list().
    """
    by.require(Permission.OPERATE)
    if by.everywhere:
        return whole.list(where, limit=limit, cursor=cursor)
    where = _OwnAudit(**asdict(where), patterns=by.patterns)
    with flat_rate() as rate:
        page = whole.list(where, limit=limit, cursor=cursor)
        entries = tuple(_entry_seen_by(by, entry) for entry in page.shown)
        rate.read = read_units(entries)
    return replace(page, shown=entries)


def _entry_seen_by(by: Principal, entry: AuditRecord) -> AuditRecord:
    """Return *entry* without the queue that tasks went to, where that is not *by*'s."""
    target = (entry.filter or {}).get(_TARGET)
    if target is None or by.covers(target):
        return entry
    return replace(entry, filter={**(entry.filter or {}), _TARGET: None})


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
