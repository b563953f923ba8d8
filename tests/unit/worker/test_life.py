"""A whole worker over a service in memory: threads, an event loop, stopping and its orders.

Long, because running, stopping and failing are tested on the same worker with one harness.
"""

import asyncio
import contextlib
import ctypes
import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from headrace.client.app.app import App
from headrace.client.app.context import Context
from headrace.client.app.outcomes import Reject, Retry, SoftTimeLimit
from headrace.client.worker import worker as worker_module
from headrace.client.worker.inflight import InflightTask, InflightTasks
from headrace.client.worker.observing import Observer
from headrace.client.worker.settings import WorkerSettings
from headrace.client.worker.worker import Worker
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    LeaseLost,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from headrace.wire.tasks import LeasedTask
from tests.unit.worker import worker_harness
from tests.unit.worker.worker_harness import KEEPALIVE, SOON, FakeService, leased

BLOCK = 0.002  # seconds between two steps of a handler that waits for an exception


class WorkerHarness:
    """An app, a service, and a worker in a thread."""

    def __init__(self) -> None:
        self.app = App()
        self.service = FakeService(time.monotonic)
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.caught: list[BaseException] = []
        self.raised: list[BaseException] = []
        self.worker: Worker | None = None
        self.thread: threading.Thread | None = None

    def start(self, **settings: Any) -> Worker:
        burst = settings.pop("burst", False)
        settings.setdefault("queues", ["mail"])
        worker = Worker(self.app, service=self.service, **settings)

        def run() -> None:
            try:
                worker.run(burst=burst)
            except HeadraceError as error:
                self.raised.append(error)

        self.worker, self.thread = worker, threading.Thread(target=run)
        self.thread.start()
        return worker

    def ends(self) -> None:
        assert self.thread is not None
        self.thread.join(SOON)
        assert not self.thread.is_alive()

    def burst(self, **settings: Any) -> None:
        self.start(burst=True, **settings)
        self.ends()

    def wait_begun(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.begun.acquire(timeout=SOON)

    def handle(self, function: Callable[..., Any], **options: Any) -> None:
        self.app.handler(queue="mail", **options)(function)

    def wait(self) -> str:
        """Wait in Python, where an exception can be thrown in, until told to go on."""
        self.begun.release()
        try:
            while not self.go_on.wait(BLOCK):
                pass
        except BaseException as error:
            self.caught.append(error)
            raise
        return "done"

    async def wait_async(self) -> str:
        self.begun.release()
        try:
            while not self.go_on.is_set():  # noqa: ASYNC110 (set from another thread)
                await asyncio.sleep(BLOCK)
        except BaseException as error:
            self.caught.append(error)
            raise
        return "done"

    def handle_waiting(self, kind: str = "sync") -> None:
        """Let the handler wait."""
        if kind == "sync":
            self.handle(lambda payload: self.wait())
            return

        async def handler(payload: Any) -> str:
            return await self.wait_async()

        self.handle(handler)


@pytest.fixture
def harness() -> Iterator[WorkerHarness]:
    harness = WorkerHarness()
    yield harness
    harness.go_on.set()
    if harness.worker is not None and harness.thread is not None:
        with contextlib.suppress(RuntimeError):
            harness.worker.stop()
            harness.worker.stop()
        harness.thread.join(SOON)


# ------------------------------------------------------------------------------------- running


def test_a_handler_begins_before_more_is_asked_for(harness: WorkerHarness) -> None:
    asked: list[int] = []

    def let_begin(_seconds: float) -> None:
        harness.wait_begun()
        asked.append(len(harness.service.polled))

    harness.handle_waiting()
    harness.go_on.set()
    harness.service.put("one")
    harness.burst(sleep=let_begin, concurrency=1)

    assert asked == [1]


def test_what_handlers_return_and_raise_is_reported(harness: WorkerHarness) -> None:
    def handler(payload: Any) -> Any:
        if payload == "reject":
            raise Reject("no good")
        if payload == "retry":
            raise Retry(delay=7)
        if payload == "fail":
            raise ValueError("broken")
        return {"got": payload}

    harness.handle(handler)
    good, reject, retry, fail = harness.service.put("good", "reject", "retry", "fail")

    harness.burst()

    done = harness.service.done
    assert (done[good].status, done[good].result) == ("SUCCEEDED", {"got": "good"})
    assert (done[reject].status, done[reject].retryable) == ("FAILED", False)
    assert (done[retry].status, done[retry].delay_in_seconds) == ("FAILED", 7)
    assert (done[fail].status, done[fail].retryable) == ("FAILED", True)


def test_async_handlers_run_side_by_side_in_one_event_loop(harness: WorkerHarness) -> None:
    loops = set()

    async def handler(payload: Any) -> None:
        loops.add(id(asyncio.get_running_loop()))
        await harness.wait_async()

    harness.handle(handler)
    ids = harness.service.put(*range(20))
    harness.start(concurrency=20)
    harness.wait_begun(20)

    harness.go_on.set()
    harness.service.wait_for(*ids)

    assert len(loops) == 1


def test_no_more_handlers_run_than_the_concurrency_allows(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    harness.service.put(*range(12))
    harness.start(concurrency=3, prefetch=4)
    harness.wait_begun(3)

    assert not harness.begun.acquire(timeout=0.1)
    assert len(harness.service.waiting["mail"]) == 12 - 3 - 4


def test_quick_tasks_come_in_full_batches_and_slow_ones_one_by_one(harness: WorkerHarness) -> None:
    harness.handle(lambda payload: None)
    harness.service.put(*range(300))

    harness.burst(concurrency=4)

    sizes = [size for _, size in harness.service.polled]
    assert sizes[0] == 4
    assert sizes.count(25) >= 8


def test_a_payload_that_cannot_be_read_costs_its_own_task_only(harness: WorkerHarness) -> None:
    harness.handle(lambda payload: payload)
    good, huge, deep, last = harness.service.put(1, 2, 3, 4)
    tasks = harness.service.waiting["mail"]
    tasks[1] = msgspec.structs.replace(tasks[1], payload_json=msgspec.Raw(b"9" * 5000))
    tasks[2] = msgspec.structs.replace(
        tasks[2], payload_json=msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)
    )

    harness.burst()

    done = harness.service.done
    assert {done[good].status, done[last].status} == {"SUCCEEDED"}
    for unreadable in (huge, deep):
        assert (done[unreadable].status, done[unreadable].retryable) == ("FAILED", False)


def test_progress_that_cannot_be_sent_fails_where_it_is_made(harness: WorkerHarness) -> None:
    def handler(ctx: Context) -> None:
        ctx.progress("x" * 5000)

    harness.handle(handler)
    (task,) = harness.service.put(1)

    harness.burst()

    error = harness.service.done[task].error
    assert error is not None
    assert "at most 4096" in error.message


def test_progress_is_sent_as_it_was_whatever_the_handler_does_to_it_later(
    harness: WorkerHarness,
) -> None:
    shown = [1]

    def handler(ctx: Context) -> str:
        ctx.progress(shown)
        shown.append(2)
        return harness.wait()

    harness.handle(handler)
    harness.service.put(1)
    worker = harness.start()
    harness.wait_begun()

    (task,) = worker.inflight.all()
    assert task.take_progress() == [1]


def test_an_async_handler_that_would_end_the_program_ends_only_itself(
    harness: WorkerHarness,
) -> None:
    async def leave() -> None:
        sys.exit("this is no program")

    async def handler(payload: Any) -> str:
        if payload == "leave":
            await asyncio.gather(leave())
        await asyncio.sleep(0)
        return "done"

    harness.handle(handler)
    leaving, staying = harness.service.put("leave", "stay")
    harness.start()
    harness.service.wait_for(leaving, staying)

    (later,) = harness.service.put("later")
    harness.service.wait_for(later)

    assert harness.service.statuses() == {
        leaving: "FAILED",
        staying: "SUCCEEDED",
        later: "SUCCEEDED",
    }
    assert harness.worker is not None
    harness.worker.stop()
    harness.ends()


def test_an_app_that_cannot_be_prepared_ends_the_worker_at_once(harness: WorkerHarness) -> None:
    def prepare(app: App, settings: WorkerSettings) -> None:
        raise TypeError("forgot is periodic but no task: add @app.task")

    harness.service.prepare = prepare  # type: ignore[method-assign]
    worker = Worker(harness.app, service=harness.service, queues=["mail"])

    with pytest.raises(TypeError, match="forgot is periodic"):
        worker.run()


def test_two_workers_share_a_process(harness: WorkerHarness) -> None:
    harness.handle(lambda payload: threading.current_thread().name)
    other = WorkerHarness()
    other.handle(lambda payload: threading.current_thread().name)
    ids, others = harness.service.put(*range(50)), other.service.put(*range(50))

    harness.start(burst=True)
    other.burst()
    harness.ends()

    assert set(harness.service.done) == set(ids)
    assert set(other.service.done) == set(others)


def test_the_context_tells_of_a_lost_lease(harness: WorkerHarness) -> None:
    seen: list[bool] = []

    def handler(ctx: Context) -> None:
        harness.begun.release()
        try:
            while not harness.go_on.wait(BLOCK):
                pass
        except LeaseLost:
            seen.append(ctx.lost)
            raise

    harness.handle(handler)
    harness.service.put(1)
    worker = harness.start()
    harness.wait_begun()

    lose_everything(harness, worker)
    wait_until(lambda: seen == [True])
    wait_until(lambda: not worker.inflight)

    assert harness.service.done == {}


class Hurried:
    """A clock that a test can turn forward while a worker runs by it."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def test_who_checks_after_a_standstill_stops_and_nothing_is_reported(
    harness: WorkerHarness,
) -> None:
    clock = Hurried()
    seen, lost = list[str](), list[str]()

    class Noting(Observer):
        def lost(self, task: LeasedTask, why: str) -> None:
            lost.append(task.id)

    def handler(ctx: Context) -> None:
        ctx.check()
        clock.ahead += KEEPALIVE
        try:
            ctx.check()
        except LeaseLost as error:
            seen.append(str(error))
            raise

    harness.handle(handler)
    (task,) = harness.service.put(1)
    harness.start(monotonic=clock, observers=[Noting()])
    wait_until(lambda: lost != [])

    assert (seen, lost) == ([f"the lease of task {task} is over"], [task])
    assert harness.service.done == {}


def test_an_async_handler_is_cancelled_when_its_lease_is_lost(harness: WorkerHarness) -> None:
    harness.handle_waiting("async")
    harness.service.put(1)
    worker = harness.start()
    harness.wait_begun()

    lose_everything(harness, worker)
    wait_until(lambda: not worker.inflight)

    assert isinstance(harness.caught[0], asyncio.CancelledError)
    assert harness.service.done == {}


def test_the_hard_limit_ends_a_handler_that_catches_exceptions(harness: WorkerHarness) -> None:
    def stubborn(payload: Any) -> None:
        harness.begun.release()
        while True:
            try:
                while not harness.go_on.wait(BLOCK):
                    pass
                return
            except Exception as error:  # noqa: BLE001
                harness.caught.append(error)

    harness.handle(stubborn, soft_timeout=0.05, timeout=0.3)
    (task,) = harness.service.put(1)
    harness.start()

    harness.service.wait_for(task)

    report = harness.service.done[task]
    assert (report.status, report.retryable) == ("FAILED", True)
    assert report.error is not None
    assert report.error.type == "TimeLimit"
    assert isinstance(harness.caught[0], SoftTimeLimit)


def test_the_soft_limit_lets_a_handler_tidy_up(harness: WorkerHarness) -> None:
    async def tidy(payload: Any) -> str:
        try:
            await harness.wait_async()
        except asyncio.CancelledError:
            return "tidied"
        return "never"

    harness.handle(tidy, soft_timeout=0.05, timeout=60)
    (task,) = harness.service.put(1)
    harness.start()

    harness.service.wait_for(task)

    assert harness.service.done[task].result == "tidied"


# ------------------------------------------------------------------------------------- stopping


def test_stopping_lets_handlers_finish_and_releases_what_waits(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    running, *waiting = harness.service.put(*range(4))
    worker = harness.start(concurrency=1, prefetch=3)
    harness.wait_begun()
    wait_until(lambda: len(worker.inflight) == 4)

    worker.stop()
    harness.service.wait_for(*waiting)
    assert running not in harness.service.done
    harness.go_on.set()
    harness.ends()

    assert harness.service.statuses() == {running: "SUCCEEDED"} | dict.fromkeys(waiting, "RELEASED")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_does_not_finish_in_time_is_interrupted_and_released(
    harness: WorkerHarness, kind: str
) -> None:
    harness.handle_waiting(kind)
    ids = harness.service.put(1, 2)
    worker = harness.start(concurrency=2, shutdown_timeout=0.1)
    harness.wait_begun(2)

    worker.stop()
    harness.ends()

    assert harness.service.statuses() == dict.fromkeys(ids, "RELEASED")
    assert len(harness.caught) == 2


def test_a_report_is_kept_before_its_task_is_let_go(harness: WorkerHarness) -> None:
    seen: list[int] = []

    class Watched(InflightTasks):
        def remove(self, held: InflightTask) -> int | None:
            seen.append(len(worker.reporter))
            return super().remove(held)

    harness.handle(lambda payload: None)
    harness.service.put(1)
    worker = Worker(harness.app, service=harness.service, queues=["mail"])
    worker.inflight = Watched()
    for _ in range(2):  # prepare, and fetch
        worker.threads["fetching"].step()

    wait_until(lambda: not worker.inflight)

    assert seen == [1]  # so that a worker that ends sees the task, or its report, or both


def test_a_second_stop_does_not_wait(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    (task,) = harness.service.put(1)
    worker = harness.start(shutdown_timeout=3600)
    harness.wait_begun()

    worker.stop()
    worker.stop()
    harness.ends()

    assert harness.service.statuses() == {task: "RELEASED"}


def test_a_handler_that_no_exception_reaches_is_released_all_the_same(
    harness: WorkerHarness,
) -> None:
    def deaf(payload: Any) -> str:
        harness.begun.release()
        harness.go_on.wait(SOON)  # one call into C
        return "too late"

    harness.handle(deaf)
    (task,) = harness.service.put(1)
    worker = harness.start(shutdown_timeout=0)
    harness.wait_begun()

    worker.stop()
    harness.ends()
    harness.go_on.set()

    assert harness.service.statuses() == {task: "RELEASED"}


def test_tasks_that_a_last_answer_brings_are_given_back(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    polled, answer = threading.Event(), threading.Event()

    class Slow(FakeService):
        def dequeue(self, queues: Sequence[str], **call: Any) -> Any:
            found = super().dequeue(queues, **call)
            if found.tasks:
                polled.set()
                assert answer.wait(SOON)
            return found

    harness.service = Slow(time.monotonic)
    ids = harness.service.put(1, 2)
    worker = harness.start()
    assert polled.wait(SOON)

    worker.stop()
    wait_until(lambda: worker.closed)
    answer.set()
    harness.ends()

    assert harness.service.statuses() == dict.fromkeys(ids, "RELEASED")


def test_results_that_are_not_taken_yet_hold_up_the_end(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    (task,) = harness.service.put(1)
    worker = harness.start()
    harness.wait_begun()
    harness.service.fault = Unavailable("away")
    harness.go_on.set()
    wait_until(lambda: worker.reporter.is_retrying)
    worker.stop()

    harness.service.fault = None
    harness.ends()

    assert harness.service.statuses() == {task: "SUCCEEDED"}


def test_a_quiet_worker_takes_nothing_more_but_goes_on(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    begun = threading.Event()

    class Quieting(FakeService):
        def sign(self, name: str, **sign: Any) -> str | None:
            assert begun.wait(SOON)  # before, it would not take the first one either
            return "quiet"

    harness.service = Quieting(time.monotonic)
    harness.handle_waiting()
    (running,) = harness.service.put(1)
    harness.start(concurrency=1)
    harness.wait_begun()
    begun.set()
    wait_until(lambda: "Asked to be quiet" in caplog.text)
    (left,) = harness.service.put(2)

    harness.go_on.set()
    harness.service.wait_for(running)

    assert not harness.begun.acquire(timeout=0.1)
    assert left not in harness.service.done


def test_an_operator_can_stop_it(harness: WorkerHarness) -> None:
    harness.service.command = "stop"
    harness.start(name="host-1:4711", version="1.2")

    harness.ends()

    sign, last = harness.service.signs
    assert last["stopped"]
    assert (sign["name"], sign["queues"], sign["version"]) == ("host-1:4711", ["mail"], "1.2")


def test_a_service_that_knows_no_workers_is_noted_once(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    class Older(FakeService):
        def sign(self, name: str, **sign: Any) -> str | None:
            raise NotFound("no such route")

    harness.service = Older(time.monotonic)
    harness.handle(lambda payload: None)
    ids = harness.service.put(*range(10))

    harness.burst()

    assert set(harness.service.done) == set(ids)
    assert caplog.text.count("will not be listed") == 1


# --------------------------------------------------------------------------------------- trouble


@pytest.mark.parametrize("fault", [Unauthenticated, Forbidden, NotFound])
def test_a_worker_that_may_take_nothing_ends_at_once_and_says_why(
    harness: WorkerHarness, fault: type[HeadraceError]
) -> None:
    harness.service.fault = fault("the reason")

    harness.start()
    harness.ends()

    (error,) = harness.raised
    assert type(error) is fault
    expected = "headrace queue create mail" if fault is NotFound else "the reason"
    assert expected in str(error)


def test_a_service_that_is_away_at_the_start_is_waited_for(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.handle(lambda payload: None)
    (task,) = harness.service.put(1)
    harness.service.fault = Unavailable("away")
    harness.start()
    wait_until(lambda: "service is away" in caplog.text)

    harness.service.fault = None
    harness.service.wait_for(task)

    assert harness.raised == []


def test_a_service_that_is_away_is_named_before_anything_is_prepared(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    prepared: list[App] = []

    def prepare(app: App, settings: WorkerSettings) -> None:
        prepared.append(app)

    harness.service.prepare = prepare  # type: ignore[method-assign]
    harness.service.fault = Unavailable("away")
    harness.start()
    wait_until(lambda: "service is away; asking again until it is back: away" in caplog.text)
    assert prepared == []

    harness.service.fault = None

    wait_until(lambda: prepared == [harness.app])


def test_it_says_that_it_takes_tasks_when_the_service_has_answered(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.service.fault = Unavailable("away")
    harness.start(name="ada")
    wait_until(lambda: "service is away" in caplog.text)
    assert "takes tasks" not in caplog.text

    harness.service.fault = None

    wait_until(lambda: "Worker ada takes tasks of mail, 10 at a time" in caplog.text)


def test_a_burst_gives_up_when_the_service_stays_away(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Hurried()
    harness.service.fault = Unavailable("away")
    harness.start(burst=True, monotonic=clock)
    wait_until(lambda: "service is away" in caplog.text)
    assert harness.raised == []

    clock.ahead = 31
    harness.ends()

    (error,) = harness.raised
    assert isinstance(error, Unavailable)


def test_a_burst_does_not_end_on_a_request_without_an_answer(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.handle_waiting()
    (task,) = harness.service.put(1)
    worker = harness.start(burst=True, concurrency=2)
    harness.wait_begun()
    wait_until(lambda: len(harness.service.polled) > 2)  # and nothing else was there
    harness.service.fault = Unavailable("away")
    wait_until(lambda: "service is away" in caplog.text)

    (lost,) = worker.inflight.all()
    lost.lease_ends = 0.0
    wait_until(lambda: not worker.inflight)
    assert harness.thread is not None
    harness.thread.join(0.3)
    assert harness.thread.is_alive()

    harness.service.waiting["mail"].append(leased(1))
    harness.service.fault = None
    harness.go_on.set()
    harness.ends()
    assert harness.service.statuses() == {task: "SUCCEEDED"}


@pytest.mark.parametrize(
    ("running", "words"),
    [
        (0, "Stopping"),
        (1, "Stopping: 1 task has 0.1 s to end; Ctrl-C again gives it back now"),
        (2, "Stopping: 2 tasks have 0.1 s to end; Ctrl-C again gives them back now"),
    ],
)
def test_who_stops_it_is_told_what_is_waited_for(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture, running: int, words: str
) -> None:
    caplog.set_level(logging.INFO)
    harness.handle_waiting()
    harness.service.put(*range(running))
    worker = harness.start(shutdown_timeout=0.1)
    harness.wait_begun(running)

    worker.stop()
    harness.ends()

    assert words in [record.getMessage() for record in caplog.records]


def test_results_that_do_not_arrive_before_the_end_are_told_of(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(FakeService):
        def report(self, queue: str, reports: Any, *, within: float) -> Any:
            raise Unavailable("not now")

    monkeypatch.setattr(worker_module, "_LAST_REPORTS_SECONDS", 0.1)
    caplog.set_level(logging.INFO)
    harness.service = Away(time.monotonic)
    harness.handle(lambda payload: None)
    harness.service.put(1, 2)
    worker = harness.start(shutdown_timeout=0.1)
    wait_until(lambda: len(worker.reporter) == 2 and not worker.inflight)

    worker.stop()
    harness.ends()

    said = [record.getMessage() for record in caplog.records]
    assert "Stopping: 2 reports have 0.1 s to reach the service; Ctrl-C again ends it now" in said
    assert (
        "What came of 2 tasks could not be reported before the end: they run again once their"
        " leases have lapsed" in said
    )
    assert worker.unreported_tasks == 2


def test_nothing_new_is_taken_before_what_is_done_is_through(harness: WorkerHarness) -> None:
    class Deaf(FakeService):
        deaf = True

        def report(self, queue: str, reports: Any, *, within: float) -> Any:
            if self.deaf:
                raise Unavailable("not now")
            return super().report(queue, reports, within=within)

    harness.service = deaf = Deaf(time.monotonic)
    harness.handle(lambda payload: None)
    (first,) = deaf.put(1)
    worker = harness.start()
    wait_until(lambda: worker.reporter.is_retrying)
    polled = len(deaf.polled)
    (second,) = deaf.put(2)

    deaf.deaf = False
    deaf.wait_for(first, second)

    assert list(deaf.done) == [first, second]
    assert polled >= 1


def test_a_refusal_later_on_is_logged_and_asked_again(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.handle(lambda payload: None)
    (first,) = harness.service.put(1)
    harness.start()
    harness.service.wait_for(first)
    harness.service.fault = Forbidden("not any more")
    wait_until(lambda: "gives no tasks" in caplog.text)

    harness.service.fault = None
    (second,) = harness.service.put(2)
    harness.service.wait_for(second)

    assert harness.raised == []


def test_who_looks_on_hears_what_happens_and_harms_nothing(harness: WorkerHarness) -> None:
    heard: list[Any] = []

    class Listener(Observer):
        def taken(self, queue: str, count: int) -> None:
            heard.append(("taken", queue, count))

        def started(self, task: LeasedTask, route: Any) -> None:
            heard.append(("started", task.id))
            raise RuntimeError("a fault of the one who looks on")

        def ended(self, task: LeasedTask, route: Any, outcome: str, seconds: float) -> None:
            heard.append(("ended", task.id, outcome))

    harness.handle(lambda payload: None)
    (task,) = harness.service.put(1)

    harness.burst(observers=[Listener()])

    assert heard == [("taken", "mail", 1), ("started", task), ("ended", task, "SUCCEEDED")]
    assert harness.service.statuses() == {task: "SUCCEEDED"}


def test_a_task_that_ends_leaves_a_line_with_its_id_and_attempt(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.handle(lambda payload: None, name="letters")
    (task,) = harness.service.put(1)

    harness.burst()

    (line,) = [record for record in caplog.records if hasattr(record, "outcome")]
    assert line.getMessage().startswith("letters succeeded in")
    assert vars(line) | {"task_id": task, "attempt": 1, "queue": "mail"} == vars(line)


def test_that_line_names_what_an_unknown_task_asks_for(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.app.queue("mail", work=True)
    harness.service.put({"task": "shop.gone", "args": {}})

    harness.burst()

    (line,) = [record for record in caplog.records if hasattr(record, "outcome")]
    assert line.getMessage().startswith("shop.gone failed in")
    assert vars(line)["task_name"] == "shop.gone"


def lose_everything(harness: WorkerHarness, worker: Worker) -> None:
    """Let the service forget every lease, and a heartbeat be due."""
    harness.service.leases.clear()
    for task in worker.inflight.all():
        task.beaten_at = -1e9
    worker.threads["heartbeats"].wake()


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_handler_that_cancels_its_own_task_has_failed(harness: WorkerHarness) -> None:
    async def handler(payload: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if payload == "waits":
            await asyncio.sleep(SOON)
        return payload

    harness.handle(handler)
    waits, returns = harness.service.put("waits", "returns")

    harness.burst()

    assert harness.service.statuses() == {waits: "FAILED", returns: "SUCCEEDED"}
    error = harness.service.done[waits].error
    assert error is not None
    assert error.message == (
        "the handler was cancelled by its own code: the worker did not cancel it"
    )


def test_a_task_that_another_handler_cancels_before_it_begins_has_failed(
    harness: WorkerHarness,
) -> None:
    """Its coroutine is cancelled before the first step, so no code in it sees that."""

    async def handler(payload: str) -> None:
        if payload == "cancels all":
            harness.begun.release()
            while not harness.go_on.is_set():
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                await asyncio.sleep(0)

    harness.handle(handler)
    (first,) = harness.service.put("cancels all")
    worker = harness.start(concurrency=30)
    harness.wait_begun()

    others = harness.service.put(*["other"] * 20)
    harness.service.wait_for(*others)
    harness.go_on.set()
    harness.service.wait_for(first)
    worker.stop()
    harness.ends()

    statuses = [harness.service.done[task].status for task in others]
    assert set(statuses) <= {"FAILED", "SUCCEEDED"}
    assert "FAILED" in statuses


class RaisingFilter(logging.Filter):
    """A filter of the program that always fails."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError(f"no room for {record.msg}")


@pytest.fixture(params=["a filter raises", "stderr is closed"])
def _faulty_logging(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Make each log call of the worker raise."""
    logger = logging.getLogger("headrace")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    closed = io.StringIO()
    handler = logging.StreamHandler(closed)
    if request.param == "a filter raises":
        handler.addFilter(RaisingFilter())
    else:
        closed.close()
        monkeypatch.setattr(sys, "stderr", closed)
    logger.addHandler(handler)
    with pytest.raises((RuntimeError, ValueError)):
        logger.error("this call raises")
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.usefixtures("_faulty_logging")
def test_a_log_call_that_raises_ends_no_thread_and_loses_no_report(
    harness: WorkerHarness,
) -> None:
    async def handler(payload: str) -> str:
        if payload == "raises":
            raise ValueError("no luck")
        if payload == "leaves":
            asyncio.get_running_loop().call_soon(sys.exit)
            await asyncio.sleep(0.01)
        return payload

    harness.handle(handler)
    harness.app.handler(queue="sync")(lambda payload: 1 // payload)
    ids = harness.service.put("returns", "raises", "leaves")
    ids += harness.service.put(0, 1, queue="sync")
    harness.service.fault = Unavailable("away at first")

    worker = harness.start(queues=["mail", "sync"])
    wait_until(lambda: worker.threads["fetching"].join(0) is False)
    harness.service.fault = None
    harness.service.wait_for(*ids)
    worker.stop()
    harness.ends()

    outcomes = list(harness.service.statuses().values())
    assert (outcomes.count("SUCCEEDED"), outcomes.count("FAILED")) == (3, 2)
    assert harness.raised == []


@pytest.mark.parametrize("thread", ["fetching", "reports", "heartbeats", "worker-heartbeat"])
def test_an_internal_thread_that_ends_takes_the_worker_with_it(
    harness: WorkerHarness, thread: str
) -> None:
    harness.handle(lambda payload: payload)
    worker = Worker(harness.app, service=harness.service, queues=["mail"], shutdown_timeout=0.1)

    def leave() -> None:
        raise SystemExit(7)

    worker.threads[thread].step = leave

    with pytest.raises(
        HeadraceError, match=f"thread headrace-{thread} of the worker has ended: SystemExit: 7"
    ):
        worker.run()


def test_a_thread_for_handlers_that_ends_takes_the_worker_with_it(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(7)

    harness.handle(lambda payload: payload)
    harness.service.put("a")
    monkeypatch.setattr(InflightTask, "begin", leave)
    monkeypatch.setattr(InflightTask, "end", leave)

    harness.start(shutdown_timeout=0.1)
    harness.ends()

    assert [str(error) for error in harness.raised] == [
        "thread headrace-task-0 of the worker has ended: SystemExit: 7"
    ]


def hold_the_lock(seconds: float) -> None:
    """Wait in a call into C that lets no other thread of Python run."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def test_after_a_standstill_leases_are_renewed_late_and_what_has_not_begun_is_released(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_harness, "KEEPALIVE", 1.0)
    lost: list[str] = []

    class Noting(Observer):
        def lost(self, task: LeasedTask, why: str) -> None:
            lost.append(why)

    def handler(payload: str) -> str:
        if payload == "holds":
            hold_the_lock(2.5)
            for _ in range(50):  # as long as another thread wants to throw something in here
                time.sleep(0.01)
        return payload

    harness.handle(handler)
    ids = harness.service.put("holds", "a", "b", "c")

    worker = harness.start(concurrency=1, prefetch=5, observers=[Noting()])
    harness.service.wait_for(*ids)
    worker.stop()
    harness.ends()

    statuses = [harness.service.done[task].status for task in ids]
    assert statuses[0] == "SUCCEEDED"
    assert set(statuses[1:]) <= {"RELEASED", "SUCCEEDED"}
    assert lost == []
    assert "This process stood still for 2." in caplog.text


def test_a_lease_that_was_taken_back_during_a_standstill_is_lost_for_that_reason(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_harness, "KEEPALIVE", 1.0)
    lost: list[str] = []

    class Noting(Observer):
        def lost(self, task: LeasedTask, why: str) -> None:
            lost.append(why)

    def handler(payload: str) -> None:
        harness.service.leases.clear()
        hold_the_lock(2.5)
        harness.wait()

    harness.handle(handler)
    harness.service.put("holds")
    harness.start(concurrency=1, observers=[Noting()])
    wait_until(lambda: lost != [])

    (why,) = lost
    assert why.startswith("the service says STALE_LEASE; this process stood still for 2.")


def test_a_task_whose_lease_has_ended_does_not_begin_and_is_released(
    harness: WorkerHarness,
) -> None:
    clock = Hurried()
    ran: list[str] = []

    def handler(payload: str) -> None:
        ran.append(payload)
        clock.ahead += 2 * KEEPALIVE

    harness.handle(handler)
    first, second = harness.service.put("first", "second")
    worker = harness.start(concurrency=1, prefetch=5, monotonic=clock)
    harness.service.wait_for(first, second)
    worker.stop()
    harness.ends()

    assert harness.service.statuses()[first] == "SUCCEEDED"
    assert (ran == ["first"]) == (harness.service.statuses()[second] == "RELEASED")
