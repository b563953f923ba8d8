"""Every error of Headrace, as one tree.

HeadraceError
├── InvalidRequest          the caller asked for something that makes no sense (400)
│   ├── PayloadTooLarge     a body, payload, result, progress or spawn over its limit (413)
│   └── NotEnqueued         entries of an enqueue came to nothing; raised by clients
├── Unauthenticated         no key, or an unknown or expired one (401)
├── Forbidden               the key may not do this (403)
├── NotFound                no such queue, task or schedule (404)
├── Conflict                what is stored contradicts the request (409)
│   ├── QueueExists
│   ├── KeyExists
│   ├── VersionMismatch
│   ├── Inflight
│   ├── Finished
│   ├── LeaseLost
│   ├── TaskDead            its result was waited for; raised by clients
│   ├── BatchExists
│   ├── BatchFinished
│   └── IdempotencyConflict
├── RateLimited             too many requests (429)
└── Unavailable             the table is throttled or away; try again (503)

``code`` is stable: programs may match on it.  Programs import them by their names:
a traceback says ``headrace.NotFound``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with a request: the path of the field, and what to do about it."""

    field: str
    message: str


class HeadraceError(Exception):
    """The root: something Headrace refuses or cannot do."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500  # for answers over HTTP
    title: ClassVar[str] = "Internal error"
    request_id: str | None = None  # of the call that was refused, where a client knows it
    answered_code: str | None = None  # that of the answer, where it is not the class's own

    def __init_subclass__(cls) -> None:
        """Title the class by its code, unless it says another title."""
        if "code" in vars(cls) and "title" not in vars(cls):
            cls.title = cls.code.replace("_", " ").capitalize()

    def __init__(self, detail: str, *, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)


class InvalidRequest(HeadraceError):
    """The request cannot be understood or asks for a contradiction."""

    code = "invalid_request"
    status = 400

    @classmethod
    def of(cls, field: str, message: str) -> Self:
        """Return the error of one *field*; *message* says what it must be."""
        return cls(f"{field} {message}", errors=[FieldError(field, message)])


class PayloadTooLarge(InvalidRequest):
    """A body, payload, result or progress is over its limit."""

    code = "payload_too_large"
    status = 413


class NotEnqueued(InvalidRequest):
    """Entries of an enqueue came out INVALID; the others are in their queue.

    What is wrong with such an entry only the stored state or the clock can tell, so no request is
    refused for it: clients raise this.  ``errors`` names the entries, as ``tasks[3]``.
    """

    code = "not_enqueued"
    results: Sequence[Any] = ()  # of all entries, where more than one was sent


class Unauthenticated(HeadraceError):
    """No key was sent, or one that is not known or has expired."""

    code = "unauthenticated"
    status = 401


class Forbidden(HeadraceError):
    """The key is known but may not do this."""

    code = "forbidden"
    status = 403


class NotFound(HeadraceError):
    """There is no such thing, or no longer."""

    code = "not_found"
    status = 404


class Conflict(HeadraceError):
    """What is stored contradicts the request."""

    code = "conflict"
    status = 409


class QueueExists(Conflict):
    """A queue of this name exists, or is still being deleted."""

    code = "queue_exists"


class KeyExists(Conflict):
    """A living key has this name."""

    code = "key_exists"


class VersionMismatch(Conflict):
    """Another change of the settings came first."""

    code = "version_mismatch"


class Inflight(Conflict):
    """The task is being worked on."""

    code = "inflight"
    title = "Task is in flight"


class Finished(Conflict):
    """The task has ended already."""

    code = "finished"
    title = "Task has ended"


class LeaseLost(Conflict):
    """The lease has ended or belongs to somebody else."""

    code = "lease_lost"


class TaskDead(Conflict):
    """A task whose result somebody waits for is dead: there will be none, unless it is restarted.

    ``task`` is the task, with its ``dead_reason`` and ``errors``.
    """

    code = "task_dead"
    title = "Task is dead"
    task: Any = None


class BatchExists(Conflict):
    """A batch of this id exists, and was created otherwise."""

    code = "batch_exists"


class BatchFinished(Conflict):
    """The batch has ended with another total."""

    code = "batch_finished"
    title = "Batch has ended"


class IdempotencyConflict(Conflict):
    """The idempotency key was sent with another request before."""

    code = "idempotency_conflict"


class RateLimited(HeadraceError):
    """Too many requests; try again later."""

    code = "rate_limited"
    status = 429


class Unavailable(HeadraceError):
    """The table is throttled or cannot be reached; nothing is lost, try again."""

    code = "unavailable"
    status = 503

    def __init__(self, detail: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


for _kind in [one for one in vars().values() if isinstance(one, type)]:
    if issubclass(_kind, HeadraceError):
        _kind.__module__ = "headrace"
