"""The children that one transaction creates, and those that it need not create."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.domain import plan
from headrace.domain.change import Change
from headrace.domain.ids import new_request_token
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.domain.task_groups import PLACE_GOOD_FOR, Turn
from headrace.ops.shared.commits import key_holder, with_id
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult, existing

if TYPE_CHECKING:
    from headrace.ops.tasks.spawn import Spawning


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


@dataclass(slots=True)
class Births:
    """The children of one transaction, by place, and those that need not be created."""

    spawning: "Spawning"
    children: Sequence[Child]
    batches: frozenset[str]  # of the parent
    parent: Task | None  # None for deferred children
    settled: dict[int, EnqueueResult] = field(default_factory=dict)
    replaced: dict[int, str] = field(default_factory=dict)  # dead holders of keys

    def plan(self) -> dict[int, Change]:
        """Return the changes that create the children that are to be created."""
        self.children = self._in_time()
        twins = _twins(self.children, self.settled)
        return {
            place: self._birth(child, self.replaced.get(place))
            for place, child in enumerate(self.children)
            if place not in self.settled and place not in twins
        }

    def look(self, birth: Change, planned: Mapping[int, Change]) -> None:
        """Find out why *birth* was refused, and note what settles its child."""
        place = next(place for place, other in planned.items() if other is birth)
        child, now, store = self.children[place], self.spawning.now(), self.spawning.store
        there = with_id(store, child.task_id)
        if there is not None and not there.has_id(now):
            store.commit([plan.delete(there, unless_changed=True)])
        elif there is not None:
            self.settled[place] = existing(there, child.queue.name)
        elif child.new.dedupe_key is not None:
            holder, held = key_holder(store, child.queue.name, child.new.dedupe_key, now)
            if held is not None:
                self.settled[place] = EnqueueResult(EnqueueOutcome.DUPLICATE, held.id, held)
            elif holder is not None:
                self.replaced[place] = holder
            else:
                self.replaced.pop(place, None)

    def end(self, planned: Mapping[int, Change] | None) -> tuple[EnqueueResult, ...]:
        """Return the results once *planned* is written; None: nothing was written."""
        if planned is None:
            self.spawning.note_unused(self.children, [None] * len(self.children))
            return ()
        settled = self.settled | _twins(self.children, self.settled)
        results = tuple(
            settled.get(place)
            or EnqueueResult(EnqueueOutcome.CREATED, child.task_id, planned[place].insert)
            for place, child in enumerate(self.children)
        )
        self.spawning.note_unused(self.children, results)
        return results

    def _in_time(self) -> Sequence[Child]:
        """Return the children, with new turns if the ones taken have expired."""
        now = self.spawning.now()
        late = [
            place
            for place, child in enumerate(self.children)
            if child.placed_at is not None and now - child.placed_at >= PLACE_GOOD_FOR
        ]
        if not late:
            return self.children
        fresh = self.spawning.in_line([self.children[at] for at in late], now)
        by_place = dict(zip(late, fresh, strict=True))
        return [by_place.get(place, child) for place, child in enumerate(self.children)]

    def _birth(self, child: Child, replaces: str | None) -> Change:
        parent = self.parent
        if parent is not None and own_key(parent) == child.key and plan.locks_to_release(parent):
            replaces = replaces or parent.id  # the parent hands its key on
        return plan.enqueue(
            child.new,
            child.queue,
            task_id=child.task_id,
            due_at=child.due_at,
            now=self.spawning.now(),
            # The first deferred child is a change of its own, which must know its own write.
            token=new_request_token() if child.new.id and parent is None else None,
            replaces=replaces,
            inherited=self.batches,
            turn=child.turn,
        )


def own_key(task: Task) -> tuple[str, str | None]:
    """Return queue and dedupe key of *task*, as Child.key of a child."""
    return task.queue, task.dedupe_key


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
