"""The reaper's pass over all queues, jobs and closings, once a minute, within a time limit.

Queues, jobs and closings share the time of a pass.  Queues divide theirs evenly, page by page, so a
queue with a million lapsed leases, or with a slow partition, does not delay the others.  A
throttled queue is skipped until the next pass.  If the time ends first, the next pass begins with
the next queue, and is divided by shard between several parallel passes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zlib import crc32

from headrace.domain.errors import Unavailable
from headrace.domain.lifecycle import Action
from headrace.domain.queue import Queue
from headrace.domain.task import TURN_LANE, Place, State
from headrace.ops.delivery.reaping import Job, Reaping, Scan, Turns, Upkeep
from headrace.ops.shared.jobs import EVERY_OBJECT
from headrace.ops.shared.leases import GroupStatuses
from headrace.ops.tasks.deferred_spawns import LOTS
from headrace.store.base import Position
from headrace.store.records.jobs import REMOVALS, QueueJob
from headrace.store.records.reaper import (
    COMFORT,
    KIND,
    PARTS,
    PassCheckpoint,
    ReaperPart,
    parts_for,
)

if TYPE_CHECKING:
    from headrace.history.totals import Totals
    from headrace.ops.scheduling.alerts import AlertPass
    from headrace.runtime.service import Service


_LONG: Final = timedelta(hours=1)

HandOn: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Starts a parallel pass for a part, named by the event; returns whether it starts."""


@dataclass(slots=True)
class Reaped:
    """The result of a pass of the reaper; ``released`` counts tasks of closed groups.

    ``throttled`` is whether a queue, or all, were skipped because the table did not answer; ``cut``
    whether the time ended first, and ``unseen`` the number of queues not reached.
    ``oldest_ready_seconds`` is for how long the oldest deliverable task has been waiting in a queue
    that is not paused.
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
    """Ends lapsed leases, expires tasks, and resumes jobs and closings."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.upkeep: Upkeep = Upkeep(service)

    def run(
        self,
        part: ReaperPart | None = None,
        *,
        time_left: Callable[[], float] = _LONG.total_seconds,
        hand_on: HandOn | None = None,
    ) -> Reaped:
        """Visit every overdue lease and every due task of all queues, or of one *part* of them.

        Ends when there is no *time_left* (seconds).  Without a part this is the pass of the timer,
        which starts passes for other parts if the last pass has shown that it takes several.  Stops
        while the table throttles, because heartbeats are late then.
        """
        began = self.now()
        reaped = Reaped()
        try:
            Pass(self, reaped, began, part, time_left, hand_on).run()
        except Unavailable:
            reaped.throttled = True
        return reaped


_PAGE: Final = 100
_SHARES: Final = {"queues": 3.0, "jobs": 1.0, "closings": 1.0}
_STOPS_AFTER: Final = 3  # queues throttled in a row: then the table is
_MINUTES: Final = 60  # until each partition was read once for expired tasks
_SCANS: Final = 1_000  # per record; a record has room for 2,000
_PAGES_OF_TURNS: Final = 10  # that hold nothing expired
_JOB_TURN: Final = timedelta(seconds=1)
_SLOW_JOB: Final = timedelta(seconds=10)  # of one pass, for a job without a waiting caller


@dataclass(slots=True)
class Pass:
    """One pass, with its progress."""

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
    alerts: "AlertPass | None" = None
    totals: "Totals | None" = None

    def __post_init__(self) -> None:
        self.statuses = GroupStatuses(self.reaper.store, self.reaper.now)
        minute = int(self.began.timestamp()) // 60
        self.sweeps = {minute % _MINUTES, (minute - 1) % _MINUTES}  # a minute may have been skipped

    def run(self) -> None:
        """Take parts of the work, do it until the time is over, and leave a record."""
        records, _ = self.reaper.store.records(KIND, limit=2 * PARTS)
        left = [PassCheckpoint.of(record) for record in records]
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

    def _taken(self, left: Sequence[PassCheckpoint]) -> tuple[ReaperPart, ...]:
        """Start passes for other parts, if needed; return the parts left to this pass."""
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

    def _first(self, left: Sequence[PassCheckpoint]) -> str | None:
        """Return the queue that the last pass over this part would have visited next."""
        for one in left:
            if one.part == self.mine[0].part and one.next and one.recent(self.began):
                return one.next
        return None

    def _queue_jobs(self, first: str | None) -> list[Job]:
        """Return a job for each queue; those before the *first* come last."""
        found: list[Job] = []
        shards = 0
        for queue in (
            self.reaper.service.queues.every()
        ):  # all passes count them alike, so parts have one size
            if jobs := self._jobs(queue, shards):
                steps = Turns(jobs, self.reaper.now)
                found.append(Job(queue.name, self._guarded(steps)))
            shards += queue.shards_in_use
        if first is not None:
            turn = sum(job.name < first for job in found)
        else:  # another one each minute, in case passes end before they leave a record
            turn = int(self.began.timestamp()) // 60 % max(1, len(found))
        return found[turn:] + found[:turn]

    def _jobs(self, queue: Queue, first: int) -> list[Job]:
        """Return the jobs of a queue in our parts; *first* is the number of its first shard."""
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
        again = queue.had_other_places and self._sweeps(queue)
        if self._holds(first) and (again or self.reaper.upkeep.needed(queue)):
            jobs.append(Job("upkeep", self._upkeep(queue, again=again)))
        if self._holds(first) and self._may_be_too_many_dead(queue):
            jobs.append(Job("evicted", self._evict(queue)))
        if queue.settings.alerts is not None and self._holds(first):
            jobs.append(Job("alerts", self._check_alerts(queue)))
        return jobs

    def _guarded(self, steps: Iterator[None]) -> Iterator[None]:
        """End with the first throttled step; too many such ends in a row end the pass."""
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

    def _lapsed(self, queue: Queue, place: Place) -> Iterator[None]:
        """Reclaim the lapsed leases at one *place*.

        Every page is read: long tasks, whose heartbeats keep them past the end in the index, must
        not hide a lapsed one.
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

        Waiting tasks expire after they fall due, so only due ones are read: from the oldest to the
        first page without an expired task (several pages for turns, which groups take side by
        side); all of them once an hour, each place in its own minute.  The oldest remaining task is
        noted.
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

    def _check_alerts(self, queue: Queue) -> Iterator[None]:
        self.alerts = self.alerts or self.reaper.service.alerts.begin_pass()
        self.alerts.check(queue.name)
        yield from ()

    def _upkeep(self, queue: Queue, *, again: bool) -> Iterator[None]:
        self.reaper.upkeep.look(queue.name, again=again)
        yield from ()

    def _may_be_too_many_dead(self, queue: Queue) -> bool:
        """Return whether to count the dead tasks of *queue*: by the recorder's count, or hourly.

        A count by the index costs a read unit for about sixty tasks.
        """
        most = queue.settings.dead_letter_queue_config.max_size
        if not most:
            return False
        if minute_of(Place(queue.name, State.DEAD, 0)) in self.sweeps:
            return True
        self.totals = self.totals or self.reaper.service.counters.totals()
        known = self.totals.dead(queue.name)
        return known is None or known > most

    def _evict(self, queue: Queue) -> Iterator[None]:
        for evicted in self.reaper.evict(queue):
            self.reaped.evicted += evicted
            yield

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
        """Resume the pending jobs, and begin the job that never ends."""
        engine = self.reaper.service.jobs

        def resume(job: QueueJob) -> Iterator[None]:
            count, until = job.count, self.reaper.now() + _SLOW_JOB
            while (after := engine.step(job, self._for_a_turn())) is not None:
                if job.kind in REMOVALS:
                    self.reaped.purged += after.count - count
                elif self.reaper.now() >= until:
                    return
                count = after.count
                yield

        def jobs() -> Iterator[Job]:
            if self._holds(LOTS):
                yield Job(LOTS, self._guarded(self.reaper.service.spawning.make_deferred()))
            pending = {job.name: job for job in engine.pending()}
            stands = EVERY_OBJECT.name not in pending and self._holds(EVERY_OBJECT.name)
            if stands and self.reaper.service.objects is not None:
                engine.begin(EVERY_OBJECT)
                pending[EVERY_OBJECT.name] = EVERY_OBJECT
            for job in pending.values():
                if self._holds(job.name):
                    yield Job(job.name, self._guarded(resume(job)))

        yield from self._guarded(self._turns(jobs))

    def _for_a_turn(self) -> Callable[[], bool]:
        until = self.reaper.now() + _JOB_TURN
        return lambda: self.reaper.now() < until

    def _turns(self, jobs: Callable[[], Iterator[Job]]) -> Iterator[None]:
        """Find the *jobs* when their first turn comes."""
        yield from Turns(jobs(), self.reaper.now)

    def _scan(self, place: Place) -> Scan:
        return Scan(self.reaper.store, place, self.reaper.now, self.starts.get(place))

    def _stay(self, scan: Scan, number: int) -> None:
        """Note that so many entries of *scan* remain; the next pass should resume behind them."""
        _, before = self.staying.get(scan.place, (scan, 0))
        if before + number:
            self.staying[scan.place] = scan, before + number

    def _leave(self, left: Sequence[PassCheckpoint], first: str) -> None:
        """Record the progress of this pass; nothing if one pass is enough and did everything."""
        store, own = self.reaper.store, self.mine[0]
        seconds = (own.until - self.began).total_seconds()
        used = (self.reaper.now() - self.began).total_seconds() / seconds if seconds > 0 else 1.0
        cut = self.reaped.cut
        kept = own.parts if own.parts > 1 or cut or first or used > COMFORT else 0
        if kept:
            most = sorted(self.staying.values(), key=lambda stays: stays[1], reverse=True)
            scans = {scan.place: scan.at for scan, _ in most[:_SCANS] if scan.at is not None}
            ended = PassCheckpoint(own.part, own.parts, own.run, round(used, 3), cut, first, scans)
            store.renew_record(ended.record())
        if own.part == 0:
            for one in left:
                if one.part >= kept:
                    store.drop_record(KIND, str(one.part))


def minute_of(place: Place) -> int:
    """Return the minute of each hour in which all of a partition is read."""
    return crc32(f"{place.queue}#{place.label}".encode()) % _MINUTES
