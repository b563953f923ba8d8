"""Alerts of queues: the reaper checks each queue with alert settings once a minute.

``domain.alerts`` decides which alerts begin or end.  The new state is written on the version that
was read, in one transaction with the tasks that report it.  So if several reapers check a queue at
the same time, one of them reports, and a process that dies has reported and written, or neither.

The number of dead tasks is that of the busier of the last two whole minutes.  The recorder may be
behind at the end of a minute, and then the next check sees it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from headrace.domain import plan
from headrace.domain.alerts import AlertEvent, AlertState, Measured, next_alerts
from headrace.domain.change import Change
from headrace.domain.errors import NotFound
from headrace.domain.ids import new_task_id
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import AlertSettings
from headrace.domain.times import MICROSECOND, MINUTE, micros_of
from headrace.domain.transitions import Event
from headrace.ops.shared.lanes import oldest_ready_of
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger
from headrace.store.base import Record, every_record
from headrace.store.records import queues as queue_records
from headrace.store.records.queues import ALERTS

_PAGE: Final = 200
_MICROSECONDS: Final = 6  # decimals of a second

_log: Final = safe_logger(__name__)


class EventNumbers(Protocol):
    """How often an event happened."""

    def number(self, event: Event, /) -> int: ...


class EventCounts(Protocol):
    """The counters of the recorder: ``history.counters``, which is above this package."""

    def buffers(self) -> Sequence[Record]: ...
    def minutes(
        self, queue: str, buffers: Sequence[Record], since: int, until: int
    ) -> Iterable[tuple[int, EventNumbers]]: ...


class Alerts(ServicePart):
    """Checks queues and reports alerts."""

    def begin_pass(self) -> "AlertPass":
        """Return a pass over any number of queues at about this moment."""
        return AlertPass(self)

    def settle(self, queue: Queue, settings: AlertSettings, measured: Measured) -> bool:
        """Write what *measured* changes in the alerts of *queue*, and report it.

        Return whether the state is up to date: not if another process wrote it since it was read,
        or if the alerts of the queue were set again.
        """
        if queue.alerts_since is None:
            return False
        record = self.store.record(ALERTS, queue.name)
        before = AlertState(queue.alerts_since)
        if record is not None:
            stored = queue_records.alerts_in(record)
            if stored.epoch > before.epoch:
                return False
            before = stored if stored.epoch == before.epoch else before
        after, events = next_alerts(before, settings, measured, self.now())
        if after == before:
            return True
        version = 0 if record is None else record.version
        changed = queue_records.alerts_record(queue.name, after, version + 1)
        reports = self._reports(queue, settings, events)
        if not reports:
            return self.store.put_record(changed, replaces=version or None)
        return self.store.put_records([(changed, version or None)], tasks=reports)

    def _reports(
        self, queue: Queue, settings: AlertSettings, events: Sequence[AlertEvent]
    ) -> list[Change]:
        """Plan the tasks that report *events*, except existing ones."""
        if not events or settings.queue is None or queue.alerts_since is None:
            return []
        try:
            target = self.service.queues.cached(settings.queue)
        except NotFound:
            _log.warning("The queue for alerts of queue %s does not exist", queue.name)
            return []
        now, epoch = self.now(), queue.alerts_since
        new = [TaskSpec(payload(queue.name, event, now)) for event in events]
        ids = [
            self.service.derived_ids.task_id(epoch, *event.facts(queue.name, epoch))
            for event in events
        ]
        places = {place: (target, new[place], ids[place]) for place in range(len(ids))}
        turns = self.service.lines.take_for(places, now)
        existing = {**self.store.tombstones(ids), **self.store.read(ids, payload=False)}
        reports: list[Change] = []
        for place, task_id in enumerate(ids):
            found, free_id = existing.get(task_id), task_id
            if found is not None and (found.ended_in or found.place).queue == target.name:
                continue
            if found is not None:
                free_id = new_task_id(now)
                _log.error(
                    "Task %s in queue %s has the id of an alert of queue %s."
                    " The alert is sent under the id %s.",
                    task_id,
                    found.queue,
                    queue.name,
                    free_id,
                )
            reports.append(
                plan.enqueue(
                    new[place],
                    target,
                    task_id=free_id,
                    due_at=now + place * MICROSECOND,
                    now=now,
                    token=None,
                    turn=turns.get(place),
                )
            )
        return reports


@dataclass(slots=True, eq=False, repr=False)
class AlertPass:
    """Checks several queues; what concerns all of them is read once, when it is first needed."""

    alerts: Alerts
    _buffers: Sequence[Record] | None = None
    _on_duty: frozenset[str] | None = None

    def check(self, name: str) -> None:
        """Check one queue and report what has changed.  Raises Unavailable."""
        try:
            queue = self.alerts.service.queues.get(name)
        except NotFound:
            return
        settings = queue.settings.alerts
        if settings is not None:
            self.alerts.settle(queue, settings, self.measured(queue, settings))

    def measured(self, queue: Queue, settings: AlertSettings) -> Measured:
        """Return the values that *settings* limit; a paused queue needs no deliveries."""
        now, paused = self.alerts.now(), queue.settings.dequeuing_settings.dequeuing_paused
        oldest, dead, started = 0.0, 0, 0
        if settings.oldest_ready_seconds is not None and not paused:
            oldest = oldest_ready_of(self.alerts.store, queue, now) or 0.0
        limits_silence = settings.no_workers_for_seconds is not None
        needs_workers = limits_silence and not paused and queue.settings.target is None
        if settings.dead_per_minute is not None or needs_workers:
            dead, started = self._recent_events(queue.name, now)
        listened = not needs_workers or started > 0 or queue.name in self._queues_with_workers()
        return Measured(oldest, dead, listened)

    def _recent_events(self, queue: str, now: datetime) -> tuple[int, int]:
        """Return the deaths of the worse of the last two whole minutes, and recent deliveries."""
        counters = self.alerts.service.counters
        if self._buffers is None:
            self._buffers = counters.buffers()
        last = micros_of(now) // MINUTE - 1
        dead: Counter[int] = Counter()
        started = 0
        for minute, activity in counters.minutes(queue, self._buffers, last - 1, last + 1):
            started += activity.number(Event.STARTED)
            if minute <= last:
                dead[minute] += activity.number(Event.DEAD)
        return max(dead.values(), default=0), started

    def _queues_with_workers(self) -> Collection[str]:
        if self._on_duty is None:
            now = self.alerts.now()
            records = every_record(self.alerts.store, queue_records.WORKERS, page=_PAGE)
            workers = map(queue_records.worker_of, records)
            self._on_duty = frozenset(name for one in workers for name in one.on_duty(now))
        return self._on_duty


def payload(queue: str, event: AlertEvent, at: datetime) -> str:
    """Return the JSON that reports *event* in *queue*, at this instant."""
    from headrace.wire import base  # noqa: PLC0415  few functions send webhooks

    alert = event.alert
    data = {
        "queue": queue,
        "threshold": event.threshold,
        "limit": alert.limit,
        "value": round(event.value, _MICROSECONDS),
        "since": base.instant_text(alert.since or at),
    }
    return base.to_json({"type": event.kind, "timestamp": base.instant_text(at), "data": data})
