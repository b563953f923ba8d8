"""The registry of workers: who is alive, what they work on, and what an operator asks of them.

A worker is a record that its heartbeat renews.  A command is a note on that record which the
next heartbeat brings back.  Both cost one write and no read; a heartbeat reads the record
first where a key for some queues gives it, or where it leaves out when its process began.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from headrace.domain import access
from headrace.domain.access import Permission, Principal
from headrace.domain.errors import Forbidden, NotFound, Unavailable
from headrace.ops.shared.audit import Audit
from headrace.ops.shared.paging import Cursors, seek
from headrace.store.base import Record, Store, flat_rate

KIND: Final = "worker"
FORGOTTEN_AFTER: Final = timedelta(minutes=5)
"""A worker that is silent for so long counts as gone, whenever the table's broom comes."""

_ON_DUTY_FOR: Final = timedelta(seconds=75)  # without a heartbeat: 2.5 times the usual
_LOOKS: Final = 5  # at a worker that others command too
_SHOWN: Final = 128


class Command(StrEnum):
    """What a worker may be asked: to take nothing more, or to finish and end."""

    QUIET = "quiet"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """A heartbeat, as the worker sent it; ``started_at`` tells a process from the next one.

    ``running`` are ids of tasks; None where they are not shown.
    """

    name: str
    queues: tuple[str, ...]
    started_at: datetime
    concurrency: int = 1
    running: tuple[str, ...] | None = ()
    version: str = ""


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker as of its last heartbeat, and what it is asked to do."""

    heartbeat: WorkerHeartbeat
    seen_at: datetime
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class WorkerPage:
    """Workers by name, and the cursor of the next page."""

    workers: tuple[LiveWorker, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class WorkerOperations:
    """The use cases of workers, with what they need from outside."""

    store: Store
    now: Callable[[], datetime]
    cursors: Cursors
    audit: Audit

    def alive(
        self, by: Principal, heartbeat: WorkerHeartbeat, *, goes_on: bool = False
    ) -> Command | None:
        """Note a heartbeat and return what the worker is asked to do; one write unit.

        *goes_on*: it began when the worker that is alive under its name did, if there is one.
        Raises Forbidden unless *by* is for each of its queues, those that it had before included.
        """
        by.require(Permission.WORK, *heartbeat.queues)
        if goes_on or not by.everywhere:
            with flat_rate():
                record = self.store.record(KIND, heartbeat.name)
            before = self._living(record) if record else None
            if before is not None:
                if not by.covers_all(before.heartbeat.queues):
                    raise access.not_this_worker(heartbeat.name)
                if goes_on:
                    heartbeat = replace(heartbeat, started_at=before.heartbeat.started_at)
        return _worker(self.store.renew_record(_record(heartbeat, self.now()))).command

    def list(self, by: Principal, *, limit: int = 50, cursor: str | None = None) -> WorkerPage:
        """Return a page of the workers on *by*'s queues, by name, without the silent ones.

        It may be short and not the last.
        Of other queues it says nothing, and names running tasks only where all queues are *by*'s.
        Raises InvalidRequest for a forged cursor.
        """
        by.require(Permission.LIST)
        scope = f"workers of {by.patterns}"
        after = self.cursors.read(scope, cursor) if cursor else ""

        def seen(record: Record) -> LiveWorker | None:
            worker = self._living(record)
            return _as_seen_by(by, worker) if worker else None

        found = seek(self.store, KIND, seen, limit=limit, after=after, now=self.now)
        return WorkerPage(found.shown, found.after and self.cursors.write(scope, found.after))

    def ask(self, by: Principal, name: str, command: Command) -> LiveWorker:
        """Leave *command* for the worker's next heartbeat; it holds for this process only.

        A worker asked to stop is not asked for less.  Raises NotFound for one that is silent or
        unknown, and Forbidden unless *by* is for each of its queues; a *by* that is not for all
        queues gets Forbidden for both.
        """
        by.require(Permission.OPERATE)
        record, worker = self._found(by, name)
        queues = worker.heartbeat.queues
        only = queues[0] if len(queues) == 1 else None
        where = {"queues": [*queues]}
        action = f"{command}_worker"
        with self.audit.action(action, queue=only, where=where, ids=[name]) as outcome:
            for _ in range(_LOOKS):
                if worker.command in (command, Command.STOP):
                    outcome.changed = 0
                    return worker
                note = _note(command, worker.heartbeat)
                if self.store.leave_note(KIND, name, note, expects=record.note):
                    return replace(worker, command=command)
                record, worker = self._found(by, name)
            raise Unavailable("others are commanding this worker too; try again")

    def _found(self, by: Principal, name: str) -> tuple[Record, LiveWorker]:
        record = self.store.record(KIND, name)
        worker = self._living(record) if record else None
        if record is None or worker is None or not by.covers_all(worker.heartbeat.queues):
            raise _missing(by, name)
        return record, worker

    def _living(self, record: Record) -> LiveWorker | None:
        worker = _worker(record)
        return worker if self.now() - worker.seen_at < FORGOTTEN_AFTER else None


def on_duty(record: Record, now: datetime) -> tuple[str, ...]:
    """Return the queues whose tasks the worker of *record* takes now; none once asked to stop."""
    worker = _worker(record)
    if worker.command is not None or now - worker.seen_at >= _ON_DUTY_FOR:
        return ()
    return worker.heartbeat.queues


def _as_seen_by(by: Principal, worker: LiveWorker) -> LiveWorker | None:
    """Return *worker* as *by* may know it; None for one of others' queues."""
    heartbeat = worker.heartbeat
    own = tuple(filter(by.covers, heartbeat.queues))
    if len(own) == len(heartbeat.queues):
        return worker
    return replace(worker, heartbeat=replace(heartbeat, queues=own, running=None)) if own else None


def _missing(by: Principal, name: str) -> NotFound | Forbidden:
    if by.everywhere:
        return NotFound(f"there is no worker {name[:_SHOWN]}, or it is silent")
    return access.not_this_worker(name)


def _record(heartbeat: WorkerHeartbeat, now: datetime) -> Record:
    body = {
        "queues": [*heartbeat.queues],
        "started_at": heartbeat.started_at.isoformat(),
        "concurrency": heartbeat.concurrency,
        "running": [*(heartbeat.running or ())],
        "version": heartbeat.version,
        "seen_at": now.isoformat(),
    }
    return Record(KIND, heartbeat.name, body, expires_at=now + FORGOTTEN_AFTER)


def _worker(record: Record) -> LiveWorker:
    body = record.body
    heartbeat = WorkerHeartbeat(
        record.name,
        tuple(body["queues"]),
        datetime.fromisoformat(body["started_at"]),
        body["concurrency"],
        tuple(body["running"]),
        body["version"],
    )
    return LiveWorker(
        heartbeat, datetime.fromisoformat(body["seen_at"]), _command(record.note, heartbeat)
    )


def _note(command: Command, heartbeat: WorkerHeartbeat) -> str:
    """Return a command with the process it is for: it is not for whoever is started after it."""
    return f"{command} {heartbeat.started_at.isoformat()}"


def _command(note: str | None, heartbeat: WorkerHeartbeat) -> Command | None:
    return next((command for command in Command if note == _note(command, heartbeat)), None)
