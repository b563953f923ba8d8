"""A queue and its settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain import limits
from headrace.domain.ids import shard_of
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import Seconds
from headrace.domain.task import (
    LANES,
    ORDINARY,
    RETURN_LANE,
    TURN_LANE,
    Place,
    Priority,
    State,
    Task,
    places_of,
)
from headrace.domain.task_groups import Turn

AGREED_AFTER: Final = timedelta(seconds=limits.SETTINGS_TTL_SECONDS[1] + 60)
"""The time after a change in which calls may still use the settings before it.

A call may begin with settings as old as can be, and may take half a minute.
"""


_TURN: Final = ("turn",)
_PLACE: Final = ("after",)  # in a strict order
_STEPS: Final = {LANES[Priority.HIGH]: -1, LANES[Priority.LOW]: 1}


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a queue (the name of a key), when, and why in their words, if they said."""

    at: datetime
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as stored.

    ``resume_at`` ends a pause.  Tasks stay on their shard, so ``shards_in_use`` and
    ``lanes_in_use`` are all shards and lanes that a task may be in.  ``drained`` are the states
    whose tasks are all on the shards and lanes of the settings again, which were others until
    ``resharded_at``; ``shards_ever`` and ``lanes_ever`` at most.  ``uncounted_since`` is when
    ``max_inflight_tasks`` was last set or lowered, until all tasks in flight are counted by it.
    ``signing_generation`` is which secret signs what its target gets, since ``rotated_at``.  It has
    had ``settings.alerts`` since ``alerts_since``.  ``on_end_for`` are the patterns of the key that
    set ``settings.on_end``; empty means all queues.
    """

    name: str
    settings: QueueSettings
    created_at: datetime
    updated_at: datetime
    version: int = 1
    resume_at: datetime | None = None
    shards_in_use: int = 1
    drained: frozenset[State] = frozenset()
    resharded_at: datetime | None = None
    shards_ever: int = 1
    uncounted_since: datetime | None = None
    lanes_in_use: frozenset[int] = ORDINARY
    lanes_ever: frozenset[int] = ORDINARY
    signing_generation: int = 0
    rotated_at: datetime | None = None
    alerts_since: datetime | None = None
    on_end_for: tuple[str, ...] = ()
    pause: Pause | None = None

    def shards_of(self, state: State) -> int:
        """Return on how many shards tasks in *state* may be."""
        return self.settings.shards if state in self.drained else self.shards_in_use

    @property
    def lanes(self) -> list[int]:
        """The lanes that tasks may wait in."""
        return sorted(self.settings.lanes if State.ENQUEUED in self.drained else self.lanes_in_use)

    def places(self, state: State) -> list[Place]:
        """Return where the index keeps tasks in *state*, by label."""
        return places_of(self.name, state, self.shards_of(state), self.lanes)

    def retiring_places(self, state: State) -> list[Place]:
        """Return those of the places of *state* that the settings do without."""
        kept = places_of(self.name, state, self.settings.shards, self.settings.lanes)
        return [place for place in self.places(state) if place not in kept]

    def former_places(self, state: State) -> list[Place]:
        """Return the former places of tasks in *state*."""
        shards, lanes = max(self.shards_ever, self.shards_in_use), self.lanes_ever
        kept = self.places(state)
        ever = places_of(self.name, state, shards, lanes | self.lanes_in_use)
        return [place for place in ever if place not in kept]

    @property
    def has_retiring_places(self) -> bool:
        """Whether tasks may be on shards or in lanes that the settings do without."""
        return self.settings.shards < self.shards_in_use or self.settings.lanes < self.lanes_in_use

    @property
    def had_other_places(self) -> bool:
        """Whether there ever were shards or lanes that the settings do without."""
        return self.settings.shards < self.shards_ever or self.settings.lanes < self.lanes_ever

    def with_drained(self, states: frozenset[State]) -> "Queue":
        """Return the queue once all tasks in *states* are where the settings keep them again."""
        if states == frozenset(State):
            return replace(
                self,
                shards_in_use=self.settings.shards,
                lanes_in_use=self.settings.lanes,
                drained=frozenset(),
            )
        return replace(self, drained=states)

    def with_undrained(self, states: frozenset[State]) -> "Queue":
        """Return the queue with all places there ever were, because tasks in *states* are there."""
        settled = frozenset(state for state in State if not self.retiring_places(state))
        return replace(
            self,
            shards_in_use=max(self.shards_ever, self.shards_in_use),
            lanes_in_use=self.lanes_ever | self.lanes_in_use,
            drained=settled - states,
        )

    def with_settings(self, settings: QueueSettings, now: datetime) -> "Queue":
        """Return the queue with other *settings*, and where its tasks may then be."""
        before = self.settings
        if (settings.shards, settings.lanes) == (before.shards, before.lanes):
            return replace(self, settings=settings)
        shards = max(self.shards_in_use, settings.shards)
        lanes = self.lanes_in_use | settings.lanes
        return replace(
            self,
            settings=settings,
            shards_in_use=shards,
            lanes_in_use=lanes,
            drained=frozenset(),
            resharded_at=now,
            shards_ever=max(self.shards_ever, shards),
            lanes_ever=self.lanes_ever | lanes,
        )

    def lane_of(self, priority: Priority | None) -> int:
        """Return the lane that a task of *priority* waits in."""
        if self.settings.priority is None or priority is None:
            return 0
        return LANES[priority]

    def priority_for(self, priority: Priority | None) -> Priority | None:
        """Return the priority of a task that comes here with *priority*, if the queue has any."""
        return None if self.settings.priority is None else priority or Priority.NORMAL

    def priority_fault(self, priority: Priority | None) -> str | None:
        """Return why a task of *priority* does not fit, behind the name of the field; or None."""
        if priority is None or self.settings.priority is not None:
            return None
        return f"has no meaning in queue {self.name}, whose setting `priority` is null"

    def group_fault(self, group_key: str | None) -> str | None:
        """Return why a task of *group_key* does not fit, behind the name of the field; or None."""
        if group_key is None and self.strict:
            return f"must be given: the order of queue {self.name} is strict"
        if group_key is None or self.settings.groups is not None:
            return None
        return f"has no meaning in queue {self.name}, whose settings have no groups"

    def order_fault(self, times: Mapping[str, object]) -> str | None:
        """Return which of *times*, by field, is given where a strict order knows none."""
        if not self.strict:
            return None
        named = next((name for name, given in times.items() if given), None)
        if named is None:
            return None
        return f"{named} has no meaning in queue {self.name}: its order is strict, not by time"

    def notifies_of(self, state: State) -> bool:
        """Return whether another queue is notified of tasks that end here in *state*."""
        on_end = self.settings.on_end
        return on_end is not None and state in on_end.states

    def turn(self, lane: int, due_at: datetime) -> datetime:
        """Return when a task that is due at *due_at* and waits in *lane* has its turn among others.

        That is its due time, put forward for a high priority and back for a low one.
        """
        aging = self.settings.priority
        if aging is None or lane not in _STEPS:
            return due_at
        return due_at + _STEPS[lane] * timedelta(seconds=aging.aging_in_seconds)

    @property
    def group_limit(self) -> int:
        """How many tasks of a group may be in flight; 0: any number."""
        groups = self.settings.groups
        if groups is None:
            return 0
        return 1 if groups.strict else groups.max_inflight_per_group

    @property
    def strict(self) -> bool:
        """Whether tasks of a group are done one after the other, in the order they came in."""
        groups = self.settings.groups
        return groups is not None and groups.strict

    @property
    def limited(self) -> bool:
        """Whether the tasks in flight, or the rate of deliveries, have a limit."""
        dequeuing = self.settings.dequeuing_settings
        return dequeuing.max_inflight_tasks > 0 or dequeuing.rate_limiting is not None

    def is_paused(self, now: datetime) -> bool:
        """Return whether deliveries are paused at *now*."""
        if not self.settings.dequeuing_settings.dequeuing_paused:
            return False
        return self.resume_at is None or now < self.resume_at

    def as_seen(self, now: datetime) -> "Queue":
        """Return the queue as people should see it: a pause that has run out is over."""
        stored = self.settings.dequeuing_settings
        if not stored.dequeuing_paused or self.is_paused(now):
            return self
        settings = replace(
            self.settings, dequeuing_settings=replace(stored, dequeuing_paused=False)
        )
        return replace(self, settings=settings, resume_at=None, pause=None)

    @property
    def dead_retention(self) -> Seconds:
        """How many seconds dead tasks are kept; 0 if they are not kept."""
        config = self.settings.dead_letter_queue_config
        return config.retention_period_in_seconds if config.enable else 0

    def expiry(self, due_at: datetime) -> datetime | None:
        """Return when a task due at *due_at* expires by this queue's settings, or None."""
        seconds = self.settings.expires_in_seconds
        return due_at + timedelta(seconds=seconds) if seconds else None


def place_in(queue: Queue, state: State, task_id: str, priority: Priority | None = None) -> Place:
    """Return where the index keeps *task_id* in *queue* and *state*; *priority* if it waits."""
    shard = shard_of(task_id, queue.settings.shards)
    return Place(queue.name, state, shard, queue.lane_of(priority))


def waiting_fields(
    queue: Queue,
    task_id: str,
    due_at: datetime,
    priority: Priority | None,
    *,
    turn: Turn | None = None,
    returned: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields by which a task waits in *queue* until it is due, and those it has not.

    With its *priority*; or in a queue with groups by its *turn*, if it has one.  *returned* is
    whether a worker had it.
    """
    place = place_in(queue, State.ENQUEUED, task_id, priority)
    put = {"place": place, "scheduled_at": due_at, "due_at": due_at}
    left = () if queue.strict else _PLACE  # one that it had elsewhere stays there
    if queue.settings.groups is None:
        return put, left
    if turn is None:
        if returned:
            put["place"] = Place(queue.name, State.ENQUEUED, place.shard, RETURN_LANE)
        return put, (*_TURN, *left)
    put |= {"scheduled_at": turn.at, "turn": turn.at}
    shard = place.shard
    if queue.strict:  # all of a group are together
        shard = shard_of(turn.group_key or "", queue.settings.shards)
    put["place"] = Place(queue.name, State.ENQUEUED, shard, TURN_LANE)
    if turn.after is not None and queue.strict:
        put["after"] = turn.after
    return put, left


def kept_turn(task: Task) -> Turn | None:
    """Return the turn that *task* has had, if it has had one."""
    return None if task.turn is None else Turn(task.turn, task.after, task.group_key)


def new_life_fields(
    queue: Queue,
    task_id: str,
    *,
    due_at: datetime,
    now: datetime,
    priority: Priority | None,
    turn: Turn | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields of a task that begins a new life in *queue*, and the fields to clear.

    The *priority* that it had counts where the queue has priorities, its *turn* where it has
    groups.
    """
    granted = queue.priority_for(priority)
    put, unset = waiting_fields(queue, task_id, due_at, granted, turn=turn)
    put |= {"enqueued_at": now, "returned_at": now, "attempts": 0}
    may_have = {"expires_at": queue.expiry(due_at), "priority": granted}
    put |= {name: value for name, value in may_have.items() if value is not None}
    return put, (*unset, *(name for name, value in may_have.items() if value is None))
