"""A service in memory: the API over SQLite in memory, with a manual clock."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from random import Random
from typing import Any, Final, Self
from uuid import uuid4

import httpx2 as httpx

from headrace.client.aio import AsyncClient
from headrace.client.app.app import App
from headrace.client.client import Client
from headrace.client.codec import PLAIN, Codec
from headrace.client.operations import Clock, Pause
from headrace.domain.offload import Lake
from headrace.history.recorder import Recorded
from headrace.http import app as api
from headrace.http.request import Request, query_of
from headrace.ops.delivery.reaper import Reaped
from headrace.ops.scheduling.ticking import Ticked
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build, using
from headrace.testing.attempts import Ran
from headrace.testing.clock import ManualClock
from headrace.testing.work import LIMIT, MemoryTables, Work


class _SimulatedTime:
    """Lets the waits of a client pass by the clock of *service*, while its apps work."""

    service: "MemoryService"

    @property
    def clock(self) -> Clock:
        return self.service.seconds


class SimulatedClient(_SimulatedTime, Client):
    """A client of a service in memory."""

    def _pause(self, pause: Pause) -> None:
        self.service.pass_time(pause)


class AsyncSimulatedClient(_SimulatedTime, AsyncClient):
    """The same for programs with an event loop, which stands still during a wait."""

    async def _pause(self, pause: Pause) -> None:
        self.service.pass_time(pause)


URL: Final = "https://headrace.test"
ADMIN_KEY: Final = "admin-key-of-a-test"
REQUEST_TAKES: Final = timedelta(milliseconds=1)
TIMERS_EVERY: Final = timedelta(minutes=1)
_SHARD: Final = "memory"
_ALL_WRITES: Final = 2**31
_RETRIES: Final = 30  # no try waits, and an unlucky seed must not end a test


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The context of one call.

    No time is left, so a dequeue that may wait for tasks answers immediately: in a test, no other
    program could enqueue one.
    """

    aws_request_id: str = field(default_factory=lambda: str(uuid4()))

    def get_remaining_time_in_millis(self) -> int:
        """Return 0."""
        return 0


@dataclass(frozen=True, slots=True)
class Timers:
    """The work of one round of the cloud's timers."""

    reaped: Reaped
    ticked: Ticked
    recorded: Recorded


class MemoryService:
    """Headrace in memory, for one test: ``with MemoryService() as service: service.client``.

    API, keys, roles and rules are those of a deployment.  The clock moves only when the test moves
    it, except that each request takes a millisecond.  Retries of clients do not wait.

    Args:
        clock: the clock of the service; by default one that starts at a fixed instant.
        seed: the seed of the random numbers of the service.
        key: the admin key of ``service.client``.
        lake: the folder to which the timers write raw changes, if any.

    """

    def __init__(
        self,
        *,
        clock: ManualClock | None = None,
        seed: int = 0,
        key: str = ADMIN_KEY,
        lake: Lake | None = None,
    ) -> None:
        self.url = URL
        self.key = key
        self.clock = clock or ManualClock()
        self.store = MemoryTables(now=self.clock, keeps=lambda _queue: lake is not None)
        self._recorded = self._seen = -1
        self._has_alerts = False
        self._served: list[App] = []
        self.use_cases = self._new_service(lake, Random(seed))  # noqa: S311  a test repeats it
        self.transport = httpx.MockTransport(self.respond)
        self.client = self.connect(key)
        self.async_client = self.connect_async(key)

    def _new_service(self, lake: Lake | None, random: Random) -> Service:
        settings = Settings(
            admin_key=self.key,
            poll_after_seconds=0.02,
            settings_ttl_seconds=0,
            lake_payloads=("*",),
            push=Settings.from_env().push,
        )
        return build(settings, self.store, now=self.clock, lake=lake, random=random)

    def __enter__(self) -> Self:
        """Return the service; leaving the block closes its client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.client.close()

    def __repr__(self) -> str:
        return f"MemoryService(now={self.clock.now.isoformat()})"

    def connect(
        self,
        key: str | None = None,
        *,
        codec: Codec = PLAIN,
        transport: httpx.MockTransport | None = None,
    ) -> Client:
        """Return a client with another *key*, as one made by ``client.create_key``."""
        client = SimulatedClient(**self._settings(key, codec, transport), sleep=lambda _: None)
        client.service = self
        return client

    def connect_async(
        self,
        key: str | None = None,
        *,
        codec: Codec = PLAIN,
        transport: httpx.MockTransport | None = None,
    ) -> AsyncClient:
        """Return a client for an event loop with another *key*."""
        settings = self._settings(key, codec, transport)
        client = AsyncSimulatedClient(**settings, sleep=lambda _: asyncio.sleep(0))
        client.service = self
        return client

    def _settings(
        self, key: str | None, codec: Codec, transport: httpx.MockTransport | None
    ) -> dict[str, Any]:
        return {
            "url": self.url,
            "key": key or self.key,
            "codec": codec,
            "retries": _RETRIES,
            "transport": transport or self.transport,
        }

    @contextmanager
    def serving(
        self,
        app: App,
        *,
        key: str | None = None,
        transport: httpx.MockTransport | None = None,
    ) -> Iterator[Self]:
        """Connect *app* to this service and to its clock, for a block.

        If a client of the service waits for the end of a task in the block, *app* works on its
        queues and time passes until then.
        """
        client = self.connect(key, codec=app.codec, transport=transport)
        async_client = self.connect_async(key, codec=app.codec, transport=transport)
        app.import_tasks()
        self._served.append(app)
        try:
            with app.using(client, async_client, now=self.clock):
                yield self
        finally:
            self._served.remove(app)

    def tick(self) -> Timers:
        """Run the timers of a deployment once: reaper, scheduler and recorder.

        They end lapsed leases, expire tasks, enqueue ticks of schedules, count events for stats and
        metrics, and process actions on many tasks.
        """
        reaped = self.use_cases.reaping.run()
        self._seen = self.store.changes  # before the recorder, whose counts the reaper uses
        self._has_alerts = any(one.settings.alerts for one in self.use_cases.queues.every())
        return self._scheduled_and_recorded(reaped)

    def tick_if_needed(self) -> None:
        """Run the timers as ``tick`` does, without the reaper if it has nothing to do.

        The reaper reads every queue, which takes most of the time of an idle minute.
        """
        changed = self._has_alerts or self.store.changes != self._seen
        if changed or self.store.has_overdue(self.clock.now):
            self.tick()
        else:
            self._scheduled_and_recorded(Reaped())

    def _scheduled_and_recorded(self, reaped: Reaped) -> Timers:
        use = self.use_cases
        ticked = use.ticking.run()
        writes = self.store.writes(after=self._recorded, limit=_ALL_WRITES)
        recorded = use.recording.record(_SHARD, writes)
        self._recorded = writes[-1].sequence if writes else self._recorded
        self.store.trim(self._recorded, limit=_ALL_WRITES)
        use.counters.post_left()
        if use.actions.any_unfinished():
            use.action_work.run()
        return Timers(reaped, ticked, recorded)

    def forward(self, seconds: float | timedelta) -> None:
        """Move the clock forward, and run the timers every minute.

        Raises ValueError for less than 0 seconds.
        """
        step = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        end = self.clock.now + step
        while end - self.clock.now > TIMERS_EVERY:
            self.clock.forward(TIMERS_EVERY)
            self.tick_if_needed()
        self.clock.forward(end - self.clock.now)
        self.tick()

    def run(
        self,
        app: App,
        *,
        key: str | None = None,
        seconds: float | timedelta = 0,
        until_settled: bool = False,
        limit: int = LIMIT,
    ) -> Ran:
        """Run the ready tasks of *app* in this thread, and return the attempts.

        Before that, missing queues and schedules are created, as by a worker.

        Args:
            app: the app with the task functions.
            key: the key of the worker; by default that of the service.
            seconds: let so much time pass, with the timers running every minute.
            until_settled: move the clock to the next due time until only ticks of schedules wait.
            limit: the most attempts; while *seconds* pass, the most at one moment.

        Raises:
            RuntimeError: *limit* attempts were not enough.

        """
        with self.serving(app):
            work = self.work(app, key=key, limit=limit)
            return work.run(seconds=seconds, until_settled=until_settled)

    def work(self, app: App, *, key: str | None = None, limit: int = LIMIT) -> Work:
        """Return a run of *app*, whose functions keep their client; see `run`."""
        return Work(self, app, self.connect(key, codec=app.codec), limit)

    def seconds(self) -> float:
        """Return the time of the service's clock, in seconds."""
        return self.clock.now.timestamp()

    def pass_time(self, pause: Pause) -> None:
        """Run the ready tasks of the apps that are served, or pass time until one is ready.

        Raises RuntimeError if no task is left that could end a wait without a timeout.
        """
        if pause.number > LIMIT:
            raise RuntimeError(f"after {LIMIT} looks {pause.waiting_for!r} has not ended")
        works = [self.work(app) for app in self._served]
        if sum(len(work.run()) for work in works):
            return
        until = None if pause.left == inf else _after(self.clock.now, pause.left)
        moments = [work.next_due(ticks=until is not None) for work in works]
        soonest = min((moment for moment in [*moments, until] if moment), default=None)
        if soonest is None:
            whose = "of the apps that are served" if works else "without an app that is served"
            what = f"nothing {whose} is left to do, and {pause.waiting_for!r} has not ended"
            raise RuntimeError(what)
        self.forward(max(soonest - self.clock.now, timedelta()))

    def respond(self, request: httpx.Request) -> httpx.Response:
        """Answer a request of a client, as the deployed service does."""
        path, _, query = request.url.raw_path.decode("ascii").partition("?")
        context = HandlerContext()
        with using(self.use_cases):
            reply = api.answer(
                Request(
                    request.method,
                    path,
                    id=context.aws_request_id,
                    context=context,
                    headers=dict(request.headers),
                    query=query_of(query),
                    body=request.content,
                )
            )
        self.clock.forward(REQUEST_TAKES)
        headers = {name: str(value) for name, value in reply.headers.items()}
        return httpx.Response(reply.status, headers=headers, content=reply.text().encode())


def _after(now: datetime, seconds: float) -> datetime | None:
    """Return the instant *seconds* after *now*; None after the last year of the calendar."""
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return None
