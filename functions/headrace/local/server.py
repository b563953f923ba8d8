"""The HTTP server: connections on a loop, requests in threads, everything bounded."""

import asyncio
import contextlib
import errno
import math
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias

from headrace.domain.limits import KIB, LAMBDA_BYTES
from headrace.http.events import GatewayAnswer
from headrace.local import PortUnusable
from headrace.local.connection import Connection, Done
from headrace.local.requests import Incoming, LocalRequest, WaitsFor, refusal

# What API Gateway and Lambda take together, in base64 in an event with room for the headers; the
# API's own limit is lower and names the field.
MAX_BODY_BYTES: Final = (LAMBDA_BYTES - 128 * KIB) * 3 // 4
MAX_HEADER_BYTES: Final = 32 * 1024

_THREADS: Final = 32
_RESTING: Final = 64  # threads that are kept for the next request that may wait
_BACKLOG: Final = 1024
# How long a stop waits for requests under way, and how often deadlines are looked at.
_GRACE_SECONDS: Final = 4.0
_LOOK_SECONDS: Final = 0.1

_Job: TypeAlias = tuple[LocalRequest, Done]
_Jobs: TypeAlias = "SimpleQueue[_Job | None]"  # of one thread; None ends it


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all connections together may take.

    Attributes:
        connections: open ones; at most half of the files that this process may open.
        waiting: requests that wait for tasks to work on, each in a thread.
        results: requests that wait for the end of a task, likewise; at most a quarter of the
            connections there may be, so that workers and producers find theirs.
        bodies: bytes of requests that are not answered yet; one source may use half of them.

    """

    connections: int = 1024
    waiting: int = 512
    results: int = 256
    bodies: int = 256 * 1024 * 1024


class LocalApp(Protocol):
    """What answers requests."""

    def __call__(self, request: LocalRequest) -> GatewayAnswer:
        """Answer one request, whatever it is."""

    def may_wait(self, request: LocalRequest) -> WaitsFor | None:
        """Tell for what the answer may be long in coming because the request asks for that."""

    def incoming(self, request: LocalRequest, length: int | None) -> Incoming | None:
        """Return what takes the body of a request as it comes; None: it is held.

        Raises RequestRefused.
        """


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `port` (0: any free one) of *host*.

    Raises:
        PortUnusable: the port is taken, or may not be used; the host is not this machine.

    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise PortUnusable(
                f"{host} cannot be listened on ({error.strerror}): set HEADRACE_HOST to an address"
                " of this machine."
            ) from error
        raise PortUnusable(
            f"Port {port} cannot be used ({error.strerror}): set HEADRACE_PORT to another one."
        ) from error


class _Threads:
    """Threads that answer, up to *most*, of which *kept* may rest; all but `_work` is on the loop.

    Who has rested least is taken next: what it needs is in the processor's caches still. Taking
    turns, 32 threads needed half as much CPU again for a small request.
    """

    def __init__(
        self, app: LocalApp, loop: asyncio.AbstractEventLoop, name: str, *, most: float, kept: int
    ) -> None:
        self._app, self._loop, self._name = app, loop, name
        self._most, self._kept = most, kept
        self._all: set[_Jobs] = set()
        self._resting: list[_Jobs] = []
        self._left: deque[_Job] = deque()

    def do(self, request: LocalRequest, done: Done) -> None:
        """Have a request answered as soon as a thread is free."""
        if not self._resting and len(self._all) >= self._most:
            self._left.append((request, done))
            return
        jobs = self._resting.pop() if self._resting else self._started()
        jobs.put((request, done))

    def end(self) -> None:
        """End all of them once they have answered."""
        for jobs in self._all:
            jobs.put(None)

    def _started(self) -> _Jobs:
        jobs: _Jobs = SimpleQueue()
        # A daemon, so that a handler that never ends keeps nobody from leaving.
        threading.Thread(target=self._work, args=(jobs,), name=self._name, daemon=True).start()
        self._all.add(jobs)  # if it could be started: one that could not would take a place
        return jobs

    def _work(self, jobs: _Jobs) -> None:
        while job := jobs.get():
            request, done = job
            answer = self._app(request)
            with contextlib.suppress(RuntimeError):  # the loop is over, and so is the connection
                self._loop.call_soon_threadsafe(self._answered, jobs, done, answer)

    def _answered(self, jobs: _Jobs, done: Done, answer: GatewayAnswer) -> None:
        if self._left:
            jobs.put(self._left.popleft())
        elif len(self._resting) < self._kept:
            self._resting.append(jobs)
        else:
            self._all.discard(jobs)
            jobs.put(None)
        done(answer)


class ApiServer:
    """A server on one socket.

    A request that may wait has a thread to itself, so that however many wait, all others find the
    pool's as they were.  All threads are used again: workers ask many times a second.
    """

    def __init__(
        self,
        app: LocalApp,
        listening: socket.socket,
        bounds: Bounds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what answers, and where; nothing is answered before `serve()` is called.

        `clock` returns seconds, by which what is too slow is ended.
        """
        bounds = bounds or Bounds()
        self.bind_addr: tuple[str, int] = listening.getsockname()[:2]
        self.stopping = False
        self._app = app
        self._socket = listening
        self._loop = asyncio.new_event_loop()
        self._threads = _Threads(app, self._loop, "request", most=_THREADS, kept=_THREADS)
        self._waiters = _Threads(app, self._loop, "waiting", most=math.inf, kept=_RESTING)
        self._open: set[Connection] = set()
        self._bounds = bounds
        self._most = min(bounds.connections, _files() // 2)
        self._clock = clock
        self._held = Counter[str]()  # bytes, by source
        self._waiting = dict.fromkeys(WaitsFor, 0)
        self._may_wait = {
            WaitsFor.TASKS: bounds.waiting,
            WaitsFor.AN_END: min(bounds.results, self._most // 4),
        }
        self._serving = threading.Lock()

    def serve(self) -> None:
        """Serve until `stop()`."""
        with self._serving:
            if self.stopping:
                return
            try:
                self._loop.run_until_complete(self._serve())
            finally:
                self._end()

    def stop(self) -> None:
        """Take no more requests, finish those under way for a few seconds, then hang up."""
        self.stopping = True
        with self._serving:
            self._end()

    def _end(self) -> None:
        self._threads.end()
        self._waiters.end()
        self._loop.close()
        self._socket.close()

    # -- what connections call ---------------------------------------------------------------------

    def joined(self, connection: Connection) -> None:
        """Note a connection; of too many one goes that says or takes nothing, or slowly."""
        if len(self._open) >= self._most:
            others = [each for each in self._open if each.may_go]
            min(others, key=lambda each: each.deadline, default=connection).abort()
        self._open.add(connection)

    def left(self, connection: Connection) -> None:
        """Forget one."""
        self._open.discard(connection)

    def holds(self, size: int, source: str) -> bool:
        """Count bytes of bodies that are held for *source*; False: too many."""
        self._held[source] += size
        if not self._held[source]:
            del self._held[source]
        most = self._bounds.bodies
        return self._held[source] <= most // 2 and self._held.total() <= most

    def incoming(self, request: LocalRequest, length: int | None) -> Incoming | None:
        """Return what takes a body of *length* bytes as it comes; None: it is held."""
        return self._app.incoming(request, length)

    def work(self, request: LocalRequest, done: Done) -> None:
        """Have a request answered in a thread."""
        waits = self._app.may_wait(request)
        if waits is None:
            self._threads.do(request, done)
        elif self._waiting[waits] >= self._may_wait[waits]:
            most = self._may_wait[waits]
            detail = f"{most} requests wait for {waits} already: try again in a second."
            # Not at once: behind it there may be another that is refused, and another.
            self._loop.call_soon(done, refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail))
        else:
            self._waiting[waits] += 1
            self._waiters.do(request, self._waited(waits, done))

    def _waited(self, waits: WaitsFor, done: Done) -> Done:
        def end(answer: GatewayAnswer) -> None:
            self._waiting[waits] -= 1
            done(answer)

        return end

    # -- the loop ----------------------------------------------------------------------------------

    async def _serve(self) -> None:
        listening = await self._loop.create_server(
            self._connection, sock=self._socket, backlog=_BACKLOG
        )
        while not self.stopping:
            await asyncio.sleep(_LOOK_SECONDS)
            self._look()
        listening.close()
        until = self._loop.time() + _GRACE_SECONDS
        while busy := self._abort_idle():
            if self._loop.time() > until:
                break
            await asyncio.sleep(_LOOK_SECONDS / 10)
        for connection in busy:
            connection.abort()
        await asyncio.sleep(0)  # the transports' own last words

    def _abort_idle(self) -> list[Connection]:
        """End the connections on which nothing is answered; return the others."""
        for connection in [each for each in self._open if not each.busy]:
            connection.abort()
        return [each for each in self._open if each.busy]

    def _connection(self) -> Connection:
        return Connection(
            self, max_body=MAX_BODY_BYTES, max_head=MAX_HEADER_BYTES, clock=self._clock
        )

    def _look(self) -> None:
        """End what has taken too long."""
        now = self._clock()
        for connection in [each for each in self._open if each.deadline <= now]:
            connection.overdue()


if sys.platform == "win32":

    def _files() -> int:
        return sys.maxsize  # sockets are none there

else:
    import resource

    def _files() -> int:
        """Return how many files this process may have open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return sys.maxsize if files == resource.RLIM_INFINITY else files
