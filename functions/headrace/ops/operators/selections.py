"""Selections: what a filter means at one moment, kept, to be acted on as it was seen.

An operator looks first (a dry run), then confirms, then it is done (see ``actions``); each of these
may take many calls, and workers change the queues all the while.  So the set is not the filter but
what the filter found: the snapshots are kept beside a record of how far the look is.  What came
later is not in the set; what has left it is found changed and left alone.

A call does a bounded part of the work.  It claims the record first, so that a call that is sent
twice does nothing twice, and writes down how far it came every few tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypeAlias

from headrace.domain.errors import HeadraceError, InvalidRequest, NotFound
from headrace.domain.filters import TaskFilter, check_states
from headrace.domain.ids import new_idempotency_key
from headrace.domain.operate import (
    STATES_BY_ACTION,
    BulkAction,
    TaskSnapshot,
    Unfit,
    came_after,
    operate,
)
from headrace.domain.task import Task
from headrace.ops.shared.paging import Walk
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record
from headrace.store.records.selections import (
    KEPT,
    KIND,
    TaskSelection,
    from_record,
    to_record,
)

SNAPSHOTS: Final = "sightings"
SAMPLES: Final = 5
QUEUES: Final = 100
"""The most queues of one set."""

_LOOKS: Final = 750  # tasks one call looks at: about 130 ms
_PAGE: Final = 250  # snapshots of one record, at most
_CLAIM: Final = timedelta(seconds=35)  # longer than any call may take

Snapshots: TypeAlias = tuple[str, Sequence[TaskSnapshot]]
"""A queue, and what was seen of its tasks."""

Check: TypeAlias = Callable[[TaskSelection], object]
"""Raises if the caller may not use a selection; called each time one is read."""


def _anyone(_found: TaskSelection) -> None:
    """Allow every caller."""


class Selections(ServicePart):
    """Begins, continues and reads selections."""

    def look(
        self,
        action: BulkAction,
        queues: Sequence[str],
        where: TaskFilter,
        *,
        by: str,
        to_queue: str | None = None,
        only_begin: bool = False,
    ) -> TaskSelection:
        """Begin a dry run: which tasks of *queues* does *where* mean, and the action take?

        A first part of the look is done, unless it shall *only_begin*.  Where a move goes,
        *to_queue*, may be said later.
        Raises NotFound for a queue, InvalidRequest for a word that is no state, and as
        check_target() for a target.
        """
        if not 1 <= len(queues) <= QUEUES:
            raise InvalidRequest.of("queue", f"must name 1 to {QUEUES} queues")
        check_states(where.states)
        for queue in queues:
            self.service.queues.cached(queue)
        now = self.now()
        meant = replace(where, states=where.states or tuple(map(str, STATES_BY_ACTION[action])))
        if to_queue is not None:
            self.check_target(queues, to_queue)
        name = new_idempotency_key()
        new = TaskSelection(name, action, tuple(queues), meant, by, now, to_queue=to_queue)
        self.store.put_record(to_record(new), replaces=None)
        return new if only_begin else self.resume(name)

    def check_target(self, queues: Sequence[str], to_queue: str | None) -> None:
        """Raise InvalidRequest naming ``to_queue`` for where nothing can move to, or NotFound."""
        if not to_queue:
            raise InvalidRequest.of("to_queue", "is needed")
        if to_queue in queues:
            raise InvalidRequest.of("to_queue", "must be another queue")
        self.service.queues.cached(to_queue)

    def get(self, name: str, *, check: Check = _anyone) -> TaskSelection:
        """Return a selection.  Raises NotFound if it does not exist, and as *check* does."""
        record = self.store.record(KIND, name)
        if record is None or (record.expires_at is not None and record.expires_at <= self.now()):
            message = "the selection of tasks does not exist any longer; make it again"
            raise NotFound(message)
        found = from_record(record)
        check(found)
        return found

    def sampled(self, found: TaskSelection) -> Sequence[Task]:
        """Return the first tasks of a selection as they are now, without missing ones."""
        tasks = self.store.read((task_id for _, task_id in found.samples), payload=False)
        return [
            tasks[task_id]
            for queue, task_id in found.samples
            if task_id in tasks and tasks[task_id].queue == queue
        ]

    def hand_over(self, found: TaskSelection, *, until: int, to_queue: str | None) -> None:
        """Note that an action has those before *until*; *to_queue* is where a move goes, for good.

        Raises NotFound and Conflict as get(), the latter for a set that is further by now.
        """
        target = found.to_queue or to_queue
        while not self._put(replace(found, at=max(found.at, until), to_queue=target)):
            found = self.get(found.name)

    def snapshots(self, found: TaskSelection, start: int, end: int) -> Snapshots | None:
        """Return a queue and its snapshots from place *start* to before *end*.

        None after they were dropped.
        """
        begin = 0
        for number, (place, amount) in enumerate(found.chunks):
            if start < begin + amount:
                record = self.store.record(SNAPSHOTS, _part(found.name, number))
                if record is None:
                    return None
                kept = record.body["tasks"][start - begin : end - begin]
                return found.queues[place], [TaskSnapshot(*each) for each in kept]
            begin += amount
        raise AssertionError(start)

    def resume(self, name: str, *, check: Check = _anyone, raises: bool = False) -> TaskSelection:
        """Look for more tasks, unless the look is complete or another call does it now.

        An error is recorded in the selection, or raised with *raises*.  Raises as get().
        """
        found = self.get(name, check=check)
        if not found.looking or self._busy(found):
            return found
        claimed = replace(found, busy_until=self.now() + _CLAIM, trouble="")
        if not self._put(claimed):
            return self.get(name, check=check)
        return self._look(replace(claimed, version=claimed.version + 1), raises=raises)

    def _busy(self, found: TaskSelection) -> bool:
        return found.busy_until is not None and self.now() < found.busy_until

    # -- looking -------------------------------------------------------------------------------

    def _look(self, at: TaskSelection, *, raises: bool) -> TaskSelection:
        trouble: list[str] = []
        with nullcontext() if raises else _noting(trouble):
            for one in self._strides(at):
                at = one
        return self._save(replace(at, busy_until=None, trouble="".join(trouble)))

    def _strides(self, at: TaskSelection) -> Iterator[TaskSelection]:
        """Look from queue to queue, and yield how far that is after each."""
        until = at.looked_at + _LOOKS
        while at.looking and at.looked_at < until:
            queue = self.service.queues.cached(at.queues[at.queue])
            walk = Walk.read(at.walk) if at.walk else Walk(at.seen_at)
            seen: dict[str, Task] = {}
            over = True
            for task, walk in self.service.inspect.walk(queue, at.where, walk, page=100):  # noqa: B020  on and on
                if task is not None and self._takes(at, task):
                    seen[task.id] = task
                if at.looked_at + walk.looked_at >= until:
                    over = False
                    break
            at = self._keep(at, [*seen.values()])
            at = replace(
                at,
                looked_at=at.looked_at + walk.looked_at,
                queue=at.queue + over,
                walk=None if over else walk.state(),
            )
            yield at

    def _takes(self, at: TaskSelection, task: Task) -> bool:
        queue = self.service.queues.cached(task.queue)
        # Where a move goes is said later, and what it takes does not hang on it.
        plan = operate(at.action, task, queue, target=queue, now=self.now())
        return not isinstance(plan, Unfit) and not came_after(task, at.seen_at)

    def _keep(self, at: TaskSelection, tasks: Sequence[Task]) -> TaskSelection:
        """Keep snapshots of *tasks*, all of one queue."""
        for start in range(0, len(tasks), _PAGE):
            part = tasks[start : start + _PAGE]
            snapshots = [TaskSnapshot.of(task) for task in part]
            body = {"tasks": [[each.id, each.state_tag] for each in snapshots]}
            name = _part(at.name, len(at.chunks))
            record = Record(SNAPSHOTS, name, body, expires_at=at.seen_at + KEPT)
            if not self.store.put_record(record, replaces=None):  # of a call that was cut off
                self.store.drop_record(SNAPSHOTS, name)
                self.store.put_record(record, replaces=None)
            room = SAMPLES - len(at.samples)
            more = tuple((task.queue, task.id) for task in part[:room])
            at = replace(
                at,
                count=at.count + len(part),
                chunks=(*at.chunks, (at.queue, len(part))),
                samples=(*at.samples, *more),
            )
        return at

    # -- the record ----------------------------------------------------------------------------

    def _put(self, changed: TaskSelection) -> bool:
        """Write *changed*; return whether its version was still current."""
        record = replace(to_record(changed), version=changed.version + 1)
        return self.store.put_record(record, replaces=changed.version)

    def _save(self, at: TaskSelection) -> TaskSelection:
        """Write how far the look is."""
        while not self._put(at):
            at = replace(at, version=self.get(at.name).version)
        return replace(at, version=at.version + 1)


@contextmanager
def _noting(trouble: list[str]) -> Iterator[None]:
    """Note what is refused in the block instead of raising it."""
    try:
        yield
    except HeadraceError as error:
        trouble.append(error.detail)


def _part(name: str, number: int) -> str:
    return f"{name}:{number:06}"
