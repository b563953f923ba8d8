"""The registry of workers: the live ones, their tasks, and the commands for them.

A worker is a record that its heartbeat renews.  A command is a note on that record, which the next
heartbeat returns.  Both cost one write and no read; a heartbeat reads the record first if its key
is for some queues only, or if it leaves out when its process began.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headrace.domain import access
from headrace.domain.errors import Forbidden, NotFound, Unavailable
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.task import State, Task
from headrace.domain.worker import Command, LiveWorker, WorkerHeartbeat
from headrace.ops.shared.paging import Found, seek
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record
from headrace.store.call_scope import caller, flat_rate, not_shown, restricted, visible
from headrace.store.records.queues import WORKERS, command_note, worker_of, worker_record

_LOOKS: Final = 5  # at a worker that others command too
_SHOWN: Final = 128


class WorkerOperations(ServicePart):
    """Records heartbeats, shows workers, and sends them commands."""

    def alive(self, heartbeat: WorkerHeartbeat, *, goes_on: bool = False) -> Command | None:
        """Record a heartbeat and return the command for the worker; one write unit.

        The first heartbeat of a worker with a version costs a read and a write more.

        With *goes_on*, it began when the live worker of its name did, if there is one.  Raises
        Forbidden unless the caller may use all of its queues, earlier ones included.
        """
        for queue in heartbeat.queues:
            if not visible(queue):
                raise access.not_this_queue(queue)
        if goes_on or restricted():
            with flat_rate():
                record = self.store.record(WORKERS, heartbeat.name)
            before = self._living(record) if record else None
            if before is not None:
                if not all(map(visible, before.heartbeat.queues)):
                    raise access.not_all_queues_of("worker", heartbeat.name)
                if goes_on:
                    heartbeat = replace(heartbeat, started_at=before.heartbeat.started_at)
        self.service.versions.note(heartbeat)
        return worker_of(self.store.renew_record(worker_record(heartbeat, self.now()))).command

    def list(
        self,
        *,
        where: ListQuery[LiveWorker] = EVERY_ROW,
        silent: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found[LiveWorker]:
        """Return a page of the live workers on the caller's queues, by name.

        With *silent*, recently silent ones are included.  *where* is compared with the fields that
        the caller may see.  A page may be short and not the last.  Other queues are left out, and
        running tasks are named only if the caller may see all queues of a worker.  Raises
        InvalidRequest for a forged cursor.
        """
        patterns, now = caller().patterns, self.now()
        kind = "remembered workers" if silent else "workers"

        def seen(record: Record) -> LiveWorker | None:
            worker = self._remembered(record) if silent else self._living(record)
            known = _shown(worker) if worker else None
            return known if known and where.matches(known, now) else None

        return seek(
            self.store,
            WORKERS,
            seen,
            self.service.cursors,
            f"{kind} of {patterns} {where.text}",
            limit=limit,
            cursor=cursor,
            now=self.now,
        )

    def one(self, name: str) -> LiveWorker:
        """Return a worker as list() shows it, also a silent one.

        Raises NotFound; a caller that may not see all queues gets Forbidden instead, also for a
        worker of other queues.
        """
        with flat_rate():
            record = self.store.record(WORKERS, name)
        found = self._remembered(record) if record else None
        worker = _shown(found) if found else None
        if worker is None:
            raise _missing(name)
        return worker

    def tasks(self, workers: Sequence[LiveWorker], *, of_each: int) -> dict[str, Sequence[Task]]:
        """Return the tasks that *workers* report as running, by worker name, the oldest first.

        At most *of_each* are read for each worker.  Tasks that are not in flight, and tasks that
        the caller may not see, are left out.
        """
        named = {
            worker.heartbeat.name: (worker.heartbeat.running or ())[:of_each] for worker in workers
        }
        wanted = {task_id for ids in named.values() for task_id in ids}
        found = self.store.read(wanted, payload=False, consistent=False) if wanted else {}
        mine = {
            task_id: task
            for task_id, task in found.items()
            if task.state is State.INFLIGHT and visible(task.queue)
        }
        return {
            name: sorted(
                (mine[task_id] for task_id in ids if task_id in mine),
                key=lambda task: (task.started_at or task.created_at, task.id),
            )
            for name, ids in named.items()
        }

    def ask(self, name: str, command: Command) -> LiveWorker:
        """Leave *command* for the next heartbeat of the worker's current process.

        A worker that was asked to stop gets no weaker command.  Raises NotFound for a silent or
        unknown worker, and Forbidden unless the caller may use all of its queues; a caller that may
        not see all queues gets Forbidden for both.
        """
        record, worker = self._found(name)
        queues = worker.heartbeat.queues
        only = queues[0] if len(queues) == 1 else None
        where = {"queues": [*queues]}
        action = f"{command}_worker"
        with self.service.audit.action(action, queue=only, where=where, ids=[name]) as outcome:
            for _ in range(_LOOKS):
                if worker.command in (command, Command.STOP):
                    outcome.changed = 0
                    return worker
                note = command_note(command, worker.heartbeat)
                if self.store.leave_note(WORKERS, name, note, expects=record.note):
                    return replace(worker, command=command)
                record, worker = self._found(name)
            raise Unavailable("others are commanding this worker too; try again")

    def _found(self, name: str) -> tuple[Record, LiveWorker]:
        record = self.store.record(WORKERS, name)
        worker = self._living(record) if record else None
        if record is None or worker is None or not all(map(visible, worker.heartbeat.queues)):
            raise _missing(name)
        return record, worker

    def _remembered(self, record: Record) -> LiveWorker | None:
        worker = worker_of(record)
        return worker if worker.remembered(self.now()) else None

    def _living(self, record: Record) -> LiveWorker | None:
        worker = worker_of(record)
        return worker if worker.is_alive(self.now()) else None


def _shown(worker: LiveWorker) -> LiveWorker | None:
    """Return *worker* as the caller may see it; None for a worker of other queues."""
    heartbeat = worker.heartbeat
    own = tuple(filter(visible, heartbeat.queues))
    if len(own) == len(heartbeat.queues):
        return worker
    return replace(worker, heartbeat=replace(heartbeat, queues=own, running=None)) if own else None


def _missing(name: str) -> NotFound | Forbidden:
    missing = NotFound(f"there is no worker {name[:_SHOWN]}, or it is silent")
    return not_shown(missing, access.not_all_queues_of("worker", name))
