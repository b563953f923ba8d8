"""The registry of workers: who is alive, what they work on, and what an operator asks of them.

A worker is a record that its heartbeat renews.  A command is a note on that record which the
next heartbeat brings back.  Both cost one write and no read; a heartbeat reads the record
first where a key for some queues gives it, or where it leaves out when its process began.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headrace.domain import access
from headrace.domain.access import Permission, Principal
from headrace.domain.errors import Forbidden, NotFound, Unavailable
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.task import State, Task
from headrace.domain.worker import Command, LiveWorker, WorkerHeartbeat
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record
from headrace.store.call_scope import flat_rate
from headrace.store.records.workers import KIND, from_record, note_of, to_record

_LOOKS: Final = 5  # at a worker that others command too
_SHOWN: Final = 128


class WorkerOperations(ServicePart):
    """The use cases of workers, with what they need from outside."""

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
        return from_record(self.store.renew_record(to_record(heartbeat, self.now()))).command

    def list(
        self,
        by: Principal,
        *,
        where: ListQuery[LiveWorker] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[LiveWorker]:
        """Return a page of the workers on *by*'s queues, by name, without the silent ones.

        *where* is compared with what *by* may know of them.

        It may be short and not the last.
        Of other queues it says nothing, and names running tasks only where all queues are *by*'s.
        Raises InvalidRequest for a forged cursor.
        """
        by.require(Permission.LIST)
        scope, now = f"workers of {by.patterns} {where.text}", self.now()

        def seen(record: Record) -> LiveWorker | None:
            worker = self._living(record)
            known = _as_seen_by(by, worker) if worker else None
            return known if known and where.means(known, now) else None

        return seek(
            self.store,
            KIND,
            seen,
            self.service.cursors,
            scope,
            limit=limit,
            cursor=cursor,
            now=self.now,
        )

    def remembered(
        self,
        by: Principal,
        *,
        where: ListQuery[LiveWorker] = EVERY_ROW,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[LiveWorker]:
        """Return a page of workers as list() does, but with those that went silent lately."""
        by.require(Permission.LIST)
        scope, now = f"remembered workers of {by.patterns} {where.text}", self.now()

        def seen(record: Record) -> LiveWorker | None:
            worker = self._as_remembered(by, record)
            return worker if worker and where.means(worker, now) else None

        return seek(
            self.store,
            KIND,
            seen,
            self.service.cursors,
            scope,
            limit=limit,
            cursor=cursor,
            now=self.now,
        )

    def one(self, by: Principal, name: str) -> LiveWorker:
        """Return a worker as remembered() shows it.

        Raises NotFound; a *by* that is not for all queues gets Forbidden for that, and for a worker
        of other queues.
        """
        by.require(Permission.LIST)
        with flat_rate():
            record = self.store.record(KIND, name)
        worker = self._as_remembered(by, record) if record else None
        if worker is None:
            raise _missing(by, name)
        return worker

    def tasks(
        self, by: Principal, workers: Sequence[LiveWorker], *, of_each: int
    ) -> dict[str, Sequence[Task]]:
        """Return the tasks that *workers* say they are at, by their names, the oldest first.

        Of each worker *of_each* are read at most, the first that it names; without what is in
        flight no more, and what is not *by*'s.
        """
        named = {
            worker.heartbeat.name: (worker.heartbeat.running or ())[:of_each] for worker in workers
        }
        wanted = {task_id for ids in named.values() for task_id in ids}
        found = self.store.read(wanted, payload=False, consistent=False) if wanted else {}
        mine = {
            task_id: task
            for task_id, task in found.items()
            if task.state is State.INFLIGHT and by.covers(task.queue)
        }
        return {
            name: sorted(
                (mine[task_id] for task_id in ids if task_id in mine),
                key=lambda task: (task.started_at or task.created_at, task.id),
            )
            for name, ids in named.items()
        }

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
        with self.service.audit.action(action, queue=only, where=where, ids=[name]) as outcome:
            for _ in range(_LOOKS):
                if worker.command in (command, Command.STOP):
                    outcome.changed = 0
                    return worker
                note = note_of(command, worker.heartbeat)
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

    def _as_remembered(self, by: Principal, record: Record) -> LiveWorker | None:
        worker = from_record(record)
        return _as_seen_by(by, worker) if worker.remembered(self.now()) else None

    def _living(self, record: Record) -> LiveWorker | None:
        worker = from_record(record)
        return worker if worker.alive(self.now()) else None


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
