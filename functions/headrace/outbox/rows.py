"""A task as a row of an outbox: checked as an enqueue would, with its id, its times made absolute.

What only the service can tell (the queue is missing, an expiry has passed) is found by the relay.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, get_args

import msgspec

from headrace.client.app import checks
from headrace.client.app.posting import PreparedTask
from headrace.client.calls import instant_text
from headrace.client.codec import Codec
from headrace.client.sending import NewTask, task_entry
from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.ids import new_task_id
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import DedupeUntil, Overwritable
from headrace.domain.task_fields import SetBy, TaskField, texts
from headrace.domain.values import convert

TABLE: Final = "headrace_outbox"
"""What the table is called, unless its user calls it something else."""

ERROR_LENGTH: Final = 1000
"""Characters that are kept of the error of a row."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to be written: ``entry`` is the JSON of the task as an enqueue carries it."""

    task_id: str
    queue: str
    entry: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class OutboxRow(NewRow):
    """A row as it stands; ``refused_at`` is set once the service will never take it as it is."""

    seq: int
    attempts: int = 0
    error: str | None = None
    refused_at: datetime | None = None

    def __repr__(self) -> str:
        """A short form for logs, without the payload."""
        return f"<OutboxRow {self.task_id} for {self.queue}>"


def new_row(queue: str, task: NewTask, codec: Codec, *, now: datetime) -> NewRow:
    """Return the row that *task* of *queue* is; delays count from *now*.

    Raises InvalidRequest naming every field that is wrong, PayloadTooLarge over 256 KiB.
    """
    faults = [fault for check in _checks(queue, task) for fault in _faults(check)]
    if faults:
        raise checks.all_wrong(faults)
    task_id = task.id or new_task_id(now)
    due_at = task.scheduled_at
    if task.delay_in_seconds:
        due_at = now + timedelta(seconds=task.delay_in_seconds)
    if task.unique_for_seconds is not None:
        # The window is that of the write, and the service chooses the id.
        dated = replace(task, scheduled_at=due_at or now, delay_in_seconds=None)
    else:
        dated = replace(task, id=task_id, scheduled_at=due_at, delay_in_seconds=None)
    return NewRow(task_id, queue, task_entry(dated, codec, path="task").decode(), now)


def _faults(check: Callable[[], object]) -> Iterator[FieldError]:
    try:
        check()
    except InvalidRequest as error:
        yield from error.errors


def _checks(queue: str, task: NewTask) -> Iterator[Callable[[], object]]:
    """What is to be tried; each raises InvalidRequest for what it finds wrong."""
    yield partial(checks.name, "queue", queue)
    if task.id is not None:
        yield partial(checks.task_id, "task.id", task.id)
    for name in ("scheduled_at", "expires_at"):
        moment = getattr(task, name)
        if moment is not None:
            yield partial(_instant, f"task.{name}", moment)
    for name, bounds in _SECONDS.items():
        number = getattr(task, name)
        if number is not None:
            yield partial(checks.seconds, f"task.{name}", number, bounds)
    for name, check in _OTHERS.items():
        value = getattr(task, name)
        if value is not None:
            yield partial(check, f"task.{name}", value)
    if task.retry_strategy is not None:
        yield partial(_retry_strategy, "task.retry_strategy", task.retry_strategy)
    yield partial(_agree, task)


def _text(field: TaskField, name: str, value: str) -> None:
    checks.text(name, value, field)


_OTHERS: Final[Mapping[str, Callable[[str, Any], object]]] = {
    **{field.api_name: partial(_text, field) for field in texts(SetBy.ENQUEUE)},
    "dedupe_until": lambda field, value: checks.one_of(field, value, DedupeUntil),
    "tags": checks.tags,
    "priority": checks.priority,
}
_SECONDS: Final = {
    "delay_in_seconds": limits.DELAY_SECONDS,
    "keepalive_timeout_in_seconds": limits.KEEPALIVE_SECONDS,
    "unique_for_seconds": limits.UNIQUE_SECONDS,
}


def _instant(field: str, moment: object) -> None:
    if not isinstance(moment, datetime):
        raise checks.wrong(field, f"must be a datetime, not {type(moment).__name__}")
    instant_text(moment, field=field)


def _agree(task: NewTask) -> None:
    """Check what must go together."""
    if task.scheduled_at is not None and task.delay_in_seconds is not None:
        message = "give either scheduled_at or delay_in_seconds, not both"
        names = ("task.delay_in_seconds", "task.scheduled_at")
        raise checks.all_wrong([FieldError(name, message) for name in names])
    if _too_early(task.expires_at, task.scheduled_at):
        raise checks.wrong("task.expires_at", "must be after scheduled_at")
    named = task.overwrite_on_duplicate
    unknown = [name for name in named or () if name not in get_args(Overwritable)]
    if unknown:
        raise checks.wrong("task.overwrite_on_duplicate", f"cannot name {', '.join(unknown)}")
    if task.dedupe_key is None:
        needing = {
            "overwrite_on_duplicate": named,
            "dedupe_until": task.dedupe_until == DedupeUntil.START,
            "unique_for_seconds": task.unique_for_seconds is not None,
        }
        for field in filter(needing.get, needing):
            raise checks.wrong(f"task.{field}", "needs a dedupe_key")
    if task.unique_for_seconds is not None and task.id is not None:
        raise checks.wrong("task.id", "and unique_for_seconds exclude each other")


def _too_early(end: object, start: object) -> bool:
    """Whether *end* comes too early; of two instants that can be compared."""
    if not (isinstance(end, datetime) and isinstance(start, datetime)):
        return False
    return None not in (end.utcoffset(), start.utcoffset()) and end <= start


def _retry_strategy(field: str, given: RetryStrategy | Mapping[str, Any] | None) -> None:
    if not isinstance(given, Mapping):
        checks.retry_strategy(field, given)
        return
    known = {one.name for one in fields(RetryStrategy)}
    faults = [FieldError(f"{field}.{name}", "is no field") for name in given if name not in known]
    if faults:
        raise checks.all_wrong(faults)
    try:
        strategy = convert(dict(given), RetryStrategy)
    except msgspec.ValidationError as error:
        raise checks.wrong(field, f"cannot be read: {error}") from None
    if strategy.kind is Backoff.INTERVALS:
        stated = given.get("max_retries", len(strategy.intervals))
        if stated != len(strategy.intervals):
            raise checks.wrong(f"{field}.max_retries", "must be the number of intervals")
    checks.retry_strategy(field, strategy)


P = ParamSpec("P")


class Preparing(Protocol[P]):
    """A task function, or one with options chosen: ``send_mail.options(delay=60)``.

    What is prepared, a task function's call or a task for a queue by its name, is what every outbox
    writes: in the transaction that its first argument is, or that the library knows by itself.
    """

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask:
        """Return the task of a call with these arguments.  Raises InvalidRequest."""
        ...


def prepared_calls(
    task: Preparing[...], calls: Iterable[Mapping[str, Any]]
) -> Iterable[PreparedTask]:
    """Return the tasks of *calls*, each given as its arguments by name.

    Raises TypeError for what is no task function, InvalidRequest for what is no mapping.
    """
    prepare = _preparing(task).prepare
    return (prepare(**checks.arguments(place, call)) for place, call in enumerate(calls))


def prepared_call(task: Preparing[P], *args: P.args, **kwargs: P.kwargs) -> PreparedTask:
    """Return the task of one call.  Raises TypeError for what is no task function."""
    return _preparing(task).prepare(*args, **kwargs)


def _preparing(task: Preparing[P]) -> Preparing[P]:
    if not hasattr(task, "prepare"):
        raise TypeError(
            "an outbox takes a task function, as send or send.options(…), and then its arguments,"
            f" not {type(task).__name__}; a task for a queue by its name is written by add(…)"
        )
    return task


def prepared_tasks(queue: str, tasks: Iterable[NewTask], codec: Codec) -> Iterable[PreparedTask]:
    """Return *tasks* as those of *queue*, whose payloads *codec* writes."""
    return (PreparedTask(queue, task, codec) for task in tasks)
