"""Rows of an outbox: a task with its id and absolute times, or the calls that start a workflow."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, Protocol, TypedDict, Unpack

import msgspec

from headrace.client.app import checks
from headrace.client.app.clients import PreparedTask
from headrace.client.calls import ApiCall, RawAnswer, reads
from headrace.client.calls.batches import create_batch, member_id
from headrace.client.calls.tasks import enqueue_entries
from headrace.client.chains import CallGroup, chain
from headrace.client.codec import Codec
from headrace.client.operations import cut
from headrace.client.sending import NewTask, SpawnedTask, check_call, in_batch, task_entry
from headrace.client.workflows import Workflow, new_workflow_id
from headrace.domain import limits
from headrace.domain.ids import new_batch_id, new_idempotency_key, new_task_id
from headrace.outbox.table import NewRow
from headrace.wire.tasks import Enqueued, EnqueueResults

_CALLS: Final = '{"calls":'
_TASKS: Final = "/tasks"


def new_row(queue: str, task: NewTask, codec: Codec, *, now: datetime) -> NewRow:
    """Return the row of *task* for *queue*; delays count from *now*.

    Raises InvalidRequest for a name or an id that cannot be one and for a payload without JSON,
    PayloadTooLarge over 256 KiB.  The service checks the other fields when the task is relayed.
    """
    checks.name("queue", queue)
    if task.id is not None:
        checks.task_id("task.id", task.id)
    task_id = task.id or new_task_id(now)
    dated = _dated(task, now)
    if task.unique_for_seconds is None:  # else the service chooses the id
        dated = replace(dated, id=task_id)
    elif dated.scheduled_at is None and dated.delay_in_seconds is None:
        dated = replace(dated, scheduled_at=now)  # its window is that of the write
    return NewRow(task_id, queue, task_entry(dated, codec, path="task").decode(), now)


def _dated(task: NewTask, now: datetime) -> NewTask:
    """Return *task* due at an instant instead of after a delay, unless the delay is wrong."""
    delay, (_, longest) = task.delay_in_seconds, limits.DELAY_SECONDS
    if task.scheduled_at is not None or not isinstance(delay, int | float):
        return task
    if not 0 <= delay <= longest:
        return task
    due_at = now + timedelta(seconds=delay) if delay else None
    return replace(task, scheduled_at=due_at, delay_in_seconds=None)


# ---------------------------------------------------------------------------- workflows and batches


class BatchCallbacks(TypedDict, total=False):
    """The callbacks of a batch; see `Client.batch`."""

    on_ended: SpawnedTask | None
    on_succeeded: SpawnedTask | None
    on_failed: SpawnedTask | None


def _calls_row(id: str, calls: Iterable[ApiCall[Any]], codec: Codec, now: datetime) -> NewRow:
    checks.task_id("id", id)
    stored = [(call.path, call.body(codec)) for call in calls if call.body is not None]
    queue = next(path for path, _ in stored if path.endswith(_TASKS)).split("/")[-2]
    bodies = [{"path": path, "body": msgspec.Raw(body)} for path, body in stored]
    return NewRow(id, queue, msgspec.json.encode({"calls": bodies}).decode(), now)


class _StoredCall(msgspec.Struct):
    path: str
    body: msgspec.Raw


class _StoredCalls(msgspec.Struct):
    calls: list[_StoredCall]


_decode_calls: Final = msgspec.json.Decoder(_StoredCalls).decode


def calls_of(row: NewRow) -> list[ApiCall[list[Enqueued]]] | None:
    """Return the calls of a *row* that starts a workflow or a batch; None for a task.

    The calls name the ids of everything they create, so repeating them changes nothing.  An
    unreadable row is sent as a task, which the service refuses.
    """
    if not row.entry.startswith(_CALLS):
        return None
    try:
        stored = _decode_calls(row.entry).calls
    except msgspec.DecodeError:
        return None
    return [_call(one.path, bytes(one.body)) for one in stored]


def _call(path: str, body: bytes) -> ApiCall[list[Enqueued]]:
    def read(answer: RawAnswer) -> list[Enqueued]:
        return reads(EnqueueResults)(answer).results if path.endswith(_TASKS) else []

    return ApiCall("POST", path, read, body=lambda _: body, key=new_idempotency_key())


# --------------------------------------------------------------------------------- task functions

P = ParamSpec("P")


class Preparing(Protocol[P]):
    """A task function, or one with options chosen: ``send_mail.options(delay=60)``."""

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask:
        """Return the task of a call with these arguments.  Raises InvalidRequest."""
        ...


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes the rows of an outbox.  Raises what an enqueue of the same raises."""

    codec: Codec
    now: Callable[[], datetime]

    def call(self, task: Preparing[P], *args: P.args, **kwargs: P.kwargs) -> list[NewRow]:
        """Return the row of one call.  Raises TypeError for what is no task function."""
        return self._prepared([_preparing(task).prepare(*args, **kwargs)])

    def calls(self, task: Preparing[...], calls: Iterable[Mapping[str, Any]]) -> list[NewRow]:
        """Return the rows of *calls*, each given as its arguments by name.

        Raises TypeError for what is no task function, InvalidRequest for what is no mapping.
        """
        prepare = _preparing(task).prepare
        return self._prepared(
            prepare(**checks.arguments(place, call)) for place, call in enumerate(calls)
        )

    def tasks(self, queue: str, tasks: Iterable[NewTask]) -> list[NewRow]:
        """Return the rows of *tasks* for *queue*."""
        return self._prepared(PreparedTask(queue, task, self.codec) for task in tasks)

    def _prepared(self, tasks: Iterable[PreparedTask]) -> list[NewRow]:
        now = self.now()
        return [new_row(one.queue, one.task, one.codec, now=now) for one in tasks]

    def workflow(self, workflow: Workflow[Any] | CallGroup[Any], id: str | None) -> list[NewRow]:
        """Return the row that starts *workflow* under *id*."""
        whole = chain(workflow) if isinstance(workflow, CallGroup) else workflow
        name = id or new_workflow_id()
        return [_calls_row(name, whole.calls(name), self.codec, self.now())]

    def batch(
        self, calls: Iterable[SpawnedTask], id: str | None, **callbacks: Unpack[BatchCallbacks]
    ) -> list[NewRow]:
        """Return the row that creates a batch under *id*, and enqueues *calls* as its members.

        Raises InvalidRequest for no calls.
        """
        members: dict[str, list[bytes]] = {}
        now = self.now()
        name, total = id or new_batch_id(now), 0
        for place, call in enumerate(calls):
            check_call(call, f"calls[{place}]")
            task = replace(_dated(call, now), id=call.id or member_id(name, place))
            entry = task_entry(in_batch(task, name), self.codec, path=f"calls[{place}]")
            members.setdefault(call.queue, []).append(entry)
            total += 1
        if not total:
            raise checks.wrong("calls", "must be one at least")
        enqueues = (
            enqueue_entries(queue, some)
            for queue, entries in members.items()
            for some in cut(entries)
        )
        create = create_batch(id=name, total=total, **callbacks)
        return [_calls_row(name, [create, *enqueues], self.codec, now)]


def _preparing(task: Preparing[P]) -> Preparing[P]:
    if not hasattr(task, "prepare"):
        raise TypeError(
            "an outbox takes a task function, as send or send.options(…), and then its arguments,"
            f" not {type(task).__name__}; a task for a queue by its name is written by add(…)"
        )
    return task
