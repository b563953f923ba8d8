"""Children of a report: tasks that are created in the same transaction, or not at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain import plan
from headrace.domain.change import Change, Mark
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.ids import derived_task_id
from headrace.domain.plan import NewTask
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.ops.queues import Queues
from headrace.ops.tasks import Enqueued, EnqueueOutcome
from headrace.store.base import Done, Store

_LOOKS: Final = 10  # at ids and keys that change hands while we look
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Child:
    """One task to spawn, its id made from the lease unless the worker chose one."""

    queue: Queue
    new: NewTask
    task_id: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Spawned:
    """What became of a report that took effect, and of its children."""

    task: Task
    children: tuple[Enqueued, ...] = ()


@dataclass(slots=True)
class Spawning:
    """The use case, with what it needs from outside."""

    store: Store
    queues: Queues
    now: Callable[[], datetime]

    def children(
        self, spawn: Sequence[tuple[str, NewTask]], *, secret: str, born: datetime, now: datetime
    ) -> tuple[Child, ...]:
        """Return the children of a report made under the lease *secret*.

        *born* is when that delivery began: the same lease always gives the same ids.
        Raises InvalidRequest naming the entry whose queue is missing or whose time is over.
        """
        made: list[Child] = []
        for place, (name, new) in enumerate(spawn):
            try:
                queue = self.queues.cached(name)
            except NotFound as missing:
                message = f"spawn[{place}].queue: {missing}"
                raise InvalidRequest(message) from None
            due_at = new.due_at(now) + place * _MICROSECOND
            if new.expires_at is not None and new.expires_at <= due_at:
                message = f"spawn[{place}].expires_at would pass before the task is due"
                raise InvalidRequest(message)
            task_id = new.id or derived_task_id(born, f"{secret}:{place}")
            made.append(Child(queue, new, task_id, due_at))
        return tuple(made)

    def commit(self, change: Change, children: Sequence[Child]) -> Spawned | None:
        """Make *change*, planned from the task it has ``seen``, and create *children* with it.

        What exists already or whose key is held counts as done.  Returns None when the parent has
        changed meanwhile.  Raises InvalidRequest when an id is used in another queue, and
        Unavailable when keys keep changing hands.
        """
        settled: dict[int, Enqueued] = {}  # children that need not be made, by place
        replaced: dict[int, str] = {}  # dead holders of keys, by place
        kept_marks: set[Mark] = set()
        parent = change.seen
        for _ in range(_LOOKS):
            for place in range(len(children)):
                twin = _twin(place, children, settled)
                if place not in settled and twin is not None:
                    settled[place] = twin
            births = {
                place: self._birth(child, replaced.get(place), parent)
                for place, child in enumerate(children)
                if place not in settled
            }
            taken = {also for birth in births.values() for also in birth.also}
            also = [
                mark
                for mark in change.also
                if mark not in kept_marks and not _passed_on(mark, taken)
            ]
            whole = replace(change, also=(*also, *births.values()))
            outcome = self.store.commit([whole])[0]
            if isinstance(outcome, Done):
                return Spawned(outcome.task, self._results(children, births, settled))
            if not outcome.blocked:
                return None
            for blocked in outcome.blocked:
                part = whole.also[blocked]
                if isinstance(part, Mark):
                    kept_marks.add(part)
                    continue
                place = next(place for place, birth in births.items() if birth is part)
                self._look(place, children[place], settled, replaced)
        message = "dedupe keys keep changing hands; report again"
        raise Unavailable(message)

    def repeated(self, task: Task, children: Sequence[Child]) -> Spawned:
        """Return the answer to a report that took effect before.

        A child that is not there was finished and forgotten since, or was a duplicate then.
        """
        there = self.store.read(child.task_id for child in children)
        return Spawned(task, tuple(self._found(child, there) for child in children))

    def _found(self, child: Child, there: Mapping[str, Task]) -> Enqueued:
        holder = None
        if child.task_id not in there and child.new.dedupe_key is not None:
            mark = plan.holder(child.queue.name, child.new.dedupe_key, value=None, expects=None)
            holder = self.store.mark(mark.kind, mark.name)
        if holder is not None:
            return Enqueued(EnqueueOutcome.DUPLICATE, holder)
        return Enqueued(EnqueueOutcome.EXISTING, child.task_id)

    def _birth(self, child: Child, replaces: str | None, parent: Task | None) -> Change:
        key = child.new.dedupe_key
        if parent and key and (parent.queue, parent.dedupe_key) == (child.queue.name, key):
            replaces = replaces or parent.id  # the parent hands its key on
        return plan.enqueue(
            child.new,
            child.queue,
            task_id=child.task_id,
            due_at=child.due_at,
            now=self.now(),
            token=None,
            replaces=replaces,
        )

    def _look(
        self, place: int, child: Child, settled: dict[int, Enqueued], replaced: dict[int, str]
    ) -> None:
        """Find out why *child* could not be made, and note what settles it."""
        now = self.now()
        there = self.store.read([child.task_id]).get(child.task_id)
        if there is not None and there.hidden(now):
            self.store.commit([plan.delete(there, unless_changed=True)])
        elif there is not None and there.queue != child.queue.name:
            message = f"spawn[{place}].id is used in another queue"
            raise InvalidRequest(message)
        elif there is not None:
            settled[place] = Enqueued(EnqueueOutcome.EXISTING, there.id, there)
        elif child.new.dedupe_key is not None:
            key = child.new.dedupe_key
            mark = plan.holder(child.queue.name, key, value=None, expects=None)
            holder = self.store.mark(mark.kind, mark.name)
            held = self.store.read([holder]).get(holder) if holder else None
            if held is not None and held.holds(child.queue.name, key, now):
                settled[place] = Enqueued(EnqueueOutcome.DUPLICATE, held.id, held)
            elif holder is not None:
                replaced[place] = holder
            else:
                replaced.pop(place, None)

    @staticmethod
    def _results(
        children: Sequence[Child], births: dict[int, Change], settled: dict[int, Enqueued]
    ) -> tuple[Enqueued, ...]:
        return tuple(
            settled.get(place)
            or Enqueued(EnqueueOutcome.CREATED, child.task_id, births[place].insert)
            for place, child in enumerate(children)
        )


def _twin(place: int, children: Sequence[Child], settled: dict[int, Enqueued]) -> Enqueued | None:
    """Return what an earlier child of the same id or key makes of the one at *place*."""
    child = children[place]
    for earlier_place, earlier in enumerate(children[:place]):
        if earlier.task_id == child.task_id:
            return Enqueued(EnqueueOutcome.EXISTING, child.task_id)
        key = child.new.dedupe_key
        same = (earlier.queue.name, earlier.new.dedupe_key) == (child.queue.name, key)
        if key is not None and same:
            there = settled.get(earlier_place)
            return Enqueued(EnqueueOutcome.DUPLICATE, there.id if there else earlier.task_id)
    return None


def _passed_on(also: Mark | Change, taken: set[Mark | Change]) -> bool:
    """Tell whether the parent's mark is not given up but handed to a child."""
    return isinstance(also, Mark) and any(
        isinstance(other, Mark) and (other.kind, other.name) == (also.kind, also.name)
        for other in taken
    )
