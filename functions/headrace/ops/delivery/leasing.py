"""Leasing what is ready in one queue, for one call: candidates, limits, the race, the write.

Long, because a call reads from top to bottom here: each step needs what the one before has found.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain import plan
from headrace.domain.change import Change, Entry
from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.ids import new_lease_token
from headrace.domain.lease import LeaseGroup
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.slots import Reservation
from headrace.domain.task import State, Task
from headrace.domain.worker import Portion
from headrace.ops.delivery.contention import (
    LISTED_FOR,
    LISTED_WHERE_CHEAP_FOR,
    Claims,
    Members,
    Race,
)
from headrace.ops.delivery.group_window import GroupWindows
from headrace.ops.delivery.idempotency import DeliveryBatch, Overtaken
from headrace.ops.shared.group_limits import BLOCKED_FOR, BLOCKED_WHERE_CHEAP_FOR
from headrace.ops.shared.lanes import (
    ShardReader,
    TurnKey,
    delivery_rank,
    delivery_turn,
    rank_of,
    turn_of,
    with_due_times,
)
from headrace.ops.shared.lease_watch import GivenLease
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Done, Outcome, Refused

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_ROUNDS: Final = 4  # tries to fill a batch when races are lost
_WIDEST: Final = 1000  # entries to look at when many race for them
_MORE_PAGES: Final = 20  # looked at behind pages of what is expired or being taken
_FIRSTS: Final = 6  # a multiple of however many take turns


class Leasing(ServicePart):
    """What leasing needs from outside, and what the threads of a process know of each other.

    Leases are written into *tables*: who learns from ends has nothing to learn from them.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.new_lease: Callable[[], str] = new_lease_token
        self.claims: Claims = Claims(service.random)
        cheap = service.store.arrivals is not None  # the store reads without cost
        listed_for = LISTED_WHERE_CHEAP_FOR if cheap else LISTED_FOR
        self.look_at_groups_after = BLOCKED_WHERE_CHEAP_FOR if cheap else BLOCKED_FOR
        self.pushing: bool = False
        self.windows: GroupWindows = GroupWindows(service.group_limits)
        self.members: Members = Members(service.store, service.now, listed_for)
        self.first_lanes: dict[str, int] = {}

    def first_lane(self, queue: Queue) -> int:
        """Return which of the lanes that take turns begins this time: another one each time."""
        if queue.lanes == [0]:
            return 0
        number = self.first_lanes.get(queue.name, 0)
        self.first_lanes[queue.name] = (number + 1) % _FIRSTS
        return number


@dataclass(slots=True, eq=False, repr=False)
class QueueLook:
    """One queue as a call looks at it: what is wanted of it, and what is learnt on the way."""

    leasing: Leasing
    queue: Queue
    count: int
    worker: str
    keepalive: Seconds | None = None
    group: LeaseGroup | None = None
    batch: DeliveryBatch | None = None
    next_due: datetime | None = None  # when the next task falls due, as far as seen
    limited_for: float | None = None  # seconds until the rate may let something through
    rated: bool = True  # whether its deliveries count for the queue's rate
    no_slot: bool = False  # whether as many are in flight as may be; nobody knows until when
    _portion: Portion | None = field(default=None, init=False)
    _turns: dict[str, TurnKey] = field(default_factory=dict, init=False)

    # -- what a call asks for --------------------------------------------------------------------

    def take(self, *, helps: bool) -> list[Task]:
        """Lease what is ready, in order; finding too little, reclaim lapsed leases if it *helps*.

        Raises Unavailable when nothing is leased, or when a repeat of the call finds what is.
        """
        taken: list[Task] = []
        if self._paused():
            return taken
        try:
            self._take_by_shard(taken)
            if len(taken) < self.count and helps:
                taken += self.lease(self._lapsed(), self.count - len(taken))
        except Unavailable:
            if not taken or self.batch is not None:  # else the answer must name what is leased
                raise
        return sorted(taken, key=self.delivery_order)

    def delivery_order(self, task: Task) -> TurnKey:
        """Return the sort key of the order in which tasks that were taken are handed out.

        That is the turn each had in its lane, which is not always that of its priority: it may be
        from before the queue had any.
        """
        return self._turns.get(task.id) or delivery_turn(self.queue, task)

    def answer_order(self, task: Task) -> TurnKey:
        """Return the sort key of the order of tasks that were taken of several queues."""
        if self.queue.settings.groups is None:
            return self.delivery_order(task)
        return delivery_rank(self.queue, task)

    def due(self) -> list[Entry]:
        """Return the entries to lease now, in order: of each shard enough for the call."""
        if self._paused():
            return []
        self._portion, sure = self.leasing.members.known(self.queue, self.worker)
        ready = self._candidates_of_all()
        if ready and not sure:
            self._portion = self.leasing.members.ask(self.queue, self.worker)
            if self._portion is not None:
                ready = self._candidates_of_all()
        return ready if self.queue.settings.groups else sorted(ready, key=self.turn)

    def turn(self, entry: Entry) -> TurnKey:
        """Return the sort key of *entry* among those of all queues that it may be taken from."""
        return rank_of(self.queue, entry)

    def reclaimed(self) -> list[Entry]:
        """Reclaim lapsed leases, unless the queue is paused; those without a backoff are ready."""
        return [] if self._paused() else self._lapsed()

    def _lapsed(self) -> list[Entry]:
        return [
            Entry.of(task)
            for place in self.queue.places(State.INFLIGHT)
            for task in self.leasing.service.reaping.lapsed(self.queue, place)
            if task.state is State.ENQUEUED and task.due_at <= self.leasing.now()
        ]

    # -- candidates: what could be leased, by the index ------------------------------------------

    def _take_by_shard(self, taken: list[Task]) -> None:
        """Lease from shard after shard into *taken*: a worker among others its own part.

        Who the others are is asked only where something is ready.
        """
        members = self.leasing.members
        self._portion, sure = members.known(self.queue, self.worker)
        todo, empty = self._shards(), set[int]()
        while todo and len(taken) < self.count:
            shard = todo.pop(0)
            if taken and self._portion is not None and not self._portion.shares(shard):
                return
            ready = self._candidates(shard, self.count - len(taken))
            if not ready:
                empty.add(shard)
                continue
            if not sure:
                self._portion, sure = members.ask(self.queue, self.worker), True
                if self._portion is not None:
                    todo = [one for one in self._shards() if one not in empty]
                    continue
            self._take_of_shard(shard, ready, taken)

    def _take_of_shard(self, shard: int, ready: list[Entry], taken: list[Task]) -> None:
        """Lease of *ready* into *taken*; if our part shrinks in the race, once more there."""
        parts = 0
        for _ in range(_ROUNDS):
            before, parts = parts, self._parts()
            if parts <= before:
                return
            wanted = self.count - len(taken)
            if before:
                ready = self._candidates(shard, wanted)
            taken += self.lease(ready, wanted)
            if len(taken) == self.count:
                return

    def _shards(self) -> list[int]:
        """Return where to look, in order.

        Shards being retired come first, so that nothing is stranded, then those of one's own
        portion, then the others, each by chance.
        """
        settled = self.queue.settings.shards
        current = list(range(settled))
        self.leasing.service.random.shuffle(current)
        retired = range(settled, self.queue.shards_of(State.ENQUEUED))
        own = set(self._portion.own_shards) if self._portion is not None else set()
        return [*retired, *sorted(current, key=lambda shard: shard not in own)]

    def _candidates_of_all(self) -> list[Entry]:
        return [entry for shard in self._shards() for entry in self._candidates(shard, self.count)]

    def _candidates(self, shard: int, count: int) -> list[Entry]:
        """Read a little more than is wanted, so that a lost race finds something else.

        In a crowd it is as much more as our part of it is smaller, so that our part may be enough.
        Of lanes that are merged each is read so far.  Not bounded by the clock: the first task
        that is not due yet says when to ask again.
        """
        ready = list[Entry]()
        first = self.leasing.first_lane(self.queue)
        reader = ShardReader(self.leasing.store, self.queue, shard, self.leasing.now, first=first)
        sieve = self.leasing.windows.sieve(self.queue, shard) if self.queue.group_limit else None
        if sieve is not None:
            reader.skip(sieve.begins)
            ready = sieve.parked()
        portion = self._portion
        parts = self._parts() if portion is None else portion.sharing(shard)
        narrow, wide = 2 * count + 16, parts * (count + count // 4 + 2)
        limit = max(narrow, min(wide, _WIDEST))
        for _ in range(_MORE_PAGES):
            page = reader.page(limit)
            now = self.leasing.now()
            over, fresh = list[Entry](), list[Entry]()
            for entry in page:
                late = entry.expires_at is not None and entry.expires_at <= now
                (over if late else fresh).append(entry)
            if sieve is not None:
                fresh = sieve.sift(fresh)
                if len(fresh) < len(page) // 2:
                    limit = min(2 * limit, _WIDEST)
            ready += fresh
            if over:  # or the reaper would leave them in our way
                list(self.leasing.service.reaping.dead_letter(self.queue, over))
            if reader.over or self.leasing.claims.free(ready) >= count:
                break
        again = [] if reader.next_due is None else [reader.next_due]
        if sieve is not None and sieve.held_back:
            again.append(self.leasing.now() + self.leasing.look_at_groups_after)
        self.next_due = min([*again, self.next_due] if self.next_due else again, default=None)
        return ready

    # -- limits ----------------------------------------------------------------------------------

    def lease(self, ready: Sequence[Entry], count: int) -> list[Task]:
        """Take up to *count* of the *ready* entries, as far as the queue's limits allow."""
        won = self._lease(ready, count)
        self.leasing.service.leases.watch.given.extend(
            GivenLease((task.id, task.scheduled_at), task.lease_expires_at, task.lease_id)
            for task in won
        )
        if self.queue.settings.groups is not None:
            passed = self.leasing.claims.first_passed(ready, won[-1].id) if won else None
            self.leasing.service.lines.note(self.queue, won, passed)
        return won

    def _lease(self, ready: Sequence[Entry], count: int) -> list[Task]:
        wanted = min(count, len(ready))
        limited = self.rated and self.queue.settings.dequeuing_settings.rate_limiting is not None
        if wanted == 0 or not limited:
            return self._race(ready, wanted).won
        tokens = self.leasing.service.tokens
        granted = tokens.take(self.queue, wanted)
        if granted.count == 0:
            self.limited_for = granted.wait
            return []
        try:
            race = self._race(ready, granted.count)
        except Overtaken:
            with suppress(Unavailable):
                tokens.release_unused(self.queue, granted, granted.count)
            raise
        unused = granted.count - len(race.won) - race.unclear
        with suppress(Unavailable):  # tokens come by themselves, and leases would be lost
            tokens.release_unused(self.queue, granted, unused)
        return race.won

    def _allowed(self, picked: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries to deliver, each with a slot of its group if the queue limits them."""
        if not self.queue.group_limit:
            return picked
        windows = self.leasing.windows
        looked = windows.looked(self.queue, picked) if self.queue.strict else {}
        allowed = self.leasing.service.group_limits.take(self.queue, picked, looked)
        ids = {entry.task_id for entry in allowed}
        self.leasing.claims.drop([entry for entry in picked if entry.task_id not in ids])
        windows.met(self.queue, allowed)
        return allowed

    def _reserved(self, picked: Sequence[Entry]) -> list[tuple[Entry, Reservation | None]]:
        """Return the entries to deliver, each with its slot if the queue limits them."""
        if not self.queue.settings.dequeuing_settings.max_inflight_tasks:
            return [(entry, None) for entry in picked]
        picked = with_due_times(self.leasing.store, picked)
        reserved = self.leasing.service.slots.take(self.queue, picked)
        self.leasing.claims.drop([entry for entry in picked if entry not in reserved])
        return list(reserved.items())

    # -- the race --------------------------------------------------------------------------------

    def _race(self, ready: Sequence[Entry], count: int) -> Race:
        """Take up to *count* of the *ready* entries, those of our share first."""
        name, claims, members = self.queue.name, self.leasing.claims, self.leasing.members
        race = Race()
        window, wanted = list(ready), count
        for _ in range(_ROUNDS):
            now = self.leasing.now()
            mine = self._portion or claims.part(name, now)
            picked = claims.pick(window, wanted, now=now, mine=mine)
            if not picked:
                break
            try:
                allowed = self._allowed(picked)
                reserved = self._reserved(allowed)
                outcomes = self._write(reserved, now) if allowed else []
            except HeadraceError as error:
                claims.drop(picked)
                if race.won and self.batch is None and isinstance(error, Unavailable):
                    break
                raise
            won = race.note(outcomes)
            members.raced(name, len(reserved), won)
            if self._portion is None:
                claims.raced(name, len(reserved), won, now)
            if len(reserved) < len(allowed):
                self.no_slot = True
                break
            wanted = count - len(race.won) - race.unclear
            if not wanted or self._parts() > 1:  # others' part, or it was taken from under us
                break
            names = {entry.task_id for entry in picked}
            window = [entry for entry in window if entry.task_id not in names]
        return race

    # -- the write -------------------------------------------------------------------------------

    def _write(
        self, reserved: Sequence[tuple[Entry, Reservation | None]], now: datetime
    ) -> list[Outcome]:
        """Write the leases; where only the task's own keepalive was not known, once more."""
        if self.queue.lanes != [0]:
            self._turns |= {entry.task_id: turn_of(self.queue, entry) for entry, _ in reserved}
        tables = self.leasing.store
        changes = [self._delivery(entry, slot, now) for entry, slot in reserved]
        if self.batch is None:
            outcomes = tables.commit(changes, partly=True)
        else:
            outcomes = self.batch.commit(changes, now=now)
        again = {
            place: self._delivery(*reserved[place], now, task=outcome.task)
            for place, outcome in enumerate(outcomes)
            if not isinstance(outcome, Done) and _own_keepalive(outcome.task, reserved[place][0])
        }
        try:
            once_more = tables.commit(list(again.values()), partly=True)
        except Unavailable:
            once_more = [Refused(None)] * len(again)
        for place, outcome in zip(again, once_more, strict=True):
            outcomes[place] = outcome
        slots = [slot for _, slot in reserved if slot is not None]
        if slots:
            self.leasing.service.slots.refused(self.queue, slots, outcomes)
        return outcomes

    def _delivery(
        self,
        entry: Entry,
        slot: Reservation | None,
        now: datetime,
        *,
        task: Task | None = None,
    ) -> Change:
        token = self.leasing.new_lease() if self.batch is None else self.batch.new_lease()
        delivery = plan.dequeue(
            entry,
            self.queue,
            lease_id=self.group.new_lease(token) if self.group else token,
            now=now,
            worker=self.worker,
            keepalive=self.keepalive,
            task=task,
            group=self.group,
        )
        if slot is not None:
            return plan.due_at_limit(delivery, slot.due_at, slot.slot)
        return plan.due_at_limit(delivery, entry.own_time) if self.queue.group_limit else delivery

    def _paused(self) -> bool:
        if (self.queue.settings.target is not None) != self.leasing.pushing:
            return True
        return self.queue.paused(self.leasing.now())

    def _parts(self) -> int:
        return self.leasing.claims.part(self.queue.name, self.leasing.now()).of


def _own_keepalive(task: Task | None, entry: Entry) -> bool:
    """Tell whether a refusal may be only about the task's own keepalive."""
    return (
        task is not None
        and task.state is State.ENQUEUED
        and task.keepalive is not None
        and task.scheduled_at == entry.scheduled_at
    )
