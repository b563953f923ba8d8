"""A worker whose task is cancelled: its handler is stopped, and nothing is said of it."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from headrace import Cancelled, Context, LeaseLost, Observer
from headrace.client.app.execution import TaskRoute
from headrace.client.worker.inflight import Interruption
from headrace.client.worker.worker import Worker
from headrace.wire.tasks import LeasedTask
from tests.unit.worker.test_life import BLOCK, WorkerHarness, wait_until


class Noting(Observer):
    """Notes what a worker tells of the ends of its tasks."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def ended(self, task: LeasedTask, route: TaskRoute, outcome: str, seconds: float) -> None:
        self.all.append(outcome)

    def lost(self, task: LeasedTask, why: str) -> None:
        self.all.append(f"lost: {why}")

    def cancelled(self, task: LeasedTask) -> None:
        self.all.append(f"cancelled: {task.id}")


@pytest.fixture
def harness() -> Iterator[WorkerHarness]:
    harness = WorkerHarness()
    yield harness
    harness.go_on.set()
    if harness.worker is not None:
        harness.worker.stop()
        harness.ends()


def cancel(harness: WorkerHarness, worker: Worker, *task_ids: str) -> None:
    """Cancel tasks, and let a heartbeat be due."""
    harness.service.cancel(*task_ids)
    for task in worker.inflight.all():
        task.beaten_at = -1e9
    worker.threads["heartbeats"].wake()


def test_a_handler_in_a_thread_is_thrown_cancelled(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    seen: list[tuple[bool, bool]] = []
    raised: list[type[LeaseLost]] = []
    noting = Noting()

    def handler(ctx: Context) -> None:
        seen.append((ctx.cancelled, ctx.lost))
        try:
            harness.wait()
        except LeaseLost as error:
            raised.append(type(error))
            seen.append((ctx.cancelled, ctx.lost))
            raise

    harness.handle(handler)
    (task,) = harness.service.put(1)
    worker = harness.start(observers=[noting])
    harness.wait_begun()

    cancel(harness, worker, task)
    wait_until(lambda: not worker.inflight)
    wait_until(lambda: len(noting.all) == 2)

    assert seen == [(False, False), (True, True)]
    assert raised == [Cancelled]
    assert harness.service.done == {}
    assert sorted(noting.all) == ["CANCELLED", f"cancelled: {task}"]
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert "A task was cancelled" in caplog.messages


def test_an_async_handler_is_cancelled_with_the_reason(harness: WorkerHarness) -> None:
    harness.handle_waiting("async")
    (task,) = harness.service.put(1)
    worker = harness.start()
    harness.wait_begun()

    cancel(harness, worker, task)
    wait_until(lambda: not worker.inflight)

    (error,) = harness.caught
    assert isinstance(error, asyncio.CancelledError)
    assert isinstance(error.args[0], Cancelled)
    assert harness.service.done == {}


@pytest.mark.parametrize("way", ["returns", "raises"])
def test_nothing_is_reported_however_the_handler_ends_then(
    harness: WorkerHarness, way: str
) -> None:
    def handler(ctx: Context) -> str:
        try:
            harness.wait()
        except Cancelled:
            if way == "raises":
                raise ValueError("while it was undone") from None
        return "undone"

    harness.handle(handler)
    (task,) = harness.service.put(1)
    worker = harness.start()
    harness.wait_begun()

    cancel(harness, worker, task)
    wait_until(lambda: not worker.inflight)
    (other,) = harness.service.put(2)
    harness.go_on.set()
    harness.service.wait_for(other)

    assert harness.service.statuses() == {other: "SUCCEEDED"}


def test_what_was_cancelled_before_its_turn_never_begins(harness: WorkerHarness) -> None:
    ran: list[Any] = []

    def handler(payload: Any) -> None:
        ran.append(payload)
        harness.wait()

    harness.handle(handler)
    first, second = harness.service.put("first", "second")
    noting = Noting()
    worker = harness.start(concurrency=1, prefetch=1, observers=[noting])
    harness.wait_begun()
    wait_until(lambda: len(worker.inflight) == 2)

    cancel(harness, worker, second)
    wait_until(lambda: len(worker.inflight) == 1)
    harness.go_on.set()
    harness.service.wait_for(first)

    assert ran == ["first"]
    assert noting.all[0] == f"cancelled: {second}"


def test_check_says_which_it_is(harness: WorkerHarness) -> None:
    raised = threading.Event()

    def handler(ctx: Context) -> None:
        harness.begun.release()
        while not ctx.cancelled:
            try:
                harness.go_on.wait(BLOCK)
            except Cancelled:
                break
        with pytest.raises(Cancelled, match=f"task {ctx.id} was cancelled"):
            ctx.check()
        raised.set()

    harness.handle(handler)
    (task,) = harness.service.put(1)
    worker = harness.start()
    harness.wait_begun()

    cancel(harness, worker, task)

    wait_until(raised.is_set)


def test_a_result_that_comes_before_the_heartbeat_is_no_error(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    harness.handle(lambda payload: harness.wait())
    (task,) = harness.service.put(1)
    noting = Noting()
    harness.start(observers=[noting])
    harness.wait_begun()

    harness.service.cancel(task)
    harness.go_on.set()

    wait_until(lambda: len(noting.all) == 2)
    assert sorted(noting.all) == ["SUCCEEDED", f"cancelled: {task}"]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_a_worker_that_stops_does_not_say_that_it_releases_what_was_cancelled(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def deaf(payload: Any) -> None:
        harness.begun.release()
        while not harness.go_on.is_set():
            with suppress(BaseException):
                harness.go_on.wait(BLOCK)

    harness.handle(deaf)
    (task,) = harness.service.put(1)
    worker = harness.start(shutdown_timeout=0)
    harness.wait_begun()
    cancel(harness, worker, task)
    wait_until(lambda: all(held.cancelled for held in worker.inflight.all()))

    worker.stop()
    harness.ends()

    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["It does not end, and was cancelled"]
    assert harness.service.done == {}


def test_nor_what_has_lost_its_lease(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def deaf(payload: Any) -> None:
        harness.begun.release()
        while not harness.go_on.is_set():
            with suppress(BaseException):
                harness.go_on.wait(BLOCK)

    harness.handle(deaf)
    harness.service.put(1)
    worker = harness.start(shutdown_timeout=0)
    harness.wait_begun()
    for held in worker.inflight.all():
        held.interrupt(Interruption.LEASE_LOST)

    worker.stop()
    harness.ends()

    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["It does not end, and lost its lease before"]
    assert harness.service.done == {}
