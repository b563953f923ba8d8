"""The scheduler: enqueue the next ticks of each schedule, each exactly once.

The progress of a schedule is in a key lock that is written in one transaction with the tasks of its
ticks.  So it does not matter how often, how late or how many schedulers run: a process that has
read an older key lock can enqueue nothing, nothing is enqueued without being recorded, and nothing
is recorded without being enqueued.  After a change of the schedule, the tasks that earlier settings
have enqueued ahead are removed in the same way.

Read the key lock first, then the schedule, then write on condition of the key lock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, TypeGuard

from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.queue import Queue
from headrace.domain.schedule import Progress, Schedule
from headrace.domain.ticks import ticks
from headrace.ops.scheduling.cron import read_cron
from headrace.ops.scheduling.tick_tasks import At, move
from headrace.ops.shared.commits import OvertakenError
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger
from headrace.store.base import every_record
from headrace.store.records import readable
from headrace.store.records import schedules as schedule_records

_log: Final = safe_logger(__name__)

_PAGE: Final = 250
_TRIES: Final = 50  # at a key lock that others move at the same time

_Seen = tuple[str | None, Schedule]


@dataclass(slots=True)
class Ticked:
    """What a run of the scheduler did: schedules seen, ticks enqueued, schedules it cannot read."""

    schedules: int = 0
    enqueued: int = 0
    unreadable: int = 0


class Ticking(ServicePart):
    """Enqueues the ticks of all schedules."""

    def run(self) -> Ticked:
        """Look at every schedule once; the most urgent ones go first.

        Raises Unavailable and stops while the table throttles: the ticks of the next minutes are
        enqueued already.
        """
        done = Ticked()
        locks = self.store.key_locks(schedule_records.PROGRESS)  # before the schedules, as always
        waiting: list[tuple[datetime, str, _Seen]] = []
        for schedule in self._all():
            done.schedules += 1
            name = schedule_records.key(schedule.queue, schedule.name)
            seen = (locks.pop(name, None), schedule)
            try:
                first = self._first_wanted(*seen)
            except InvalidRequest as wrong:  # a library or the time zones have changed
                done.unreadable += 1
                _log.error("schedule %s cannot be read: %s", name, wrong)
                continue
            if first is not None:
                waiting.append((first, name, seen))
        for _, name, seen in sorted(waiting, key=lambda each: each[:2]):
            done.enqueued += self.advance(name, seen=seen)
        for name in locks:
            self.settle(name)
        return done

    def advance(
        self, name: str, *, seen: "_Seen | None" = None, since: datetime | None = None
    ) -> int:
        """Enqueue what one schedule wants now; return how many ticks that were.

        *since* is when a call began that changes the schedule: the ticks that fell due while it
        worked are not missed.
        *seen* is its key lock, and itself, as read in this order a moment ago.
        Raises InvalidRequest when the schedule cannot be read.
        """
        for _ in range(_TRIES):
            text, schedule = seen or (self._key_lock(name), self._stored(name))
            seen = None
            progress = None if text is None else schedule_records.from_text(text)
            if schedule is None or text is None or not _current(progress, schedule):
                self.settle(name)
                if schedule is None:
                    return 0
                continue
            now = self.now()
            wanted = self._wanted(schedule, progress, now, since)
            queue = self.queue_of(schedule) if wanted else None
            if queue is None:
                return 0
            try:
                return self.service.tick_tasks.enqueue(
                    schedule, queue, At(name, text, progress, now), wanted
                )
            except OvertakenError:
                continue
        raise _busy(name)

    def settle(self, name: str) -> None:
        """Bring the key lock of a schedule that was made, changed or deleted to its edition.

        Tasks enqueued ahead by earlier settings, and unchanged since, are removed.
        """
        for _ in range(_TRIES):
            text, schedule = self._key_lock(name), self._stored(name)
            progress = None if text is None else schedule_records.from_text(text)
            if _current(progress, schedule):
                return
            now = self.now()
            try:
                if text is not None and progress is not None:
                    text, progress = self.service.tick_tasks.take_back(
                        At(name, text, progress, now)
                    )
                then = None if schedule is None else schedule.takes_over(progress, now)
                move(self.store, schedule_records.progress_lock(name, then, expects=text))
            except OvertakenError:
                continue
            return
        raise _busy(name)

    def note_run(self, name: str, at: datetime, task_id: str | None) -> None:
        """Note that a schedule was run by hand, and which task that made."""
        for _ in range(_TRIES):
            text = self._key_lock(name)
            if text is None:
                return
            progress = replace(schedule_records.from_text(text), ran_at=at, ran_id=task_id)
            if self.store.set_key_lock(
                schedule_records.progress_lock(name, progress, expects=text)
            ):
                return

    def progress(self, name: str) -> Progress | None:
        """Return how far a schedule is."""
        text = self._key_lock(name)
        return None if text is None else schedule_records.from_text(text)

    def queue_of(self, schedule: Schedule) -> Queue | None:
        """Return the queue of a schedule; None when that was deleted, be there another since."""
        try:
            queue = self.service.queues.cached(schedule.queue)
            if queue.created_at != schedule.queue_created_at:
                queue = self.service.queues.get(schedule.queue)
        except NotFound:
            return None
        return queue if queue.created_at == schedule.queue_created_at else None

    def _first_wanted(self, text: str | None, schedule: Schedule) -> datetime | None:
        """Return when a schedule first wants something; None when it wants nothing now."""
        now = self.now()
        progress = None if text is None else schedule_records.from_text(text)
        if not _current(progress, schedule):
            return now
        return next(iter(self._wanted(schedule, progress, now)), None)

    def _wanted(
        self,
        schedule: Schedule,
        progress: Progress,
        now: datetime,
        since: datetime | None = None,
    ) -> list[datetime]:
        if schedule.settings.paused:
            return []
        ticks_after = partial(ticks, schedule, read_cron)
        look_from = since or schedule.look_from(progress, now, ticks_after)
        return progress.wanted(
            ticks_after(look_from),
            now,
            missed=schedule.settings.missed,
            most_ahead=schedule.most_ahead,
            since=since,
        )

    def _key_lock(self, name: str) -> str | None:
        return self.store.key_lock(schedule_records.PROGRESS, name)

    def _stored(self, name: str) -> Schedule | None:
        record = self.store.record(schedule_records.KIND, name)
        return None if record is None else schedule_records.from_record(record)

    def _all(self) -> Iterator[Schedule]:
        records = every_record(self.store, schedule_records.KIND, page=_PAGE)
        return readable(records, schedule_records.from_record)


def _current(progress: Progress | None, schedule: Schedule | None) -> TypeGuard[Progress]:
    return (progress and progress.edition) == (schedule and schedule.edition)


def _busy(name: str) -> Unavailable:
    return Unavailable(f"schedule {name} is being changed by too many at once; try again")
