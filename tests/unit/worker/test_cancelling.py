"""A worker whose task is cancelled: its handler is stopped, and nothing is reported."""

import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from headrace import App, Cancelled, Client, Context, Worker
from headrace.client.worker.inflight import Interruption
from headrace.client.worker.run import ThreadAttempt
from headrace.domain.task import State
from infra.launch import launched
from tests.unit.worker.worker_harness import BLOCK, SOON, WorkerHarness
from tests.waiting import until


def test_a_handler_whose_task_is_cancelled_is_stopped_by_the_next_heartbeat(
    harness: WorkerHarness,
) -> None:
    seen: list[tuple[bool, bool]] = []

    def handler(ctx: Context) -> None:
        seen.append((ctx.cancelled, ctx.lost))
        try:
            harness.wait()
        except Cancelled:
            seen.append((ctx.cancelled, ctx.lost))
            with pytest.raises(Cancelled, match=f"task {ctx.id} was cancelled"):
                ctx.check()
            raise

    harness.handle(handler)
    (task,) = harness.put(1)
    harness.start(lease_seconds=1)
    harness.wait_begun()

    harness.client.cancel_task(task)
    until(lambda: "ended: CANCELLED" in harness.noting.all)

    assert seen == [(False, False), (True, True)]
    assert f"cancelled: {task}" in harness.noting.all


@pytest.mark.parametrize("place", ["file", "http"])
def test_on_one_machine_a_cancel_reaches_the_handler_within_two_seconds(
    place: str, tmp_path: Path
) -> None:
    with ExitStack() as services:
        if place == "http":
            service = services.enter_context(launched())
            client = Client(service.url, service.admin_key)
        else:
            client = Client(f"file:{tmp_path}/queue.db")
        services.callback(client.close)
        client.create_queue("mail", keepalive_timeout_in_seconds=3600)
        app, begun, ended = App(client), Event(), Event()

        @app.handler(queue="mail")
        def wait(payload: Any) -> None:
            begun.set()
            try:
                while True:
                    time.sleep(BLOCK)
            except Cancelled:
                ended.set()
                raise

        task = client.enqueue("mail")
        worker = Worker(app)
        thread = Thread(target=worker.run)
        thread.start()
        try:
            assert begun.wait(SOON)
            until(lambda: list(client.list_workers()))

            client.cancel_task(str(task.id))
            cancelled_at = time.monotonic()

            assert ended.wait(SOON)
            assert time.monotonic() - cancelled_at < 2
        finally:
            worker.stop()
            worker.stop()
            thread.join(SOON)


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
    (task,) = harness.put(1)
    harness.start(lease_seconds=1)
    harness.wait_begun()

    harness.client.cancel_task(task)
    until(lambda: "ended: CANCELLED" in harness.noting.all)
    harness.go_on.set()
    harness.wait_for(*harness.put(2))

    found = harness.client.get_task(task)
    assert (found.state, found.dead_reason, found.errors) == (State.DEAD, "cancelled", [])


def test_a_task_that_was_cancelled_before_its_turn_never_begins(harness: WorkerHarness) -> None:
    ran: list[Any] = []

    def handler(payload: Any) -> None:
        ran.append(payload)
        harness.wait()

    harness.handle(handler)
    first, second = harness.put("first", "second")
    harness.start(concurrency=1, prefetch=1, lease_seconds=1)
    harness.wait_begun()
    until(lambda: harness.client.count_tasks("mail").by_state[State.INFLIGHT] == 2)
    waiting = second if ran == ["first"] else first

    harness.client.cancel_task(waiting)
    until(lambda: f"cancelled: {waiting}" in harness.noting.all)
    harness.go_on.set()
    harness.wait_for(first if waiting == second else second)

    assert len(ran) == 1


def test_a_worker_that_stops_does_not_release_a_cancelled_task(harness: WorkerHarness) -> None:
    def deaf(payload: Any) -> None:
        harness.begun.release()
        while not harness.go_on.is_set():
            with suppress(BaseException):
                harness.go_on.wait(BLOCK)

    harness.handle(deaf)
    (task,) = harness.put(1)
    harness.start(shutdown_timeout=0, lease_seconds=1)
    harness.wait_begun()
    harness.client.cancel_task(task)
    until(lambda: f"cancelled: {task}" in harness.noting.all)

    harness.stop()

    assert harness.client.get_task(task).dead_reason == "cancelled"


def test_a_thread_under_a_profiler_runs_after_an_interruption() -> None:
    attempt = ThreadAttempt()
    with pytest.raises(Cancelled):
        attempt.interrupt(Interruption.CANCELLED)
    attempt.ended()

    threading.setprofile(lambda *_: None)
    try:
        thread = Thread(target=time.sleep, args=[0], daemon=True)
        thread.start()
    finally:
        threading.setprofile(None)
    thread.join(SOON)

    assert not thread.is_alive()
