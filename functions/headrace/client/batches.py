"""Many enqueues, cut into batches that one call takes; or gathered into them by a thread.

A task costs two write units however it is sent, but 25 in one call are one request instead of 25.
"""

import atexit
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from headrace.client.calls import tasks
from headrace.client.codec import Codec
from headrace.client.filling import Sender
from headrace.client.sending import NewTask, task_entry
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.wire.base import JsonValue
from headrace.wire.tasks import Enqueued

T = TypeVar("T")
E = TypeVar("E", bound=Enqueued)

Errors: TypeAlias = Literal["raise", "return"]
"""Whether an entry that comes out INVALID is an error, or a result like the others."""

_Sent: TypeAlias = tuple[bytes, Future[Enqueued]]

_ENTRY: Final = re.compile(r"tasks\[(\d+)\]")
_PENDING: Final = 10_000  # enqueues that wait; then enqueue() itself waits
_BATCH_BYTES: Final = limits.BODY_BYTES - 1024  # the brackets around the entries


def batches_of(new: Iterable[NewTask], codec: Codec) -> Iterator[list[bytes]]:
    """Write *new* tasks in batches that one call takes: 25 entries, 4 MiB.

    Raises InvalidRequest or PayloadTooLarge naming the entry, counted from the first of all.
    """
    batch: list[bytes] = []
    size = 0
    for task, place in zip(new, count()):
        entry = task_entry(task, codec, path=f"tasks[{place}]")
        if batch and (len(batch) == limits.BATCH or size + len(entry) >= _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry) + 1
    if batch:
        yield batch


def raises(errors: Errors) -> bool:
    """Whether INVALID is an error.  Raises InvalidRequest for another word than the two."""
    if errors not in {"raise", "return"}:
        raise InvalidRequest.of("errors", f'must be "raise" or "return", not {errors!r:.100}')
    return errors == "raise"


def checked(results: list[E], *, raising: bool) -> list[E]:
    """*results*, as they are.  If *raising*, raises NotEnqueued naming every INVALID entry."""
    invalid = {
        f"tasks[{place}]": result.detail or ""
        for place, result in enumerate(results)
        if result.outcome == "INVALID"
    }
    if raising and invalid:
        raise tasks.not_enqueued(invalid, results)
    return results


@dataclass(slots=True)
class _GatheredTasks:
    """The tasks gathered for one queue."""

    entries: list[bytes] = field(default_factory=list)
    futures: list[Future[Enqueued]] = field(default_factory=list)
    size: int = 0


class Batcher:
    """Gathers enqueues of any threads; each returns a future of its result.

    A batch goes out when it is full or *linger_seconds* after its first entry.  Leaving the
    ``with`` block, or ``close()``, sends what is left and waits for the answers.
    """

    def __init__(self, sender: Sender, *, linger_seconds: float = 0.01) -> None:
        """Nothing runs yet; the thread that sends starts with the first task."""
        self._sender, self._linger = sender, linger_seconds
        self._closed = False
        self._begin()
        # Before threads are joined at the end of the program: what was handed over is sent then.
        self._at_exit = _at_exit(weakref.WeakMethod(self.close))

    def _begin(self) -> None:
        """Begin with nothing in hand, in the present process."""
        self._process = os.getpid()
        self._waiting: dict[str, _GatheredTasks] = {}
        self._full: list[tuple[str, _GatheredTasks]] = []
        self._pending = self._flushing = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def enqueue(
        self,
        queue: str,
        payload: JsonValue = None,
        **fields: Any,  # noqa: ANN401 (as Client.enqueue)
    ) -> Future[Enqueued]:
        """Hand over one task, with the fields that ``Client.enqueue`` takes.

        Raises InvalidRequest or PayloadTooLarge for what is known at once, RuntimeError when
        the batcher is closed; all else, NotEnqueued among it, is raised by the future.
        """
        entry = task_entry(NewTask(payload=payload, **fields), self._sender.codec, path="task")
        future: Future[Enqueued] = Future()
        if os.getpid() != self._process:
            self._begin()  # a fork: what its parent has in hand is its parent's to send
        with self._changed:
            self._changed.wait_for(lambda: self._pending < _PENDING or self._closed)
            if self._closed:
                raise RuntimeError("the batcher is closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-batcher", daemon=True
                )
                self._thread.start()
            waiting = self._waiting.setdefault(queue, _GatheredTasks())
            if len(waiting.entries) == limits.BATCH or waiting.size + len(entry) >= _BATCH_BYTES:
                self._full.append((queue, waiting))
                waiting = self._waiting[queue] = _GatheredTasks()
            waiting.entries.append(entry)
            waiting.futures.append(future)
            waiting.size += len(entry) + 1
            self._pending += 1
            self._changed.notify_all()
        return future

    def flush(self) -> None:
        """Send what was handed over, and wait for the answers."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._pending)
            self._flushing -= 1

    def close(self) -> None:
        """Send what is left and end.  Calling it again does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._process == os.getpid():
            self._thread.join()
        atexit.unregister(self._at_exit)

    def __enter__(self) -> Self:
        """Return the batcher."""
        return self

    def __exit__(self, *_: object) -> None:
        """Send what is left and end."""
        self.close()

    def _run(self) -> None:
        while batches := self._take():
            for queue, batch in batches:
                self._send(queue, batch)

    def _take(self) -> list[tuple[str, _GatheredTasks]]:
        """Wait for something to send; nothing when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closed)
            self._changed.wait_for(
                lambda: self._full or self._flushing or self._closed, timeout=self._linger
            )
            taken = self._full + list(self._waiting.items())
            self._full, self._waiting = [], {}
            return [(queue, batch) for queue, batch in taken if batch.entries]

    def _send(self, queue: str, batch: _GatheredTasks) -> None:
        """Send *batch*; entries that the service finds wrong do not keep the others back."""
        left = [
            (entry, future)
            for entry, future in zip(batch.entries, batch.futures, strict=True)
            if future.set_running_or_notify_cancel()
        ]
        try:
            while left:
                try:
                    entries = [entry for entry, _ in left]
                    results = self._sender.send(tasks.enqueue_entries(queue, entries))
                except InvalidRequest as error:
                    left = _without_wrong(left, error)
                else:
                    for (_, future), result in zip(left, results, strict=True):
                        if result.outcome == "INVALID":
                            future.set_exception(tasks.not_enqueued({"task": result.detail or ""}))
                        else:
                            future.set_result(result)
                    return
        except BaseException as error:  # noqa: BLE001 (whatever it is, who waits must hear of it)
            for _, future in left:
                future.set_exception(error)
        finally:
            with self._changed:
                self._pending -= len(batch.entries)
                self._changed.notify_all()


class Batching:
    """The part of a client that programs with threads have, and those with a loop do not need."""

    def batcher(self: Sender, *, linger_seconds: float = 0.01) -> Batcher:
        """A batcher that gathers single enqueues into batches in the background."""
        return Batcher(self, linger_seconds=linger_seconds)


def _without_wrong(left: list[_Sent], error: InvalidRequest) -> list[_Sent]:
    """Notify those that *error* names, else all, and return the others."""
    named = {int(found[1]) for wrong in error.errors if (found := _ENTRY.match(wrong.field))}
    wrong = {place for place in named if place < len(left)} or set(range(len(left)))
    for place in wrong:
        left[place][1].set_exception(error)
    return [sent for place, sent in enumerate(left) if place not in wrong]


def _at_exit(close: "weakref.WeakMethod[Callable[[], None]]") -> Callable[[], None]:
    """Have *close* called at the end of the program, if there is still something to close."""

    def close_if_there() -> None:
        method = close()
        if method is not None:
            method()

    return atexit.register(close_if_there)
