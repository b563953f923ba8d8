"""The relay: enqueues the rows of an outbox under their ids, and has them deleted afterwards.

Rows that were sent and not deleted are sent again, which changes nothing: the service knows the
ids, and the idempotency key of a call is derived from its rows.  So a relay may end at any point,
and several may run at the same time.
"""

import json
import logging
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Self
from weakref import WeakSet

from headrace.client.app.app import App
from headrace.client.calls.tasks import enqueue_entries
from headrace.client.client import Client
from headrace.client.threads import PeriodicThread, signals_to
from headrace.domain import limits
from headrace.domain.errors import (
    BatchExists,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from headrace.domain.retry import RetryStrategy
from headrace.outbox.rows import calls_of
from headrace.outbox.table import OutboxRow, OutboxTable, RowFault, SettledRows
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import Enqueued

INTERVAL: Final = 1.0
"""Seconds between two reads of an empty table."""

BATCH: Final = 100
"""Rows in one read; each of their queues gets calls of up to 25."""

UNDONE: Final = frozenset({"FAILED", "REFUSED"})
"""The outcomes in `Relay.drain` of rows without a task."""

_LONGEST_REST: Final = 60.0
_REST: Final = RetryStrategy(base_seconds=1, max_delay_seconds=_LONGEST_REST, jitter=0.25)
_BATCH_BYTES: Final = limits.BODY_BYTES - 1024  # the brackets around the entries
_KEY_BYTES: Final = 16
_ENTRY: Final = re.compile(r"tasks\[(\d+)\]")

_log: Final = safe_logger("headrace.outbox")


@dataclass(slots=True)
class _Rest:
    """Backoff of something that failed."""

    times: int = 0
    until: float = 0.0  # monotonic

    def again(self, now: float, spread: float, least: float = 0.0) -> float:
        """Extend the backoff; return its seconds."""
        self.times += 1
        seconds = max(least, _REST.delay_seconds(self.times, spread))
        self.until = now + seconds
        return seconds


class Relay:
    """Enqueues the rows of an outbox until it is stopped.

    Run it in the background of a program (``with Relay(…):``), or as the program (``run``).

    Args:
        table: the outbox, as ``SqlAlchemyOutbox.table(engine)`` or ``DjangoOutbox.table`` has it.
        to: a client; or an app, whose missing queues are created.
        client: the client to use instead of that of the app.
        interval: seconds between two reads of an empty table; a commit of this process wakes
            the relay.
        batch: rows in one read.
        monotonic, chance: clock and random numbers, in tests.

    """

    def __init__(
        self,
        table: OutboxTable,
        to: Client | App,
        *,
        client: Client | None = None,
        interval: float = INTERVAL,
        batch: int = BATCH,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._table, self._to, self._client = table, to, client
        self._interval, self._batch = interval, batch
        self._monotonic, self._chance = monotonic, chance
        self._away: _Rest | None = None
        self._resting: dict[str, _Rest] = {}  # queues
        self._stopped = threading.Event()
        self._thread = PeriodicThread("headrace-outbox", self.step, log=_log)

    # ------------------------------------------------------------------------- for those outside

    def __enter__(self) -> Self:
        """Start the thread of the relay."""
        _RELAYS.add(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop after the rows that are being sent."""
        _RELAYS.discard(self)
        self._thread.stop()
        self._thread.join()

    def run(self) -> None:
        """Relay until `stop`; in the main thread SIGTERM, SIGINT and SIGHUP do that."""
        with signals_to(self.stop), self:
            _log.info("Relaying the outbox in %s", self._table.name)
            self._stopped.wait()
        _log.info("Stopped")

    def stop(self) -> None:
        """End `run`.  May be called from any thread, and from a signal handler."""
        self._stopped.set()

    def wake(self) -> None:
        """Read the table now, unless the service or the database is unavailable."""
        if self._away is None:
            self._thread.wake()

    def drain(self) -> Counter[str]:
        """Relay all waiting rows in this thread; return the number of each outcome.

        An outcome is that of an enqueue, ``"REFUSED"``, or ``"FAILED"`` for rows that are tried
        again.  Raises the error of an unavailable service or database.
        """
        outcomes: Counter[str] = Counter()
        while True:
            rows, settled = self._settle()
            outcomes += settled.outcomes
            if settled.away is not None:
                raise settled.away
            if len(rows) < self._batch:
                return outcomes

    def step(self) -> float:
        """Relay one batch; return the seconds to rest until the next."""
        try:
            rows, settled = self._settle()
            away = settled.away
        except HeadraceError as error:  # the database
            rows, away = [], error
        if away is not None:
            return self._leave_alone(away)
        if self._away is not None:
            _log.info("Relaying again")
            self._away = None
        return 0.0 if len(rows) >= self._batch else self._interval

    # --------------------------------------------------------------------------------- its parts

    def _settle(self) -> tuple[Sequence[OutboxRow], SettledRows]:
        settled = SettledRows()

        def send(rows: Sequence[OutboxRow]) -> SettledRows:
            for queue, some in _by_queue(rows):
                if settled.away is None:
                    self._send(queue, some, settled)
            return settled

        now = self._monotonic()
        without = [queue for queue, rest in self._resting.items() if rest.until > now]
        rows = self._table.settle(self._batch, without, send)
        _log_faults(rows, settled)
        return rows, settled

    def _leave_alone(self, error: HeadraceError) -> float:
        first = self._away is None
        self._away = self._away or _Rest()
        least = error.retry_after_seconds if isinstance(error, Unavailable) else 0.0
        seconds = self._away.again(self._monotonic(), self._chance(), min(least, _LONGEST_REST))
        level = logging.WARNING if first else logging.DEBUG
        _log.log(level, "The outbox waits, and is tried again: %s", error.detail)
        return seconds

    def _send(self, queue: str, rows: Sequence[OutboxRow], settled: SettledRows) -> None:
        """Enqueue *rows* of one queue, and add the outcome of each to *settled*."""
        try:
            results = self._enqueue(queue, rows)
        except (InvalidRequest, NotFound, Forbidden) as error:
            if isinstance(error, InvalidRequest) and not _lacks_queue(error):
                self._refuse_wrong(rows, error, settled)
                return
            self._rest_queue(queue)
            for row in rows:
                settled.faults[row.seq] = RowFault(error.detail, refused=False)
                settled.outcomes["FAILED"] += 1
        except BatchExists as error:
            _refuse(rows[0], error.detail, settled)
        except HeadraceError as error:
            settled.away = error
        else:
            self._resting.pop(queue, None)
            for row, result in zip(rows, results, strict=True):
                _note(row, result, settled)

    def _refuse_wrong(
        self, rows: Sequence[OutboxRow], error: InvalidRequest, settled: SettledRows
    ) -> None:
        """Refuse the *rows* that *error* names, and send the others again."""
        wrong = _named(error, len(rows))
        for place in wrong:
            _refuse(rows[place], _of_entry(error, place), settled)
        left = [row for place, row in enumerate(rows) if place not in wrong]
        if wrong:
            parts = [left] if left else []
        elif len(left) == 1:
            _refuse(left[0], error.detail, settled)
            parts = []
        else:  # the error names no entry, so each row is tried alone
            parts = [[row] for row in left]
        for part in parts:
            if settled.away is None:
                self._send(part[0].queue, part, settled)

    def _enqueue(self, queue: str, rows: Sequence[OutboxRow]) -> list[Enqueued]:
        client = self._client or (self._to.client if isinstance(self._to, App) else self._to)
        try:
            return _send_rows(client, queue, rows)
        except (InvalidRequest, NotFound) as error:
            if not (isinstance(self._to, App) and _lacks_queue(error)):
                raise
        self._to.ensure_queues(client)
        return _send_rows(client, queue, rows)

    def _rest_queue(self, queue: str) -> None:
        """Skip a queue for a while, so that its rows do not delay those of other queues."""
        rest = self._resting.setdefault(queue, _Rest())
        rest.again(self._monotonic(), self._chance())


def _send_rows(client: Client, queue: str, rows: Sequence[OutboxRow]) -> list[Enqueued]:
    """Enqueue *rows*; return the outcome of each.  Each call is sent once, as rows may be locked.

    A row that starts a workflow or a batch comes alone.  Its outcome is that of its last task, or
    of the first that is INVALID.
    """
    calls = calls_of(rows[0])
    if calls is None:
        entries = [row.entry.encode() for row in rows]
        return client.send(enqueue_entries(queue, entries, key=_key_of(rows)), again=False)
    last: list[Enqueued] = []
    for call in calls:
        for result in client.send(call, again=False):
            last = [result]
            if result.outcome == "INVALID":
                return last
    return last


def _lacks_queue(error: InvalidRequest | NotFound) -> bool:
    """Return whether *error* says that a queue does not exist."""
    return isinstance(error, NotFound) or any(one.field.endswith("queue") for one in error.errors)


def _key_of(rows: Sequence[OutboxRow]) -> str:
    """Return the idempotency key of the call that enqueues *rows*.

    It is the same when the next relay sends these rows again, and another one when a row was
    refused since and is tried again.
    """
    sent = [[row.seq, row.attempts, row.queue, row.entry] for row in rows]
    return blake2b(json.dumps(sent).encode(), digest_size=_KEY_BYTES).hexdigest()


def _log_faults(rows: Sequence[OutboxRow], settled: SettledRows) -> None:
    """Log each refused row, and rows that are tried again once for each queue."""
    again: Counter[tuple[str, str]] = Counter()
    for row in rows:
        fault = settled.faults.get(row.seq)
        if fault is None:
            continue
        if not fault.refused:
            again[row.queue, fault.error] += 1
            continue
        extra = {"task_id": row.task_id, "queue": row.queue, "attempt": row.attempts + 1}
        text = "Task %s of the outbox is refused by queue %s, and kept: %s"
        _log.warning(text, row.task_id, row.queue, fault.error, extra=extra)
    for (queue, error), count in again.items():
        text = "Rows of the outbox wait for queue %s, %d of them were tried: %s"
        _log.warning(text, queue, count, error)


def _note(row: OutboxRow, result: Enqueued, settled: SettledRows) -> None:
    if result.outcome == "INVALID":
        _refuse(row, result.detail or "the service refuses it", settled)
        return
    settled.done.append(row.seq)
    settled.outcomes[result.outcome] += 1
    if result.outcome in {"DUPLICATE", "OVERWRITTEN"}:
        # As the row asked for by its dedupe key, but no task will have its id.
        _log.info(
            "A row for queue %s came out %s: task %s holds its dedupe key",
            row.queue,
            result.outcome,
            result.id,
            extra={"task_id": row.task_id, "queue": row.queue},
        )


def _refuse(row: OutboxRow, why: str, settled: SettledRows) -> None:
    settled.faults[row.seq] = RowFault(why, refused=True)
    settled.outcomes["REFUSED"] += 1


def _named(error: InvalidRequest, count: int) -> set[int]:
    """Return the places of the entries that *error* names, of *count*."""
    places = {int(found[1]) for one in error.errors if (found := _ENTRY.match(one.field))}
    return {place for place in places if place < count}


def _of_entry(error: InvalidRequest, place: int) -> str:
    """Return the part of *error* about the entry at *place*."""
    entry = f"tasks[{place}]"
    own = [one for one in error.errors if one.field.startswith(entry)]
    return "; ".join(f"{one.field.replace(entry, 'task')} {one.message}" for one in own)


def _by_queue(rows: Sequence[OutboxRow]) -> Iterator[tuple[str, list[OutboxRow]]]:
    """Cut *rows* into calls: of one queue each, in order, 25 entries and 4 MiB at most.

    Rows that start workflows or batches come alone.
    """
    queues: dict[str, list[OutboxRow]] = {}
    for row in rows:
        queues.setdefault(row.queue, []).append(row)
    for queue, own in queues.items():
        batch: list[OutboxRow] = []
        size = 0
        for row in own:
            length = limits.utf8_bytes(row.entry) + 1
            alone = calls_of(row) is not None
            if batch and (alone or len(batch) == limits.BATCH or size + length >= _BATCH_BYTES):
                yield queue, batch
                batch, size = [], 0
            if alone:
                yield queue, [row]
                continue
            batch.append(row)
            size += length
        if batch:
            yield queue, batch


# ------------------------------------------------------------------------------------- after commit

_RELAYS: "Final[WeakSet[Relay]]" = WeakSet()


def wake_relays() -> None:
    """Wake the relays of this process, after a commit with rows."""
    for relay in list(_RELAYS):
        relay.wake()
