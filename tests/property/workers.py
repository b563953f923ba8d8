"""The calls of workers, compared with the model."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headrace.domain.errors import Unavailable
from headrace.domain.repeat import KEPT, KeyedRequest
from headrace.domain.task import Task
from headrace.ops.delivery.dequeue import DequeueResult
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport, WorkerError
from tests.contract.conftest import lease_name
from tests.property.calls import (
    VERBS,
    Delivery,
    Say,
    any_of_them,
    keepalives,
    queue_names,
    says,
)
from tests.property.harness import ServiceHarness
from tests.property.model import Group, Known, known

WITHIN = timedelta(seconds=30)
"""How long a call may take."""


@dataclass(frozen=True)
class Taken:
    """A dequeue that was sent under a key, and the leases that it gave by their tasks."""

    key: str
    queue: str
    count: int
    keepalive: float | None
    group: Group | None
    at: datetime
    leases: dict[str, str] = field(default_factory=dict)


class Workers(ServiceHarness):
    """Tasks are handed out, and reported on under leases true, foreign and forged."""

    def __init__(self) -> None:
        super().__init__()
        self.dequeues: list[Taken] = []

    @rule(queue=queue_names)
    def dequeue_plainly(self, queue: str) -> None:
        self.dequeue(queue, 3, None)

    @rule(queue=queue_names, count=st.integers(1, 5), keepalive=keepalives)
    def dequeue(self, queue: str, count: int, keepalive: float | None) -> None:
        self.taken(queue, count, keepalive, None)

    def taken(self, queue: str, count: int, keepalive: float | None, group: Group | None) -> None:
        """Dequeue, under *group* if one is given."""
        now = self.now()
        rules, before = self.model.queues[queue], self.model.of(queue, "ENQUEUED")
        due = [task for task in before if task.at <= now]
        ready = {task.id: task for task in due if not task.expired(now)}
        lapsed = [task for task in self.model.of(queue, "INFLIGHT") if self.model.lapsed(task, now)]
        paused = rules.holds_back(now)

        call = Taken(f"call-{self.calls}", queue, count, keepalive, group, now)
        answer = self._dequeue(call)

        got = {task.id: task for task in answer.tasks}
        call.leases.update({task.id: str(task.lease_id) for task in answer.tasks})
        self.dequeues += [call] if got else []
        assert len(got) == len(answer.tasks)
        assert [*got] == [task.id for task in sorted(got.values(), key=_turn)]
        if paused:
            assert not got
            return
        first = [task for task in ready.values() if task.id in got]
        assert len(first) == min(count, len(ready))
        self._buried_on_the_way(due, first, now, all_shards=len(first) < count)
        again: list[Known] = []
        if len(first) < count:
            back = self._reclaimed_on_the_way(lapsed, now)
            # All of them are due now, so any of them may be the next.
            again = [task for task in back if task.id in got]
            assert len(again) == min(count - len(first), len(back))
        assert {task.id for task in (*first, *again)} == set(got)
        for task in (*first, *again):
            self._delivered(task, got[task.id], now, keepalive, group)

    def _dequeue(self, call: Taken) -> DequeueResult:
        """Send *call*, for the first time or again."""
        request = KeyedRequest("ada's key", call.key, f"{call.queue} {call.count} {call.keepalive}")
        batch = self.world.use.batches.of(request, within=WITHIN, grouped=call.group is not None)
        return self.world.use.deliveries.dequeue(
            call.queue,
            batch_size=call.count,
            worker="ada",
            keepalive=call.keepalive,
            lease_id=call.group.id if call.group else None,
            batch=batch,
        )

    @precondition(lambda self: self.dequeues)
    @rule(which=any_of_them)
    def dequeue_again(self, which: int) -> None:
        """A repeat gets what is still held of what the call has leased, and changes nothing."""
        call = self.dequeues[-1 - which % len(self.dequeues)]
        now = self.now()
        held = [
            task
            for task_id, lease in call.leases.items()
            if (task := self.model.tasks.get(task_id)) is not None
            and task.lease == lease
            and not self.model.lapsed(task, now)
        ]
        if now >= call.at + KEPT or (call.group is not None and not held):
            return  # it is another call by now

        if call.group is None and now < call.at + WITHIN and self._may_come(call):
            with pytest.raises(Unavailable, match="still being worked on"):
                self._dequeue(call)
            return

        answer = self._dequeue(call)

        assert answer.replayed
        assert [(task.id, task.lease_id) for task in answer.tasks] == [
            (task.id, task.lease) for task in sorted(held, key=lambda task: (task.due, task.id))
        ]

    def _may_come(self, call: Taken) -> bool:
        """Whether a task of that name waits which was not delivered since, and was due then.

        For all that the service knows it is one that the first try is just about to lease: one
        that an undo or a restore brought back as it was.
        """
        there = [self.model.tasks.get(task_id) for task_id in call.leases]
        return any(
            (task.state, task.queue) == ("ENQUEUED", call.queue)
            and (task.started is None or task.started < call.at)
            and task.due <= call.at
            for task in there
            if task is not None
        )

    def _buried_on_the_way(
        self, due: list[Known], first: list[Known], now: datetime, *, all_shards: bool
    ) -> None:
        """A shard that was looked at gave its first tasks, and buried its expired ones."""
        stored = self.world.store.read([task.id for task in due if task.expired(now)])
        gone: list[Known] = []
        for shard in {task.shard for task in due}:
            mine = [task for task in due if task.shard == shard]
            waiting = [task for task in mine if not task.expired(now)]
            picked = [task for task in waiting if task in first]
            assert picked == waiting[: len(picked)]  # nobody was passed over
            over = [task for task in mine if task.expired(now)]
            buried = [
                task for task in over if task.id not in stored or known(stored[task.id]) != task
            ]
            assert buried in ([], over)
            assert buried == over or not (picked or all_shards)
            gone += buried
        for task in gone:
            self.model.expire(task, now)

    def _reclaimed_on_the_way(self, lapsed: list[Known], now: datetime) -> list[Known]:
        """Too little was ready, so lapsed leases were taken back; some of the tasks wait no more.

        A lease that a heartbeat has moved, or its group's, may be trusted for a while.
        """
        stored = self.world.store.read([task.id for task in lapsed])
        ready = []
        for task in sorted(lapsed, key=lambda task: (task.shard, task.at, task.id)):
            there = stored.get(task.id)
            if self.model.prolonged(task) and there is not None and there.version == task.version:
                continue
            self.model.reclaim(task, now)
            if task.state == "ENQUEUED" and task.due <= now:
                ready.append(task)
        return ready

    def _delivered(
        self, task: Known, got: Task, now: datetime, keepalive: float | None, group: Group | None
    ) -> None:
        assert task.due <= now
        assert task.expires is None or task.expires > now
        lease = cast("str", got.lease_id)
        assert all(lease not in delivery.lease for delivery in self.deliveries)
        assert lease.startswith(f"{group.id}:" if group else "lse_")
        self.model.deliver(task, lease, "ada", now, keepalive, group)
        name = lease_name(got)
        if group is not None:
            assert (name == group.id) is task.first
        self.deliveries.append(Delivery(task.id, task.queue, name, lease))

    @precondition(lambda self: self.deliveries)
    @rule(say=says)
    def report_one(self, say: Say) -> None:
        self.report([say])

    @precondition(lambda self: self.deliveries)
    @rule(answers=st.lists(says, min_size=1, max_size=3))
    def report(self, answers: list[Say]) -> None:
        now = self.now()
        first = self._chosen(answers[0], self.deliveries)
        here = [delivery for delivery in self.deliveries if delivery.queue == first.queue]
        chosen = [first, *(self._chosen(say, here) for say in answers[1:])]
        path = chosen[0].queue
        if answers[0].elsewhere:
            path = next(name for name in self.model.queues if name != path)
        leases = [self._lease(say, of) for say, of in zip(answers, chosen, strict=True)]
        reports = [
            self._report(say, of, lease)
            for say, of, lease in zip(answers, chosen, leases, strict=True)
        ]

        results = self.world.use.reports.report(path, reports)

        for say, of, lease, result in zip(answers, chosen, leases, results, strict=True):
            before = self.model.tasks.get(of.task_id)
            expected = self._expected(say, of, path, lease, now)
            assert result.outcome is expected, (say, before, result)

    def _chosen(self, say: Say, deliveries: list[Delivery]) -> Delivery:
        """Return the delivery that is meant: of those that go on, if it says so, or of all."""
        live = [delivery for delivery in deliveries if self._goes_on(delivery)] if say.live else []
        return (live or deliveries)[say.delivery % len(live or deliveries)]

    def _goes_on(self, delivery: Delivery) -> bool:
        task = self.model.tasks.get(delivery.task_id)
        return task is not None and task.answers_to(delivery.lease.partition(".")[0])

    def _lease(self, say: Say, of: Delivery) -> str:
        match say.lease:
            case "foreign":
                return self.deliveries[say.delivery % len(self.deliveries)].lease
            case "forged":
                return "lse_forged." + (of.lease.partition(".")[2] or "1.")
            case "nonsense":
                secret, dot, _ = of.lease.partition(".")
                return secret if dot else secret[:-1]
            case _:
                return of.lease

    @staticmethod
    def _report(say: Say, of: Delivery, lease: str) -> TaskReport:
        fields: dict[str, Any] = {}
        match say.status:
            case "SUCCEEDED":
                fields = {"result": say.text}
            case "INFLIGHT":
                fields = {"progress": say.text, "keepalive": say.keepalive}
            case "FAILED":
                error = WorkerError(message=say.text or "")
                fields = {"error": error, "retryable": say.retryable}
                fields["delay_in_seconds"] = say.delay
            case "RELEASED":
                fields = {"delay_in_seconds": say.delay}
            case _:
                fields = {"delay_in_seconds": say.delay, "payload": say.text}
                fields["to_queue"] = say.target
        return TaskReport(of.task_id, lease, ReportStatus(say.status), **fields)

    def _expected(
        self, say: Say, of: Delivery, path: str, lease: str, now: datetime
    ) -> ReportOutcome:
        """Carry out the report on the model and return what its outcome should be."""
        task = self.model.tasks.get(of.task_id)
        secret = lease.partition(".")[0]
        if say.lease != "nonsense":
            if say.status == "MOVED" and say.target == "nowhere":
                return ReportOutcome.INVALID
            if task is not None and task.queue == path and task.answers_to(secret):
                late = say.lease == "held" and task.lease != of.token
                assert not late, "a late report would hit a newer delivery"
                task.named = secret
                self._take_effect(say, task, now)
                task.named = None
                if say.status != "INFLIGHT":
                    self.settling[of.task_id] = _said(say)
                return ReportOutcome.OK
            if (again := self._expected_again(say, task, path, secret, now)) is not None:
                return again
        if task is None or task.queue != path or task.hidden(now):
            return ReportOutcome.NOT_FOUND
        if task.state != "INFLIGHT":
            return ReportOutcome.NOT_INFLIGHT
        return ReportOutcome.STALE_LEASE

    def _expected_again(
        self, say: Say, task: Known | None, path: str, secret: str, now: datetime
    ) -> ReportOutcome | None:
        """Return the outcome of a report on a lease that a report has settled; None for others."""
        if task is None or say.status == "INFLIGHT" or task.group == secret:
            return None
        if task.settled is None or task.settled[0] != secret:
            return None
        status = task.settled[1]
        if task.queue != path and say.status != "MOVED":
            return None
        if status == VERBS[say.status] and self.settling.get(task.id) == _said(say):
            return ReportOutcome.OK
        if task.hidden(now) or (task.queue != path and status != "move"):
            return None
        return ReportOutcome.STALE_LEASE

    def _take_effect(self, say: Say, task: Known, now: datetime) -> None:
        match say.status:
            case "SUCCEEDED":
                self.model.succeed(task, now, say.text)
            case "INFLIGHT":
                self.model.heartbeat(task, now, say.keepalive, say.text)
            case "FAILED":
                self.model.fail(
                    task, "fail", now, say.text or "", retryable=say.retryable, delay=say.delay
                )
            case "RELEASED":
                self.model.release(task, now, say.delay)
            case _:
                self.model.move(task, say.target, now, say.delay, say.text)


def _said(say: Say) -> tuple[str | None, ...]:
    """Return what makes two reports of one status equal: the result, the error and the target."""
    told = say.text if say.status in {"SUCCEEDED", "FAILED"} else None
    if say.status == "FAILED":
        told = told or ""
    return (told, say.target if say.status == "MOVED" else None)


def _turn(task: Task) -> tuple[datetime, str]:
    return (task.due_at, task.id)
