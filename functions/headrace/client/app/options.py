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
from headrace.domain.task import DedupeUntil, KeyHeld, Level, Overwritable, Priority
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
        tags: for filters; the tags of a call are added to the declared tags.
        max_retries: the number of retries, with the usual backoff; by default the queue's.
        retry_strategy: the number and times of retries (`headrace.backoff` makes strategies),
            instead of *max_retries*.
        lease_seconds: how long a lease lasts without a heartbeat; by default the queue's.
        unique_for: the length of time windows; in each, at most one task of the queue is enqueued
            under one key, even after it has ended.  The key is a digest of all arguments unless
            there is a *dedupe_key*.
        overwrite: the fields that a duplicate replaces in the waiting task with its *dedupe_key*:
            ``"payload"``, ``"scheduled_at"``, ``"expires_at"``, ``"tags"``, ``"priority"``.  With a
            *delay* this debounces: the task runs that long after the last of many calls.
        priority: high, normal or low, in a queue with the setting ``priority``.
        group_key: the group of the task, in a queue with the setting ``groups``.
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
    """The options of a task function or a raw handler that say how it runs.

    Args:
        name: the name in payloads, by default module and function.
        retry_on: exception classes that are retried; all others are rejected.  Or a mapping of
            classes to the wait before the retry, or to a RetryStrategy.
        reject_on: exception classes that are not retried: the task is DEAD, ``rejected``.
        timeout: the time after which the attempt fails.
        soft_timeout: the time after which SoftTimeLimit is thrown into the handler.
        isolate: run it in a child process, which a time limit or a cancel can kill.
        on_large_result: of a result over 32 KiB, ``"truncate"`` keeps the beginning and ``"drop"``
            keeps nothing; otherwise the attempt fails and is not repeated.

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
        queue: the queue of its tasks, by default the app's.
        dedupe_key: a format over the arguments (``"mail:{to}"``), a function of them, or True for a
            digest of all; at most one live task of the queue has a key.
        expires: how long after its due time a task expires.

    """

    queue: str | None
    dedupe_key: "DedupeKey | None"
    expires: Duration | None


class CallOptions(DeclaredOptions, total=False):
    """The options of one call.

    Args:
        queue: the queue, instead of that of the function.
        delay: the time until the task is due.
        scheduled_at: when the task is due, an aware datetime; instead of ``delay``.
        dedupe_key: at most one live task of the queue has this key.
        expires: how long after its due time the task expires, or an aware datetime.
        id: your own id, which makes the call safe to repeat.
        batches: ids of batches that the task joins.

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
    "priority": partial(checks.one_of, words=Priority),
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
