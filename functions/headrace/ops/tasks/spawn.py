"""Children of a report: tasks that exist exactly once if the report takes effect, and else never.

Up to 24 are created in the transaction of the report, others as ``deferred_spawns`` says.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from msgspec import structs

from headrace.domain import limits, plan
from headrace.domain.batch import with_spawned
from headrace.domain.change import Change, Done, KeyLock
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.ids import derived_task_id, granted_at
from headrace.domain.lifecycle import Action
from headrace.domain.plan import TaskSpec
from headrace.domain.task import Task
from headrace.domain.task_groups import Turn
from headrace.domain.times import MICROSECOND
from headrace.ops.shared.commits import OvertakenError, check_fence, commit_exactly
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.stack_secret import with_unique_ids
from headrace.ops.shared.strict_order import note_unused
from headrace.ops.tasks.births import Births, Child, own_key
from headrace.ops.tasks.deferred_spawns import (
    LARGE,
    LOTS,
    DeferredChild,
    lot_prefix,
    lots_of,
    read_lot,
)
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult, existing, has_place

_BEAR: Final = (str(Action.SUCCEED), str(Action.MOVE))
_LOOKS: Final = 10  # at ids and keys that change hands while we look


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
            joined = structs.replace(new, batches=tuple(keys[one] for one in new.batches))
            made.append(Child(queue, joined, _id_of(place, new, lease_id, parent.id), due_at))
        return tuple(made)

    def _with_unique_ids(
        self, spawn: Sequence[tuple[str, TaskSpec]], now: datetime
    ) -> Sequence[tuple[str, TaskSpec]]:
        if all(new.unique_for is None for _, new in spawn):
            return spawn
        specs = with_unique_ids(self.store, self.service.derived_ids, spawn, now)
        return [(queue, new) for (queue, _), new in zip(spawn, specs, strict=True)]

    def in_line(self, made: Sequence[Child], now: datetime) -> tuple[Child, ...]:
        """Return children with their turns, where their queues have groups."""
        new = {place: (one.queue, one.new, one.task_id) for place, one in enumerate(made)}
        turns = self.service.lines.take_for(new, now)
        return tuple(
            replace(child, turn=turns.get(place), placed_at=now if child.queue.strict else None)
            for place, child in enumerate(made)
        )

    def commit(
        self, change: Change, parent: Task, children: Sequence[Child], *, lease_id: str
    ) -> SpawnResult | None:
        """Make *change*, planned from *parent*, and create *children* with it.

        A child that exists already or whose key is held counts as done.  Returns None when the
        parent has changed since it was read.  Raises InvalidRequest if too many children cannot be
        deferred, and Unavailable when keys keep changing hands, or before deferred children are
        created: a repeat of the report creates them, and so does the reaper.
        """
        together, deferred = _divided(children, parent)
        prefix = lot_prefix(parent.id, lease_id)
        lots = lots_of(prefix, frozenset(parent.batch_keys), deferred)
        births = self._births([children[place] for place in together], parent.batch_keys, parent)
        kept_locks: set[KeyLock] = set()
        for _ in range(_LOOKS):
            planned = births.plan()
            taken = {also for birth in planned.values() for also in birth.also}
            also = [
                lock
                for lock in change.also
                if lock not in kept_locks and not _passed_on(lock, taken)
            ]
            whole = structs.replace(change, also=(*also, *planned.values(), *lots))
            whole = _counting(whole, parent, planned, deferred)
            outcome = commit_exactly(self.service, [whole])[0]
            if isinstance(outcome, Done):
                results = dict(zip(together, births.end(planned), strict=True))
                for lot in lots:
                    results |= self._make(lot)
                return SpawnResult(outcome.task, tuple(results[at] for at in range(len(children))))
            if not outcome.blocked:
                births.end(None)
                return None
            for blocked in outcome.blocked:
                part = whole.also[blocked]
                if isinstance(part, KeyLock):
                    kept_locks.add(part)
                else:
                    births.look(part, planned)
        message = "dedupe keys keep changing hands; report again"
        raise Unavailable(message)

    def make_deferred(self, prefix: str = "") -> Iterator[None]:
        """Create the deferred children of reports that were cut off, a lot in each step.

        *prefix* is that of the lots of one report.  Raises Unavailable.
        """
        for name, text in self.store.key_locks(LOTS).items():
            if name.startswith(prefix):
                self._make(KeyLock(LOTS, name, text))
                yield

    def _make(self, lot: KeyLock) -> dict[int, EnqueueResult]:
        """Create the children of *lot*, unless another process has; return the results by place."""
        content = read_lot(lot.value or "")
        children = {one.place: one for one in content.children}
        try:
            return self._make_once(
                structs.replace(lot, value=None, expects=lot.value), content.batches, children
            )
        except OvertakenError:
            found = self._found_of([(one.queue, one.new, one.task_id) for one in children.values()])
            return dict(zip(children, found, strict=True))

    def _make_once(
        self, fence: KeyLock, batches: Collection[str], deferred: Mapping[int, DeferredChild]
    ) -> dict[int, EnqueueResult]:
        results: dict[int, EnqueueResult] = {}
        children: dict[int, Child] = {}
        for place, one in deferred.items():
            try:
                queue = self.service.queues.cached(one.queue)
            except NotFound:  # its tasks went with the queue
                results[place] = EnqueueResult(EnqueueOutcome.CREATED, one.task_id)
                continue
            children[place] = Child(queue, one.new, one.task_id, one.due_at)
        births = self._births([*children.values()], batches, None)
        for _ in range(_LOOKS):
            planned = births.plan()
            if not planned and not self.store.set_key_lock(fence):
                raise OvertakenError
            if planned:
                first, *rest = planned.values()
                whole = first.together(fence, *rest, seen=None)
                outcome = commit_exactly(self.service, [whole])[0]
                if not isinstance(outcome, Done):
                    check_fence(whole, outcome, fence)
                    parts = [whole.also[place] for place in outcome.blocked]
                    for part in parts or [first]:
                        births.look(first if isinstance(part, KeyLock) else part, planned)
                    continue
            return results | dict(zip(children, births.end(planned), strict=True))
        message = "dedupe keys keep changing hands; report again"
        raise Unavailable(message)

    def _births(
        self, children: Sequence[Child], batches: Collection[str], parent: Task | None
    ) -> Births:
        births = Births(self, self.in_line(children, self.now()), frozenset(batches), parent)
        there = self._chosen(children)
        if parent is not None:
            there = {parent.id: parent} | there
        for place, child in enumerate(children):
            if child.task_id in there:
                births.settled[place] = existing(there[child.task_id], child.queue.name)
        return births

    def note_unused(
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
        if len(spawn) > limits.SPAWN_AT_ONCE:
            for _ in self.make_deferred(lot_prefix(parent.id, lease_id)):
                pass
        return self._found_of(
            [
                (queue, new, _id_of(place, new, lease_id, parent.id))
                for place, (queue, new) in enumerate(spawn)
            ]
        )

    def _found_of(self, children: Sequence[tuple[str, TaskSpec, str]]) -> tuple[EnqueueResult, ...]:
        ids = [task_id for _, _, task_id in children]
        now, found = self.now(), {**self.store.read(ids), **self.store.tombstones(ids)}
        there = {task_id for task_id, task in found.items() if task.has_id(now)}
        return tuple(
            self._found(queue, new, task_id, exists=task_id in there)
            for queue, new, task_id in children
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


def _divided(
    children: Sequence[Child], parent: Task
) -> tuple[Sequence[int], Sequence[DeferredChild]]:
    """Return the places of the children to create with the report, and the deferred ones.

    A batch of the parent knows its members from the report, so a child of such a batch is only
    deferred if nothing can keep it from being created.
    """
    if len(children) <= limits.SPAWN_AT_ONCE:
        return range(len(children)), ()
    batches, together, deferred = frozenset(parent.batch_keys), [], []
    for place, child in enumerate(children):
        may_exist = child.new.id is not None or child.key is not None
        if (
            limits.utf8_bytes(child.new.payload) > LARGE
            or child.key == own_key(parent)
            or (may_exist and not batches.isdisjoint(child.new.batches))
        ):
            together.append(place)
        else:
            deferred.append(
                DeferredChild(place, child.queue.name, child.task_id, child.due_at, child.new)
            )
    if len(together) > limits.SPAWN_AT_ONCE:
        message = (
            f"spawn: at most {limits.SPAWN_AT_ONCE} of more entries may be larger than 96 KiB, or"
            " have a batch of this task beside an id or a dedupe key"
        )
        raise InvalidRequest(message)
    return together, deferred


def _counting(
    change: Change,
    parent: Task,
    births: Mapping[int, Change],
    deferred: Sequence[DeferredChild],
) -> Change:
    """Let the batches of *parent* know which of their members are its children.

    See domain.batch.
    """
    born = [birth.insert for birth in births.values() if birth.insert is not None]
    named = [(child.id, child.batch_keys) for child in born if child.batches]
    named += [(one.task_id, one.new.batches) for one in deferred if one.new.batches]
    if parent.batches is None or not named:
        return change
    put = {**change.put, "batches": with_spawned(parent.batches, named)}
    return structs.replace(change, put=put)


def ids_of_children(task: Task) -> Iterator[str]:
    """Yield the ids of the first 24 children of the latest report about *task*, if it made any.

    Those whose id the worker chose are not known, and take no place among them.
    """
    lease_id = task.settled_lease_id
    if lease_id is None or task.settled_status not in _BEAR:
        return
    for place in range(limits.SPAWN_AT_ONCE):
        yield _derived_id(place, lease_id, task.id)


def _id_of(place: int, new: TaskSpec, lease_id: str, parent_id: str) -> str:
    return new.id or _derived_id(place, lease_id, parent_id)


def _derived_id(place: int, lease_id: str, parent_id: str) -> str:
    """Return the id of a child that a report under *lease_id* makes; that of a group may do so."""
    return derived_task_id(granted_at(lease_id), f"{lease_id}:{parent_id}:{place}")


def _passed_on(also: KeyLock | Change, taken: set[KeyLock | Change]) -> bool:
    """Return whether the parent's key lock is handed to a child."""
    return isinstance(also, KeyLock) and any(
        isinstance(other, KeyLock) and (other.kind, other.name) == (also.kind, also.name)
        for other in taken
    )
