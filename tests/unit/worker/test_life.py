"""A whole worker: running handlers, stopping, and what goes wrong inside the process."""

import asyncio
import contextlib
import ctypes
import logging
import sys
from typing import Any

import httpx2 as httpx
import pytest

from headrace import SoftTimeLimit
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.task import State
from tests.unit.worker.worker_harness import SOON, RecordWrite, WorkerHarness
from tests.waiting import until

# ------------------------------------------------------------------------------------- running


def test_no_more_tasks_are_taken_than_concurrency_and_prefetch_allow(
    harness: WorkerHarness,
) -> None:
    harness.handle_waiting()
    harness.put(*range(12))
    harness.start(concurrency=3, prefetch=4)
    harness.wait_begun(3)

    until(lambda: harness.client.count_tasks("mail").by_state[State.INFLIGHT] == 7)
    assert not harness.begun.acquire(timeout=0.1)
    assert harness.client.count_tasks("mail").by_state[State.INFLIGHT] == 7


def test_an_async_handler_that_would_end_the_program_ends_only_itself(
    harness: WorkerHarness,
) -> None:
    async def leave() -> None:
        sys.exit("this is no program")

    async def handler(payload: Any) -> str:
        if payload == "leave":
            await asyncio.gather(leave())
        return "done"

    harness.handle(handler)
    leaving, staying = harness.put("leave", "stay")
    harness.start()
    harness.wait_for(staying, *harness.put("later"))

    assert harness.ending(leaving) == "SystemExit"


def test_the_hard_limit_ends_a_handler_that_catches_exceptions(harness: WorkerHarness) -> None:
    def stubborn(payload: Any) -> None:
        while True:
            try:
                harness.wait()
                return
            except Exception:  # noqa: BLE001, S110
                pass

    harness.handle(stubborn, soft_timeout=0.05, timeout=0.3)
    (task,) = harness.put(1)
    harness.start()

    until(lambda: harness.client.get_task(task).errors)

    assert harness.ending(task) == "TimeLimit"
    assert isinstance(harness.caught[0], SoftTimeLimit)


def test_the_soft_limit_lets_a_handler_tidy_up(harness: WorkerHarness) -> None:
    async def tidy(payload: Any) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await harness.wait_async()
        return "tidied"

    harness.handle(tidy, soft_timeout=0.05, timeout=60)
    (task,) = harness.put(1)
    harness.start()

    harness.wait_for(task)

    assert harness.client.get_task(task).result == "tidied"


def test_observers_hear_what_happens_and_harm_nothing(harness: WorkerHarness) -> None:
    class Failing(RecordWrite):
        def started(self, task: Any, route: Any) -> None:
            super().started(task, route)
            raise RuntimeError("a fault of the observer")

    failing = Failing()
    harness.handle(lambda payload: None)
    (task,) = harness.put(1)

    harness.burst(observers=[failing])

    assert failing.all == ["taken: 1 of mail", f"started: {task}", "ended: SUCCEEDED"]
    assert harness.ending(task) == State.SUCCEEDED


# ------------------------------------------------------------------------------------- stopping


def test_stopping_lets_handlers_finish_and_releases_what_waits(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    ids = harness.put(*range(4))
    worker = harness.start(concurrency=1, prefetch=3)
    harness.wait_begun()
    until(lambda: harness.client.count_tasks("mail").by_state[State.INFLIGHT] == 4)

    worker.stop()
    until(lambda: harness.client.count_tasks("mail").by_state[State.ENQUEUED] == 3)
    harness.go_on.set()
    harness.ends()

    endings = sorted(harness.ending(task) for task in ids)
    assert endings == ["RELEASED", "RELEASED", "RELEASED", "SUCCEEDED"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_that_does_not_finish_in_time_is_interrupted_and_its_task_released(
    harness: WorkerHarness, kind: str
) -> None:
    harness.handle_waiting(kind)
    ids = harness.put(1, 2)
    harness.start(concurrency=2, shutdown_timeout=0.1)
    harness.wait_begun(2)

    harness.stop()

    assert [harness.ending(task) for task in ids] == ["RELEASED"] * 2
    assert len(harness.caught) == 2


def test_a_second_stop_does_not_wait(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    (task,) = harness.put(1)
    worker = harness.start(shutdown_timeout=3600)
    harness.wait_begun()

    worker.stop()
    harness.stop()

    assert harness.ending(task) == "RELEASED"


def test_a_handler_that_no_exception_reaches_is_released_all_the_same(
    harness: WorkerHarness,
) -> None:
    def deaf(payload: Any) -> None:
        harness.begun.release()
        harness.go_on.wait(SOON)  # one call into C

    harness.handle(deaf)
    (task,) = harness.put(1)
    harness.start(shutdown_timeout=0)
    harness.wait_begun()

    harness.stop()

    assert harness.ending(task) == "RELEASED"


def test_stopping_at_any_moment_loses_no_task_and_no_attempt(harness: WorkerHarness) -> None:
    harness.handle(lambda payload: sum(range(20_000)))
    ids = harness.put(*range(200))

    for _ in range(10):
        harness.start(concurrency=4, shutdown_timeout=0)
        until(lambda: any(each.startswith("ended") for each in harness.noting.all), every=0.001)
        harness.noting.all.clear()
        harness.stop()

    assert {harness.ending(task) for task in ids} <= {"RELEASED", "SUCCEEDED"}
    harness.burst()
    assert {harness.client.get_task(task).state for task in ids} == {State.SUCCEEDED}
    assert {harness.client.get_task(task).attempts for task in ids} == {1}


def test_an_operator_sees_a_worker_until_it_ends(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    harness.start(name="host-1:4711", version="1.2", concurrency=7)
    (listed,) = until(lambda: list(harness.client.list_workers()))
    assert (listed.name, listed.queues, listed.concurrency) == ("host-1:4711", ["mail"], 7)
    assert listed.version == "1.2"
    assert listed.running == []

    harness.stop()

    assert list(harness.client.list_workers()) == []  # a worker that ends signs off


# --------------------------------------------------------------------------------------- trouble


def test_a_worker_that_may_take_nothing_ends_at_once_and_says_why(harness: WorkerHarness) -> None:
    viewer = harness.client.create_key("looks", "viewer", ["*"]).secret
    started = list[str]()
    harness.app.on_worker_start(lambda: started.append("worker"))
    for key, queue, kind, words in (
        ("no-such-key", "mail", Unauthenticated, "key"),
        (viewer, "mail", Forbidden, "viewer"),
        (None, "nowhere", NotFound, "headrace queue create nowhere"),
    ):
        harness.raised.clear()
        harness.start(key=key, queues=[queue])
        harness.ends()

        (error,) = harness.raised
        assert type(error) is kind
        assert words in str(error)
        assert (kind is Unauthenticated) == (not started), "an unknown key comes before the hooks"


def test_a_service_that_is_away_at_the_start_is_waited_for(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.handle(lambda payload: None)
    (task,) = harness.put(1)
    harness.cut()
    harness.start(name="ada")
    until(lambda: "service is away; asking again until it is back" in caplog.text)
    assert "takes tasks" not in caplog.text

    harness.restore()
    harness.wait_for(task)

    assert "Worker ada takes tasks of mail" in caplog.text


def test_a_burst_gives_up_when_the_service_stays_away(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.cut()
    harness.start(burst=True)
    until(lambda: "service is away" in caplog.text)
    assert harness.raised == []

    harness.clock.forward(31)
    harness.ends()

    (error,) = harness.raised
    assert isinstance(error, Unavailable)


def test_a_later_refusal_is_logged_and_asked_again(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.handle(lambda payload: None)
    harness.start()
    harness.wait_for(*harness.put(1))
    harness.fault = lambda request: (
        httpx.Response(403, json={"code": "forbidden", "status": 403, "detail": "not any more"})
        if request.url.path.endswith("/dequeue")
        else None
    )
    until(lambda: "gives no tasks" in caplog.text)

    harness.restore()
    harness.wait_for(*harness.put(2))

    assert harness.raised == []


def test_a_handler_that_cancels_its_own_task_has_failed(harness: WorkerHarness) -> None:
    async def handler(payload: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if payload == "waits":
            await asyncio.Event().wait()
        return payload

    harness.handle(handler)
    waits, returns = harness.put("waits", "returns")

    harness.burst()

    assert harness.ending(returns) == State.SUCCEEDED
    assert harness.client.get_task(waits).errors[0].message == (
        "the handler was cancelled by its own code: the worker did not cancel it"
    )


@pytest.mark.parametrize(
    ("path", "thread"),
    [
        ("/dequeue", "fetching"),
        ("/reports", "reports"),
        ("/workers/w", "heartbeats"),
    ],
)
def test_an_internal_thread_that_ends_takes_the_worker_with_it(
    harness: WorkerHarness, path: str, thread: str
) -> None:
    harness.handle(lambda payload: payload)
    harness.put(1)
    harness.fault = lambda request: SystemExit(7) if request.url.path.endswith(path) else None

    harness.start(shutdown_timeout=0.1, name="w")
    harness.ends()

    assert [str(error) for error in harness.raised] == [
        f"thread headrace-{thread} of the worker has ended: SystemExit: 7"
    ]
    assert isinstance(harness.raised[0], HeadraceError)


# ------------------------------------------------------------------------------------ standstill


def hold_the_lock(seconds: float) -> None:
    """Wait in a call into C that lets no other thread of Python run."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def test_after_a_standstill_leases_are_renewed_late_and_what_has_not_begun_is_released(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(payload: str) -> str:
        if payload == "holds":
            hold_the_lock(2.5)
            until(lambda: "This process stood still for" in caplog.text)
        return payload

    harness.handle(handler)
    first, *others = harness.put("holds", "a", "b", "c")
    harness.start(concurrency=1, prefetch=5, lease_seconds=1)
    harness.wait_for(first)
    until(lambda: all(harness.ending(task) != State.INFLIGHT for task in others))
    harness.stop()

    assert {harness.ending(task) for task in others} <= {"RELEASED", "SUCCEEDED"}
    assert not [each for each in harness.noting.all if each.startswith("lost")]


def test_a_task_whose_lease_has_ended_does_not_begin_and_is_released(
    harness: WorkerHarness,
) -> None:
    ran: list[str] = []

    def handler(payload: str) -> None:
        ran.append(payload)
        harness.clock.forward(60 if payload == "first" else 0)

    harness.handle(handler)
    first, second = harness.put("first", "second")
    harness.start(concurrency=1, prefetch=5)
    harness.wait_for(first)
    until(lambda: harness.ending(second) != State.INFLIGHT)
    harness.stop()

    assert (ran == ["first"]) == (harness.ending(second) == "RELEASED")


@pytest.mark.slow  # a worker hears of it with its next heartbeat, after half a minute
def test_an_operator_can_stop_a_worker(harness: WorkerHarness) -> None:
    harness.start(name="w")
    until(lambda: list(harness.client.list_workers()))

    harness.client.stop_worker("w")

    assert harness.thread is not None
    harness.thread.join(60)
    assert not harness.thread.is_alive()
    assert harness.raised == []
