"""The options of a task: declared with a function, or chosen for one call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, get_args

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.app.failing import ErrorClasses, RetryOn
from headrace.client.app.outcomes import OnLargeResult
from headrace.client.codec import JsonValue
from headrace.client.sending import NewTask
from headrace.domain import limits
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import DedupeUntil, KeyHeld, Level, Overwritable
from headrace.domain.task_fields import SetBy, texts

if TYPE_CHECKING:
    from headrace.client.app.dedupe_keys import DedupeKey

ELSEWHERE: Final = {
    "delay": "say {0}.enqueue(…), or {0}.options(delay=…).enqueue(…)",
    "apply": "say {0}(…) to run it here, {0}.enqueue(…) to enqueue it",
    **dict.fromkeys(("signature", "si", "subtask"), "say {0}.s(…)"),
    **dict.fromkeys(
        ("apply_async", "schedule", "send_with_options"), "say {0}.options(delay=…).enqueue(…)"
    ),
    "send": "say {0}.enqueue(…)",
}
"""Methods that other task queues have, and what to write here."""


class DeclaredOptions(TypedDict, total=False):
    """The options of a task that may be declared with its function, and chosen for one call.

    Args:
        dedupe_until: ``"start"`` frees the key when the task starts, so that an event which
            arrives while the task runs is not lost; ``"end"`` when the task has ended.
        tags: for filters; those of a call are added to those declared with the function.
        max_retries: how often the task is retried, with the usual backoff; the queue's by default.
        retry_strategy: when and how often it is retried (`headrace.backoff` makes strategies);
            instead of *max_retries*.
        lease_seconds: how long a lease lasts between two heartbeats; the queue's by default.
        unique_for: length of the windows of time in each of which at most one task of the queue
            is made under one key, even after that one has ended; the key is a digest of all
            arguments unless there is a *dedupe_key*.
        overwrite: what a duplicate replaces of the waiting task that has its *dedupe_key*:
            ``"payload"``, ``"scheduled_at"``, ``"expires_at"``, ``"tags"``, ``"priority"``.  With a
            *delay* this debounces: the task runs that long after the last of many calls.
        priority: high, normal or low, in a queue whose settings have ``priority``.
        group_key: whose turn it takes, in a queue whose settings have ``groups``.
        note: a text for people, of at most 256 bytes, which stays with the task.

    """

    dedupe_until: KeyHeld | None
    tags: Mapping[str, str] | None
    max_retries: int | None
    retry_strategy: RetryStrategy | None
    lease_seconds: Duration | None
    unique_for: Duration | None
    overwrite: Sequence[Overwritable] | None
    priority: Level | None
    group_key: str | None
    note: str | None


class HandlerOptions(TypedDict, total=False):
    """How a function is run: a task's or a raw handler.

    Args:
        name: what payloads call it, else module and function.
        retry_on: exception classes that are retried; all others are rejected.  Or a mapping of
            such to the wait before the retry, or to a RetryStrategy of their own.
        reject_on: exception classes that are rejected: dead at once.
        timeout: the attempt has failed after that.
        soft_timeout: the handler is asked to end after that, by SoftTimeLimit.
        isolate: run it in a child process, which a time limit or a cancel can kill.
        on_large_result: what is kept of a result over 32 KiB: ``"truncate"``, its beginning, or
            ``"drop"``, nothing; otherwise the attempt fails and is not repeated.

    """

    name: str | None
    retry_on: RetryOn | None
    reject_on: ErrorClasses | None
    timeout: Duration | None
    soft_timeout: Duration | None
    isolate: bool
    on_large_result: OnLargeResult | None


class TaskOptions(HandlerOptions, DeclaredOptions, total=False):
    """The options of ``@app.task``.

    Args:
        queue: where its tasks go, else the app's default.
        dedupe_key: a format over the arguments (``"mail:{to}"``), a function of them, or True: a
            digest of all; while a task lives under this key, no other is made.
        expires: how long after its due time a task is still worth running.

    """

    queue: str | None
    dedupe_key: "DedupeKey | None"
    expires: Duration | None


class CallOptions(DeclaredOptions, total=False):
    """The options of one call.

    Args:
        queue: where it goes, instead of the queue of its function.
        delay: how long it waits before it is due.
        scheduled_at: when it is due, an aware datetime; instead of ``delay``.
        dedupe_key: while a task of the queue lives under this key, no other is made.
        expires: how long after it is due it is still worth running, or an aware datetime.
        id: an id of your own, which makes the call safe to repeat.
        batches: ids of batches that count it.

    """

    queue: str | None
    delay: Duration | None
    scheduled_at: datetime | None
    dedupe_key: str | None
    expires: Duration | datetime | None
    id: str | None
    batches: Sequence[str] | None


def _within(bounds: limits.Bounds) -> Callable[[str, Any], float]:
    return lambda name, value: checks.seconds(name, value, bounds)


def _expiry(name: str, value: object) -> datetime | float:
    if isinstance(value, datetime):
        return checks.aware(name, value)
    return checks.seconds(name, value, limits.EXPIRES_SECONDS)


def _fields(name: str, value: object) -> tuple[str, ...]:
    known = get_args(Overwritable)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise checks.wrong(name, f"must be a list of names, not {value!r:.140}")
    for one in value:
        if one not in known:
            raise checks.wrong(name, f"must be of {', '.join(known)}, not {one!r:.140}")
    return tuple(value)


_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "queue": checks.name,
    "id": checks.task_id,
    "delay": _within(limits.DELAY_SECONDS),
    "scheduled_at": checks.aware,
    "expires": _expiry,
    **{field.name: partial(checks.text, field=field) for field in texts(SetBy.ENQUEUE)},
    "dedupe_until": partial(checks.one_of, words=DedupeUntil),
    "unique_for": _within(limits.UNIQUE_SECONDS),
    "overwrite": _fields,
    "tags": checks.tags,
    "max_retries": checks.retries,
    "retry_strategy": checks.retry_strategy,
    "lease_seconds": _within(limits.KEEPALIVE_SECONDS),
    "priority": checks.priority,
    "batches": lambda _, value: tuple(value),
}
"""How each option is checked; the check returns the value in seconds, or as an object."""

_IN_THE_API: Final = {
    "delay": "delay_in_seconds",
    "lease_seconds": "keepalive_timeout_in_seconds",
    "overwrite": "overwrite_on_duplicate",
    "unique_for": "unique_for_seconds",
}
"""The options that the API has under another name."""

_NOT_SENT: Final = {"queue", "expires", "max_retries"}
_KEYED: Final = {"dedupe_until", "unique_for", "overwrite"}


_RETRIES: Final = {"max_retries", "retry_strategy"}
_EXCLUSIVE: Final = (
    ("scheduled_at", "delay"),
    ("max_retries", "retry_strategy"),
    ("id", "unique_for"),
)


class Options:
    """The given options of a task, checked.

    Raises InvalidRequest naming the option.
    """

    def __init__(self, **options: Unpack[CallOptions]) -> None:
        self.given: Mapping[str, Any] = {
            name: _CHECKS[name](name, value) for name, value in options.items() if value is not None
        }
        self._check()

    def _check(self) -> None:
        for one, other in _EXCLUSIVE:
            if one in self.given and other in self.given:
                raise checks.wrong(one, f"and {other} exclude each other")

    def over(self, declared: "Options") -> "Options":
        """Return these options over *declared*."""
        if not self.given:
            return declared
        before = dict(declared.given)
        if self.given.keys() & _RETRIES:
            before = {name: one for name, one in before.items() if name not in _RETRIES}
        made = Options()
        made.given = {**before, **self.given}
        if "tags" in before and "tags" in self.given:
            made.given["tags"] = {**before["tags"], **self.given["tags"]}
        made._check()
        return made

    def task(self, payload: JsonValue, now: datetime) -> NewTask:
        """Return the task to be made of *payload*.

        Raises InvalidRequest naming the option.
        """
        without = _NOT_SENT if "dedupe_key" in self.given else _NOT_SENT | _KEYED
        fields = {
            _IN_THE_API.get(name, name): value
            for name, value in self.given.items()
            if name not in without
        }
        fields["retry_strategy"] = self.retries()
        return NewTask(payload=payload, expires_at=self._expires_at(now), **fields)

    def retries(self) -> RetryStrategy | None:
        """Return how often and when the task is retried, if that is given."""
        strategy: RetryStrategy | None = self.given.get("retry_strategy")
        number = self.given.get("max_retries")
        return strategy if number is None else RetryStrategy(max_retries=number)

    def check_key(self) -> None:
        """Raise InvalidRequest if the options need a key and have none."""
        if "dedupe_key" in self.given:
            return
        if self.given.get("dedupe_until") is DedupeUntil.START:
            raise checks.wrong("dedupe_until", "needs a dedupe key")
        if "overwrite" in self.given:
            raise checks.wrong("overwrite", "needs a dedupe key")

    def _expires_at(self, now: datetime) -> datetime | None:
        expires = self.given.get("expires")
        if expires is None:
            return None
        due: datetime = self.given.get("scheduled_at") or now
        due += timedelta(seconds=self.given.get("delay", 0))
        moment: datetime = expires
        if not isinstance(expires, datetime):
            moment = due + timedelta(seconds=expires)
        if moment <= due:
            raise checks.wrong("expires", f"must be after the task is due, {due.isoformat()}")
        return moment
