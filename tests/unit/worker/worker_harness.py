"""A worker in a thread over the service in memory, whose clock runs and whose network can fail."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx2 as httpx

from headrace import App, Client, NewTask, Observer, Worker
from headrace.domain.errors import HeadraceError
from headrace.domain.task import State
from headrace.testing import ManualClock
from headrace.testing.clock import START
from tests.faults import FaultyService
from tests.waiting import until

SOON = 10.0  # seconds until a test gives up on what should happen at once
BLOCK = 0.002  # seconds between two steps of a handler that waits for an exception


class RunningClock(ManualClock):
    """A clock that runs, and can be moved forward and stopped; the worker's monotonic one too."""

    def __init__(self) -> None:
        self._ahead, self._began = 0.0, time.monotonic()
        self._stopped_at: float | None = None

    def monotonic(self) -> float:
        return (self._stopped_at or time.monotonic()) + self._ahead

    def stop(self) -> None:
        self._stopped_at = time.monotonic()

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic() - self._began)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float | timedelta) -> None:
        step = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        self._ahead += step

    def forward_to(self, time: datetime) -> None:
        self._ahead += max(0.0, (time - self.now).total_seconds())


class RecordWrite(Observer):
    """Notes what a worker notifies its observers of."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def taken(self, queue: str, count: int) -> None:
        self.all.append(f"taken: {count} of {queue}")

    def started(self, task: Any, route: Any) -> None:
        self.all.append(f"started: {task.id}")

    def ended(self, task: Any, route: Any, outcome: str, seconds: float) -> None:
        self.all.append(f"ended: {outcome}")

    def lost(self, task: Any, why: str) -> None:
        self.all.append(f"lost: {why}")

    def cancelled(self, task: Any) -> None:
        self.all.append(f"cancelled: {task.id}")


class WorkerHarness:
    """An app, a service with the queue mail, and a worker in a thread."""

    def __init__(self) -> None:
        self.clock = RunningClock()
        self.service = FaultyService(clock=self.clock, seed=7)
        self.client = self.service.client
        self.client.create_queue("mail")
        self.fault: Callable[[httpx.Request], BaseException | httpx.Response | None] = lambda _: (
            None
        )
        self.calls: list[httpx.Request] = []
        self.app = App()
        self.noting = RecordWrite()
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.caught: list[BaseException] = []
        self.raised: list[HeadraceError] = []
        self.worker: Worker | None = None
        self.thread: threading.Thread | None = None

    def connect(self, key: str | None = None) -> Client:
        """Return a client over the network that can fail."""

        def send(request: httpx.Request) -> httpx.Response:
            self.calls.append(request)
            answer = self.fault(request)
            if isinstance(answer, BaseException):
                raise answer
            return answer or self.service.transport.handle_request(request)

        return Client(
            self.service.url,
            key or self.service.key,
            transport=httpx.MockTransport(send),
            retries=0,
            sleep=lambda _: None,
        )

    def cut(self, *paths: str) -> None:
        """Let calls to the service fail, or those only whose path ends so."""
        self.fault = lambda request: (
            httpx.ConnectError("away") if request.url.path.endswith(paths or "") else None
        )

    def restore(self) -> None:
        self.fault = lambda _: None

    def put(self, *payloads: Any, queue: str = "mail", **fields: Any) -> list[str]:
        """Enqueue tasks and return their ids."""
        tasks = [NewTask(payload=payload, **fields) for payload in payloads]
        return [str(made.id) for made in self.client.enqueue_many(queue, tasks)]

    def handle(self, function: Callable[..., Any], queue: str = "mail", **options: Any) -> None:
        self.app.handler(queue=queue, **options)(function)

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
        async def handler(payload: Any) -> str:
            return await self.wait_async()

        self.handle(handler if kind == "async" else lambda payload: self.wait())

    def start(self, *, burst: bool = False, key: str | None = None, **settings: Any) -> Worker:
        settings.setdefault("queues", ["mail"])
        settings.setdefault("observers", [self.noting])
        worker = Worker(
            self.app, client=self.connect(key), monotonic=self.clock.monotonic, **settings
        )

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

    def stop(self) -> None:
        assert self.worker is not None
        self.worker.stop()
        self.ends()

    def burst(self, **settings: Any) -> None:
        self.start(burst=True, **settings)
        self.ends()

    def wait_begun(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.begun.acquire(timeout=SOON)

    def wait_for(self, *ids: str, state: State = State.SUCCEEDED) -> None:
        until(lambda: {self.client.get_task(id).state for id in ids} == {state}, SOON)

    def ending(self, id: str) -> str:
        """Wait until no worker holds a task; return its state, last error's type, or RELEASED."""
        until(lambda: self.client.get_task(id).state is not State.INFLIGHT)
        task = self.client.get_task(id)
        if task.errors:
            return task.errors[-1].type
        return "RELEASED" if (task.state, task.attempts) == (State.ENQUEUED, 0) else task.state

    def close(self) -> None:
        self.go_on.set()
        self.restore()
        if self.worker is not None and self.thread is not None:
            self.worker.stop()
            self.worker.stop()
            self.thread.join(SOON)
