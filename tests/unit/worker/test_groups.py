"""All tasks of a worker under one lease: one call extends it, and what becomes of it, of them.

Long, because each way in which a lease ends is told on the one service that is laid out here.
"""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headrace.client.app.app import App
from headrace.client.app.execution import TaskRoute
from headrace.client.app.outcomes import Stopped
from headrace.client.calls.work import ExtendedLease
from headrace.client.sending import Failure, Report
from headrace.client.worker.groups import GroupLease, GroupsInUse, OpenGroups
from headrace.client.worker.heartbeats import Heartbeats
from headrace.client.worker.inflight import InflightTask, InflightTasks
from headrace.client.worker.service import failure_instead, send_each
from headrace.client.worker.worker import Worker
from headrace.domain.errors import FieldError, InvalidRequest, Unavailable
from headrace.domain.task import State
from headrace.testing import MemoryService
from tests.unit.worker.worker_harness import (
    SOON,
    START,
    FakeService,
    Losses,
    Monotonic,
    Noted,
    dice,
    heard,
    leased,
)

LENGTH = 60.0


class GroupHarness:
    """A service in memory, a clock moved by hand, and what a worker's threads do, step by step."""

    def __init__(self) -> None:
        self.monotonic = Monotonic()
        self.service = FakeService(self.monotonic)
        self.clock = heard(self.monotonic)
        self.inflight = InflightTasks()
        self.lost = Losses()
        self.cancelled: list[str] = []
        self.unreported: set[GroupLease] = set()
        self.groups = OpenGroups(
            self.service,
            self.monotonic,
            keepalive=None,
        )
        self.heartbeats = Heartbeats(self.service, self.clock, keepalive=7, chance=dice())
        self._number = 0

    def current(self) -> GroupLease:
        """The group that tasks are put under now."""
        return self.groups.current(GroupsInUse(self.inflight.groups(), self.unreported))

    @property
    def calls(self) -> list[str]:
        """What was asked about groups since this was last looked at."""
        calls, self.service.group_calls = self.service.group_calls, []
        return calls

    def hold(self, group: GroupLease, *, queue: str = "mail") -> InflightTask:
        self._number += 1
        task = leased(self._number, queue=queue)
        held = InflightTask(
            task,
            TaskRoute("sync", "mail.send"),
            now=self.monotonic(),
            lease_ends=group.lease_ends,
            group=group,
        )
        self.service.leases[task.id] = group.id
        self.inflight.add(held)
        assert held.begin(Noted(), self.monotonic())
        return held

    def after(self, seconds: float) -> None:
        self.monotonic.forward(seconds)
        for task, why, cancelled in self.heartbeats.beat(self.inflight.all()):
            if cancelled:
                task.cancel(self.monotonic())
                self.cancelled.append(task.task.id)
            else:
                self.lost(task, why)


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness()


# ------------------------------------------------------------------------------------- heartbeats


def test_one_call_extends_the_lease_of_all_tasks_of_all_queues(harness: GroupHarness) -> None:
    group = harness.current()
    tasks = [harness.hold(group, queue=queue) for queue in ("mail", "news") for _ in range(100)]
    harness.after(LENGTH / 3 - 0.1)
    assert harness.calls == [f"open {group.id}"]

    harness.after(0.2)

    assert harness.calls == [f"extend {group.id}"]
    assert harness.service.calls == []
    assert {held.lease_ends for held in tasks} == {harness.monotonic() + LENGTH}
    assert {held.lease_expires_at for held in tasks} == {START + timedelta(seconds=20.1 + LENGTH)}
    harness.after(LENGTH / 3 - 0.1)
    assert harness.calls == []


def test_a_group_that_holds_nothing_is_not_extended(harness: GroupHarness) -> None:
    group = harness.current()
    held = harness.hold(group)
    held.end()
    harness.inflight.remove(held)

    harness.after(LENGTH - 1)

    assert harness.calls == [f"open {group.id}"]


def test_progress_goes_with_the_extension_and_only_where_there_is_some(
    harness: GroupHarness,
) -> None:
    group = harness.current()
    tasks = [harness.hold(group) for _ in range(30)]
    tasks[3].progress({"done": 1})

    harness.after(LENGTH / 3 + 0.1)

    [(queue, [report])] = harness.service.calls
    assert (queue, report.task_id, report.lease_id) == ("mail", tasks[3].task.id, "lease-4")
    assert (report.progress, report.keepalive_timeout_in_seconds) == ({"done": 1}, None)


def test_what_an_extension_lists_as_cancelled_is_asked_about_and_let_go(
    harness: GroupHarness,
) -> None:
    group = harness.current()
    tasks = [harness.hold(group) for _ in range(3)]
    harness.service.cancel(tasks[1].task.id)

    harness.after(LENGTH / 3 + 0.1)
    harness.after(LENGTH / 3 + 0.1)

    assert harness.cancelled == [tasks[1].task.id]
    assert [held.lost for held in tasks] == [False, True, False]
    assert not harness.lost.all
    [(_, [report])] = harness.service.calls
    assert report.task_id == tasks[1].task.id


def test_one_that_was_restarted_since_and_is_listed_still_goes_on(harness: GroupHarness) -> None:
    class Listing(FakeService):
        def extend_lease(self, id: str, *, within: float) -> ExtendedLease:
            lease = super().extend_lease(id, within=within)
            return msgspec.structs.replace(lease, cancelled=["task-1"])

    harness.service = Listing(harness.monotonic)
    harness.heartbeats = Heartbeats(harness.service, harness.clock, keepalive=7, chance=dice())
    harness.groups = OpenGroups(harness.service, harness.monotonic, keepalive=None)
    held = harness.hold(harness.current())
    harness.service.lease(held)

    harness.after(LENGTH / 3 + 0.1)

    assert (harness.cancelled, held.lost) == ([], False)


def test_an_extension_without_an_answer_is_tried_again_while_there_is_time(
    harness: GroupHarness,
) -> None:
    group = harness.current()
    held = harness.hold(group)
    harness.service.fault = Unavailable("away")
    harness.after(LENGTH / 3 + 0.1)
    assert harness.service.within == pytest.approx((LENGTH * 2 / 3) / 2, abs=0.1)
    ends = held.lease_ends

    harness.service.fault = None
    for _ in range(20):
        harness.after(0.1)

    assert harness.calls.count(f"extend {group.id}") == 2
    assert held.lease_ends > ends
    assert not harness.lost.all


def test_when_the_lease_is_lost_all_its_tasks_are_told_and_no_other(harness: GroupHarness) -> None:
    group = harness.current()
    tasks = [harness.hold(group) for _ in range(3)]
    harness.service.groups.clear()

    harness.after(LENGTH / 3 + 0.1)
    other = harness.current()
    alone = harness.hold(other)
    harness.after(1)

    assert [task for task, _ in harness.lost.all] == [held.task.id for held in tasks]
    assert {why for _, why in harness.lost.all} == {"the lease of all tasks is lost"}
    assert all(held.lost for held in tasks)
    assert not alone.lost
    assert other.id != group.id
    assert harness.calls == [f"open {group.id}", f"extend {group.id}", f"open {other.id}"]


def test_what_a_late_answer_brings_under_a_lost_lease_is_told_too(harness: GroupHarness) -> None:
    group = harness.current()
    group.lost = True
    held = harness.hold(group)

    harness.after(0)

    assert held.lost


# ------------------------------------------------------------------------ which group comes next


def test_a_group_is_used_while_it_lasts_and_a_busy_one_past_its_first_end(
    harness: GroupHarness,
) -> None:
    group = harness.current()
    harness.hold(group)
    for _ in range(20):
        harness.after(10)
        assert harness.current() is group

    assert harness.calls.count(f"open {group.id}") == 1


def test_an_idle_group_is_replaced_before_it_ends_without_being_closed(
    harness: GroupHarness,
) -> None:
    first = harness.current()
    harness.after(LENGTH * 2 / 3 - 1)
    assert harness.current() is first
    harness.after(2)

    second = harness.current()

    assert second is not first
    assert harness.calls == [f"open {first.id}", f"open {second.id}"]


def test_a_group_that_is_empty_past_its_first_end_is_replaced(harness: GroupHarness) -> None:
    first = harness.current()
    held = harness.hold(first)
    for _ in range(7):
        harness.after(10)
    held.end()
    harness.inflight.remove(held)

    assert first.lease_ends - harness.monotonic() > LENGTH / 3
    assert harness.current() is not first


def test_a_group_in_doubt_takes_no_more_and_is_closed_when_all_of_it_is_settled(
    harness: GroupHarness,
) -> None:
    first = harness.current()
    held = harness.hold(first)
    first.doubtful = True
    second = harness.current()
    harness.after(LENGTH / 3 + 0.1)
    assert harness.current() is second
    assert harness.calls == [f"open {first.id}", f"open {second.id}", f"extend {first.id}"]

    harness.unreported.add(first)  # the report is not answered yet
    held.end()
    harness.inflight.remove(held)
    assert harness.current() is second
    assert harness.calls == []
    harness.unreported.clear()
    assert harness.current() is second

    assert harness.calls == [f"close {first.id}"]
    assert harness.current() is second
    assert harness.calls == []


def test_at_the_end_every_open_group_is_closed_and_a_failure_costs_nothing(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    first = harness.current()
    harness.hold(first)
    first.doubtful = True
    second = harness.current()
    harness.hold(second)
    second.lost = True
    third = harness.current()
    harness.service.groups.pop(third.id)
    harness.service.group_calls.clear()

    harness.groups.close()
    harness.groups.close()

    assert harness.calls == [f"close {first.id}", f"close {third.id}"]
    harness.current()
    harness.service.fault = Unavailable("away")
    harness.groups.close()
    assert "could not be closed, and ends by itself" in caplog.text


# -------------------------------------------------------------------------------------- sending


def test_a_bad_report_under_a_group_costs_no_other_report_of_that_group(
    harness: GroupHarness,
) -> None:
    class Picky(FakeService):
        def report(self, queue: str, reports: Any, *, within: float) -> Any:
            for place, report in enumerate(reports):
                if report.result == "bad":
                    wrong = FieldError(f"reports[{place}].result", "no")
                    raise InvalidRequest("no", errors=[wrong])
            return super().report(queue, reports, within=within)

    service = Picky(harness.monotonic)
    service.groups["g"] = LENGTH
    service.leases.update({"t1": "g", "t2": "g", "t3": "g"})
    reports = [
        Report(task_id=task, lease_id="g", status="SUCCEEDED", result=result)
        for task, result in (("t1", "bad"), ("t2", "fine"), ("t3", "bad"))
    ]

    results = send_each(service, "mail", reports, failure_instead, within=1)

    assert [result and result.outcome for result in results] == ["OK", "OK", "OK"]
    assert service.statuses() == {"t1": "FAILED", "t2": "SUCCEEDED", "t3": "FAILED"}


# --------------------------------------------------------------------- taking, step by step


class Stepped:
    """A worker whose steps are taken by hand, on a real service in memory, whose clock it has."""

    def __init__(self, service: MemoryService) -> None:
        self.service = service
        self.app, self.go_on = App(), threading.Event()
        self.app.handler(queue="mail")(lambda _payload: self.go_on.wait(SOON))
        self.worker = Worker(
            self.app,
            client=service.client,
            queues=["mail"],
            group_lease=True,
            name="w",
            monotonic=self.monotonic,
            chance=dice(),
        )
        assert self.fetch() == 0

    def monotonic(self) -> float:
        return self.service.clock.now.timestamp()

    @property
    def held(self) -> list[InflightTask]:
        return self.worker.inflight.all()

    def fetch(self) -> float:
        """Take the step that asks for tasks; return the seconds until the next."""
        return self.worker.threads["fetching"].step() or 0.0

    def beat(self) -> None:
        self.worker.threads["heartbeats"].step()

    def after(self, seconds: float) -> None:
        self.service.clock.forward(seconds)
        self.beat()

    def finish(self) -> None:
        """Let the handlers end, and what they say be said."""
        self.go_on.set()
        wait_until(lambda: not self.worker.inflight)
        self.worker.threads["reports"].step()


@pytest.fixture
def fetching() -> Iterator[Stepped]:
    with MemoryService(seed=1) as service:
        service.client.create_queue("mail")
        fetching = Stepped(service)
        yield fetching
        fetching.go_on.set()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


def enqueue(fetching: Stepped, count: int) -> list[str]:
    return [str(fetching.service.client.enqueue("mail", n).id) for n in range(count)]


def test_tasks_of_several_dequeues_live_on_one_lease(fetching: Stepped) -> None:
    ids = [*enqueue(fetching, 2)]
    fetching.fetch()
    ids += enqueue(fetching, 2)
    fetching.fetch()
    for _ in range(12):
        fetching.after(10)
    fetching.service.tick()

    client = fetching.service.client
    tasks = [client.get_task(task_id) for task_id in ids]
    assert {task.state for task in tasks} == {State.INFLIGHT}
    assert len({task.lease_expires_at for task in tasks}) == 1
    assert len({held.task.lease.id for held in fetching.held}) == 1
    assert len(fetching.held) == 4


def test_a_lapsed_lease_is_found_by_the_next_dequeue_and_another_opened(fetching: Stepped) -> None:
    enqueue(fetching, 1)
    fetching.fetch()
    [old] = fetching.held
    fetching.service.clock.forward(LENGTH - 1)
    assert old.group is not None
    old.group.extended(fetching.monotonic())  # as if it had been extended
    fetching.service.clock.forward(2)
    fetching.service.tick()
    [task_id] = enqueue(fetching, 1)

    assert fetching.fetch() > 0
    fetching.fetch()
    fetching.beat()

    assert old.lost
    [new] = [held for held in fetching.held if not held.lost]
    assert (new.task.id, new.lost) == (task_id, False)
    assert new.group is not old.group


def test_what_a_lost_answer_leased_comes_back_without_an_attempt_used(fetching: Stepped) -> None:
    service = fetching.service
    [first] = enqueue(fetching, 1)
    fetching.fetch()
    [orphan] = enqueue(fetching, 1)
    with service.faults.lose_answers(times=1, of="dequeue"):
        fetching.fetch()
    assert service.client.get_task(orphan).state is State.INFLIGHT
    [held] = fetching.held
    assert held.task.id == first

    fetching.fetch()
    fetching.finish()
    fetching.after(1)
    fetching.fetch()  # closes the old one, and takes what that gave back
    fetching.finish()

    tasks = [service.client.get_task(task_id) for task_id in (first, orphan)]
    assert [(task.state, task.attempts) for task in tasks] == [(State.SUCCEEDED, 1)] * 2


# --------------------------------------------------------------------------------- whole workers


def test_a_worker_settles_everything_under_its_lease_and_closes_it() -> None:
    app, service = App(), FakeService(time.monotonic)
    app.handler(queue="mail")(lambda _payload: None)
    ids = service.put(*range(60))

    Worker(app, service=service, queues=["mail"], group_lease=True).run(burst=True)

    assert service.statuses() == dict.fromkeys(ids, "SUCCEEDED")
    [opened, closed] = service.group_calls
    assert opened.startswith("open ")
    assert closed == opened.replace("open", "close")
    leases = {report.lease_id for _, batch in service.calls for report in batch}
    assert leases == {opened.split()[1]}


def test_a_worker_that_is_stopped_leaves_nothing_in_flight() -> None:
    begun, stopped = threading.Event(), threading.Event()
    with MemoryService(seed=3) as service:
        service.client.create_queue("mail")
        ids = [str(service.client.enqueue("mail", n).id) for n in range(20)]
        app = App()

        @app.handler(queue="mail")
        def wait(_task: Any) -> None:
            begun.set()
            try:
                while not stopped.wait(0.002):
                    pass
            except Stopped:
                stopped.set()
                raise

        worker = Worker(
            app,
            client=service.client,
            queues=["mail"],
            group_lease=True,
            concurrency=2,
            shutdown_timeout=0,
            monotonic=time.monotonic,
        )
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert begun.wait(SOON)
        wait_until(lambda: len(worker.inflight) > 1)
        worker.stop()
        thread.join(SOON)

        tasks = [service.client.get_task(task_id) for task_id in ids]
        assert {(task.state, task.attempts) for task in tasks} == {(State.ENQUEUED, 0)}


def test_without_the_option_no_group_is_opened() -> None:
    app, service = App(), FakeService(time.monotonic)
    app.handler(queue="mail")(lambda _task: None)
    service.put(1)

    Worker(app, service=service, queues=["mail"]).run(burst=True)

    assert service.group_calls == []


def test_a_failure_of_one_task_leaves_the_others_under_the_lease(fetching: Stepped) -> None:
    ids = enqueue(fetching, 3)
    fetching.fetch()
    first, *others = fetching.held
    failed = Report(
        task_id=first.task.id,
        lease_id=first.task.lease.id,
        status="FAILED",
        error=Failure("E", "no"),
    )

    assert fetching.service.client.report("mail", [failed])[0].outcome == "OK"
    fetching.after(LENGTH / 3 + 1)

    states = [fetching.service.client.get_task(task_id).state for task_id in ids]
    assert sorted(states) == [State.ENQUEUED, State.INFLIGHT, State.INFLIGHT]
    assert not any(held.lost for held in others)
