"""Single enqueues, gathered into batches in the background.

A task costs two write units however it is sent, but 25 in one call are one request instead of 25.
"""

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from headrace.client.batches import BATCH_BYTES
from headrace.client.call import Call
from headrace.client.calls import tasks
from headrace.client.codec import Codec
from headrace.client.models import Enqueued
from headrace.client.sending import NewTask, task_entry
from headrace.domain import limits
from headrace.domain.errors import HeadraceError

T = TypeVar("T")

_PENDING: Final = 10_000  # enqueues that wait; then enqueue() itself waits


class Sender(Protocol):
    """What a batcher needs of a client."""

    codec: Codec

    def send(self, call: Call[T]) -> T:
        """Send *call* and return what it is answered."""
        ...


@dataclass(slots=True)
class _Waiting:
    """What is gathered for one queue."""

    entries: list[bytes] = field(default_factory=list)
    futures: list[Future[Enqueued]] = field(default_factory=list)
    size: int = 0


class Batcher:
    """Gathers enqueues of any threads; each returns a future of its result.

    A batch goes out when it is full or *linger_seconds* after its first entry.  Leaving the
    ``with`` block, or ``close()``, sends what is left and waits for the answers.
    """

    def __init__(self, sender: Sender, *, linger_seconds: float = 0.01) -> None:
        """Start the thread that sends."""
        self._sender, self._linger = sender, linger_seconds
        self._waiting: dict[str, _Waiting] = {}
        self._full: list[tuple[str, _Waiting]] = []
        self._pending = 0
        self._flushing = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="headrace-batcher", daemon=True)
        self._thread.start()

    def enqueue(
        self,
        queue: str,
        payload: Any = None,  # noqa: ANN401 (any JSON value)
        **fields: Any,  # noqa: ANN401 (as Client.enqueue)
    ) -> Future[Enqueued]:
        """Hand over one task, with the fields that ``Client.enqueue`` takes.

        Raises InvalidRequest or PayloadTooLarge for what can be told at once, RuntimeError when
        the batcher is closed; all else is raised by the future.
        """
        entry = task_entry(NewTask(payload=payload, **fields), self._sender.codec, path="task")
        future: Future[Enqueued] = Future()
        with self._changed:
            self._changed.wait_for(lambda: self._pending < _PENDING or self._closed)
            if self._closed:
                raise RuntimeError("the batcher is closed")
            waiting = self._waiting.setdefault(queue, _Waiting())
            if len(waiting.entries) == limits.BATCH or waiting.size + len(entry) >= BATCH_BYTES:
                self._full.append((queue, waiting))
                waiting = self._waiting[queue] = _Waiting()
            waiting.entries.append(entry)
            waiting.futures.append(future)
            waiting.size += len(entry) + 1
            self._pending += 1
            self._changed.notify_all()
        return future

    def flush(self) -> None:
        """Send what was handed over, and wait for the answers."""
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._pending)
            self._flushing = False

    def close(self) -> None:
        """Send what is left and end.  Calling it again does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return the batcher."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Send what is left and end."""
        self.close()

    def _run(self) -> None:
        while batches := self._take():
            for queue, batch in batches:
                self._send(queue, batch)

    def _take(self) -> list[tuple[str, _Waiting]]:
        """Wait for something to send; nothing when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closed)
            in_a_hurry = lambda: self._full or self._flushing or self._closed  # noqa: E731 (used once)
            self._changed.wait_for(in_a_hurry, timeout=self._linger)
            taken = self._full + list(self._waiting.items())
            self._full, self._waiting = [], {}
            return [(queue, batch) for queue, batch in taken if batch.entries]

    def _send(self, queue: str, batch: _Waiting) -> None:
        try:
            results = self._sender.send(tasks.enqueue_entries(queue, batch.entries))
        except HeadraceError as error:
            for future in batch.futures:
                future.set_exception(error)
        except BaseException as error:
            for future in batch.futures:
                future.set_exception(error)
            raise
        else:
            for future, result in zip(batch.futures, results, strict=True):
                future.set_result(result)
        finally:
            with self._changed:
                self._pending -= len(batch.entries)
                self._changed.notify_all()
