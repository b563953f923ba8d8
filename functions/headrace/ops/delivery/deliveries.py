"""Leasing what is ready in one queue: candidates, limits, the race for them, the write."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from headrace.domain import plan
from headrace.domain.change import Change, Entry
from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.ids import new_lease_token
from headrace.domain.lease import Group
from headrace.domain.portion import Portion
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.slots import Reservation
from headrace.domain.task import State, Task
from headrace.ops.delivery.batches import DeliveryBatch, Overtaken
from headrace.ops.delivery.candidates import Candidates
from headrace.ops.delivery.contention import Claims, Crowd, Members
from headrace.ops.delivery.dequeue import Call, Dequeue, DequeueResult, Order, in_turn
from headrace.ops.delivery.reaping import Reaping
from headrace.ops.shared.leases import Leases
from headrace.ops.shared.limiting import Limiting
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import Done, Outcome, Refused, Store

_ROUNDS: Final = 4  # tries to fill a batch when races are lost


@dataclass(slots=True)
class Deliveries:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    reaping: Reaping
    limiting: Limiting
    now: Callable[[], datetime]
    leases: Leases
    poll_after_seconds: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)
    new_lease: Callable[[], str] = new_lease_token
    claims: Claims = field(default_factory=Claims)
    crowd: Crowd = field(default_factory=Crowd)
    members: Members = field(init=False)

    def __post_init__(self) -> None:
        self.members = Members(self.store, self.now, self.claims)

    @property
    def candidates(self) -> Candidates:
        """What finds what is ready."""
        return Candidates(self.store, self.reaping, self.claims, self.now, self.chance)

    def dequeue(  # noqa: PLR0913  the API's own fields, and how to wait
        self,
        queues: str | Sequence[str],
        *,
        order: Order = Order.PREFERENCE,
        batch_size: int = 1,
        wait_seconds: float = 0,
        worker: str = "",
        keepalive: Seconds | None = None,
        lease_id: str | None = None,
        batch: DeliveryBatch | None = None,
        go_on: Callable[[], bool] = lambda: True,
        still_may: Callable[[], object] = lambda: None,
    ) -> DequeueResult:
        """Lease up to *batch_size* due tasks to *worker*, of one queue in order of their due time.

        Of several *queues* a later one is asked only for what those before do not have; by the
        *order* DUE those tasks are leased that fell due first of all.
        Waits up to *wait_seconds* for the first one, as long as *go_on* says so; *still_may* is
        asked each time before it looks again.  *lease_id* is a group to put them under; *keepalive*
        has no meaning then.  Of calls with the same *batch* the first one leases, and the others
        get what is left of that.
        Raises NotFound for a queue that is missing, LeaseLost unless the group is open, as *batch*
        does, and what *still_may* raises; nothing is leased then.
        """
        call = Dequeue(
            self,
            queues,
            order,
            batch_size,
            wait_seconds,
            worker,
            keepalive,
            lease_id,
            batch,
            go_on,
            still_may,
        )
        return call.run()

    def lease(
        self, queue: Queue, entries: Sequence[Entry], *, worker: str, group: Group
    ) -> list[Task]:
        """Put those of *entries* under *group* that can be had, as far as the queue's limits allow.

        They are what the index shows as due; how many they are is the caller's business.
        """
        call = Call(len(entries), worker, None, group)
        return self._lease(queue, entries, len(entries), call)

    def take(self, queue: Queue, call: Call, *, helps: bool) -> list[Task]:
        """Lease what is ready, in order; finding too little, reclaim lapsed leases if it *helps*.

        Raises Unavailable when nothing is leased.
        """
        if queue.paused(self.now()):
            return []
        taken: list[Task] = []
        try:
            self._from_shards(queue, call, taken)
            if len(taken) < call.count and helps:
                ready = self._reclaimed(queue)
                taken += self._lease(queue, ready, call.count - len(taken), call)
        except Unavailable:
            if not taken:  # what is leased already must reach its worker
                raise
        return sorted(taken, key=in_turn)

    def due(self, queue: Queue, call: Call) -> list[Entry]:
        """Return the entries to lease now, in order: of each shard enough for the call."""
        if queue.paused(self.now()):
            return []
        portion, sure = self.members.known(queue, call.worker)
        ready = self.candidates.of_queue(queue, call, portion)
        if ready and not sure and (portion := self.members.ask(queue, call.worker)) is not None:
            ready = self.candidates.of_queue(queue, call, portion)
        ready = self._own(queue, ready, call.count, call, portion)
        return sorted(ready, key=lambda entry: entry.scheduled_at)

    def lease_due(self, queue: Queue, ready: Sequence[Entry], count: int, call: Call) -> list[Task]:
        """Lease up to *count* of the *ready* entries, as far as the queue's limits allow."""
        return self._lease(queue, ready, count, call)

    def reclaimed(self, queue: Queue) -> list[Entry]:
        """Reclaim lapsed leases, unless *queue* is paused; those without a backoff are ready."""
        return [] if queue.paused(self.now()) else self._reclaimed(queue)

    def let_go(self, tasks: Sequence[Task]) -> None:
        """Let others here take *tasks* again, which were given back."""
        self.claims.drop([_waiting(task) for task in tasks])

    def _from_shards(self, queue: Queue, call: Call, taken: list[Task]) -> None:
        """Lease from shard after shard into *taken*: a worker among others its own part.

        Who the others are is asked only where something is ready.
        """
        portion, sure = self.members.known(queue, call.worker)
        todo, empty = self.candidates.shards(queue, portion), set[int]()
        while todo and len(taken) < call.count:
            shard = todo.pop(0)
            if taken and portion is not None and not portion.shares(shard):
                return
            ready = self.candidates.of_shard(queue, shard, call.count - len(taken), call, portion)
            if not ready:
                empty.add(shard)
                continue
            if not sure:
                portion, sure = self.members.ask(queue, call.worker), True
                if portion is not None:
                    order = self.candidates.shards(queue, portion)
                    todo = [one for one in order if one not in empty]
                    continue
            self._from_shard(queue, shard, ready, call, portion, taken)

    def _from_shard(
        self,
        queue: Queue,
        shard: int,
        ready: list[Entry],
        call: Call,
        portion: Portion | None,
        taken: list[Task],
    ) -> None:
        """Lease of *ready* into *taken*; if our part shrinks in the race, once more there."""
        parts = 0
        for _ in range(_ROUNDS):
            before, parts = parts, self._parts(queue)
            if parts <= before:
                return
            wanted = call.count - len(taken)
            if before:
                ready = self.candidates.of_shard(queue, shard, wanted, call, portion)
            ready = self._own(queue, ready, wanted, call, portion)
            taken += self._lease(queue, ready, wanted, call)
            if len(taken) == call.count:
                return

    def _parts(self, queue: Queue) -> int:
        return self.claims.part(queue.name, self.now()).of

    def _own(
        self, queue: Queue, ready: list[Entry], wanted: int, call: Call, portion: Portion | None
    ) -> list[Entry]:
        """Return those of *ready* that the caller may take now."""
        if portion is None:
            return ready
        own, soon = self.members.divide(queue.name, ready, wanted, portion)
        if soon is not None:
            call.free_at = min(call.free_at or soon, soon)
        return own

    def _lease(self, queue: Queue, ready: Sequence[Entry], count: int, call: Call) -> list[Task]:
        """Take up to *count* of the *ready* entries, as far as the queue's limits allow."""
        wanted = min(count, len(ready))
        if wanted == 0 or queue.settings.dequeuing_settings.rate_limiting is None:
            return self._race(queue, ready, wanted, call).won
        granted = self.limiting.tokens.take(queue, wanted)
        if granted.count == 0:
            call.limited_for = granted.wait
            return []
        try:
            race = self._race(queue, ready, granted.count, call)
        except Overtaken:
            with suppress(Unavailable):
                self.limiting.tokens.release_unused(queue, granted, granted.count)
            raise
        unused = granted.count - len(race.won) - race.unclear
        with suppress(Unavailable):  # tokens come by themselves, and leases would be lost
            self.limiting.tokens.release_unused(queue, granted, unused)
        return race.won

    def _race(self, queue: Queue, ready: Sequence[Entry], count: int, call: Call) -> "_Race":
        """Take up to *count* of the *ready* entries; in a crowd only from the part that is ours."""
        race = _Race()
        window = list(ready)
        for _ in range(_ROUNDS):
            now = self.now()
            part = self.claims.part(queue.name, now)
            wanted = count - len(race.won) - race.unclear
            picked = self.claims.pick(window, wanted, now=now, part=part)
            if not picked:
                break
            self.members.take(picked)
            try:
                reserved = self._reserved(queue, picked)
                outcomes = self._commit(queue, reserved, call, now)
            except HeadraceError as error:
                self.claims.drop(picked)
                if race.won and isinstance(error, Unavailable):
                    break
                raise
            won = race.note(outcomes)
            self.members.raced(queue.name, len(reserved), won)
            self.claims.raced(queue.name, len(reserved), won, now)
            if len(reserved) < len(picked):
                call.no_slot = True
                break
            if self._parts(queue) > 1:  # the rest is others' part, or was taken from under us
                break
            names = {entry.task_id for entry in picked}
            window = [entry for entry in window if entry.task_id not in names]
        return race

    def _reserved(self, queue: Queue, picked: Sequence[Entry]) -> dict[Entry, Reservation | None]:
        """Return the entries to deliver, each with its slot if the queue limits them."""
        if not queue.settings.dequeuing_settings.max_inflight_tasks:
            return dict.fromkeys(picked)
        reserved = self.limiting.slots.take(queue, picked)
        self.claims.drop([entry for entry in picked if entry not in reserved])
        return dict(reserved)

    def _commit(
        self, queue: Queue, reserved: Mapping[Entry, Reservation | None], call: Call, now: datetime
    ) -> list[Outcome]:
        if reserved and call.batch is not None:
            call.batch.note(list(reserved), now=now)
        changes = [
            self._delivery(entry, queue, call, now, slot=slot) for entry, slot in reserved.items()
        ]
        outcomes = self.store.commit(changes, partly=True)
        again = {
            place: self._delivery(entry, queue, call, now, slot=slot, task=outcome.task)
            for place, ((entry, slot), outcome) in enumerate(
                zip(reserved.items(), outcomes, strict=True)
            )
            if not isinstance(outcome, Done) and _own_keepalive(outcome.task, entry)
        }
        try:
            once_more = self.store.commit(list(again.values()), partly=True)
        except Unavailable:
            once_more = [Refused(None)] * len(again)
        for place, outcome in zip(again, once_more, strict=True):
            outcomes[place] = outcome
        slots = [slot for slot in reserved.values() if slot is not None]
        if slots:
            self.limiting.slots.refused(queue, slots, outcomes)
        return outcomes

    def _delivery(
        self,
        entry: Entry,
        queue: Queue,
        call: Call,
        now: datetime,
        *,
        slot: Reservation | None,
        task: Task | None = None,
    ) -> Change:
        token = self.new_lease() if call.batch is None else call.batch.new_lease()
        delivery = plan.dequeue(
            entry,
            queue,
            lease_id=call.group.new_lease(token) if call.group else token,
            now=now,
            worker=call.worker,
            keepalive=call.keepalive,
            task=task,
            group=call.group,
        )
        return delivery if slot is None else plan.counted(delivery, slot)

    def _reclaimed(self, queue: Queue) -> list[Entry]:
        """Reclaim lapsed leases; those without a backoff are ready at once."""
        return [
            _waiting(task)
            for shard in range(queue.shards_of(State.INFLIGHT))
            for task in self.reaping.lapsed(queue, shard)
            if task.state is State.ENQUEUED and task.due_at <= self.now()
        ]


@dataclass(slots=True)
class _Race:
    """What was won, and how many writes it is not known of whether they took effect."""

    won: list[Task] = field(default_factory=list)
    unclear: int = 0

    def note(self, outcomes: Sequence[Outcome]) -> int:
        """Add the outcomes of some writes; return how many of them won.

        A refusal shows the task, unless it is gone, or the table stopped answering before.
        """
        won = [outcome.task for outcome in outcomes if isinstance(outcome, Done)]
        self.won += won
        self.unclear += sum(
            not isinstance(outcome, Done) and outcome.task is None for outcome in outcomes
        )
        return len(won)


def _waiting(task: Task) -> Entry:
    """Return the index entry of *task* while it waits."""
    return Entry(task.id, task.place, task.due_at, task.expires_at)


def _own_keepalive(task: Task | None, entry: Entry) -> bool:
    """Tell whether a refusal may be only about the task's own keepalive."""
    return (
        task is not None
        and task.state is State.ENQUEUED
        and task.keepalive is not None
        and task.scheduled_at == entry.scheduled_at
    )
