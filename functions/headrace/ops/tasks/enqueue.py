"""The life of a task outside its worker: enqueue, look, delete."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from headrace.domain import access, plan
from headrace.domain.change import Change, Done, KeyLock, Outcome, Refused
from headrace.domain.errors import Forbidden, Inflight, InvalidRequest, NotFound, Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.operate import Undo, hide_for_undo
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.task import State, Task
from headrace.domain.task_groups import PLACE_GOOD_FOR, Turn
from headrace.domain.times import MICROSECOND
from headrace.ops.shared.audit import checked_reason
from headrace.ops.shared.commits import check_fence, commit, key_holder, with_id
from headrace.ops.shared.leases import with_present_ends
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.stack_secret import with_unique_ids
from headrace.ops.shared.strict_order import note_left, note_unused
from headrace.store.call_scope import draw_task_id, not_shown, visible

_LOOKS: Final = 10  # at a dedupe key that changes hands while we look


class EnqueueOutcome(StrEnum):
    """What became of one entry of an enqueue call."""

    CREATED = "CREATED"
    EXISTING = "EXISTING"
    DUPLICATE = "DUPLICATE"
    OVERWRITTEN = "OVERWRITTEN"
    INVALID = "INVALID"


class EnqueueResult(Struct, frozen=True):
    """The result of one entry; ``task`` is the existing task if it may be shown.

    ``elsewhere`` is the queue of an EXISTING task in another queue, which is not shown; None if
    the caller may not know this queue.
    """

    outcome: EnqueueOutcome
    id: str | None
    task: Task | None = None
    detail: str | None = None
    elsewhere: str | None = None

    @property
    def queue(self) -> str | None:
        """The queue that the task is in; None where there is no task, or it may not be named."""
        return self.elsewhere if self.task is None else self.task.queue


class _Entry(Struct, frozen=True):
    """One entry on its way in."""

    new: TaskSpec
    task_id: str
    due_at: datetime
    token: str | None
    turn: Turn | None = None

    def fault(
        self, target: Queue, refused: Mapping[str, str], uploads: Mapping[str, str]
    ) -> str | None:
        """Return the error that only the queue, the clock or the batches can reveal, or None."""
        if self.new.upload is not None and self.new.upload.name in uploads:
            return uploads[self.new.upload.name]
        fault = self.new.fault(target, self.due_at)
        if fault is not None or not refused:
            return fault
        why = (
            f"batches[{place}]: {refused[batch_id]}"
            for place, batch_id in enumerate(self.new.batches)
            if batch_id in refused
        )
        return next(why, None)


def _with_keys(new: TaskSpec, keys: Mapping[str, str]) -> TaskSpec:
    """Return *new* with the keys of its batches; unknown ones stay as they are."""
    if not new.batches:
        return new
    return structs.replace(new, batches=tuple(keys.get(one, one) for one in new.batches))


class TaskOperations(ServicePart):
    """Enqueues, shows, edits and deletes tasks."""

    def enqueue(self, queue: str, new: Sequence[TaskSpec]) -> list[EnqueueResult]:
        """Put tasks into *queue*, each on its own; results in the order given.

        Raises NotFound when there is no such queue.
        """
        target = self.service.queues.cached(queue)
        now = self.now()
        wanted = [batch_id for one in new for batch_id in one.batches]
        keys, refused = self.service.task_batches.joining(wanted) if wanted else ({}, {})
        new = [_with_keys(one, keys) for one in new]
        if any(one.unique_for is not None for one in new):
            unique = [(target.name, one) for one in new]
            new = with_unique_ids(self.store, self.service.derived_ids, unique, now)
        taken: dict[datetime, datetime] = {}
        results: list[EnqueueResult] = []
        plain: list[_Entry] = []
        entries = [self._entry(given, now, taken) for given in new]
        uploads = (
            self.service.uploads.faults(new, target.name) if any(one.upload for one in new) else {}
        )
        faults = [entry.fault(target, refused, uploads) for entry in entries]
        for entry, fault in zip(self._in_line(entries, faults, target, now), faults, strict=True):
            given = entry.new
            if given.dedupe_key is None and fault is None:
                plain.append(entry)
                continue
            # An entry that needs its own read is enqueued after the entries before it.
            results += self._enqueue_plain(plain, target, now)
            plain = []
            if fault is not None:
                results.append(self._invalid(entry, target, now, fault))
            else:
                entry = self._in_time(entry, target, now)  # noqa: PLW2901  or the same
                results.append(self._enqueue_keyed(entry, target, now))
                self._note_unused(target, [entry], results[-1:])
        return results + self._enqueue_plain(plain, target, now)

    def enqueue_at(
        self, queue: Queue, new: TaskSpec, due_at: datetime, *, fence: KeyLock | None = None
    ) -> EnqueueResult:
        """Enqueue a task that the service makes, due at *due_at*, which may be in the past.

        With a *fence*, both are written, or none.  Raises OvertakenError if the fence is not as
        expected, and Unavailable if the dedupe key keeps changing hands.
        """
        now = self.now()
        token = new_request_token() if new.id else None
        entry = _Entry(new, new.id or draw_task_id(now), due_at, token)
        return self._enqueue_keyed(entry, queue, now, fence)

    def _in_time(self, entry: _Entry, queue: Queue, since: datetime) -> _Entry:
        """Return *entry*, with a new turn if the one taken at *since* has expired."""
        if not queue.strict or self.now() - since < PLACE_GOOD_FOR:
            return entry
        return self._in_line([entry], [None], queue, self.now())[0]

    def get(self, task_id: str) -> Task:
        """Return a task, as last written, without consuming it.  Raises as shown_task()."""
        task = shown_task(self.store.read([task_id]).get(task_id), task_id, self.now())
        return with_present_ends(self.store, [task])[0]

    def delete(
        self,
        task_id: str,
        *,
        if_not_inflight: bool = False,
        undo_in_seconds: Seconds = 0,
        reason: str = "",
    ) -> Undo | None:
        """Remove a task in any state, or only while no worker has it.

        Return the undo that restores it within *undo_in_seconds*; 0: None.  *reason* is for the
        audit.  Raises as get() and checked_reason(), and Inflight when *if_not_inflight* and a
        worker has it.
        """
        why = checked_reason(reason)
        undo: Undo | None = None
        while True:
            task = self.get(task_id)
            if if_not_inflight and task.state is State.INFLIGHT:
                message = f"task {task_id} is in flight"
                raise Inflight(message)
            with self.service.audit.action(
                "delete", queue=task.queue, ids=[task_id], reason=why
            ) as outcome:
                if undo is None or undo.queue != task.queue:  # it may have moved on
                    undo = self.service.undos.begin(
                        task.queue, undo_in_seconds, ids=[task_id], reason=why
                    )
                outcome.undo = None if undo is None else undo.id
                change = hide_for_undo(plan.delete(task), task, undo)
                deleted = commit(self.service, [change])[0]
                # Gone since it was read: by this very call, if its answer was lost.
                done = isinstance(deleted, Done) or not task.same_as(deleted.task)
                outcome.changed = int(done)
            if done:
                if task.after is not None:
                    note_left(self.store, task.queue, [task])
                return undo

    def _entry(self, given: TaskSpec, now: datetime, taken: dict[datetime, datetime]) -> _Entry:
        """Return the entry of *given*; *taken* maps due times of this call to the next free ones.

        Tasks of one call keep their order, so each has its own due time.
        """
        wanted = due_at = given.due_at(now)
        while due_at in taken:
            due_at = taken[due_at]
        taken[wanted] = taken[due_at] = due_at + MICROSECOND  # all from the one to the other
        token = new_request_token() if given.id else None
        return _Entry(given, given.id or draw_task_id(now), due_at, token)

    def _in_line(
        self, entries: list[_Entry], faults: Sequence[str | None], queue: Queue, now: datetime
    ) -> list[_Entry]:
        """Return *entries*, those without a fault with their turns where the queue has groups."""
        if queue.settings.groups is None:
            return entries
        new = {
            place: (queue, entry.new, entry.task_id)
            for place, (entry, fault) in enumerate(zip(entries, faults, strict=True))
            if fault is None
        }
        for place, turn in self.service.lines.take_for(new, now).items():
            entries[place] = structs.replace(entries[place], turn=turn)
        return entries

    def _enqueue_plain(
        self, entries: Sequence[_Entry], queue: Queue, now: datetime
    ) -> list[EnqueueResult]:
        if queue.strict and self.now() - now >= PLACE_GOOD_FOR:
            entries = self._in_line([*entries], [None] * len(entries), queue, self.now())
        changes = [_planned(entry, queue, now) for entry in entries]
        outcomes = self._insert(changes, queue, now)
        results = [
            _enqueued(change, outcome, queue)
            for change, outcome in zip(changes, outcomes, strict=True)
        ]
        self._note_unused(queue, entries, results)
        return results

    def _note_unused(
        self, queue: Queue, entries: Sequence[_Entry], results: Sequence[EnqueueResult]
    ) -> None:
        """Note the places in strict orders of tasks that were not enqueued."""
        if not queue.strict:
            return
        unused = [
            (entry.task_id, entry.turn)
            for entry, result in zip(entries, results, strict=True)
            if entry.turn is not None and not has_place(result, entry.turn)
        ]
        note_unused(self.store, queue.name, unused)

    def _invalid(self, entry: _Entry, queue: Queue, now: datetime, fault: str) -> EnqueueResult:
        """What has a fault is invalid, unless the task is there already."""
        if entry.new.id is not None:
            there = with_id(self.store, entry.task_id)
            if there is not None and _takes_id(there, queue, now):
                return existing(there, queue.name)
        given = None if entry.new.unique_for is not None else entry.new.id
        return EnqueueResult(EnqueueOutcome.INVALID, given, detail=fault)

    def _insert(self, changes: Sequence[Change], queue: Queue, now: datetime) -> list[Outcome]:
        """Commit new tasks; an id whose last holder is past its retention is free again."""
        outcomes = self.store.commit(changes)
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Done):
                continue
            there, born = outcome.task, changes[place].insert
            if there is not None and _takes_id(there, queue, now):
                continue
            if outcome.blocked:  # by the key: the tombstone of the last holder of the id stays
                outcomes[place] = Refused(None, outcome.blocked)
                continue
            if there is not None:
                self.store.commit([plan.delete(there, unless_changed=True)])
            elif born is not None and born.enqueue_token is None:
                outcomes[place] = Done(born)  # an id of ours: it has come and gone already
                continue
            outcomes[place] = self.store.commit([changes[place]])[0]
        return outcomes

    def _enqueue_keyed(
        self, entry: _Entry, queue: Queue, now: datetime, fence: KeyLock | None = None
    ) -> EnqueueResult:
        """Put in one task with a dedupe key, unless a live task holds the key."""
        dead_holder: str | None = None
        for _ in range(_LOOKS):
            change = _planned(entry, queue, now, replaces=dead_holder)
            if fence is not None:
                change = change.together(fence, seen=None)
            outcome = self._insert([change], queue, now)[0]
            if isinstance(outcome, Done) or outcome.task is not None:
                return _enqueued(change, outcome, queue)
            check_fence(change, outcome, fence)
            if entry.new.dedupe_key is None:
                continue
            holder, held = key_holder(self.store, queue.name, entry.new.dedupe_key, now)
            dead_holder = holder if held is None else None
            result = held and self._duplicate(held, entry.new, queue, now)
            if result:
                return result
        message = "the dedupe key keeps changing hands; try again"
        raise Unavailable(message)

    def _duplicate(
        self, held: Task, new: TaskSpec, queue: Queue, now: datetime
    ) -> EnqueueResult | None:
        """Leave the holder alone, or overwrite what was named; None when it has just changed."""
        if not new.overwrite or held.state is not State.ENQUEUED:
            return EnqueueResult(EnqueueOutcome.DUPLICATE, held.id, held)
        try:
            change = plan.overwrite(held, new, queue, now=now)
        except InvalidRequest as wrong:
            return EnqueueResult(EnqueueOutcome.INVALID, held.id, detail=str(wrong))
        outcome = self.store.commit([change])[0]
        if not isinstance(outcome, Done):
            return None
        return EnqueueResult(EnqueueOutcome.OVERWRITTEN, held.id, outcome.task)


def _planned(entry: _Entry, queue: Queue, now: datetime, *, replaces: str | None = None) -> Change:
    return plan.enqueue(
        entry.new,
        queue,
        task_id=entry.task_id,
        due_at=entry.due_at,
        now=now,
        token=entry.token,
        replaces=replaces,
        turn=entry.turn,
    )


def _enqueued(change: Change, outcome: Outcome, queue: Queue) -> EnqueueResult:
    if isinstance(outcome, Done):
        return EnqueueResult(EnqueueOutcome.CREATED, outcome.task.id, outcome.task)
    there, born = outcome.task, change.insert
    if there is not None and born is not None and born.enqueue_token is None:
        # An id of ours: this very request had put it in, and died before it could answer.
        return EnqueueResult(EnqueueOutcome.CREATED, there.id, there)
    if there is not None:
        return existing(there, queue.name)
    detail = "the id is being deleted; try again"
    return EnqueueResult(EnqueueOutcome.INVALID, change.task_id, detail=detail)


def has_place(result: EnqueueResult, turn: Turn) -> bool:
    """Return whether the task was enqueued with *turn*, perhaps by a write whose answer was lost.

    A task of an earlier run of the same request has its own turn.
    """
    put_in = result.outcome in (EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING)
    return put_in and result.task is not None and result.task.after == turn.after


def _takes_id(there: Task, queue: Queue, now: datetime) -> bool:
    """Return whether *there* blocks its id for a task of *queue*.

    The tombstone of a task that ended before the queue was created belongs to an earlier queue.
    """
    if there.ended_in is not None and there.queue == queue.name and there.finished_at is not None:
        return there.has_id(now) and there.finished_at >= queue.created_at
    return there.has_id(now)


def missing_task(task_id: str) -> NotFound | Forbidden:
    """Return the error about a task that is not there, or is not shown to the caller."""
    missing = NotFound(f"there is no task {task_id[:128]}")
    return not_shown(missing, access.not_this_task(task_id))


def shown_task(task: Task | None, task_id: str, now: datetime) -> Task:
    """Return *task*, as read under *task_id*, if the caller may know it.

    Raises NotFound for None.  A caller that may not know all queues gets Forbidden instead, and
    also for a task of another queue.
    """
    if task is None or task.is_hidden(now) or not visible(task.queue):
        raise missing_task(task_id)
    return task


def existing(there: Task, queue: str) -> EnqueueResult:
    """Return the result of an entry for *queue* whose id a task has already, in whatever queue."""
    if there.queue == queue and there.ended_in is None:
        return EnqueueResult(EnqueueOutcome.EXISTING, there.id, there)
    detail = "the task of this id is in another queue"
    if there.ended_in is not None:
        detail = "the task of this id is done, and was not kept"
    elsewhere = there.queue if visible(there.queue) else None
    return EnqueueResult(EnqueueOutcome.EXISTING, there.id, detail=detail, elsewhere=elsewhere)
