"""A change to one task: what must hold, and what it then becomes.

A ``Change`` is data.  Conditions and effects are few and simple on purpose, so that each store can
turn them into one conditional write, and ``Change.apply`` here says what that write must do.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from msgspec import Struct, field, structs

from headrace.domain.lifecycle import Rule
from headrace.domain.patch import Patch, When
from headrace.domain.task import TURN_LANE, Place, State, Task
from headrace.domain.task_groups import Turn

KEY_LOCK: Final = "mark"
"""The field of a key lock that has its text."""


class In(Struct, frozen=True):
    """The task is in this queue and state, on whatever shard and lane."""

    queue: str
    state: State

    def holds(self, task: Task) -> bool:
        place = task.place
        return task.ended_in is None and place.queue == self.queue and place.state == self.state


_EMPTY: Final[Mapping[str, Any]] = {"tags": {}, "errors": (), "trail": ()}

Condition = When | In


def _all_hold(conditions: Iterable[Condition], task: Task) -> bool:
    for condition in conditions:
        of = task if isinstance(condition, In) else getattr(task, condition.name)
        if not condition.holds(of):
            return False
    return True


class AfterLength(Struct, frozen=True):
    """The instant *start* plus the task's own ``lease_length``: "the same length again"."""

    start: datetime

    def value(self, task: Task) -> datetime:
        return self.start + (task.lease_length or timedelta())


class KeyLock(Struct, frozen=True):
    """A short text under a key (``kind``, ``name``), written together with a task.

    It keeps a dedupe key for the task that holds it, or says how far a schedule is.
    It becomes *value* (None: it goes) if it was *expects* (None: not there) before.
    """

    kind: str
    name: str
    value: str | None
    expects: str | None = None

    def patch(self) -> Patch:
        """Return the write of the control item in which the lock is stored."""
        when = (When(KEY_LOCK, "=", self.expects),)
        if self.value is None:
            return Patch(self.kind, self.name, when, mode="delete")
        return Patch(self.kind, self.name, when, put={KEY_LOCK: self.value}, mode="replace")


class Change(Struct, frozen=True):
    """One transition of one task, as one conditional write.

    ``insert`` is the whole task when it is new.  Otherwise, if every condition of ``when`` holds,
    the fields of ``put`` are written, those of ``clear`` emptied, and the numbers of ``add``
    added; with ``gone`` the task is removed instead, and if ``put`` has ``ended_in``, only what
    this and ``clear`` leave of it stays under its id.
    ``version`` grows by one with each change, and ``last_move`` names it.
    ``done_when`` recognises a task on which this very change has already taken effect (its answer
    was lost, or the caller repeats itself).

    ``also`` are key locks and new tasks that must be written with it, all or nothing.  That costs
    twice the units, so it is for transitions that need it; ``seen`` is then the task as it was
    read.

    ``turn`` is one that was taken for it: where it is not made, a place in a strict order stays
    empty.
    """

    rule: Rule
    task_id: str
    when: tuple[Condition, ...] = ()
    insert: Task | None = None
    gone: bool = False
    put: Mapping[str, Any] = field(default_factory=dict)
    clear: tuple[str, ...] = ()
    add: Mapping[str, int] = field(default_factory=dict)
    done_when: tuple[Condition, ...] = ()
    also: tuple["KeyLock | Change", ...] = ()
    seen: Task | None = None
    turn: Turn | None = None

    def allowed(self, task: Task | None) -> bool:
        """Return whether the stored *task*, or None, lets this change happen."""
        if self.insert is not None or task is None:
            return self.insert is not None and task is None
        return _all_hold(self.when, task)

    def already_done(self, task: Task | None) -> bool:
        """Return whether the stored *task* shows that this change has taken effect before."""
        if task is None or not self.done_when:
            return False
        return _all_hold(self.done_when, task)

    def apply(self, task: Task | None) -> Task | None:
        """Return *task* as changed; None when it is gone."""
        if self.insert is not None:
            return self.insert
        if task is None or self.gone:
            return None
        effects: dict[str, Any] = dict.fromkeys(self.clear)
        for name, value in self.put.items():
            effects[name] = value.value(task) if isinstance(value, AfterLength) else value
        for name, number in self.add.items():
            effects[name] = getattr(task, name) + number
        return structs.replace(
            task, **effects, version=task.version + 1, last_move=str(self.rule.action)
        )

    @property
    def ends_delivery_in(self) -> str | None:
        """The queue in which this ends a delivery, if it does."""
        if self.rule.source is not State.INFLIGHT or self.rule.target is State.INFLIGHT:
            return None
        return next((one.queue for one in self.when if isinstance(one, In)), None)

    @property
    def leaves_tombstone(self) -> bool:
        """Whether something stays under the id of a task that is gone by this change."""
        return self.gone and "ended_in" in self.put

    def tombstone(self, task: Task | None) -> Task | None:
        """Return what stays under the id of *task* after this change removed it, or None."""
        if task is None or not self.leaves_tombstone:
            return None
        emptied = {name: _EMPTY.get(name) for name in self.clear}
        ended = {"place": self.put["ended_in"], "scheduled_at": self.put["finished_at"]}
        written = {"version": task.version + 1, "last_move": str(self.rule.action)}
        return structs.replace(task, **{**emptied, **self.put, **ended, **written})

    def together(self, *also: "KeyLock | Change", seen: Task | None) -> "Change":
        """Return this change, made only together with *also* and only on the task as *seen*."""
        same = (When("version", "=", seen.version),) if seen is not None else ()
        return structs.replace(self, when=(*self.when, *same), also=(*self.also, *also), seen=seen)


class Entry(NamedTuple):
    """What the index knows of a task.  It may be stale: it proposes, a condition decides.

    ``due_at`` is None if it is ``scheduled_at``.  ``group_key`` is the task's only if it
    ``knows_group``: a file reads it only in the lanes of queues with groups.
    """

    task_id: str
    place: Place
    scheduled_at: datetime
    expires_at: datetime | None = None
    retained_until: datetime | None = None
    due_at: datetime | None = None
    group_key: str | None = None
    knows_group: bool = False

    @classmethod
    def of(cls, task: Task) -> "Entry":
        """Return the entry by which *task* waits, or waited when it was delivered."""
        waits = task.state is State.ENQUEUED
        scheduled_at = task.scheduled_at if waits else task.turn or task.due_at
        return cls(
            task.id,
            task.place,
            scheduled_at,
            task.expires_at,
            None,
            task.due_at,
            task.group_key,
            knows_group=True,
        )

    @property
    def own_time(self) -> datetime:
        """The state's own time: of a task that waits when it is due, whatever its turn."""
        return (self.due_at if self.place.lane == TURN_LANE else None) or self.scheduled_at

    def is_hidden(self, now: datetime) -> bool:
        """Return whether the task is past its retention."""
        return self.retained_until is not None and self.retained_until <= now


class Done(Struct, frozen=True):
    """The change took effect, now or in an earlier try whose answer was lost.

    ``task`` is the task after the change, or the last state of a task that the change removed.
    """

    task: Task


class Refused(Struct, frozen=True):
    """A condition did not hold; ``task`` is the stored task, or None.

    Only a new task can be refused by a tombstone.  ``blocked`` are the places in ``Change.also``
    whose own condition did not hold.  A lost race is a normal answer, not an error.
    """

    task: Task | None
    blocked: tuple[int, ...] = ()


Outcome = Done | Refused


def refused(change: Change, found: Task | None, blocked: tuple[int, ...] = ()) -> Outcome:
    """Return the outcome of *change*, which the stored task *found* refused."""
    if found is not None and found.is_tombstone and change.insert is None:
        if change.rule.target is State.DELETED and change.already_done(found):
            return Done(found)  # an earlier try of this change has hidden it
        returns = change.rule.source is State.DELETED
        # Otherwise only an enqueue of its id may see the tombstone.
        return Refused(found if returns else None, blocked)
    if found is not None and change.already_done(found):
        return Done(change.insert if change.insert and found.is_tombstone else found)
    return Refused(found, blocked)
