"""What goes out: tasks to make, reports, and the bodies that hold them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

import msgspec

from headrace.client.calls import instant_text, json_body
from headrace.client.codec import Codec
from headrace.client.current import traced
from headrace.client.options import no_attribute
from headrace.client.settings import utc_now
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, PayloadTooLarge
from headrace.domain.ids import new_task_id
from headrace.domain.limits import RELAY_TASK
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import KeyHeld, Level, Overwritable
from headrace.wire.tasks import LeasedTask, Task

if TYPE_CHECKING:
    from headrace.client.app.clients import AppQueues

Seconds: TypeAlias = float
ResultOf: TypeAlias = Callable[[Task], Any]
"""What reads the result of a call from its task, when that has ended."""

R_co = TypeVar("R_co", covariant=True)
Status: TypeAlias = Literal["SUCCEEDED", "INFLIGHT", "FAILED", "RELEASED", "MOVED"]

_ENQUEUES: Final = dict.fromkeys(
    ("aenqueue", "apply_async", "delay", "enqueue", "send"),
    "a batch or a workflow makes it; to enqueue it now, say {}.enqueue(…) without .s",
)
"""What enqueues a task here and elsewhere, which a call alone does not."""

_CARRIED: Final = {
    "payload": limits.PAYLOAD_BYTES,
    "result": limits.RESULT_BYTES,
    "progress": limits.PROGRESS_BYTES,
}
"""The fields that a codec writes, and the most bytes each may take."""


class TaskTemplate(TypedDict, total=False):
    """The fields that a program may set for a task and for the tasks of a schedule."""

    dedupe_key: str | None
    dedupe_until: KeyHeld | None
    keepalive_timeout_in_seconds: Seconds | None
    retry_strategy: RetryStrategy | Mapping[str, Any] | None
    tags: Mapping[str, str] | None
    priority: Level | None
    note: str | None


class NewTaskFields(TaskTemplate, total=False):
    """The fields that a program may set for a task, besides its payload."""

    payload_ref: str | None
    id: str | None
    scheduled_at: datetime | None
    delay_in_seconds: Seconds | None
    expires_at: datetime | None
    unique_for_seconds: Seconds | None
    overwrite_on_duplicate: Sequence[Overwritable] | None
    batches: Sequence[str] | None
    group_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to be made.  Without an id it gets one here, which makes the call safe to repeat.

    With ``unique_for_seconds`` the service chooses the id.  ``payload_ref`` stands for a payload
    that was uploaded, and has an id.
    """

    payload: Any = None
    payload_ref: str | None = None
    id: str | None = None
    scheduled_at: datetime | None = None
    delay_in_seconds: Seconds | None = None
    expires_at: datetime | None = None
    dedupe_key: str | None = None
    dedupe_until: KeyHeld | None = None
    unique_for_seconds: Seconds | None = None
    overwrite_on_duplicate: Sequence[Overwritable] | None = None
    keepalive_timeout_in_seconds: Seconds | None = None
    retry_strategy: RetryStrategy | Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None
    batches: Sequence[str] | None = None
    priority: Level | None = None
    group_key: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnedTask(NewTask):
    """A task to be made, in whatever queue: with a report, by a batch, or as a step of others."""

    queue: str


RESULTS: Final = "results"
"""The member of a step's payload with the arguments that are results of steps before it."""


class StepResult:
    """An argument of a workflow's step: the result of the step of this name.

    None stands for all steps before it, whose results come in a list.  It is no dataclass, because
    a codec would write that into a list of arguments as an object of its fields.
    """

    def __init__(self, step: str | None = None) -> None:
        self.step = step


class _Previous:
    """What `previous` is."""

    __slots__ = ()

    @property
    def result(self) -> Any:  # noqa: ANN401  whatever that step returns
        """The result of the step before, as in ``chain(load.s(1), save.s(previous.result))``.

        After a group, and in the callback of a batch, it is the list of all results.
        """
        return StepResult()


previous: Final = _Previous()


class WithResult(Generic[R_co]):
    """What gives a chain its result, where it is the last of it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall(SpawnedTask, WithResult[R_co]):
    """The same as a call of a function, which knows what its result is read by.

    It also knows what makes its queue.
    """

    result_of: ResultOf = field(compare=False, repr=False, metadata={"sent": False})
    queue_maker: "AppQueues | None" = field(
        default=None, compare=False, repr=False, metadata={"sent": False}
    )

    if not TYPE_CHECKING:  # type checkers report missing attributes

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (always raises)
            """Raise AttributeError, which knows how a call is enqueued at once."""
            raise no_attribute(self, name, _ENQUEUES, str(self.payload["task"]).rpartition(".")[2])


def spawned(queue: str, task: NewTask, **others: Any) -> SpawnedTask:  # noqa: ANN401 (of a task)
    """Return *task* as one of *queue*, with *others* of its fields."""
    return SpawnedTask(queue=queue, **{**_fields(task), **others})


def make_call(
    queue: str, task: NewTask, result_of: ResultOf, queue_maker: "AppQueues | None" = None
) -> FunctionCall[Any]:
    """Return *task* as one of *queue* whose result *result_of* reads."""
    fields = _fields(task)
    return FunctionCall(queue=queue, result_of=result_of, queue_maker=queue_maker, **fields)


def _fields(task: NewTask) -> dict[str, Any]:
    return {one.name: getattr(task, one.name) for one in fields(NewTask)}


def check_call(task: object, path: str) -> None:
    """Raise InvalidRequest, naming *path*, for what is no call: a function without ``.s``, say."""
    if not isinstance(task, SpawnedTask):
        message = f"must be a call, as send.s() is one, not {type(task).__name__}"
        raise InvalidRequest.of(path, message)


Made = TypeVar("Made", bound=NewTask)


def in_batch(task: Made, *batches: str) -> Made:
    """Return *task* as one that *batches* count too.

    Raises InvalidRequest for more than four.
    """
    together = tuple(dict.fromkeys((*(task.batches or ()), *batches)))
    if len(together) > limits.TASK_BATCHES:
        message = f"must be at most {limits.TASK_BATCHES}; these are {len(together)}"
        raise InvalidRequest.of("batches", message)
    return replace(task, batches=together)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed; together up to 4 KiB are kept, the longest text is cut."""

    type: str = ""
    message: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A worker's report on a task it holds."""

    task_id: str
    lease_id: str
    status: Status
    result: Any = None
    progress: Any = None
    error: Failure | None = None
    retryable: bool = True
    delay_in_seconds: Seconds | None = None
    to_queue: str | None = None
    payload: Any = None
    tags: Mapping[str, str] | None = None
    keepalive_timeout_in_seconds: Seconds | None = None
    spawn: Sequence[SpawnedTask] = ()
    written: list[dict[str, Any]] = field(
        init=False, default_factory=list, compare=False, repr=False, metadata={"sent": False}
    )
    """The entry as it was first sent: a repeat must say the same, and a codec may not."""

    @classmethod
    def on(cls, task: LeasedTask, status: Status, **fields: Any) -> "Report":  # noqa: ANN401 (of a report)
        """The report on *task*, under the lease that it is held with."""
        return cls(task_id=task.id, lease_id=task.lease.id, status=status, **fields)


def tasks_body(entries: Sequence[bytes]) -> bytes:
    """Return the body of an enqueue from its *entries*."""
    return b'{"tasks":[' + b",".join(entries) + b"]}"


def task_entry(task: NewTask, codec: Codec, *, path: str) -> bytes:
    """Return *task* as JSON, with an id.

    Raises InvalidRequest or PayloadTooLarge naming the field under *path*.
    """
    entry = _new_task(task, codec, path)
    entry.pop("queue", None)  # of a call that says its own: the path has it
    return json_body(entry, path=path)


def callback_entry(task: SpawnedTask, codec: Codec, *, path: str) -> dict[str, Any]:
    """Return a callback of a batch as JSON has it: its id is the batch's to choose.

    Raises InvalidRequest or PayloadTooLarge naming the field under *path*.
    """
    payload = task.payload
    if isinstance(payload, dict) and payload.get("task") == RELAY_TASK:
        return {**_traced_entry(replace(task, payload=None), codec, path), "relay": True}
    return _traced_entry(task, codec, path)


def reports_body(reports: Iterable[Report], codec: Codec) -> bytes:
    """Return the body of a call that reports.

    Raises InvalidRequest or PayloadTooLarge naming the field.
    """
    entries = []
    for place, report in enumerate(reports):
        if not report.written:
            report.written.append(_report_entry(report, codec, f"reports[{place}]"))
        entries.append(report.written[0])
    return json_body({"reports": entries})


def _report_entry(report: Report, codec: Codec, path: str) -> dict[str, Any]:
    entry = _given(report, codec, path, without=("spawn",))
    if report.retryable:
        del entry["retryable"]
    if report.spawn:
        # The service derives the id of a child without one from the lease.
        entry["spawn"] = [
            {**_traced_entry(child, codec, f"{path}.spawn[{number}]"), "queue": child.queue}
            for number, child in enumerate(report.spawn)
        ]
    return entry


def carried(value: object, codec: Codec, *, field: str, most: int) -> msgspec.Raw:
    """Return *value* as its codec writes it.

    Raises InvalidRequest if there is no JSON for it, PayloadTooLarge over *most* bytes.
    """
    try:
        text = codec.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequest.of(field, f"cannot be written as JSON: {error}") from error
    fault = limits.json_fault(len(text), most)
    if fault:
        raise PayloadTooLarge.of(field, fault)
    return msgspec.Raw(text)


def _new_task(task: NewTask, codec: Codec, path: str) -> dict[str, Any]:
    entry = _traced_entry(task, codec, path)
    if task.payload_ref is None and task.unique_for_seconds is None:  # those have their own
        entry.setdefault("id", new_task_id(utc_now()))
    return entry


def _traced_entry(task: NewTask, codec: Codec, path: str) -> dict[str, Any]:
    entry = _given(task, codec, path)
    if tags := traced(entry.get("tags")):
        entry["tags"] = tags
    return entry


def _given(
    what: NewTask | Report, codec: Codec, path: str, *, without: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields of *what* that say something."""
    given: dict[str, Any] = {}
    names, values_of = _sent(type(what))  # type: ignore[arg-type]  # a type is hashable
    for name, said in zip(names, values_of(what), strict=True):
        if said is None or name in without:
            continue
        value = said
        if name in _CARRIED:
            value = carried(value, codec, field=f"{path}.{name}", most=_CARRIED[name])
        elif isinstance(value, str):  # as most are
            pass
        elif isinstance(value, RetryStrategy):
            value = _strategy(value)
        elif isinstance(value, datetime):
            value = instant_text(value, field=f"{path}.{name}")
        elif isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest.of(f"{path}.{name}", f"must be a finite number, not {value}")
        given[name] = value
    return given


def _strategy(retry: RetryStrategy) -> dict[str, Any]:
    fields_of: dict[str, Any] = msgspec.to_builtins(retry)
    if retry.kind is Backoff.INTERVALS:
        del fields_of["max_retries"]  # it is their number
    return fields_of


@cache
def _sent(kind: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the fields of *kind* that are sent, and what gives their values."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} cannot be sent")
    names = tuple(one.name for one in fields(kind) if one.metadata.get("sent", True))
    return names, attrgetter(*names)
