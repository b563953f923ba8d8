"""The calls of producers, compared with the model."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, cast

from hypothesis import strategies as st
from hypothesis.stateful import rule

from headrace.domain.plan import TaskSpec
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult
from tests.property.calls import PLAIN, Ask, asks, queue_names
from tests.property.harness import ServiceHarness
from tests.property.model import RETRIES

_ROOM: Final = 14  # waiting tasks of a queue: what one dequeue of one task looks at is 18


class Producers(ServiceHarness):
    """Tasks are enqueued: plainly, late, to expire, under ids of their own."""

    @rule(queue=queue_names, entries=st.lists(asks, min_size=1, max_size=3))
    def enqueue(self, queue: str, entries: list[Ask]) -> None:
        if len(self.model.of(queue, "ENQUEUED")) + len(entries) > _ROOM:
            return
        now = self.now()
        new = [
            TaskSpec(
                str(number),
                id=ask.id,
                scheduled_at=None if ask.at is None else now + timedelta(seconds=ask.at),
                delay_in_seconds=ask.delay if ask.at is None else None,
                expires_at=None if ask.expires is None else now + timedelta(seconds=ask.expires),
                keepalive=ask.keepalive,
                retry=RETRIES[ask.retry].strategy if ask.retry else None,
            )
            for number, ask in enumerate(entries)
        ]

        results = self.world.use.tasks.enqueue(queue, new)

        taken: set[datetime] = set()
        for ask, entry, result in zip(entries, new, results, strict=True):
            due = now + timedelta(seconds=ask.delay or 0)
            due = due if entry.scheduled_at is None else max(now, entry.scheduled_at)
            while due in taken:
                due += timedelta(microseconds=1)
            taken.add(due)
            self._acknowledged(queue, ask, entry, due, result, now)

    def _acknowledged(
        self,
        queue: str,
        ask: Ask,
        entry: TaskSpec,
        due: datetime,
        result: EnqueueResult,
        now: datetime,
    ) -> None:
        there = self.model.visible(ask.id, now) if ask.id else None
        spent, until = self.model.spent.get(ask.id or "", ("", now))
        if there is None and until > now:
            assert (result.outcome, result.task) == (EnqueueOutcome.EXISTING, None)
            assert result.queue == spent
        elif there is not None:
            assert result.outcome is EnqueueOutcome.EXISTING
            assert result.queue == there.queue
            assert (result.task is None) == (there.queue != queue)
        elif entry.expires_at is not None and entry.expires_at <= due:
            assert result.outcome is EnqueueOutcome.INVALID
        else:
            assert result.outcome is EnqueueOutcome.CREATED
            task = self.model.new(cast("str", result.id), queue, entry.payload, due, now)
            task.keepalive, task.retry = ask.keepalive, ask.retry
            task.expires = entry.expires_at or task.expires
            assert result.id == ask.id or (ask.id is None and result.id not in self.model.tasks)
            self.model.enqueue(task)

    @rule(queue=queue_names)
    def repeat_an_enqueue(self, queue: str) -> None:
        """By one who has not heard that it was done long ago."""
        for task_id in [*self.model.spent][-1:]:
            self.enqueue(queue, [replace(PLAIN, id=task_id)])

    @rule(queue=queue_names, count=st.integers(1, 3))
    def enqueue_plainly(self, queue: str, count: int) -> None:
        self.enqueue(queue, [PLAIN] * count)
