"""What people do with schedules: make, change, look, delete, run now."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.ids import new_request_token
from headrace.domain.limits import NAME, NAME_RE, pattern_in_words
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.query_grammar import FIELD
from headrace.domain.queue import Queue
from headrace.domain.schedule import Progress, Schedule, ScheduleSettings
from headrace.domain.task import Task
from headrace.domain.ticks import cron_ticks, ticks, zone
from headrace.ops.scheduling.cron import read_cron
from headrace.ops.shared.paging import Found, seek, text_of_record
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult
from headrace.store.base import Record
from headrace.store.call_scope import caller, current_actor, visible
from headrace.store.records import schedules as schedule_records


@dataclass(frozen=True, slots=True)
class Seen:
    """A schedule with its next tick (None while it is paused) and its latest run."""

    schedule: Schedule
    next_run_at: datetime | None
    last_run_at: datetime | None


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run of a schedule, and its result.

    ``task`` is the task that it made, without its payload; None when the task is not kept.
    """

    at: datetime
    by_hand: bool
    task: Task | None


class Schedules(ServicePart):
    """Puts, shows, runs, pauses and deletes schedules."""

    def put(self, queue: str, name: str, settings: ScheduleSettings) -> Seen:
        """Make or replace a schedule, and enqueue its next ticks.

        Ticks enqueued ahead by earlier settings are removed.  The same settings again change
        nothing.  Raises NotFound for the queue and InvalidRequest naming the field; one that never
        runs again is refused unless the schedule has just these times already.
        """
        owner = self.service.queues.get(queue)
        if not NAME_RE.fullmatch(name):
            raise InvalidRequest.of("name", pattern_in_words(NAME))
        self._check(settings, owner, name)
        key = schedule_records.key(queue, name)
        with self.service.audit.action("put_schedule", queue=queue, where={"schedule": name}):
            while True:
                record = self.store.record(schedule_records.KIND, key)
                old = None if record is None else schedule_records.from_record(record)
                new = self._next(old, owner, name, settings)
                since = None if old is not None and new.since == old.since else new.since
                if new == old:
                    break
                version = old.version if old is not None else None
                if self.store.put_record(schedule_records.to_record(new), replaces=version):
                    break
            self.service.ticking.advance(key, since=since)
        return self._seen(new, self.service.ticking.progress(key))

    def get(self, queue: str, name: str) -> Seen:
        """Return a schedule.  Raises NotFound."""
        key = schedule_records.key(queue, name)
        return self._seen(self._stored(queue, name), self.service.ticking.progress(key))

    def page(
        self, queue: Queue, *, limit: int, cursor: str | None = None, short: bool = False
    ) -> Found[Seen]:
        """Return a page of the schedules of a queue by name; *short*: for their short form.

        A page may be short and still have a cursor.  Raises InvalidRequest for a forged cursor.
        """

        def own(record: Record) -> Schedule | None:
            schedule = schedule_records.from_record(record)
            return schedule if schedule.queue_created_at == queue.created_at else None

        found = seek(
            self.store,
            schedule_records.KIND,
            own,
            self.service.cursors,
            f"schedules of {queue.name}",
            limit=limit,
            cursor=cursor,
            prefix=schedule_records.key(queue.name, ""),
            now=self.now,
            text_of=_whole_text if not short else lambda *_: "",
        )
        shown: list[Seen] = []
        for one in found.shown:
            key = schedule_records.key(one.queue, one.name)
            shown.append(self._seen(one, None if short else self.service.ticking.progress(key)))
        return Found(tuple(shown), found.cursor)

    def of_queue(self, queue: Queue) -> list[Seen]:
        """Return the schedules of a queue by name, without their latest run."""
        found = schedule_records.of_queue(self.store, queue.name)
        return [
            self._seen(each, None) for each in found if each.queue_created_at == queue.created_at
        ]

    def list(
        self,
        *,
        where: ListQuery[Schedule] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[Schedule]:
        """Return a page of the schedules of the caller's queues, by queue and name.

        A page may be short and still have a cursor.
        Raises InvalidRequest for a forged cursor, and for a *where* that names the task of a
        payload if the caller may not see payloads.
        """
        actor = current_actor()
        if "task" in where.keys and actor is not None and not actor.may(Permission.DETAILS):
            message = "names a task, which payloads say, and those are not shown to this key"
            raise InvalidRequest.of(FIELD, message)
        cursors, now = self.service.cursors, self.now()
        scope = f"schedules of {caller().patterns} {where.text}"

        def own(record: Record) -> Schedule | None:
            schedule = schedule_records.from_record(record)
            own = visible(schedule.queue) and where.matches(schedule, now)
            return schedule if own else None

        kind, store = schedule_records.KIND, self.store
        page = seek(store, kind, own, cursors, scope, limit=limit, cursor=cursor, now=self.now)
        return replace(page, shown=self._living(page.shown))

    def coming(self, schedule: Schedule, count: int) -> tuple[datetime, ...]:
        """Return the next *count* runs of a schedule, as if it were not paused.

        Empty if its cron expression cannot be read.
        """
        with suppress(InvalidRequest):
            return tuple(islice(ticks(schedule, read_cron, self.now()), count))
        return ()

    def preview(
        self, queue: str, name: str, settings: ScheduleSettings, count: int
    ) -> tuple[datetime, ...]:
        """Return the next *count* runs that put() would lead to, and write nothing.

        Raises as put() does.
        """
        owner = self.service.queues.get(queue)
        self._check(settings, owner, name)
        return self.coming(self._next(self._old(owner, name), owner, name, settings), count)

    def last_run(self, schedule: Schedule) -> LastRun | None:
        """Return the latest run with its outcome; None when there was none yet."""
        now = self.now()
        progress = self.service.ticking.progress(
            schedule_records.key(schedule.queue, schedule.name)
        )
        at = progress.last_run_at(now) if progress else None
        if progress is None or at is None:
            return None
        by_hand = at == progress.ran_at and not progress.has(at)
        made = progress.ran_id
        if not by_hand:
            made = self.service.tick_tasks.task_id(schedule.queue, schedule.name, at, progress)
        task = self.store.read([made], payload=False).get(made) if made else None
        if task is not None and (task.queue != schedule.queue or task.is_hidden(now)):
            task = None  # moved on to a queue that may be somebody else's, or past its retention
        return LastRun(at, by_hand=by_hand, task=task)

    def delete(self, queue: str, name: str) -> None:
        """Remove a schedule and its tasks that are not due yet.  Raises NotFound."""
        self._stored(queue, name)
        key = schedule_records.key(queue, name)
        with self.service.audit.action("delete_schedule", queue=queue, where={"schedule": name}):
            self.store.drop_record(schedule_records.KIND, key)
            self.service.ticking.settle(key)

    def run(self, queue: str, name: str) -> EnqueueResult:
        """Enqueue one task of a schedule now, paused or not.  Raises NotFound."""
        schedule = self._stored(queue, name)
        target = schedule.target(self.service.queues.get(queue))
        now = self.now()
        with self.service.audit.action(
            "run_schedule", queue=queue, where={"schedule": name}
        ) as outcome:
            result = self.service.tasks.enqueue_at(target, schedule.new_task(by_hand=True), now)
            created = result.outcome is EnqueueOutcome.CREATED
            outcome.changed = int(created)
            if created:
                self.service.ticking.note_run(schedule_records.key(queue, name), now, result.id)
        return result

    def _living(self, schedules: Sequence[Schedule]) -> tuple[Schedule, ...]:
        """Leave out those of queues that were deleted; theirs go a moment later."""
        owners = {each.queue: self.service.ticking.queue_of(each) for each in schedules}
        return tuple(
            each
            for each in schedules
            if (owner := owners[each.queue]) and owner.created_at == each.queue_created_at
        )

    def _stored(self, queue: str, name: str) -> Schedule:
        owner = self.service.queues.get(queue)
        schedule = self._old(owner, name) if NAME_RE.fullmatch(name) else None
        if schedule is None or schedule.queue_created_at != owner.created_at:
            raise NotFound(f"queue {queue} has no schedule {name[:128]}")
        return schedule

    def _old(self, owner: Queue, name: str) -> Schedule | None:
        """Return the schedule of this name, be it one of another queue that was deleted."""
        record = self.store.record(schedule_records.KIND, schedule_records.key(owner.name, name))
        return None if record is None else schedule_records.from_record(record)

    def _check(self, settings: ScheduleSettings, owner: Queue, name: str) -> None:
        if fault := owner.priority_fault(settings.priority):
            raise InvalidRequest.of("priority", fault)
        if owner.strict:
            why = f"is queue {owner.name}, whose order is strict: it takes no tasks by the clock"
            raise InvalidRequest.of("queue", why)
        place = zone(settings.timezone)
        if settings.cron is not None:
            cron = read_cron(settings.cron)
            over = next(cron_ticks(cron, place, self.now()), None) is None
            if over and not self._has_times(owner, name, settings):
                raise InvalidRequest.of("cron", "never runs again; fifty years were looked at")

    def _has_times(self, owner: Queue, name: str, settings: ScheduleSettings) -> bool:
        """Return whether this schedule exists and has the times of *settings*."""
        old = self._old(owner, name)
        return (
            old is not None
            and old.queue_created_at == owner.created_at
            and settings.same_times(old.settings)
        )

    def _next(
        self, old: Schedule | None, owner: Queue, name: str, settings: ScheduleSettings
    ) -> Schedule:
        """Return the schedule that replaces *old*; one of another queue does not count."""
        now, edition, by = self.now(), new_request_token(), caller().actor_id
        if old is not None and old.queue_created_at == owner.created_at:
            if settings == old.settings:
                same = old.put_by == by
                return old if same else replace(old, put_by=by, version=old.version + 1)
            return replace(old.with_settings(settings, now=now, edition=edition), put_by=by)
        return Schedule(
            owner.name,
            name,
            settings,
            created_at=now,
            updated_at=now,
            since=now,
            anchor=now,
            edition=edition,
            queue_created_at=owner.created_at,
            version=old.version + 1 if old is not None else 1,
            put_by=by,
        )

    def _seen(self, schedule: Schedule, progress: Progress | None) -> Seen:
        now = self.now()
        next_run_at = None
        if not schedule.settings.paused:
            with suppress(InvalidRequest):  # it could be read when it was made
                next_run_at = next(ticks(schedule, read_cron, now), None)
        return Seen(schedule, next_run_at, progress.last_run_at(now) if progress else None)


def _whole_text(record: Record, schedule: Schedule) -> str:
    """Return the record as JSON, and the payload, which the record may have compressed."""
    return text_of_record(record, schedule) + schedule.settings.payload
