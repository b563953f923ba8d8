"""The part of a dequeue call that concerns one queue: find due tasks, apply the limits, lease."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain import plan
from headrace.domain.change import Change, Done, Entry, Outcome, Refused
from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.ids import new_lease_id
from headrace.domain.lease import LeaseGroup
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.slots import Reservation
from headrace.domain.task import State, Task
from headrace.domain.worker import Portion
from headrace.ops.delivery.contention import Race
from headrace.ops.delivery.idempotency import DeliveryBatch, Overtaken
from headrace.ops.shared.lanes import (
    ShardReader,
    TurnKey,
    delivery_rank,
    delivery_turn,
    rank_of,
    turn_of,
)
from headrace.ops.shared.lease_watch import KnownLease

if TYPE_CHECKING:
    from headrace.ops.delivery.deliveries import Deliveries

_ROUNDS: Final = 4  # writes of one call, where limits or groups let only a part of a batch through
_WIDEST: Final = 1000  # entries read at a time
_MORE_PAGES: Final = 20  # read behind pages of tasks that expired or are being leased


@dataclass(slots=True, eq=False, repr=False)
class QueueDequeue:
    """One queue in one call: what the call asks for, and what it learns on the way.

    ``next_due`` is when the next task falls due, as far as seen.  ``limited_for`` is in how many
    seconds the rate may allow a delivery.  With ``no_slot`` as many tasks are in flight as may be.
    """

    deliveries: "Deliveries"
    queue: Queue
    count: int
    worker: str
    keepalive: Seconds | None = None
    group: LeaseGroup | None = None
    batch: DeliveryBatch | None = None
    rated: bool = True  # whether its deliveries count for the queue's rate
    next_due: datetime | None = None
    limited_for: float | None = None
    no_slot: bool = False
    _portion: Portion | None = field(default=None, init=False)
    _turns: dict[str, TurnKey] = field(default_factory=dict, init=False)

    def take(self, *, helps: bool) -> list[Task]:
        """Lease due tasks in order.  If they are too few and it *helps*, reclaim lapsed leases.

        Raises Unavailable when nothing is leased, or when a repeat of the call finds what is.
        """
        taken: list[Task] = []
        if self._paused():
            return taken
        try:
            self._take_by_shard(taken)
            if len(taken) < self.count and helps:
                taken += self.lease(self.reclaimed(), self.count - len(taken))
        except Unavailable:
            if not taken or self.batch is not None:  # else the answer must name what is leased
                raise
        return sorted(taken, key=self.delivery_order)

    def delivery_order(self, task: Task) -> TurnKey:
        """Return the sort key by which leased tasks are handed out.

        It is the turn of the task in its lane.  The priority may say another one if the task is
        older than the queue's priorities.
        """
        return self._turns.get(task.id) or delivery_turn(self.queue, task)

    def answer_order(self, task: Task) -> TurnKey:
        """Return the sort key of tasks that were leased from several queues."""
        if self.queue.settings.groups is None:
            return self.delivery_order(task)
        return delivery_rank(self.queue, task)

    def due(self) -> list[Entry]:
        """Return the entries to lease now, in order: of each shard enough for the call."""
        if self._paused():
            return []
        known = self._use_known_portion()
        ready = self._candidates_of_all()
        if ready and not known:
            self._ask_for_portion()
            if self._portion is not None:
                ready = self._candidates_of_all()
        return ready if self.queue.settings.groups else sorted(ready, key=self.turn)

    def turn(self, entry: Entry) -> TurnKey:
        """Return the sort key of *entry* among those of all queues of the call."""
        return rank_of(self.queue, entry)

    def reclaimed(self) -> list[Entry]:
        """Reclaim lapsed leases unless the queue is paused; return the tasks without a backoff."""
        if self._paused():
            return []
        return [
            Entry.of(task)
            for place in self.queue.places(State.INFLIGHT)
            for task in self.deliveries.service.reaping.lapsed(self.queue, place)
            if task.state is State.ENQUEUED and task.due_at <= self.deliveries.now()
        ]

    def lease(self, ready: Sequence[Entry], count: int) -> list[Task]:
        """Lease up to *count* of the *ready* entries, as far as the queue's limits allow."""
        leased = self._lease_within_rate(ready, min(count, len(ready))) if ready else []
        self.deliveries.service.leases.watch.given.extend(
            KnownLease((task.id, task.scheduled_at), task.lease_expires_at, task.lease_id)
            for task in leased
        )
        if leased and self.queue.settings.groups is not None:
            passed = self.deliveries.claims.first_passed(ready, leased[-1].id)
            self.deliveries.service.lines.note(self.queue, leased, passed)
        return leased

    # -- candidates, by the index -----------------------------------------------------------------

    def _use_known_portion(self) -> bool:
        """Use the portion of the worker as last known; return whether that is recent enough."""
        members = self.deliveries.members
        if members is None:
            return True
        self._portion, known = members.known(self.queue, self.worker)
        return known

    def _ask_for_portion(self) -> None:
        if self.deliveries.members is not None:
            self._portion = self.deliveries.members.ask(self.queue, self.worker)

    def _take_by_shard(self, taken: list[Task]) -> None:
        """Lease from shard after shard into *taken*; a worker with a portion only from that.

        The list of workers is read only where a task is due.
        """
        known = self._use_known_portion()
        todo, empty = self._shards(), set[int]()
        while todo and len(taken) < self.count:
            shard = todo.pop(0)
            if taken and self._portion is not None and not self._portion.shares(shard):
                return
            ready = self._candidates(shard, self.count - len(taken))
            if not ready:
                empty.add(shard)
                continue
            if not known:
                self._ask_for_portion()
                known = True
                if self._portion is not None:
                    todo = [one for one in self._shards() if one not in empty]
                    continue
            self._take_from_shard(shard, ready, taken)

    def _take_from_shard(self, shard: int, ready: list[Entry], taken: list[Task]) -> None:
        """Lease of *ready* into *taken*; read the shard again if lost leases shrink the part."""
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

    def _parts(self) -> int:
        return self.deliveries.claims.part(self.queue.name, self.deliveries.now()).of

    def _candidates_of_all(self) -> list[Entry]:
        return [entry for shard in self._shards() for entry in self._candidates(shard, self.count)]

    def _shards(self) -> list[int]:
        """Return the shards in the order to look at.

        Retired ones come first, then those of the worker's portion, then the others, at random.
        """
        settled = self.queue.settings.shards
        current = list(range(settled))
        self.deliveries.service.random.shuffle(current)
        retired = range(settled, self.queue.shards_of(State.ENQUEUED))
        own = set(self._portion.own_shards) if self._portion is not None else set()
        return [*retired, *sorted(current, key=lambda shard: shard not in own)]

    def _candidates(self, shard: int, count: int) -> list[Entry]:
        """Return due entries of a shard, a few more than *count*, in case of a lost lease.

        Of lanes that are merged each is read so far.  The read is not bounded by the clock: the
        first task that is not due yet says when to ask again.
        """
        deliveries = self.deliveries
        ready = list[Entry]()
        first = deliveries.first_lane(self.queue)
        reader = ShardReader(deliveries.store, self.queue, shard, deliveries.now, first=first)
        sieve = deliveries.windows.sieve(self.queue, shard) if self.queue.group_limit else None
        if sieve is not None:
            reader.skip(sieve.begins)
            ready = sieve.parked()
        portion = self._portion
        parts = self._parts() if portion is None else portion.sharing(shard)
        narrow, wide = 2 * count + 16, parts * (count + count // 4 + 2)
        limit = max(narrow, min(wide, _WIDEST))
        for _ in range(_MORE_PAGES):
            page = reader.page(limit)
            now = deliveries.now()
            over, fresh = list[Entry](), list[Entry]()
            for entry in page:
                late = entry.expires_at is not None and entry.expires_at <= now
                (over if late else fresh).append(entry)
            if sieve is not None:
                fresh = sieve.sift(fresh)
                if len(fresh) < len(page) // 2:
                    limit = min(2 * limit, _WIDEST)
            ready += fresh
            if over:  # the reaper would leave them at the head for up to a minute
                list(deliveries.service.reaping.dead_letter(self.queue, over))
            if reader.exhausted or deliveries.claims.free(ready) >= count:
                break
        again = [] if reader.next_due is None else [reader.next_due]
        if sieve is not None and sieve.held_back:
            again.append(deliveries.now() + deliveries.look_at_groups_after)
        self.next_due = min([*again, self.next_due] if self.next_due else again, default=None)
        return ready

    # -- limits -----------------------------------------------------------------------------------

    def _lease_within_rate(self, ready: Sequence[Entry], wanted: int) -> list[Task]:
        if not self.rated or self.queue.settings.dequeuing_settings.rate_limiting is None:
            return self._lease_within_slots(ready, wanted).won
        tokens = self.deliveries.service.tokens
        granted = tokens.take(self.queue, wanted)
        if granted.count == 0:
            self.limited_for = granted.wait
            return []
        try:
            leased = self._lease_within_slots(ready, granted.count)
        except Overtaken:
            with suppress(Unavailable):
                tokens.release_unused(self.queue, granted, granted.count)
            raise
        unused = granted.count - len(leased.won) - leased.unclear
        with suppress(Unavailable):  # tokens come back with time, and leases would be lost
            tokens.release_unused(self.queue, granted, unused)
        return leased.won

    def _lease_within_slots(self, ready: Sequence[Entry], count: int) -> Race:
        """Lease up to *count* of the *ready* entries, each with a slot if the queue has slots."""
        name, claims, members = self.queue.name, self.deliveries.claims, self.deliveries.members
        leased = Race()
        window, wanted = list(ready), count
        for _ in range(_ROUNDS):
            now = self.deliveries.now()
            mine = self._portion or claims.part(name, now)
            picked = claims.pick(window, wanted, now=now, mine=mine)
            if not picked:
                break
            try:
                allowed = self._with_group_slots(picked)
                reserved = self._with_slots(allowed)
                outcomes = self._write(reserved, now) if allowed else []
            except HeadraceError as error:
                claims.drop(picked)
                if leased.won and self.batch is None and isinstance(error, Unavailable):
                    break
                raise
            won = leased.note(outcomes)
            if members is not None:
                members.raced(name, len(reserved), won)
            if self._portion is None:
                claims.raced(name, len(reserved), won, now)
            if len(reserved) < len(allowed):
                self.no_slot = True
                break
            wanted = count - len(leased.won) - leased.unclear
            if not wanted or self._parts() > 1:  # the rest is what others are leasing too
                break
            ids = {entry.task_id for entry in picked}
            window = [entry for entry in window if entry.task_id not in ids]
        return leased

    def _with_group_slots(self, picked: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries that get a slot of their group; all if the queue has no such slots."""
        if not self.queue.group_limit:
            return picked
        windows = self.deliveries.windows
        looked = windows.looked(self.queue, picked) if self.queue.strict else {}
        allowed = self.deliveries.service.group_limits.take(self.queue, picked, looked)
        ids = {entry.task_id for entry in allowed}
        self.deliveries.claims.drop([one for one in picked if one.task_id not in ids])
        windows.met(self.queue, allowed)
        return allowed

    def _with_slots(self, picked: Sequence[Entry]) -> list[tuple[Entry, Reservation | None]]:
        """Return the entries that get a slot of the queue; all, if it does not limit them."""
        if not self.queue.settings.dequeuing_settings.max_inflight_tasks:
            return [(entry, None) for entry in picked]
        reserved = self.deliveries.service.slots.take(self.queue, picked)
        self.deliveries.claims.drop([entry for entry in picked if entry not in reserved])
        return list(reserved.items())

    # -- the write --------------------------------------------------------------------------------

    def _write(
        self, reserved: Sequence[tuple[Entry, Reservation | None]], now: datetime
    ) -> list[Outcome]:
        """Write the leases; write again for tasks that set a keepalive."""
        if self.queue.lanes != [0]:
            self._turns |= {entry.task_id: turn_of(self.queue, entry) for entry, _ in reserved}
        store = self.deliveries.store
        changes = [self._delivery(entry, slot, now) for entry, slot in reserved]
        if self.batch is None:
            outcomes = store.commit(changes, partly=True)
        else:
            outcomes = self.batch.commit(changes, now=now)
        again = {
            place: self._delivery(*reserved[place], now, task=outcome.task)
            for place, outcome in enumerate(outcomes)
            if not isinstance(outcome, Done) and _has_keepalive(outcome.task, reserved[place][0])
        }
        try:
            once_more = store.commit(list(again.values()), partly=True)
        except Unavailable:
            once_more = [Refused(None)] * len(again)
        for place, outcome in zip(again, once_more, strict=True):
            outcomes[place] = outcome
        slots = [slot for _, slot in reserved if slot is not None]
        if slots:
            self.deliveries.service.slots.refused(self.queue, slots, outcomes)
        return outcomes

    def _delivery(
        self,
        entry: Entry,
        slot: Reservation | None,
        now: datetime,
        *,
        task: Task | None = None,
    ) -> Change:
        # A repeat of the call knows by the tag what it has leased.
        lease_id = new_lease_id(now, self.batch.tag if self.batch else "")
        delivery = plan.dequeue(
            entry,
            self.queue,
            lease_id=self.group.with_delivery(lease_id) if self.group else lease_id,
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
        if (self.queue.settings.target is not None) != self.deliveries.pushing:
            return True
        return self.queue.is_paused(self.deliveries.now())


def _has_keepalive(task: Task | None, entry: Entry) -> bool:
    """Return whether the write may have been refused only because of the task's own keepalive."""
    return (
        task is not None
        and task.state is State.ENQUEUED
        and task.keepalive is not None
        and task.scheduled_at == entry.scheduled_at
    )
