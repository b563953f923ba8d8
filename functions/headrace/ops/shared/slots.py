"""Limit of the tasks in flight per queue: reservations in pools (see ``domain.slots``).

The cost of a call does not grow with the limit.  A process remembers from its own writes which
pools have room; if it knows none, it reads some of them.  If these are full too, it reads a few of
their tasks, once a second: it removes reservations that are over, and if a task still waits under a
reservation whose process must have died, it delivers the task under it.

A limit that is new or was lowered also counts the tasks in flight outside its pools.  Their number
can only shrink, so the rest of the limit is safe to use, however old the count is.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.domain.change import Change, Done, Entry, Outcome
from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.limits import INFLIGHT
from headrace.domain.patch import Patch
from headrace.domain.queue import Queue
from headrace.domain.slots import (
    Reservation,
    ReservationStanding,
    places,
    pool_item,
    pools,
    release_patch,
    reservation_patch,
    reservations_in,
)
from headrace.domain.task import State, Task
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Position

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_LOOKED_AT: Final = 32  # pools, in a call that knows of no room
_REMEMBERED: Final = 64  # pools with room
_LOST_WRITES: Final = 4  # of a call, to others who were quicker
_HELP_EVERY: Final = timedelta(seconds=1)
_HELPED: Final = 16  # tasks looked at then
_DEAD_AFTER: Final = timedelta(seconds=3)  # a maker that has reserved and not delivered
_IN_USE_FOR: Final = timedelta(seconds=60)  # before it is looked at again
_KNOWN_IN_USE: Final = 20_000
_COUNT_LASTS: Final = timedelta(microseconds=100)  # for each entry that it took
_PAGE: Final = 250
_TOKEN: Final = 4  # characters of chance


_K = TypeVar("_K")
_V = TypeVar("_V")


def remember(known: OrderedDict[_K, _V], key: _K, value: _V, *, most: int) -> None:
    """Put *value* into *known* as its newest, and forget the oldest of more than *most*."""
    known.pop(key, None)
    known[key] = value
    while len(known) > most:
        known.popitem(last=False)


@dataclass(slots=True)
class _Here:
    """What this process knows of the pools of one queue."""

    limit: int  # without the tasks in flight outside the pools
    pools: int
    position: int  # where the next look begins
    room: OrderedDict[int, int] = field(default_factory=OrderedDict)  # of pools that have some
    helped_at: datetime | None = None

    def learn(self, pool: int, held: int) -> None:
        """Note how many reservations a pool holds."""
        if held < places(self.limit, pool):
            remember(self.room, pool, places(self.limit, pool) - held, most=_REMEMBERED)
        else:
            self.room.pop(pool, None)

    def use(self, wanted: int, chance: random.Random) -> tuple[int, int] | None:
        """Return a pool, and how many of its places to try for; they are as good as taken."""
        if not self.room:
            return None
        enough = [pool for pool, room in self.room.items() if room >= wanted]
        pool = chance.choice(enough) if enough else max(self.room, key=lambda one: self.room[one])
        tried = min(wanted, self.room[pool])
        self.learn(pool, places(self.limit, pool) - self.room[pool] + tried)
        return pool, tried


@dataclass(frozen=True, slots=True)
class UncountedInFlight:
    """The ``number`` of tasks in flight that the pools do not count; at most the limit.

    ``in_flight`` is the least number of all tasks in flight, ``looked_at`` the entries and
    reservations that were read.
    """

    number: int
    in_flight: int
    looked_at: int


class Slots(ServicePart):
    """Takes and frees slots; *new_token* returns a random text."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._here: dict[str, _Here] = {}
        self._uncounted: dict[str, tuple[int, datetime, int]] = {}
        self._in_use: OrderedDict[str, datetime] = OrderedDict()
        self._lock: threading.Lock = threading.Lock()

    """By queue: the version of its settings, until when this is believed, and how many."""

    def take(self, queue: Queue, entries: Sequence[Entry]) -> dict[Entry, Reservation]:
        """Reserve a place for each of *entries* while there is room.

        Without room, it may deliver other tasks, whose reservations were abandoned.  Raises
        Unavailable when nothing is reserved.
        """
        now = self.now()
        here = self._known(queue)
        wanted, reserved = list(entries), dict[Entry, Reservation]()
        try:
            self._fill(queue, here, wanted, reserved, now)
            if wanted:
                seen = self._look(queue, here)
                self._fill(queue, here, wanted, reserved, now)
                if not reserved and self._helps(here, now):
                    reserved |= self._help(queue, seen, len(entries), now)
                    self._fill(queue, here, wanted[len(reserved) :], reserved, now)
        except Unavailable:
            if not reserved:
                raise
        return reserved

    def full(self, queue: Queue) -> bool:
        """Return whether *queue* is at its limit of tasks in flight."""
        here = self._known(queue)
        count = pools(here.limit)
        for first in range(0, count, _LOOKED_AT):
            window = range(first, min(first + _LOOKED_AT, count))
            seen = self._pools(queue, window[0], window[-1])
            if any(len(seen.get(pool, ())) < places(here.limit, pool) for pool in window):
                return False
        return True

    def ended(self, changes: Sequence[tuple[Change, Task]]) -> None:
        """Free the places of the deliveries of tasks that *changes* have ended.

        Nothing depends on it: of a place that is not freed here, a later look tells that it is.
        """
        over: dict[tuple[str, int], list[str]] = {}
        for change, task in changes:
            reservation = Reservation.of(task)
            queue = change.ends_delivery_in
            if reservation is not None and queue is not None:
                # What is done may have been done before: the task may be in flight once more.
                by_now = None if change.gone and change.allowed(task) else task
                if reservation.standing(by_now, queue) is ReservationStanding.OVER:
                    over.setdefault((queue, reservation.pool), []).append(reservation.text)
        for (queue, pool), texts in over.items():
            self._free(queue, pool, texts)

    def refused(
        self, queue: Queue, reserved: Iterable[Reservation], outcomes: Iterable[Outcome]
    ) -> None:
        """Free the places of deliveries that other processes have made first.

        Keep them if the outcome is unknown, or if another process has delivered under them.
        """
        over: dict[int, list[str]] = {}
        for reservation, outcome in zip(reserved, outcomes, strict=True):
            if isinstance(outcome, Done) or outcome.task is None:
                continue
            if _standing(reservation, outcome.task, queue) is ReservationStanding.OVER:
                over.setdefault(reservation.pool, []).append(reservation.text)
        for pool, texts in over.items():
            self._free(queue.name, pool, texts)

    def forget(self, queue: str) -> None:
        """Drop everything kept of the limit of a queue that is deleted."""
        items, _ = self.store.items_of_kind(pool_item(queue, 0)[0], consistent=False)
        for item in items:
            self.store.patch(Patch(item.kind, item.name, mode="delete"))
        with self._lock:
            self._here.pop(queue, None)
            self._uncounted.pop(queue, None)

    def uncounted(self, queue: Queue) -> "UncountedInFlight":
        """Count the tasks of *queue* that are in flight and that its pools do not count."""
        limit = _limit(queue)
        held = self._pools(queue, 0, pools(limit) - 1) if limit else {}
        counted = {Reservation.parse(text, 0).task_id for texts in held.values() for text in texts}
        apart, flying = 0, 0
        for place in queue.places(State.INFLIGHT):
            after: Position | None = None
            while apart < limit:
                page = self.store.entries(place, after=after, limit=_PAGE)
                apart += sum(entry.task_id not in counted for entry in page.entries)
                flying += len(page.entries)
                after = page.last
                if after is None:
                    break
        beside = 0
        for _ in range(limit):  # as the limit shrinks, pools hold more than their part of it
            rest = max(0, limit - apart - beside)
            too_many = sum(max(0, len(texts) - places(rest, pool)) for pool, texts in held.items())
            if too_many == beside:
                break
            beside = too_many
        return UncountedInFlight(min(limit, apart + beside), flying, flying + len(counted))

    def _known(self, queue: Queue) -> _Here:
        limit = _limit(queue)
        if queue.uncounted_since is not None:
            limit -= self._uncounted_lately(queue)
        with self._lock:
            here = self._here.get(queue.name)
            if here is None or here.limit != limit:
                count = pools(_limit(queue))
                position = self.service.random.randrange(count) if count > _LOOKED_AT else 0
                here = self._here[queue.name] = _Here(limit, count, position)
        return here

    def _uncounted_lately(self, queue: Queue) -> int:
        now = self.now()
        with self._lock:
            version, until, number = self._uncounted.get(queue.name, (0, now, 0))
        if version == queue.version and now < until:
            return number
        uncounted = self.uncounted(queue)
        until = now + uncounted.looked_at * _COUNT_LASTS
        with self._lock:
            self._uncounted[queue.name] = (queue.version, until, uncounted.number)
        return uncounted.number

    def _fill(
        self,
        queue: Queue,
        here: _Here,
        wanted: list[Entry],
        reserved: dict[Entry, Reservation],
        now: datetime,
    ) -> None:
        """Reserve places for *wanted* in pools that are known to have room."""
        lost = 0
        while wanted and lost < _LOST_WRITES:
            with self._lock:
                found = here.use(len(wanted), self.service.random)
            if found is None:
                return
            pool, count = found
            made = {
                entry: Reservation.made(
                    entry.task_id,
                    entry.own_time,
                    pool,
                    now=now,
                    token=new_request_token()[-_TOKEN:],
                )
                for entry in wanted[:count]
            }
            texts = [reservation.text for reservation in made.values()]
            patch = reservation_patch(queue.name, pool, texts, room=places(here.limit, pool))
            patched = self.store.patch(patch)
            there = reservations_in(patched.fields)
            done = patched.made or there.issuperset(texts)  # or an earlier try's answer was lost
            with self._lock:
                here.learn(pool, len(there))
            if done:
                reserved |= made
                del wanted[:count]
            lost += not done

    def _pools(self, queue: Queue, first: int, last: int) -> Mapping[int, frozenset[str]]:
        """Return the reservations in the pools *first* to *last*; the read may lag."""
        (kind, begin), (_, end) = pool_item(queue.name, first), pool_item(queue.name, last)
        items, _ = self.store.items_of_kind(kind, first=begin, last=end, consistent=False)
        return {int(item.name): held for item in items if (held := reservations_in(item.fields))}

    def _look(self, queue: Queue, here: _Here) -> Mapping[int, frozenset[str]]:
        """Look at some pools, at others each time."""
        first = here.position if here.position < here.pools else 0
        window = range(first, min(first + _LOOKED_AT, here.pools))
        seen = self._pools(queue, window[0], window[-1])
        with self._lock:
            here.position = window[-1] + 1
            for pool in window:
                here.learn(pool, len(seen.get(pool, ())))
        return seen

    def _helps(self, here: _Here, now: datetime) -> bool:
        with self._lock:
            if here.helped_at is not None and now - here.helped_at < _HELP_EVERY:
                return False
            here.helped_at = now
            return True

    def _help(
        self,
        queue: Queue,
        seen: Mapping[int, frozenset[str]],
        most: int,
        now: datetime,
    ) -> dict[Entry, Reservation]:
        """Free what is over in pools that are full; return tasks that wait for a dead maker."""
        with self._lock:
            suspects = [
                Reservation.parse(text, pool)
                for pool, texts in seen.items()
                for text in texts
                if self._in_use.get(text, now) <= now
            ]
        suspects = sorted(suspects, key=lambda one: (one.made_at, one.text))[:_HELPED]
        tasks = self.store.read([one.task_id for one in suspects], payload=False)
        waiting: dict[Entry, Reservation] = {}
        over: dict[int, list[str]] = {}
        for one in suspects:
            task = tasks.get(one.task_id)
            standing = _standing(one, task, queue)
            if standing is ReservationStanding.OVER:
                over.setdefault(one.pool, []).append(one.text)
            elif standing is ReservationStanding.IN_USE:
                with self._lock:
                    remember(self._in_use, one.text, now + _IN_USE_FOR, most=_KNOWN_IN_USE)
            elif task is not None and task.is_live(now) and now - one.made_at >= _DEAD_AFTER:
                waiting[Entry.of(task)] = one
        for pool, texts in over.items():
            self._free(queue.name, pool, texts)
        if queue.uncounted_since is not None:
            self._uncounted.pop(queue.name, None)
            most = min(1, _limit(queue) - self.uncounted(queue).in_flight) if waiting else 0
        return dict(list(waiting.items())[: max(0, most)])

    def _free(self, queue: str, pool: int, texts: Sequence[str]) -> None:
        try:
            there = reservations_in(self.store.patch(release_patch(queue, pool, texts)).fields)
        except Unavailable:
            return  # a later look finds them
        with self._lock:
            here = self._here.get(queue)
            if here is not None:
                here.learn(pool, len(there))


def _standing(reservation: Reservation, task: Task | None, queue: Queue) -> ReservationStanding:
    """Return the standing of a reservation now.

    As long as some tasks are in flight without one, any of a task in flight counts it.
    """
    flies = task is not None and (task.queue, task.state) == (queue.name, State.INFLIGHT)
    if flies and queue.uncounted_since is not None:
        return ReservationStanding.IN_USE
    return reservation.standing(task, queue.name)


def _limit(queue: Queue) -> int:
    return min(queue.settings.dequeuing_settings.max_inflight_tasks, INFLIGHT[1])
