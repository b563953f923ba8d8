"""The reaper's pass over everything, once a minute: in a budget of time, fairly divided.

Queues, jobs and closings share the time of a pass, and queues divide theirs evenly, page by
page: one with a million lapsed leases, or one whose partition is slow, costs the others nothing.  A
queue that is throttled is left alone until the next pass.  Where time is over before everything is
done, the next pass begins with whose turn it was, and is divided by shard among several at a time.

Long, because the parts of a pass share one budget, and are read together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zlib import crc32

from headrace.domain import plan
from headrace.domain.errors import Unavailable
from headrace.domain.lifecycle import Action
from headrace.domain.queue import Queue
from headrace.domain.task import TURN_LANE, Place, State
from headrace.ops.delivery.reaping import Job, Reaping, Scan, Turns, Upkeep
from headrace.ops.shared.jobs import EVERY_OBJECT, JobVisitor
from headrace.ops.shared.leases import GroupStatuses
from headrace.ops.shared.paging import counted
from headrace.store.base import Done, Position
from headrace.store.records import jobs as job_records
from headrace.store.records.jobs import JobKind
from headrace.store.records.reaper import (
    COMFORT,
    KIND,
    PARTS,
    Left,
    ReaperPart,
    parts_for,
)

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_LONG: Final = timedelta(hours=1)


HandOn: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Has another pass take a part, named by the event, at the same time; tells whether one will."""

DeadCount: TypeAlias = Callable[[str], int | None]
"""Returns how many dead tasks the recorder knows of in a queue; None if it never counted."""

JudgeAlerts: TypeAlias = Callable[[str], None]
"""Looks at the limits of a queue that are worth an alert, and tells of what has changed."""


@dataclass(slots=True)
class Reaped:
    """What a pass of the reaper did; ``released`` is what closed groups still held.

    ``throttled`` is whether a queue, or all, were left alone because the table did not answer;
    ``cut`` whether time was over before everything was done, and ``unseen`` how many queues it did
    not come to.  ``oldest_ready_seconds`` is how long the oldest task that could be taken, in a
    queue that is not paused, has been waiting for somebody to take it.
    """

    retried: int = 0
    released: int = 0
    dead_lettered: int = 0
    expired: int = 0
    healthy: int = 0
    evicted: int = 0
    purged: int = 0
    throttled: bool = False
    cut: bool = False
    unseen: int = 0
    parts: int = 1
    oldest_ready_seconds: float = field(default=0.0, compare=False)


class Reaper(Reaping):
    """The use case, with what it needs from outside."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.upkeep: Upkeep = Upkeep(service)

    def visitor(self, kind: JobKind) -> JobVisitor:
        """Return the part that does the work of jobs of this *kind*."""
        match kind:
            case JobKind.PURGE | JobKind.DELETE_QUEUE:
                return self.service.removals
            case JobKind.BUILD_INDEX:
                return self.service.indexing
            case JobKind.DROP_ORPHANS:
                return self.service.orphans

    def run(
        self,
        part: ReaperPart | None = None,
        *,
        time_left: Callable[[], float] = _LONG.total_seconds,
        hand_on: HandOn | None = None,
    ) -> Reaped:
        """Look at every overdue lease and every due task of every queue, or of one *part* of them.

        Ends when there is no *time_left* (seconds).  Without a part it is the timer's own pass,
        which hands parts on where the last one has shown that it takes several.  Stops and says so
        while the table throttles: late heartbeats are its fault then.
        """
        began = self.now()
        reaped = Reaped()
        try:
            Pass(self, reaped, began, part, time_left, hand_on).run()
        except Unavailable:
            reaped.throttled = True
        return reaped


_PAGE: Final = 100
_QUEUES: Final = 250
_SHARES: Final = {"queues": 3.0, "jobs": 1.0, "closings": 1.0}
_STOPS_AFTER: Final = 3  # queues that are throttled one after the other: then it is the table
_MINUTES: Final = 60  # in which each partition is looked through for expired tasks
_SCANS: Final = 1_000  # kept in a record, which has room for 2,000
_PAGES_OF_TURNS: Final = 10  # that hold nothing expired
_SLICE: Final = timedelta(seconds=1)
_SLOW_JOB: Final = timedelta(seconds=10)  # of one pass, for a job that nobody waits for


@dataclass(slots=True)
class Pass:
    """One pass, with how far it has come."""

    reaper: Reaper
    reaped: Reaped
    began: datetime
    part: ReaperPart | None
    time_left: Callable[[], float]
    hand_on: HandOn | None
    mine: tuple[ReaperPart, ...] = ()
    statuses: GroupStatuses = field(init=False)
    sweeps: set[int] = field(init=False)
    starts: dict[Place, Position] = field(default_factory=dict)
    staying: dict[Place, tuple[Scan, int]] = field(default_factory=dict)
    throttled_in_a_row: int = 0
    judge_alerts: JudgeAlerts | None = None
    dead_count: DeadCount | None = None

    def __post_init__(self) -> None:
        self.statuses = GroupStatuses(self.reaper.store, self.reaper.now)
        minute = int(self.began.timestamp()) // 60
        self.sweeps = {minute % _MINUTES, (minute - 1) % _MINUTES}  # one may have been left out

    def run(self) -> None:
        """Take part of the work, do it until it is done or time is over, and leave a record."""
        records, _ = self.reaper.store.records(KIND, limit=2 * PARTS)
        left = [Left.of(record) for record in records]
        self.mine = (self.part,) if self.part else self._taken(left)
        self.reaped.parts = self.mine[0].parts
        self.starts = {place: at for one in left for place, at in one.scans.items()}
        queues = Turns(self._queue_jobs(self._first(left)), self.reaper.now)
        parts = {"closings": self._closings(), "queues": queues, "jobs": self._pending()}
        work = Turns(
            [Job(name, iter(steps), _SHARES[name]) for name, steps in parts.items()],
            self.reaper.now,
        )
        try:
            for _ in work:
                if self._over():
                    break
        finally:
            self.reaped.cut = work.next is not None and self._over()
            self.reaped.unseen = queues.new
            self._leave(left, queues.next or "")

    # -- what is to be done --------------------------------------------------------------------

    def _taken(self, left: Sequence[Left]) -> tuple[ReaperPart, ...]:
        """Hand parts on, if it takes several passes; return those that are left to this one."""
        parts = 1 if self.hand_on is None else parts_for(left, self.began)
        until = self.began + timedelta(seconds=self.time_left())
        own, *others = (ReaperPart(number, parts, self.began, until) for number in range(parts))
        return (
            own,
            *(one for one in others if self.hand_on is None or not self.hand_on(one.event())),
        )

    def _holds(self, one: str | int) -> bool:
        number = one if isinstance(one, int) else crc32(one.encode())
        return any(part.holds(number) for part in self.mine)

    def _over(self) -> bool:
        return self.time_left() <= 0 or self.reaper.now() >= self.mine[0].until

    def _first(self, left: Sequence[Left]) -> str | None:
        """Return the queue that the last pass over this part would have come to next."""
        for one in left:
            if one.part == self.mine[0].number and one.next and one.recent(self.began):
                return one.next
        return None

    def _queue_jobs(self, first: str | None) -> list[Job]:
        """Return a job for each queue; those before the *first* come last."""
        found: list[Job] = []
        shards = 0
        for queue in self._all_queues():  # counted alike by every pass: so parts are of one size
            if jobs := self._jobs(queue, shards):
                steps = Turns(jobs, self.reaper.now)
                found.append(Job(queue.name, self._guarded(steps)))
            shards += queue.shards_in_use
        if first is not None:
            turn = sum(job.name < first for job in found)
        else:  # another one each minute, should each pass be ended before it can leave a record
            turn = int(self.began.timestamp()) // 60 % max(1, len(found))
        return found[turn:] + found[:turn]

    def _all_queues(self) -> Iterator[Queue]:
        cursor = None
        while True:
            page = self.reaper.service.queues.list(limit=_QUEUES, cursor=cursor)
            yield from page.shown
            cursor = page.cursor
            if cursor is None:
                return

    def _jobs(self, queue: Queue, first: int) -> list[Job]:
        """Return the jobs of a queue that are ours; *first* is the number of its first shard."""
        mine = {shard for shard in range(queue.shards_in_use) if self._holds(first + shard)}
        jobs = [
            Job(name, job(queue, place))
            for name, job, state in (
                ("lapsed", self._lapsed, State.INFLIGHT),
                ("expired", self._expired, State.ENQUEUED),
            )
            for place in queue.places(state)
            if place.shard in mine
        ]
        again = queue.had_more and self._sweeps(queue)
        if self._holds(first) and (again or self.reaper.upkeep.needed(queue)):
            jobs.append(Job("upkeep", self._upkeep(queue, again=again)))
        if self._holds(first) and self._may_be_too_many_dead(queue):
            jobs.append(Job("evicted", self._evict(queue)))
        if queue.settings.alerts is not None and self._holds(first):
            self.judge_alerts = self.judge_alerts or self.reaper.service.alerts.begin_pass().check
            jobs.append(Job("alerts", _once(self.judge_alerts, queue.name)))
        return jobs

    def _guarded(self, steps: Iterator[None]) -> Iterator[None]:
        """End with the first step that is throttled; too many such ends end the pass."""
        try:
            for _ in steps:
                self.throttled_in_a_row = 0
                yield
        except Unavailable:
            self.reaped.throttled = True
            self.throttled_in_a_row += 1
            if self.throttled_in_a_row >= _STOPS_AFTER:
                raise
        else:
            self.throttled_in_a_row = 0

    # -- doing it, page by page ----------------------------------------------------------------

    def _lapsed(self, queue: Queue, place: Place) -> Iterator[None]:
        """Take back the lapsed leases at one *place*.

        Each page is read, for one full of healthy long tasks, which heartbeats keep past the end
        that the index knows, must not hide a dead one.
        """
        scan = self._scan(place)
        for entries in scan.pages():
            taken = 0
            for task in self.reaper.take_back(queue, entries, self.statuses):
                taken += 1
                waits_again = task.state is State.ENQUEUED
                released = waits_again and task.last_move == Action.RELEASE
                self.reaped.released += released
                self.reaped.retried += waits_again and not released
                self.reaped.dead_lettered += not waits_again
            self.reaped.healthy += len(entries) - taken
            self._stay(scan, len(entries) - taken)
            yield

    def _expired(self, queue: Queue, place: Place) -> Iterator[None]:
        """Dead-letter the tasks at one *place* that waited past their ``expires_at``.

        Waiting tasks expire after they fall due, so only due ones are looked at: from the oldest
        until a page holds nothing expired (of those by turn several, which groups take abreast);
        all of them once an hour, each place in a minute of its own.  The oldest that goes on
        waiting is noted.
        """
        scan = self._scan(place)
        full = scan.start is not None or minute_of(scan.place) in self.sweeps
        pages = _PAGES_OF_TURNS if place.lane == TURN_LANE else 1
        paused = queue.settings.dequeuing_settings.dequeuing_paused
        for entries in scan.pages():
            now = self.reaper.now()
            over = [entry for entry in entries if entry.expires_at and entry.expires_at <= now]
            if not paused and len(over) < len(entries):
                oldest = min(entry.own_time for entry in entries if entry not in over)
                waited = (now - oldest).total_seconds()
                self.reaped.oldest_ready_seconds = max(self.reaped.oldest_ready_seconds, waited)
            pages = pages if over else pages - 1
            if pages <= 0 and not full:
                return
            self.reaped.expired += sum(1 for _ in self.reaper.dead_letter(queue, over))
            if full:
                self._stay(scan, len(entries) - len(over))
            yield

    def _sweeps(self, queue: Queue) -> bool:
        return minute_of(Place(queue.name, State.ENQUEUED, 0)) in self.sweeps

    def _upkeep(self, queue: Queue, *, again: bool) -> Iterator[None]:
        """Find out what has ended that a change of settings began."""
        self.reaper.upkeep.look(queue.name, again=again)
        yield from ()

    def _may_be_too_many_dead(self, queue: Queue) -> bool:
        """Tell whether to count the dead tasks of *queue*: by the recorder's count, or hourly.

        A count by the index costs a read unit for about sixty tasks.
        """
        most = queue.settings.dead_letter_queue_config.max_size
        if not most:
            return False
        hourly = minute_of(Place(queue.name, State.DEAD, 0)) in self.sweeps
        if hourly:
            return True
        self.dead_count = self.dead_count or self.reaper.service.counters.totals().dead
        known = self.dead_count(queue.name)
        return known is None or known > most

    def _evict(self, queue: Queue) -> Iterator[None]:
        """Remove the oldest dead tasks over the queue's ``max_size``, so many at a time."""
        while True:
            began = self.reaper.now()
            places = queue.places(State.DEAD)
            dead = 0
            for place in places:
                for page in counted(self.reaper.store, place, now=began):
                    dead += page.number
                    if self.reaper.now() - began > _SLICE:
                        yield
            surplus = dead - queue.settings.dead_letter_queue_config.max_size
            until = self.reaper.now() + _SLICE
            while surplus > 0 and self.reaper.now() < until:
                gone = self._evict_page(places, min(_PAGE, surplus))
                if not gone:
                    return  # the index lags; the next pass sees better
                self.reaped.evicted += gone
                surplus -= gone
            if surplus <= 0:
                return
            yield  # and count again: others may have removed some meanwhile

    def _evict_page(self, places: Sequence[Place], most: int) -> int:
        now = self.reaper.now()
        oldest = sorted(
            (
                entry
                for place in places
                for entry in self.reaper.store.entries(place, limit=most).entries
                if not entry.hidden(now)
            ),
            key=lambda entry: (entry.scheduled_at, entry.task_id),
        )[:most]
        outcomes = self.reaper.store.commit([plan.purge(entry) for entry in oldest])
        return sum(isinstance(outcome, Done) for outcome in outcomes)

    def _closings(self) -> Iterator[None]:
        leases = self.reaper.service.leases

        def release_tasks(group_id: str) -> Iterator[None]:
            for returned in leases.finish_closing(group_id):
                self.reaped.released += returned
                yield

        def jobs() -> Iterator[Job]:
            for group_id in leases.closings():
                if self._holds(group_id):
                    yield Job(group_id, self._guarded(release_tasks(group_id)))

        yield from self._guarded(self._turns(jobs))

    def _pending(self) -> Iterator[None]:
        """Resume the jobs that calls have begun, and begin those that never end."""
        engine = self.reaper.service.jobs

        def resume(job: job_records.Job) -> Iterator[None]:
            until = self.reaper.now() + _SLOW_JOB
            for count in engine.pages(job, self.reaper.visitor(job.kind)):
                if job.kind in job_records.REMOVALS:
                    self.reaped.purged += count
                elif self.reaper.now() >= until:
                    return
                yield

        def jobs() -> Iterator[Job]:
            pending = {job.name: job for job in engine.pending()}
            stands = EVERY_OBJECT.name not in pending and self._holds(EVERY_OBJECT.name)
            if stands and self.reaper.service.objects is not None:
                engine.begin(EVERY_OBJECT)
                pending[EVERY_OBJECT.name] = EVERY_OBJECT
            for job in pending.values():
                if self._holds(job.name):
                    yield Job(job.name, self._guarded(resume(job)))

        yield from self._guarded(self._turns(jobs))

    def _turns(self, jobs: Callable[[], Iterator[Job]]) -> Iterator[None]:
        """Find the *jobs* when they are first come to."""
        yield from Turns(jobs(), self.reaper.now)

    # -- how far it has come -------------------------------------------------------------------

    def _scan(self, place: Place) -> Scan:
        return Scan(self.reaper.store, place, self.reaper.now, self.starts.get(place))

    def _stay(self, scan: Scan, number: int) -> None:
        """Note that so many entries stay, for which the next pass had better go on behind them."""
        _, before = self.staying.get(scan.place, (scan, 0))
        if before + number:
            self.staying[scan.place] = scan, before + number

    def _leave(self, left: Sequence[Left], first: str) -> None:
        """Write down how far this pass came; nothing where one is enough and did everything."""
        store, own = self.reaper.store, self.mine[0]
        seconds = (own.until - self.began).total_seconds()
        used = (self.reaper.now() - self.began).total_seconds() / seconds if seconds > 0 else 1.0
        cut = self.reaped.cut
        kept = own.parts if own.parts > 1 or cut or first or used > COMFORT else 0
        if kept:
            most = sorted(self.staying.values(), key=lambda stays: stays[1], reverse=True)
            scans = {scan.place: scan.at for scan, _ in most[:_SCANS] if scan.at is not None}
            ended = Left(own.number, own.parts, own.run, used, cut, first, scans)
            store.renew_record(ended.record())
        if own.number == 0:
            for one in left:
                if one.part >= kept:
                    store.drop_record(KIND, str(one.part))


def _once(judge: JudgeAlerts, queue: str) -> Iterator[None]:
    judge(queue)
    yield from ()


def minute_of(place: Place) -> int:
    """Return the minute of each hour in which a partition is looked through as a whole."""
    return crc32(f"{place.queue}#{place.label}".encode()) % _MINUTES
