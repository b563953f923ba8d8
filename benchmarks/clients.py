"""Client processes that work at the same time, started once and used for every measurement."""

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Final

from benchmarks.bare import BareClient
from benchmarks.sizes import BATCH
from benchmarks.targets import OverHttp

_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.2
_IDLE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Job:
    """What one client does: *tasks* of its own go in, and all leave when *total* are done.

    ``url`` is a service's; where ``key`` is None, the path of a file that bare SQLite writes to.
    """

    url: str
    key: str | None
    queue: str
    tasks: int
    total: int


@dataclass(frozen=True, slots=True)
class Work:
    """What one client did; times are of the machine's monotonic clock, in seconds."""

    started: float
    ended: float
    cpu_seconds: float
    done: int
    write: float
    read: float
    call_seconds: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the clients have in common."""

    start: Barrier
    failed: Event
    done: "Synchronized[int]"


_SHARED: list[_Shared] = []


def _join(shared: _Shared) -> None:
    """Begin the life of a client process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _SHARED.append(shared)


def _ready() -> None:
    """Wait until all clients are there."""
    _SHARED[0].start.wait(_READY_SECONDS)


def work(job: Job) -> Work:
    """Do *job*, from the moment that all clients are ready."""
    (shared,) = _SHARED
    try:
        return (_over_http if job.key is not None else _at_file)(job, shared)
    except BaseException:
        shared.failed.set()
        shared.start.abort()
        raise


class _Clock:
    """Measures the calls of one client, and the client."""

    def __init__(self, shared: _Shared) -> None:
        shared.start.wait(_READY_SECONDS)
        self._cpu = time.process_time()
        self._started = time.monotonic()
        self._seconds: dict[str, list[float]] = {}
        self.done = 0
        self.write = self.read = 0.0

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._seconds.setdefault(name, []).append(time.perf_counter() - started)

    def result(self) -> Work:
        return Work(
            started=self._started,
            ended=time.monotonic(),
            cpu_seconds=time.process_time() - self._cpu,
            done=self.done,
            write=self.write,
            read=self.read,
            call_seconds=self._seconds,
        )


def _over_http(job: Job, shared: _Shared) -> Work:
    """Enqueue a batch, lease a batch and finish it; then help until everything is done."""
    with OverHttp(job.url, job.key or "", job.queue) as target:
        clock = _Clock(shared)
        left = job.tasks
        while not shared.failed.is_set() and (left or shared.done.value < job.total):
            if left:
                count = min(BATCH, left)
                with clock.call("enqueue"):
                    units = target.enqueue(count)
                clock.write += units.write
                clock.read += units.read
                left -= count
            with clock.call("dequeue"):
                held, units = target.dequeue(BATCH)
            clock.write += units.write
            clock.read += units.read
            if not held:
                time.sleep(_IDLE_SECONDS)
                continue
            with clock.call("succeed"):
                units = target.succeed(held)
            clock.write += units.write
            clock.read += units.read
            _count(shared, clock, len(held))
        return clock.result()


def _at_file(job: Job, shared: _Shared) -> Work:
    """Make the same three writes for each task, without looking for it in the index."""
    with BareClient(Path(job.url), job.queue) as client:
        clock = _Clock(shared)
        for start in range(0, job.tasks, BATCH):
            if shared.failed.is_set():
                break
            count = min(BATCH, job.tasks - start)
            with clock.call("enqueue"):
                ids = client.insert(count)
            with clock.call("dequeue"):
                client.lease(ids)
            with clock.call("succeed"):
                client.succeed(ids)
            _count(shared, clock, count)
        return clock.result()


def _count(shared: _Shared, clock: _Clock, number: int) -> None:
    clock.done += number
    with shared.done.get_lock():
        shared.done.value += number


class Clients:
    """A number of client processes."""

    def __init__(self, number: int) -> None:
        """Start them; *number* of them work at a time."""
        # Spawned, because the parent has threads, which a fork would leave in the middle of things.
        context = multiprocessing.get_context("spawn")
        self.number = number
        self._shared = _Shared(context.Barrier(number), context.Event(), context.Value("q", 0))
        self._pool = ProcessPoolExecutor(
            number, mp_context=context, initializer=_join, initargs=(self._shared,)
        )
        # Their imports must not be measured.
        for started in [self._pool.submit(_ready) for _ in range(number)]:
            started.result()

    def close(self) -> None:
        """End the processes."""
        self._shared.failed.set()
        self._pool.shutdown(cancel_futures=True)

    def run(self, jobs: Sequence[Job], done: Callable[[int], object]) -> list[Work]:
        """Let each client do one job; *done* is told again and again how many tasks are."""
        self._shared.done.value = 0
        futures: list[Future[Work]] = [self._pool.submit(work, job) for job in jobs]
        while wait(futures, timeout=_LOOK_SECONDS).not_done:
            done(self._shared.done.value)
        done(self._shared.done.value)
        return [future.result() for future in futures]


@contextlib.contextmanager
def clients(number: int) -> Iterator[Clients]:
    """Run client processes for the length of a with block."""
    started = Clients(number)
    try:
        yield started
    finally:
        started.close()
