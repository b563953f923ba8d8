"""Cancel one task, or a batch with all its members and the coming steps of a workflow.

A batch is cancelled in three steps, and each may be repeated and resumed:

1. Stop the parts of a workflow, so that none makes its step.
2. Cancel the batch: it takes no new members, and expects only the ones that were made.
3. Cancel its members.  The ids of a workflow's members are known.  If these are not all, read every
   task that waits or is in flight: no index lists the members of a batch.

A cancelled batch ends as any other and makes its callbacks: its members are dead.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import structs

from headrace.domain import access, plan
from headrace.domain.batch import TaskBatch
from headrace.domain.change import Done
from headrace.domain.errors import Finished, Forbidden, NotFound, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.lifecycle import Action, rules
from headrace.domain.task import Membership, State, Task
from headrace.domain.workflow import part_id, root_id
from headrace.ops.shared.audit import ActionOutcome, checked_reason
from headrace.ops.shared.commits import commit
from headrace.ops.shared.leases import note_cancelled
from headrace.ops.shared.paging import Walk
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_dying, note_left
from headrace.ops.tasks.batches import visible_batch
from headrace.ops.tasks.enqueue import shown_task
from headrace.ops.tasks.steps import MAKES, callbacks_of
from headrace.store.base import every_record
from headrace.store.call_scope import flat_rate, visible
from headrace.store.records import batches as batch_records
from headrace.store.records import queues as queue_records

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_LOOKS: Final = 10  # at a task that changes state while it is cancelled


@dataclass(frozen=True, slots=True)
class CancelResult:
    """The task as it is after the call; *kept* is False where its queue keeps no dead ones."""

    task: Task
    kept: bool = True


class Cancelling(ServicePart):
    """Cancels single tasks."""

    def cancel(self, task_id: str, *, reason: str = "") -> CancelResult:
        """End a task that waits or is in flight; one that was cancelled before is left as it is.

        The holder of its lease hears of it with its next heartbeat or report.  *reason* is why, for
        the audit.  Raises Finished for a task that ended otherwise, Unavailable for one that keeps
        changing, and as shown_task() and checked_reason().
        """
        why, task = checked_reason(reason), self._read(task_id)
        if task.cancelled:
            return CancelResult(task)
        with self.service.audit.action(
            "cancel", queue=task.queue, ids=[task_id], reason=why
        ) as outcome:
            done = self._end(task)
            outcome.changed = int(done is not None)
        return done or CancelResult(self._read(task_id))

    def end(self, task_id: str) -> bool:
        """Cancel a task without an audit entry; return whether this call did it."""
        try:
            task = self._read(task_id)
            return not task.cancelled and self._end(task) is not None
        except (NotFound, Forbidden, Finished):
            return False

    def _read(self, task_id: str) -> Task:
        """Return a task that can be cancelled, or was.  Raises as cancel()."""
        now = self.now()
        task = shown_task(self.store.read([task_id]).get(task_id), task_id, now)
        if not task.cancelled and not (rules(Action.CANCEL, task.state) and task.is_live(now)):
            raise Finished(_ended(task))
        return task

    def _end(self, task: Task) -> CancelResult | None:
        """End *task*; return None if another call has cancelled it.  Raises as cancel()."""
        for _ in range(_LOOKS):
            queue = self.service.queues.cached(task.queue)
            note_dying(self.store, queue, [task])
            change = plan.cancel(task, queue, now=self.now())
            done = commit(self.service, [change])[0]
            if isinstance(done, Done):
                if change.gone:
                    note_left(self.store, queue.name, [task])
                note_cancelled(self.store, task)
                left = task if change.gone else structs.replace(done.task, payload=task.payload)
                return CancelResult(left, kept=not change.gone)
            task = self._read(task.id)
            if task.cancelled:
                return None
        raise Unavailable("the task keeps changing; try again")


def _ended(task: Task) -> str:
    if task.dead_reason is not None:
        return f"task {task.id} is DEAD already: {task.dead_reason}"
    if rules(Action.CANCEL, task.state):
        return f"task {task.id} has expired"
    return f"task {task.id} is {task.state} already"


_At: TypeAlias = list[Any]  # JSON, for the cursor
_BEGIN: Final[_At] = ["begin"]
_FIRST_QUEUE: Final[_At] = ["", None]
_PENDING: Final = TaskFilter(states=("pending",))
_PENDING_STATES: Final = {State.ENQUEUED, State.INFLIGHT}
_PAGE: Final = 50
_RECORDS: Final = 250
_KNOWN: Final = 1_000  # ids that are looked up before all tasks are looked at


@dataclass(frozen=True, slots=True)
class CancelledBatch:
    """How many tasks a step has cancelled, and where the next goes on; None: that was all."""

    cancelled: int
    cursor: str | None


class BatchCancelling(ServicePart):
    """Cancels batches; a step takes about *patience* seconds."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 5.0

    def step(self, batch_id: str, cursor: str | None = None) -> CancelledBatch:
        """Cancel a batch, or resume at *cursor*.

        Raises NotFound, InvalidRequest for a forged cursor, and Forbidden for a workflow with steps
        in queues that the caller may not see.
        """
        whole, scope = self.service.task_batches.get(batch_id), f"cancel batch {batch_id}"
        at = _BEGIN if cursor is None else self.service.cursors.read(scope, cursor)
        until = self.now() + timedelta(seconds=self.patience)
        parts = self._parts(whole)
        with self.service.audit.action(
            "cancel", where={"batch": batch_id}, by_parts=True
        ) as outcome:
            if at == _BEGIN:
                positions = self._begin(whole, parts, outcome)
            else:
                positions = self._every((whole, *parts.values()), at, outcome)
            after = self.service.cursors.walk(scope, positions, lambda: self.now() > until)
            outcome.matched = outcome.changed
        return CancelledBatch(outcome.changed, after)

    def _parts(self, whole: TaskBatch) -> dict[str, TaskBatch]:
        """Return all that stands within *whole*, by id."""
        found: dict[str, TaskBatch] = {}
        prefix = part_id(whole.id, "")
        for record in every_record(self.store, batch_records.KIND, prefix=prefix, page=_RECORDS):
            part = batch_records.from_record(record)
            if part.part_of != whole.id and part.part_of not in found:
                continue
            if not visible_batch(part):
                raise access.not_all_queues_of("batch", whole.id)
            if part.expires_at > self.now():
                found[part.id] = part
        return found

    def _begin(
        self, whole: TaskBatch, parts: dict[str, TaskBatch], outcome: ActionOutcome
    ) -> Iterator[_At]:
        """Stop the parts, cancel the batch and all members; yield where to resume."""
        for part in parts.values():
            if not part.stopped and any(event not in part.fired for event in part.on):
                stopped = self.service.batch_writes.change(
                    part.id, lambda one: replace(one, stopped=True)
                )
                parts[part.id] = stopped or part
                yield _BEGIN
        made, never_made = self._callbacks(parts)
        now = self.now()
        cancelled = self.service.batch_writes.change(
            whole.id, lambda one: one.cancelled(now, never_made=never_made[whole.id])
        )
        whole = cancelled or whole
        roots = (whole.total or 0) - made[whole.id]
        ids = [root_id(whole.id, place) for place in range(min(roots, _KNOWN))]
        ids += [
            fired.task_id
            for part in parts.values()
            for fired in part.fired.values()
            if fired.task_id is not None
        ][:_KNOWN]
        ids += [task.id for task in self.service.task_batches.results(whole.id)]
        every = {whole.id: whole, **parts}
        for task in self._members(ids, every.values()):
            if task.state in _PENDING_STATES:
                outcome.changed += self.service.cancelling.end(task.id)
            yield _FIRST_QUEUE
        if not self._all_known(ids, whole, every, never_made):
            yield _FIRST_QUEUE
            yield from self._every(every.values(), _FIRST_QUEUE, outcome)

    def _all_known(
        self,
        ids: Iterable[str],
        whole: TaskBatch,
        every: Mapping[str, TaskBatch],
        never_made: Counter[str],
    ) -> bool:
        """Return whether *ids* are all members: some may have ended, and spawned others."""
        direct: Counter[str] = Counter()
        for task in self._members(ids, every.values()):
            for one in task.batches or ():
                if one.inherited or one.spawned:
                    return False
                direct[one.batch_id] += 1
        return all(
            one.total is not None
            and direct[one.id] + (never_made[one.id] if one is not whole else 0) == one.total
            for one in every.values()
        )

    def _callbacks(self, parts: Mapping[str, TaskBatch]) -> tuple[Counter[str], Counter[str]]:
        """Return for each batch how many members parts have made, and how many never will be."""
        made: Counter[str] = Counter()
        never_made: Counter[str] = Counter()
        for part in parts.values():
            into = {
                Membership(key).batch_id
                for _, _, callback in callbacks_of(self.service.task_batches, part)
                for key in callback.new.batches
            }
            (made if any(event in part.fired for event in MAKES) else never_made).update(into)
        return made, never_made

    def _members(self, ids: Iterable[str], batches: Iterable[TaskBatch]) -> Iterator[Task]:
        now, keys = self.now(), {one.key for one in batches}
        for task in self.store.read(dict.fromkeys(ids), payload=False).values():
            shown = visible(task.queue) and not task.is_hidden(now)
            if shown and not keys.isdisjoint(task.batch_keys):
                yield task

    def _every(
        self, batches: Iterable[TaskBatch], at: _At, outcome: ActionOutcome
    ) -> Iterator[_At]:
        """Cancel the members among all tasks that have not ended; yield where to resume."""
        keys, (name, state) = {one.key for one in batches}, at
        while True:
            if state is None:
                found = self._next_queue(name)
                if found is None:
                    return
                name, state = found, Walk(self.now()).state()
            try:
                queue = self.service.queues.cached(name)
            except NotFound:  # it was deleted in the meantime
                state = None
                continue
            for task, after in self.service.inspect.walk(
                queue, _PENDING, Walk.read(state), page=_PAGE
            ):
                if task is not None and not keys.isdisjoint(task.batch_keys):
                    outcome.changed += self.service.cancelling.end(task.id)
                yield [name, after.state()]
            state = None

    def _next_queue(self, after: str) -> str | None:
        """Return the first queue behind *after* that the caller may know of."""
        with flat_rate():  # most of them have no members of the batch
            records = every_record(self.store, queue_records.KIND, after=after, page=_RECORDS)
            return next((record.name for record in records if visible(record.name)), None)
