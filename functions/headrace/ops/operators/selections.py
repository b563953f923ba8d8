"""Selections: what a filter means at one moment, kept, and acted on as it was seen.

An operator looks first (a dry run), then confirms, then it is done; each of these may take many
calls, and workers change the queues all the while.  So the set is not the filter but what the
filter found: the snapshots are kept beside a record of how far looking and acting are.  What came
later is not in the set; what has left it is found changed and left alone.

A call does a bounded part of the work.  It claims the record first, so that a call that is sent
twice does nothing twice, and writes down how far it came every few tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from headrace.domain.errors import Conflict, HeadraceError, InvalidRequest, NotFound
from headrace.domain.filters import TaskFilter, check_states
from headrace.domain.ids import new_lease_token
from headrace.domain.operate import STATES_BY_ACTION, BulkAction, Unfit, operate
from headrace.domain.task import Task, TaskSnapshot, came_after
from headrace.ops.operators.bulk import BulkOperations, BulkOutcome
from headrace.ops.shared.audit import Audit
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.shared.undos import Undos
from headrace.ops.tasks.inspect import Inspect, Walk
from headrace.store.base import Record, Store
from headrace.store.records.selections import KEPT, KIND, TaskSelection, from_record, to_record

SNAPSHOTS: Final = "sightings"
SAMPLES: Final = 5
QUEUES: Final = 100
"""The most queues of one set."""

_LOOKS: Final = 750  # tasks one call looks at: about 130 ms
_PAGE: Final = 250  # snapshots of one record, at most
STEP: Final = _PAGE // 2
"""The most tasks that one call acts on; 250 took 300 ms, as long as a page may take."""

_SAVED: Final = 50  # tasks after which it is written down how far it is
_CLAIM: Final = timedelta(seconds=35)  # longer than any call may take

Check: TypeAlias = Callable[[TaskSelection], object]
"""Raises what whoever asks may not do to a set; asked each time that a set is read for them."""


def _anyone(_found: TaskSelection) -> None:
    """Let it be whoever it is."""


@dataclass(slots=True, eq=False, repr=False)
class Selections:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    inspect: Inspect
    bulk: BulkOperations
    audit: Audit
    now: Callable[[], datetime]
    undos: Undos

    def look(
        self, action: BulkAction, queues: Sequence[str], where: TaskFilter, *, by: str
    ) -> TaskSelection:
        """Begin a dry run: which tasks of *queues* does *where* mean, and the action take?

        Raises NotFound for a queue, InvalidRequest for a word that is no state.
        """
        if not 1 <= len(queues) <= QUEUES:
            raise InvalidRequest.of("queue", f"must name 1 to {QUEUES} queues")
        check_states(where.states)
        for queue in queues:
            self.queues.cached(queue)
        now = self.now()
        meant = replace(where, states=where.states or tuple(map(str, STATES_BY_ACTION[action])))
        new = TaskSelection(new_lease_token()[4:], action, tuple(queues), meant, by, now)
        self.store.put_record(to_record(new), replaces=None)
        return self.go_on(new.name)

    def get(self, name: str, *, check: Check = _anyone) -> TaskSelection:
        """Return a set.  Raises NotFound when there is none, or no longer, and as *check* does."""
        record = self.store.record(KIND, name)
        if record is None or (record.expires_at is not None and record.expires_at <= self.now()):
            message = "there is no such set of tasks any more: look again"
            raise NotFound(message)
        found = from_record(record)
        check(found)
        return found

    def sampled(self, found: TaskSelection) -> Sequence[Task]:
        """Return the first tasks of a set, as they are now, without those that are gone."""
        tasks = self.store.read((task_id for _, task_id in found.samples), payload=False)
        return [
            tasks[task_id]
            for queue, task_id in found.samples
            if task_id in tasks and tasks[task_id].queue == queue
        ]

    def begin(
        self,
        name: str,
        *,
        at: int,
        most: int | None = None,
        to_queue: str | None = None,
        undo_in_seconds: int = 0,
        check: Check = _anyone,
    ) -> TaskSelection:
        """Let it act: on up to *most* tasks more, or on all that are left; a first part is done.

        What it deletes can be brought back within *undo_in_seconds*, which are those of the first
        time.

        *at* is how far it was when that was decided: what is sent twice is done once.
        *to_queue* is where a move goes, for good from the first time on.
        Raises NotFound for it, InvalidRequest naming ``to_queue``, Conflict for a set that is
        further by now, or being worked on, and as *check* does, of the set with its target.
        """
        found = self.get(name, check=check)
        if found.looking or found.acting or found.at != at or self._busy(found):
            message = "it has gone on meanwhile: open its page again"
            raise Conflict(message)
        if found.action is BulkAction.MOVE and not found.begun:
            found = replace(found, to_queue=to_queue)
            check(found)
            self._check_target(found, to_queue)
        if found.action is BulkAction.DELETE and not found.begun:
            found = replace(found, undo_for=undo_in_seconds)
        until = found.count if most is None else min(found.count, found.at + most)
        if not self._put(replace(found, until=until, trouble="")):
            message = "it has gone on meanwhile: open its page again"
            raise Conflict(message)
        return self.go_on(name, check=check)

    def stop(self, name: str, *, check: Check = _anyone) -> TaskSelection:
        """Let it rest where it is.  Raises as get()."""
        while True:
            found = self.get(name, check=check)
            if not found.acting or self._put(replace(found, until=found.at)):
                return self.get(name, check=check)

    def go_on(self, name: str, *, check: Check = _anyone) -> TaskSelection:
        """Look or act a little further, if that is wanted and nobody else does it now.

        What stops it is noted as trouble, not raised.  Raises as get().
        """
        found = self.get(name, check=check)
        if not (found.looking or found.acting) or self._busy(found):
            return found
        claimed = replace(found, busy_until=self.now() + _CLAIM, trouble="")
        if not self._put(claimed):
            return self.get(name, check=check)
        work = self._look if found.looking else self._act
        return work(replace(claimed, version=claimed.version + 1))

    def _busy(self, found: TaskSelection) -> bool:
        return found.busy_until is not None and self.now() < found.busy_until

    def _check_target(self, found: TaskSelection, to_queue: str | None) -> None:
        wrong = "is needed" if not to_queue else ""
        if to_queue in found.queues:
            wrong = "must be another queue"
        if wrong or to_queue is None:
            raise InvalidRequest.of("to_queue", wrong)
        self.queues.cached(to_queue)

    # -- looking -------------------------------------------------------------------------------

    def _look(self, at: TaskSelection) -> TaskSelection:
        trouble: list[str] = []
        with _noting(trouble):
            for one in self._strides(at):
                at = one
        return self._save(replace(at, busy_until=None, trouble="".join(trouble)))

    def _strides(self, at: TaskSelection) -> Iterator[TaskSelection]:
        """Look from queue to queue, and yield how far that is after each."""
        until = at.looked_at + _LOOKS
        while at.looking and at.looked_at < until:
            queue = self.queues.cached(at.queues[at.queue])
            walk = Walk.read(at.walk) if at.walk else Walk(at.seen_at)
            seen: dict[str, Task] = {}
            over = True
            for task, walk in self.inspect.walk(queue, at.where, walk, page=100):  # noqa: B020  on and on
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
        queue = self.queues.cached(task.queue)
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

    # -- acting --------------------------------------------------------------------------------

    def _act(self, at: TaskSelection) -> TaskSelection:
        queue, snapshots = self._next(at)
        noted = {
            **at.where.fields(),
            **({"to_queue": at.to_queue} if at.to_queue else {}),
            "seen_at": at.seen_at.isoformat(),
            "set": at.name,
        }
        if at.undo_for and queue not in at.undos:
            undo = self.undos.begin(queue, at.undo_for)
            if undo is not None:
                at = self._save(replace(at, undos={**at.undos, queue: undo.id}))
        before = at
        trouble: list[str] = []
        acting = self.audit.action(at.action, queue=queue, where=noted, by_parts=True)
        with _noting(trouble), acting as outcome:
            for one in self._parts(at, queue, snapshots):
                at = one
                outcome.matched = at.at - before.at
                outcome.changed = at.changed - before.changed
        if trouble:
            at = replace(at, trouble=trouble[0], until=at.at)
        return self._save(replace(at, busy_until=None))

    def _parts(
        self, at: TaskSelection, queue: str, snapshots: Sequence[TaskSnapshot]
    ) -> Iterator[TaskSelection]:
        """Act on *snapshots* and yield how far that is after each; now and then it is saved.

        Raises Conflict where what was to be undone cannot be any more.
        """
        undo = self.undos.known(at.undos.get(queue))
        if at.undo_for and undo is None:
            message = "the time in which it could be undone is over"
            raise Conflict(message)
        for start in range(0, len(snapshots), _SAVED):
            part = snapshots[start : start + _SAVED]
            for result in self.bulk.as_seen(
                queue, at.action, part, at.where, to_queue=at.to_queue, undo=undo
            ):
                at = _counted(at, result)
                yield at
            at = self._save(at)
            yield at

    def _next(self, at: TaskSelection) -> tuple[str, Sequence[TaskSnapshot]]:
        """Return the snapshots of the chunk that is next, without those dealt with, and where."""
        begin = 0
        for number, (place, amount) in enumerate(at.chunks):
            if at.at < begin + amount:
                record = self.store.record(SNAPSHOTS, _part(at.name, number))
                kept = record.body["tasks"] if record else []
                done = at.at - begin
                end = min(amount, at.until - begin, done + STEP)
                return at.queues[place], [TaskSnapshot(*each) for each in kept[done:end]]
            begin += amount
        raise AssertionError(at.at)

    # -- the record ----------------------------------------------------------------------------

    def _put(self, changed: TaskSelection) -> bool:
        """Write *changed*, which was read with its version, if nobody else has written."""
        record = replace(to_record(changed), version=changed.version + 1)
        return self.store.put_record(record, replaces=changed.version)

    def _save(self, at: TaskSelection) -> TaskSelection:
        """Write how far it is.  Somebody may have stopped it meanwhile: that stays so."""
        while not self._put(at):
            stored = self.get(at.name)
            at = replace(at, version=stored.version, until=max(at.at, min(at.until, stored.until)))
        return replace(at, version=at.version + 1)


@contextmanager
def _noting(trouble: list[str]) -> Iterator[None]:
    """Note what is refused in the block instead of raising it."""
    try:
        yield
    except HeadraceError as error:
        trouble.append(error.detail)


def _counted(at: TaskSelection, result: BulkOutcome) -> TaskSelection:
    if result.changed:
        return replace(at, at=at.at + 1, changed=at.changed + 1)
    reason = result.detail or result.outcome
    return replace(at, at=at.at + 1, left={**at.left, reason: at.left.get(reason, 0) + 1})


def _part(name: str, number: int) -> str:
    return f"{name}:{number:06}"
