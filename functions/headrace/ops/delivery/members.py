"""Who else takes tasks of a queue: the workers that send heartbeats, as seen a moment ago.

A worker that gives its name takes its own part (``domain.portion``).  Only where nothing is its own
it takes of the others', and little: tasks that it has seen lying for a while.  If nothing has gone
of what it saw, nobody else is asking: then all is its.

A process in which all workers of a queue ask has no need of this, and does without until it loses a
race.  Anonymous callers, and workers that send no heartbeat, are met in lost races (``claims``).
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Final, TypeVar

from headrace.domain.change import Entry
from headrace.domain.portion import Portion, portion
from headrace.domain.queue import Queue
from headrace.ops.delivery.claims import Claims
from headrace.ops.operators.workers import KIND, on_duty
from headrace.store.base import Store, metered

_K = TypeVar("_K")
_V = TypeVar("_V")
_Key = tuple[str, datetime]

_LISTED_FOR: Final = timedelta(seconds=10)
_AGAIN_AFTER: Final = timedelta(seconds=1)  # where a race was lost, for each page there is
_PAGE: Final = 250  # records, those of workers that are silent too, until the table removes them
_PAGES: Final = 40
_MOST: Final = 1_000  # workers of a queue; more do not divide it
_HERE_FOR: Final = timedelta(minutes=5)
_LOST_FOR: Final = timedelta(minutes=10)
_PATIENCE: Final = timedelta(seconds=0.15)  # a worker at work asks several times in it
_VIEW_LASTS: Final = timedelta(seconds=2)
_REMEMBERED: Final = 20_000  # callers
_VIEWS: Final = 256  # shards


@dataclass(slots=True)
class _View:
    """What was ready in a shard and others' to take: since when each has been seen there.

    Since ``still_since`` they took none of it; ``at`` is when it was last looked at.
    """

    still_since: datetime
    at: datetime
    seen: dict[_Key, datetime]


@dataclass(slots=True)
class Members:
    """What this process knows of who takes tasks."""

    store: Store
    now: Callable[[], datetime]
    claims: Claims
    _listed: dict[str, list[str]] = field(default_factory=dict)  # by queue
    _listed_at: datetime | None = None
    _pages: int = 1
    _callers: OrderedDict[tuple[str, str], datetime] = field(default_factory=OrderedDict)
    _lost_at: dict[str, datetime] = field(default_factory=dict)
    _views: OrderedDict[tuple[str, int], _View] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, queue: Queue, worker: str) -> tuple[Portion | None, bool]:
        """Return the part of *worker*, and whether that is known without asking the table.

        None for one who need not keep to a part.
        """
        if not worker:
            return None, True
        now = self.now()
        with self._lock:
            _put(self._callers, (queue.name, worker), now, most=_REMEMBERED)
            if self._listed_at is None or now - self._listed_at >= _LISTED_FOR:
                return None, False
            return self._portion(queue, worker, now), True

    def ask(self, queue: Queue, worker: str) -> Portion | None:
        """Return the part of *worker*, by a list as it is now."""
        now = self.now()
        listed: dict[str, list[str]] = {}
        after, more, pages = "", True, 0
        with metered():  # once in ten seconds for all who ask here: no caller's to pay
            while more and pages < _PAGES:
                records, more = self.store.records(KIND, after=after, limit=_PAGE, consistent=False)
                pages += 1
                for record in records:
                    after = record.name
                    for name in on_duty(record, now):
                        listed.setdefault(name, []).append(record.name)
        with self._lock:
            # Of too many records all see the same first ones; who is not among them has no part.
            self._listed = {name: of for name, of in listed.items() if len(of) <= _MOST}
            self._listed_at, self._pages = now, pages
            return self._portion(queue, worker, now)

    def raced(self, queue: str, tried: int, won: int) -> None:
        """Note how a race went: who loses some does not know of all the others."""
        if won == tried:
            return
        now = self.now()
        with self._lock:
            self._lost_at[queue] = now
            for (name, _), view in self._views.items():
                if name == queue:
                    view.still_since = now
            if self._listed_at is not None and now - self._listed_at >= _AGAIN_AFTER * self._pages:
                self._listed_at = None

    def divide(
        self, queue: str, ready: Sequence[Entry], wanted: int, mine: Portion
    ) -> tuple[list[Entry], datetime | None]:
        """Return those of the *ready* tasks to take; if there are none, also when there may be."""
        now = self.now()
        shards: dict[int, list[tuple[Entry, int]]] = {}
        own = list[Entry]()
        for entry in ready:
            if away := mine.away(entry):
                shards.setdefault(entry.place.shard, []).append((entry, away))
            else:
                own.append(entry)
        free = list[tuple[Entry, datetime]]()
        for shard, others in shards.items():
            with self._lock:
                view = self._look(queue, shard, [entry for entry, _ in others], now)
            if view.still_since + _PATIENCE + mine.wait(others[0][1]) <= now:
                return list(ready), None
            for entry, away in () if len(own) >= wanted else others:
                free.append((entry, view.seen[_key(entry)] + _PATIENCE + mine.wait(away)))
        lying = [entry for entry, at in free if at <= now]
        few = min(ceil(len(lying) / mine.members), max(0, wanted - len(own)))
        helped = self.claims.chance.sample(lying, few)
        if own or helped:
            return sorted([*own, *helped], key=_in_turn), None
        return [], min((at for _, at in free), default=None)

    def take(self, entries: Sequence[Entry]) -> None:
        """Note that *entries* are being taken here: that they go says nothing of others."""
        with self._lock:
            for entry in entries:
                view = self._views.get((entry.place.queue, entry.place.shard))
                if view is not None:
                    view.seen.pop(_key(entry), None)

    def _look(self, queue: str, shard: int, others: Sequence[Entry], now: datetime) -> _View:
        keys = [_key(entry) for entry in others]
        last = self._views.get((queue, shard)) or _View(now, now, {})
        there = set(keys)
        still = now - last.at < _VIEW_LASTS if not last.seen else last.seen.keys() <= there
        view = _View(
            last.still_since if still else now, now, {key: last.seen.get(key, now) for key in keys}
        )
        _put(self._views, (queue, shard), view, most=_VIEWS)
        return view

    def _portion(self, queue: Queue, worker: str, now: datetime) -> Portion | None:
        members = self._listed.get(queue.name, [])
        if len(members) <= 1:
            return None
        lost_at = self._lost_at.get(queue.name)
        if lost_at is None or now - lost_at >= _LOST_FOR:
            callers = [self._callers.get((queue.name, one)) for one in members]
            if all(at is not None and now - at < _HERE_FOR for at in callers):
                return None
        return portion(members, worker, queue.settings.shards, now)


def _in_turn(entry: Entry) -> tuple[datetime, str]:
    return (entry.scheduled_at, entry.task_id)


def _key(entry: Entry) -> _Key:
    # With its time, because a task that comes back is a new thing to take.
    return (entry.task_id, entry.scheduled_at)


def _put(where: OrderedDict[_K, _V], key: _K, value: _V, *, most: int) -> None:
    where.pop(key, None)
    where[key] = value
    while len(where) > most:
        where.popitem(last=False)
