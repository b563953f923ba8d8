"""A schedule: when it makes tasks, what they are like, and which of them it has made."""

import hmac
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Final, Literal, TypeAlias

from headrace.domain import limits
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.retry import RetryStrategy, Seconds
from headrace.domain.task import DedupeUntil, OnExpiry, Priority
from headrace.domain.task_fields import TASK_FIELDS, SetBy
from headrace.domain.times import micros_of


class Missed(StrEnum):
    """Which ticks of a schedule are made up for after no scheduler ran."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


MissedTicks: TypeAlias = Literal["skip", "latest", "all"] | Missed
"""This as programs write it."""

LOOK_AHEAD: Final = timedelta(minutes=3)
"""Ticks this near are enqueued now, so that a scheduler may come late or not at all."""

GRACE: Final = timedelta(minutes=1)
"""A tick whose dedupe key is held is tried for so long after its time, and then skipped."""

LOOK_BACK: Final = timedelta(hours=24)
"""How far back missed ticks are looked for."""

MOST_MISSED: Final = 100
"""How many missed ticks are made up for, the newest."""

_MADE_UP: Final = {Missed.SKIP: 0, Missed.LATEST: 1, Missed.ALL: MOST_MISSED}
_SPANS: Final = tuple(timedelta(minutes=minutes) for minutes in (2, 20, 200))

_STRETCHES: Final = 8
_GIVEN: Final = tuple(field for field in TASK_FIELDS if SetBy.SCHEDULE in field.set_by)


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """What the owner of a schedule decides: one of ``cron`` and ``every_seconds``, and the task.

    ``payload`` is JSON text; ``expires_in_seconds`` counts from the due time (None: as the queue
    says, 0: never).  ``on_expiry`` is what happens to a task that expires before it was delivered.
    """

    cron: str | None = None
    every_seconds: Seconds | None = None
    timezone: str = "UTC"
    payload: str = "{}"
    tags: Mapping[str, str] = field(default_factory=dict)
    dedupe_key: str | None = None
    expires_in_seconds: Seconds | None = None
    keepalive_timeout_in_seconds: Seconds | None = None
    retry_strategy: RetryStrategy | None = None
    paused: bool = False
    priority: Priority | None = None
    missed: Missed = Missed.LATEST
    on_expiry: OnExpiry = OnExpiry.DEAD
    dedupe_until: DedupeUntil = DedupeUntil.END
    note: str | None = None

    def same_times(self, other: "ScheduleSettings") -> bool:
        """Return whether these settings have the same ticks as *other*."""
        rhythm = (self.cron, self.every_seconds, self.timezone)
        return rhythm == (other.cron, other.every_seconds, other.timezone)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as stored.

    It has no ticks before ``since``, when it was last changed; ``anchor`` is what the ticks of
    ``every_seconds`` are counted from.  Each of its ``changes`` has a new ``edition``.
    ``queue_created_at`` tells its queue from a later one of the same name.  ``put_by`` is the id
    of the key that put it last.
    """

    queue: str
    name: str
    settings: ScheduleSettings
    created_at: datetime
    updated_at: datetime
    since: datetime
    anchor: datetime
    edition: str
    queue_created_at: datetime
    changes: int = 0
    version: int = 1
    put_by: str | None = None

    def with_settings(
        self, settings: ScheduleSettings, *, now: datetime, edition: str
    ) -> "Schedule":
        """Return the schedule with other settings; an interval that stays keeps its beat."""
        same_beat = settings.every_seconds == self.settings.every_seconds
        return replace(
            self,
            settings=settings,
            updated_at=now,
            since=now,
            anchor=self.anchor if same_beat else now,
            edition=edition,
            changes=self.changes + 1,
            version=self.version + 1,
        )

    def takes_over(self, progress: "Progress | None", now: datetime) -> "Progress":
        """Return the progress to begin with: what was made for this schedule before its change."""
        if progress is None or self.changes == 0:
            return Progress(self.edition)
        done = tuple((first, last) for first, last in progress.done if last <= now)
        return replace(progress, edition=self.edition, done=done)

    def new_task(self, *, by_hand: bool = False) -> TaskSpec:
        """Return the task that each tick makes, or that a run *by_hand* makes."""
        settings = self.settings
        given = {field.name: getattr(settings, field.api_name) for field in _GIVEN}
        if settings.dedupe_until is DedupeUntil.END:
            given["dedupe_until"] = None
        if by_hand or settings.on_expiry is not OnExpiry.DROP:
            given["on_expiry"] = None
        return TaskSpec(**given, schedule=self.name)

    def look_from(
        self,
        progress: "Progress",
        now: datetime,
        ticks_after: Callable[[datetime], Iterable[datetime]],
    ) -> datetime:
        """Return the instant behind which to look for ticks that were missed at *now*.

        It is as late as possible, because a day of a schedule that runs every second takes a
        second to compute.  *ticks_after* gives the ticks behind an instant, in order.
        """
        wanted = _MADE_UP[self.settings.missed]
        if not wanted:
            return now
        earliest = max(now - LOOK_BACK, progress.made_until(now) or self.since)
        for start in (now - span for span in _SPANS):
            if start <= earliest:
                break
            past = takewhile(lambda tick: tick <= now, ticks_after(start))
            if sum(1 for _ in islice(past, wanted)) == wanted:
                return start
        return earliest

    @property
    def most_ahead(self) -> int:
        """How many ticks may wait at a time: more than a minute's, whatever the payload."""
        return limits.AHEAD_BYTES // max(1, limits.utf8_bytes(self.settings.payload))

    def target(self, queue: Queue) -> Queue:
        """Return *queue* with the expiry that tasks of this schedule have."""
        seconds = self.settings.expires_in_seconds
        if seconds is None:
            return queue
        return replace(queue, settings=replace(queue.settings, expires_in_seconds=seconds))


def tick_id(secret: bytes, queue: str, name: str, tick: datetime, number: int = 0) -> str:
    """Return the id of the task of a tick; *number* is 0 unless other tasks hold its first ids."""
    again = f"/{number}" if number else ""
    facts = f"{queue}/{name}/{micros_of(tick)}{again}"
    return f"sch_{hmac.digest(secret, facts.encode(), 'sha256')[:16].hex()}"


@dataclass(frozen=True, slots=True)
class Progress:
    """Which ticks of a schedule have been enqueued, in a form that stays small.

    ``recent`` are ticks that may still be ahead.  ``done`` are stretches of time, first and last
    tick included, in which every tick has been enqueued; there is more than one only after ticks
    were missed, so that a clock that jumps there and back makes none twice and loses none.
    ``ran_at`` is when somebody last ran it by hand, and ``ran_id`` the task that this made.
    ``other_ids`` has the ids of those recent ticks whose usual id another task held.
    """

    edition: str
    done: tuple[tuple[datetime, datetime], ...] = ()
    recent: tuple[datetime, ...] = ()
    ran_at: datetime | None = None
    ran_id: str | None = None
    other_ids: Mapping[datetime, str] = field(default_factory=dict)

    def has(self, tick: datetime) -> bool:
        """Return whether *tick* has been enqueued."""
        return tick in self.recent or any(first <= tick <= last for first, last in self.done)

    def made_until(self, now: datetime) -> datetime | None:
        """Return the end of what has been enqueued, *now* at most; None if there is nothing."""
        ends = [min(last, now) for first, last in self.done if first <= now]
        return max((*ends, *(tick for tick in self.recent if tick <= now)), default=None)

    def wanted(
        self,
        ticks: Iterable[datetime],
        now: datetime,
        *,
        missed: Missed = Missed.LATEST,
        most_ahead: int | None = None,
        since: datetime | None = None,
    ) -> list[datetime]:
        """Return which of *ticks*, in order, are to be enqueued at *now*.

        Ticks up to *since* are past, without it those up to *now*.  *missed* says which past ticks
        count.  Together with earlier ticks, at most *most_ahead* wait for their time.
        """
        past: deque[datetime] = deque(maxlen=_MADE_UP[missed])
        ahead: list[datetime] = []
        for tick in ticks:
            if tick > now + LOOK_AHEAD:
                break
            if tick <= (since or now):
                past.append(tick)
            else:
                ahead.append(tick)
        return [tick for tick in (*past, *ahead[:most_ahead]) if not self.has(tick)]

    def plus(
        self,
        ticks: Iterable[datetime],
        *,
        now: datetime,
        following: Callable[[datetime], datetime | None],
        other_ids: Mapping[datetime, str] | None = None,
    ) -> "Progress":
        """Return the progress with *ticks* enqueued too.

        *following* gives the next tick after an instant, to see whether any lie between.
        *other_ids* has the ids of those of *ticks* whose usual id another task holds.
        """
        recent = sorted({*self.recent, *ticks})
        done = list(self.done)
        while recent and recent[0] <= now - GRACE:
            tick = recent.pop(0)
            insort(done, (tick, tick))
        merged: list[tuple[datetime, datetime]] = []
        for first, last in done:
            before = merged[-1] if merged else None
            if before and (first <= before[1] or _adjacent(before[1], first, following)):
                merged[-1] = (before[0], max(before[1], last))
            else:
                merged.append((first, last))
        while len(merged) > _STRETCHES:  # what was missed so long ago is given up
            merged[:2] = [(merged[0][0], merged[1][1])]
        others = {**self.other_ids, **(other_ids or {})}
        kept = {*recent, *sorted(others)[-1:]}  # the newest may be the last run
        others = {tick: id_ for tick, id_ in others.items() if tick in kept}
        return replace(self, done=tuple(merged), recent=tuple(recent), other_ids=others)

    def ahead(self, now: datetime) -> tuple[datetime, ...]:
        """Return the ticks that have been enqueued but are not due yet."""
        return tuple(tick for tick in self.recent if tick > now)

    def minus(self, tick: datetime) -> "Progress":
        """Return the progress without *tick*, whose task was withdrawn."""
        return replace(self, recent=tuple(each for each in self.recent if each != tick))

    def last_run_at(self, now: datetime) -> datetime | None:
        """Return the latest tick that was enqueued and has come, or run by hand."""
        runs = [*self.recent, *(last for _, last in self.done), *filter(None, (self.ran_at,))]
        return max((run for run in runs if run <= now), default=None)


def _adjacent(
    before: datetime, tick: datetime, following: Callable[[datetime], datetime | None]
) -> bool:
    """Return whether no tick lies between."""
    after = following(before)
    return after is None or after >= tick
