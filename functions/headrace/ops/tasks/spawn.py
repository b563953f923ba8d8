"""Children of a report: tasks that are created in the same transaction, or not at all."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headrace.domain import limits, plan
from headrace.domain.batch import with_spawned
from headrace.domain.change import Change, Done, KeyLock
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.ids import derived_task_id, granted_at
from headrace.domain.lifecycle import Action
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.domain.task_groups import PLACE_GOOD_FOR, Turn
from headrace.domain.times import MICROSECOND
from headrace.ops.shared.commits import commit_exactly
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.stack_secret import with_unique_ids
from headrace.ops.shared.strict_order import note_unused
from headrace.ops.tasks.enqueue import (
    EnqueueOutcome,
    EnqueueResult,
    existing,
    has_place,
    key_holder,
    with_id,
)

_BEAR: Final = (str(Action.SUCCEED), str(Action.MOVE))
_LOOKS: Final = 10  # at ids and keys that change hands while we look


@dataclass(frozen=True, slots=True)
class Child:
    """One task to spawn, its id made from the lease unless the worker chose one."""

    queue: Queue
    new: TaskSpec
    task_id: str
    due_at: datetime
    turn: Turn | None = None
    placed_at: datetime | None = None  # when it took its place in a strict order

    @property
    def key(self) -> tuple[str, str] | None:
        """Queue and dedupe key, if it has one."""
        key = self.new.dedupe_key
        return (self.queue.name, key) if key is not None else None


@dataclass(frozen=True, slots=True)
class SpawnResult:
    """What became of a report that took effect, and of its children."""

    task: Task
    children: tuple[EnqueueResult, ...] = ()


class Spawning(ServicePart):
    """Creates the children of a report in its transaction."""

    def children(
        self,
        spawn: Sequence[tuple[str, TaskSpec]],
        parent: Task,
        *,
        lease_id: str,
        now: datetime,
    ) -> tuple[Child, ...]:
        """Return the children of a report about *parent* that names its lease *lease_id*.

        The same lease always gives the same ids.  Raises InvalidRequest naming the entry whose
        queue is missing, whose batch takes no members, or whose time is over.
        """
        made: list[Child] = []
        spawn = self._with_unique_ids(spawn, now)
        wanted = [batch_id for _, new in spawn for batch_id in new.batches]
        keys, refused = (
            self.service.task_batches.joining(wanted, parent=parent) if wanted else ({}, {})
        )
        for place, (name, new) in enumerate(spawn):
            try:
                queue = self.service.queues.cached(name)
            except NotFound as missing:
                message = f"spawn[{place}].queue: {missing}"
                raise InvalidRequest(message) from None
            for at, batch_id in enumerate(new.batches):
                if batch_id in refused:
                    message = f"spawn[{place}].batches[{at}]: {refused[batch_id]}"
                    raise InvalidRequest(message)
            if new.upload and (
                wrong := self.service.uploads.faults([new], queue.name).get(new.upload.name)
            ):
                message = f"spawn[{place}].{wrong}"
                raise InvalidRequest(message)
            due_at = new.due_at(now) + place * MICROSECOND
            if fault := new.fault(queue, due_at):
                message = f"spawn[{place}].{fault}"
                raise InvalidRequest(message)
            joined = replace(new, batches=tuple(keys[one] for one in new.batches))
            made.append(Child(queue, joined, _id_of(place, new, lease_id, parent.id), due_at))
        return self._in_line(made, now)

    def _with_unique_ids(
        self, spawn: Sequence[tuple[str, TaskSpec]], now: datetime
    ) -> Sequence[tuple[str, TaskSpec]]:
        if all(new.unique_for is None for _, new in spawn):
            return spawn
        specs = with_unique_ids(self.store, self.service.derived_ids, spawn, now)
        return [(queue, new) for (queue, _), new in zip(spawn, specs, strict=True)]

    def _in_line(self, made: Sequence[Child], now: datetime) -> tuple[Child, ...]:
        """Return children with their turns, where their queues have groups."""
        new = {place: (one.queue, one.new, one.task_id) for place, one in enumerate(made)}
        turns = self.service.lines.take_for(new, now)
        return tuple(
            replace(child, turn=turns.get(place), placed_at=now if child.queue.strict else None)
            for place, child in enumerate(made)
        )

    def _in_time(self, children: Sequence[Child]) -> Sequence[Child]:
        """Return *children*, with new turns if the ones taken have expired."""
        now = self.now()
        late = [
            place
            for place, child in enumerate(children)
            if child.placed_at is not None and now - child.placed_at >= PLACE_GOOD_FOR
        ]
        if not late:
            return children
        fresh = dict(zip(late, self._in_line([children[at] for at in late], now), strict=True))
        return [fresh.get(place, child) for place, child in enumerate(children)]

    def commit(self, change: Change, parent: Task, children: Sequence[Child]) -> SpawnResult | None:
        """Make *change*, planned from *parent*, and create *children* with it.

        A child that exists already or whose key is held counts as done.  Returns None when the
        parent has changed since it was read.  Raises Unavailable when keys keep changing hands.
        """
        settled: dict[int, EnqueueResult] = {}  # children that need not be made, by place
        replaced: dict[int, str] = {}  # dead holders of keys, by place
        kept_locks: set[KeyLock] = set()
        there = {parent.id: parent} | self._chosen(children)
        for place, child in enumerate(children):
            if child.task_id in there:
                settled[place] = existing(there[child.task_id], child.queue.name)
        for _ in range(_LOOKS):
            children = self._in_time(children)
            twins = _twins(children, settled)
            births = {
                place: self._birth(child, replaced.get(place), parent)
                for place, child in enumerate(children)
                if place not in settled and place not in twins
            }
            taken = {also for birth in births.values() for also in birth.also}
            also = [
                lock
                for lock in change.also
                if lock not in kept_locks and not _passed_on(lock, taken)
            ]
            whole = _counting(replace(change, also=(*also, *births.values())), parent, births)
            outcome = commit_exactly(self.service, [whole])[0]
            if isinstance(outcome, Done):
                results = self._results(children, births, settled | twins)
                self._note_unused(children, results)
                return SpawnResult(outcome.task, results)
            if not outcome.blocked:
                self._note_unused(children, [None] * len(children))
                return None
            for blocked in outcome.blocked:
                part = whole.also[blocked]
                if isinstance(part, KeyLock):
                    kept_locks.add(part)
                    continue
                place = next(place for place, birth in births.items() if birth is part)
                self._look(place, children[place], settled, replaced)
        message = "dedupe keys keep changing hands; report again"
        raise Unavailable(message)

    def _note_unused(
        self, children: Sequence[Child], results: Sequence[EnqueueResult | None]
    ) -> None:
        """Note the places in strict orders of children that were not enqueued."""
        unused: dict[str, list[tuple[str, Turn]]] = {}
        for child, result in zip(children, results, strict=True):
            if not child.queue.strict or child.turn is None:
                continue
            if result is None or not has_place(result, child.turn):
                unused.setdefault(child.queue.name, []).append((child.task_id, child.turn))
        for name, taken in unused.items():
            note_unused(self.store, name, taken)

    def repeated(
        self,
        spawn: Sequence[tuple[str, TaskSpec]],
        parent: Task,
        *,
        lease_id: str,
    ) -> tuple[EnqueueResult, ...]:
        """Return the results for the children of a report about *parent* that took effect."""
        settled_at = parent.finished_at or parent.enqueued_at
        spawn = self._with_unique_ids(spawn, settled_at)
        ids = [_id_of(place, new, lease_id, parent.id) for place, (_, new) in enumerate(spawn)]
        now, found = self.now(), {**self.store.read(ids), **self.store.tombstones(ids)}
        there = {task_id for task_id, task in found.items() if task.has_id(now)}
        return tuple(
            self._found(queue, new, task_id, exists=task_id in there)
            for (queue, new), task_id in zip(spawn, ids, strict=True)
        )

    def _found(self, queue: str, new: TaskSpec, task_id: str, *, exists: bool) -> EnqueueResult:
        """Return the result of a child of a report that took effect before.

        A missing child was deleted or dropped since, or (with a dedupe key) was a duplicate and the
        holder of its key may have ended.
        """
        if exists:
            return EnqueueResult(EnqueueOutcome.EXISTING, task_id)
        if new.dedupe_key is None:
            return EnqueueResult(EnqueueOutcome.CREATED, task_id)
        lock = plan.holder(queue, new.dedupe_key, value=None, expects=None)
        return EnqueueResult(EnqueueOutcome.DUPLICATE, self.store.key_lock(lock.kind, lock.name))

    def _chosen(self, children: Sequence[Child]) -> dict[str, Task]:
        """Return the tasks whose ids a worker chose for children of one key.

        Of these only the first is tried, and whether an id is taken goes before the key.
        """
        keys = Counter(child.key for child in children)
        ids = [
            child.task_id
            for child in children
            if child.new.id and child.key and keys[child.key] > 1
        ]
        if not ids:
            return {}
        now, found = self.now(), {**self.store.read(ids), **self.store.tombstones(ids)}
        return {name: task for name, task in found.items() if task.has_id(now)}

    def _birth(self, child: Child, replaces: str | None, parent: Task) -> Change:
        if (parent.queue, parent.dedupe_key) == child.key and plan.locks_to_release(parent):
            replaces = replaces or parent.id  # the parent hands its key on
        return plan.enqueue(
            child.new,
            child.queue,
            task_id=child.task_id,
            due_at=child.due_at,
            now=self.now(),
            token=None,
            replaces=replaces,
            parent=parent,
            turn=child.turn,
        )

    def _look(
        self, place: int, child: Child, settled: dict[int, EnqueueResult], replaced: dict[int, str]
    ) -> None:
        """Find out why *child* could not be made, and note what settles it."""
        now = self.now()
        there = with_id(self.store, child.task_id)
        if there is not None and not there.has_id(now):
            self.store.commit([plan.delete(there, unless_changed=True)])
        elif there is not None:
            settled[place] = existing(there, child.queue.name)
        elif child.new.dedupe_key is not None:
            key = child.new.dedupe_key
            holder, held = key_holder(self.store, child.queue.name, key, now)
            if held is not None:
                settled[place] = EnqueueResult(EnqueueOutcome.DUPLICATE, held.id, held)
            elif holder is not None:
                replaced[place] = holder
            else:
                replaced.pop(place, None)

    @staticmethod
    def _results(
        children: Sequence[Child], births: dict[int, Change], settled: dict[int, EnqueueResult]
    ) -> tuple[EnqueueResult, ...]:
        return tuple(
            settled.get(place)
            or EnqueueResult(EnqueueOutcome.CREATED, child.task_id, births[place].insert)
            for place, child in enumerate(children)
        )


def _counting(change: Change, parent: Task, births: Mapping[int, Change]) -> Change:
    """Let the batches of *parent* know which of their members *births* are; see domain.batch."""
    born = [birth.insert for birth in births.values() if birth.insert is not None]
    named = [(child.id, child.batch_keys) for child in born if child.batches]
    if parent.batches is None or not named:
        return change
    put = {**change.put, "batches": with_spawned(parent.batches, named)}
    return replace(change, put=put)


def ids_of_children(task: Task) -> Iterator[str]:
    """Yield the ids that children of the latest report about *task* have, if it made any.

    Those whose id the worker chose are not known, and take no place among them.
    """
    lease_id = task.settled_lease_id
    if lease_id is None or task.settled_status not in _BEAR:
        return
    for place in range(limits.SPAWN):
        yield _derived_id(place, lease_id, task.id)


def _id_of(place: int, new: TaskSpec, lease_id: str, parent_id: str) -> str:
    return new.id or _derived_id(place, lease_id, parent_id)


def _derived_id(place: int, lease_id: str, parent_id: str) -> str:
    """Return the id of a child that a report under *lease_id* makes; that of a group may do so."""
    return derived_task_id(granted_at(lease_id), f"{lease_id}:{parent_id}:{place}")


def _twins(
    children: Sequence[Child], settled: Mapping[int, EnqueueResult]
) -> dict[int, EnqueueResult]:
    """Return the results of children whose id or key an earlier one is about to take."""
    twins: dict[int, EnqueueResult] = {}
    ids: set[str] = set()
    holders: dict[tuple[str, str], str] = {}  # by key
    for place, child in enumerate(children):
        before = settled.get(place)
        if before is not None and child.key and before.outcome is EnqueueOutcome.DUPLICATE:
            holders.setdefault(child.key, before.id or "")
        elif before is not None:
            ids.add(child.task_id)
        elif child.task_id in ids:
            twins[place] = EnqueueResult(EnqueueOutcome.EXISTING, child.task_id)
        elif child.key and child.key in holders:
            twins[place] = EnqueueResult(EnqueueOutcome.DUPLICATE, holders[child.key])
        else:
            ids.add(child.task_id)
            if child.key:
                holders[child.key] = child.task_id
    return twins


def _passed_on(also: KeyLock | Change, taken: set[KeyLock | Change]) -> bool:
    """Return whether the parent's key lock is handed to a child."""
    return isinstance(also, KeyLock) and any(
        isinstance(other, KeyLock) and (other.kind, other.name) == (also.kind, also.name)
        for other in taken
    )
