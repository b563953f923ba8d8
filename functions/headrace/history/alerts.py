"""Alerts of queues: looks at what a queue has limits for, once a minute, and tells of a change.

The reaper's pass looks at each queue that has alerts; of a queue without there is no more to do.
What a look finds is judged by ``domain.alerts``; the state that comes of it is written on the
version that was read, together with the tasks that tell of it.  So of several timers at once one
tells, and a process that dies has told and noted it, or neither.

Dead tasks are those of the busier of the last two whole minutes: the recorder may be behind at the
end of one, and then the next look sees it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.domain import plan
from headrace.domain.alerts import AlertEvent, AlertState, Measured, judged
from headrace.domain.change import Change
from headrace.domain.errors import NotFound
from headrace.domain.ids import new_task_id
from headrace.domain.instants import MICROSECOND, micros_of
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import AlertSettings, Queue
from headrace.domain.task import State
from headrace.history.counters import Counters
from headrace.history.tally import MINUTE
from headrace.history.transitions import Event
from headrace.ops.shared.lanes import oldest_ready
from headrace.ops.shared.lines import Lines
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.shared.stack_secret import DerivedIds
from headrace.safe_logging import safe_logger
from headrace.store.base import Record, Store, every_record
from headrace.store.records import alerts as alert_records
from headrace.store.records import workers as worker_records
from headrace.store.records.queues import ALERTS

_FIRST: Final = 20  # waiting tasks that are looked at in each place; all may have expired
_PAGE: Final = 200
_MICROSECONDS: Final = 6  # decimals of a second

_log: Final = safe_logger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class AlertJudging:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    counters: Counters
    group_lines: Callable[[], Lines]
    now: Callable[[], datetime]
    ids: DerivedIds

    def look(self) -> "AlertLook":
        """Return a look at any number of queues at about this moment."""
        return AlertLook(self)

    def settle(self, queue: Queue, settings: AlertSettings, measured: Measured) -> bool:
        """Note what *measured* makes of the alerts of *queue* and tell of it.

        Returns whether that is done: not where somebody else has done it meanwhile, or for a queue
        whose alerts have been set anew.
        """
        if queue.alerts_since is None:
            return False
        record = self.store.record(ALERTS, queue.name)
        before = AlertState(queue.alerts_since)
        if record is not None:
            stored = alert_records.from_record(record)
            if stored.epoch > before.epoch:
                return False
            before = stored if stored.epoch == before.epoch else before
        after, events = judged(before, settings, measured, self.now())
        if after == before:
            return True
        version = 0 if record is None else record.version
        changed = alert_records.to_record(queue.name, after, version + 1)
        births = self._births(queue, settings, events)
        if not births:
            return self.store.put_record(changed, replaces=version or None)
        return self.store.put_records([(changed, version or None)], tasks=births)

    def _births(
        self, queue: Queue, settings: AlertSettings, events: Sequence[AlertEvent]
    ) -> list[Change]:
        """Plan the tasks that tell of *events*, without those that were made already."""
        if not events or settings.queue is None or queue.alerts_since is None:
            return []
        try:
            told = self.queues.cached(settings.queue)
        except NotFound:
            _log.warning("Nobody is told of alerts of %s: the queue for it is gone", queue.name)
            return []
        now, epoch = self.now(), queue.alerts_since
        new = [TaskSpec(webhook(queue.name, event, now)) for event in events]
        ids = [self.ids.task_id(epoch, *event.facts(queue.name, epoch)) for event in events]
        turns = self.group_lines().take_for(told, new, ids, now)
        there = {**self.store.spent(ids), **self.store.read(ids, payload=False)}
        born: list[Change] = []
        for place, task_id in enumerate(ids):
            found, other_id = there.get(task_id), task_id
            if found is not None and (found.spent or found.place).queue == told.name:
                continue
            if found is not None:
                other_id = new_task_id(now)
                _log.error(
                    "Task %s in queue %s has the id of an alert of queue %s."
                    " The alert is sent under the id %s.",
                    task_id,
                    found.queue,
                    queue.name,
                    other_id,
                )
            born.append(
                plan.enqueue(
                    new[place],
                    told,
                    task_id=other_id,
                    due_at=now + place * MICROSECOND,
                    now=now,
                    token=None,
                    turn=turns.get(place),
                )
            )
        return born


@dataclass(slots=True, eq=False, repr=False)
class AlertLook:
    """One look at several queues: what is about all of them is read once, if it is needed."""

    judging: AlertJudging
    _buffers: Sequence[Record] | None = None
    _listening: frozenset[str] | None = None

    def judge(self, name: str) -> None:
        """Look at a queue and tell of what has changed.  Raises Unavailable."""
        try:
            queue = self.judging.queues.get(name)
        except NotFound:
            return
        settings = queue.settings.alerts
        if settings is not None:
            self.judging.settle(queue, settings, self.measured(queue, settings))

    def measured(self, queue: Queue, settings: AlertSettings) -> Measured:
        """Return what *settings* have limits for, as it is; a queue that is paused may rest."""
        now, paused = self.judging.now(), queue.settings.dequeuing_settings.dequeuing_paused
        oldest, dead, started = 0.0, 0, 0
        if settings.oldest_ready_seconds is not None and not paused:
            oldest = self._oldest_ready(queue, now)
        of_workers = settings.no_workers_for_seconds is not None
        asks = of_workers and not paused and queue.settings.target is None
        if settings.dead_per_minute is not None or asks:
            dead, started = self._lately(queue.name, now)
        listened = not asks or started > 0 or queue.name in self._on_duty()
        return Measured(oldest, dead, listened)

    def _oldest_ready(self, queue: Queue, now: datetime) -> float:
        ages = (
            oldest_ready(self.judging.store.entries(place, until=now, limit=_FIRST).entries, now)
            for place in queue.places(State.ENQUEUED)
        )
        return max((age for age in ages if age is not None), default=0.0)

    def _lately(self, queue: str, now: datetime) -> tuple[int, int]:
        """Return the dead of the worse of the last two whole minutes, and deliveries of both."""
        counters = self.judging.counters
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

    def _on_duty(self) -> Collection[str]:
        if self._listening is None:
            now = self.judging.now()
            records = every_record(self.judging.store, worker_records.KIND, page=_PAGE)
            workers = map(worker_records.from_record, records)
            self._listening = frozenset(name for one in workers for name in one.on_duty(now))
        return self._listening


def webhook(queue: str, event: AlertEvent, at: datetime) -> str:
    """Return the JSON that tells of *event* in *queue*, at this instant."""
    from headrace.wire import base  # noqa: PLC0415  only where there is something to tell

    alert = event.alert
    data = {
        "queue": queue,
        "threshold": event.threshold,
        "limit": alert.limit,
        "value": round(event.value, _MICROSECONDS),
        "since": base.instant_text(alert.since or at),
    }
    return base.to_json({"type": event.kind, "timestamp": base.instant_text(at), "data": data})
