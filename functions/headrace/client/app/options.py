"""How one task is enqueued: what is declared with a function, and what is chosen for one call.

Whoever writes an option that is none reads what they may have meant.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, ParamSpec, TypedDict, TypeVar, get_args

from headrace.client.app import checks
from headrace.client.app.checks import Duration, Retries
from headrace.client.codec import JsonValue
from headrace.client.sending import NewTask
from headrace.domain import limits
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import DedupeUntil, KeyHeld, Level
from headrace.domain.task_fields import FIELD, SetBy, texts

P = ParamSpec("P")
R = TypeVar("R")

ELSEWHERE: Final = {
    "delay": "say {0}.enqueue(…), or {0}.options(delay=…).enqueue(…)",
    "apply_async": "say {0}.options(delay=…).enqueue(…)",
    "send": "say {0}.enqueue(…)",
}
"""What other task queues call it, and what it is here."""


_FOREIGN: Final = {
    "autoretry_for": "retry_on",
    "countdown": "delay",
    "dont_autoretry_for": "reject_on",
    "eta": "at",
    "job_id": "id",
    "max_retries": "retries",
    "queue_name": "queue",
    "retry_backoff": "retries",
    "soft_time_limit": "soft_timeout",
    "task_id": "id",
    "throws": "reject_on",
    "time_limit": "timeout",
}
"""What other task queues call an option, and what it is here."""


def named(function: Callable[P, R]) -> Callable[P, R]:
    """Let *function* say which of its options was meant by one that it does not have."""

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except TypeError:
            known = _options(function)
            for name in options:
                if name not in known:
                    raise TypeError(unknown(name, function.__name__, known)) from None
            raise

    return checked


def _options(function: Callable[..., Any]) -> list[str]:
    names: list[str] = []
    for name, each in inspect.signature(function).parameters.items():
        if each.kind is inspect.Parameter.KEYWORD_ONLY:
            names.append(name)
        elif each.kind is inspect.Parameter.VAR_KEYWORD:  # annotated as Unpack of a TypedDict
            names += get_args(each.annotation)[0].__annotations__
    return names


def unknown(name: str, of: str, known: list[str]) -> str:
    """The error message for an unknown option."""
    meant = _FOREIGN.get(name)
    near = [meant] if meant in known else sorted(get_close_matches(name, known, n=2))
    return f"{of} has no option {name}: " + (
        f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}"
    )


class DeclaredOptions(TypedDict, total=False):
    """The options of a task that may be declared with its function, and chosen for one call.

    Args:
        dedupe_until: ``"start"`` frees the key when the task starts, so that an event which
            arrives while the task runs is not lost; ``"end"`` when the task has ended.
        tags: for filters; those of a call are added to those declared with the function.
        retries: a number, a RetryStrategy (`headrace.backoff` has them), or None: as the queue
            says.
        keepalive: how long a lease of it lasts between two heartbeats.
        unique_for: length of the windows of time in each of which at most one task of the queue
            is made under one key, even after that one has ended; the key is a digest of all
            arguments unless *dedupe* makes another.
        priority: high, normal or low, in a queue whose settings have ``priority``.
        group: whose turn it takes, in a queue whose settings have ``groups``.
        note: a text for people, of at most 256 bytes, which stays with the task.

    """

    dedupe_until: KeyHeld | None
    tags: Mapping[str, str] | None
    retries: Retries | None
    keepalive: Duration | None
    unique_for: Duration | None
    priority: Level | None
    group: str | None
    note: str | None


class CallOptions(DeclaredOptions, total=False):
    """The options of one call.

    Args:
        queue: where it goes, instead of the queue of its function.
        delay: how long it waits before it is due.
        at: when it is due, an aware datetime; instead of ``delay``.
        key: while a task of the queue lives under this key, no other is made.
        expires: how long after it is due it is still worth running, or an aware datetime.
        id: an id of your own, which makes the call safe to repeat.
        batches: ids of batches that count it.

    """

    queue: str | None
    delay: Duration | None
    at: datetime | None
    key: str | None
    expires: Duration | datetime | None
    id: str | None
    batches: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a task besides its arguments, as `CallOptions` has them; None: not given."""

    queue: str | None = None
    delay: Duration | None = None
    at: datetime | None = None
    key: str | None = None
    dedupe_until: KeyHeld | None = None
    tags: Mapping[str, str] | None = None
    expires: Duration | datetime | None = None
    retries: Retries | None = None
    id: str | None = None
    keepalive: Duration | None = None
    unique_for: Duration | None = None
    priority: Level | None = None
    group: str | None = None
    note: str | None = None
    batches: Sequence[str] | None = None

    def over(self, declared: "Options") -> "Options":
        """These options over *declared*."""
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) is not None
        }
        if declared.tags and self.tags:
            given["tags"] = {**declared.tags, **self.tags}
        return replace(declared, **given) if given else declared

    def task(self, payload: JsonValue, now: datetime) -> NewTask:
        """Return the task to be made of *payload*.

        Raises InvalidRequest naming the option.
        """
        if self.at is not None and self.delay is not None:
            raise checks.wrong("at", "and delay exclude each other")
        if self.queue is not None:
            checks.name("queue", self.queue)
        at = None if self.at is None else checks.aware("at", self.at)
        delay = checks.optional("delay", self.delay, limits.DELAY_SECONDS)
        due = at or now + timedelta(seconds=delay or 0)
        until, unique = self.held_until(), self.unique_seconds()
        return NewTask(
            payload=payload,
            id=self._id(),
            scheduled_at=at,
            delay_in_seconds=delay,
            expires_at=self._expires_at(due),
            dedupe_key=None
            if self.key is None
            else checks.text("key", self.key, FIELD["dedupe_key"]),
            dedupe_until=None if self.key is None else until,
            unique_for_seconds=None if self.key is None else unique,
            keepalive_timeout_in_seconds=self.keepalive_seconds(),
            retry_strategy=self.retry_strategy(),
            tags=checks.tags("tags", self.tags) if self.tags is not None else None,
            priority=self.level(),
            batches=None if self.batches is None else tuple(self.batches),
            **self.texts(SetBy.ENQUEUE),
        )

    def level(self) -> Level | None:
        """Return its priority, if that is given."""
        return None if self.priority is None else checks.priority("priority", self.priority)

    def texts(self, request: SetBy) -> dict[str, Any]:
        """Return the texts that *request* may set, by their names in the API, if they are given.

        Raises InvalidRequest naming the option.
        """
        given = {field: getattr(self, field.option, None) for field in texts(request)}
        return {
            field.api_name: checks.text(field.option, text, field)
            for field, text in given.items()
            if text is not None
        }

    def keepalive_seconds(self) -> float | None:
        """Return how long a lease lasts, if that is given."""
        return checks.optional("keepalive", self.keepalive, limits.KEEPALIVE_SECONDS)

    def retry_strategy(self) -> RetryStrategy | None:
        """How often and when it is retried, if that is given."""
        return None if self.retries is None else checks.retry_strategy("retries", self.retries)

    def expires_seconds(self) -> float | None:
        """Return how long after its due time a task expires, if that is given.

        Raises InvalidRequest for a moment instead of a length.
        """
        return checks.optional("expires", self.expires, limits.EXPIRES_SECONDS)

    def unique_seconds(self) -> float | None:
        """Return the length of the windows, if that is given."""
        return checks.optional("unique_for", self.unique_for, limits.UNIQUE_SECONDS)

    def held_until(self) -> DedupeUntil | None:
        """Return how long the key is held, if that is given."""
        given = self.dedupe_until
        return None if given is None else checks.one_of("dedupe_until", given, DedupeUntil)

    def check_key(self) -> None:
        """Raise InvalidRequest if the options need a key and have none."""
        if self.key is None and self.held_until() is DedupeUntil.START:
            raise checks.wrong("dedupe_until", "needs a dedupe key")

    def _id(self) -> str | None:
        if self.id is None:
            return None
        if self.unique_for is not None:
            raise checks.wrong("id", "and unique_for exclude each other")
        return checks.task_id("id", self.id)

    def _expires_at(self, due: datetime) -> datetime | None:
        if not isinstance(self.expires, datetime):
            after = self.expires_seconds()
            return None if after is None else due + timedelta(seconds=after)
        moment = checks.aware("expires", self.expires)
        if moment <= due:
            raise checks.wrong("expires", f"must be after the task is due, {due.isoformat()}")
        return moment
