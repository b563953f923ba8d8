"""The options of a task: declared with a function, or chosen for one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, get_args

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.codec import JsonValue
from headrace.client.sending import NewTask
from headrace.domain import limits
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import DedupeUntil, KeyHeld, Level, Overwritable
from headrace.domain.task_fields import SetBy, texts

ELSEWHERE: Final = {
    "delay": "say {0}.enqueue(…), or {0}.options(delay=…).enqueue(…)",
    "apply_async": "say {0}.options(delay=…).enqueue(…)",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a task besides its arguments, as `CallOptions` has them; None: not given."""

    queue: str | None = None
    delay: Duration | None = None
    scheduled_at: datetime | None = None
    dedupe_key: str | None = None
    dedupe_until: KeyHeld | None = None
    tags: Mapping[str, str] | None = None
    expires: Duration | datetime | None = None
    max_retries: int | None = None
    retry_strategy: RetryStrategy | None = None
    id: str | None = None
    lease_seconds: Duration | None = None
    unique_for: Duration | None = None
    overwrite: Sequence[Overwritable] | None = None
    priority: Level | None = None
    group_key: str | None = None
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
        if "max_retries" in given or "retry_strategy" in given:
            declared = replace(declared, max_retries=None, retry_strategy=None)
        return replace(declared, **given) if given else declared

    def task(self, payload: JsonValue, now: datetime) -> NewTask:
        """Return the task to be made of *payload*.

        Raises InvalidRequest naming the option.
        """
        if self.scheduled_at is not None and self.delay is not None:
            raise checks.wrong("scheduled_at", "and delay exclude each other")
        if self.queue is not None:
            checks.name("queue", self.queue)
        at = None if self.scheduled_at is None else checks.aware("scheduled_at", self.scheduled_at)
        delay = checks.optional("delay", self.delay, limits.DELAY_SECONDS)
        due = at or now + timedelta(seconds=delay or 0)
        until, unique, overwrite = self.held_until(), self.unique_seconds(), self.overwritten()
        return NewTask(
            payload=payload,
            id=self._id(),
            scheduled_at=at,
            delay_in_seconds=delay,
            expires_at=self._expires_at(due),
            dedupe_until=None if self.dedupe_key is None else until,
            unique_for_seconds=None if self.dedupe_key is None else unique,
            overwrite_on_duplicate=None if self.dedupe_key is None else overwrite,
            keepalive_timeout_in_seconds=self.length_of_leases(),
            retry_strategy=self.retries(),
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
        return {
            field.name: checks.text(field.name, text, field)
            for field in texts(request)
            if (text := getattr(self, field.name)) is not None
        }

    def length_of_leases(self) -> float | None:
        """Return how many seconds a lease lasts, if that is given."""
        return checks.optional("lease_seconds", self.lease_seconds, limits.KEEPALIVE_SECONDS)

    def retries(self) -> RetryStrategy | None:
        """Return how often and when it is retried, if that is given.

        Raises InvalidRequest naming the option.
        """
        if self.max_retries is not None:
            if self.retry_strategy is not None:
                raise checks.wrong("max_retries", "and retry_strategy exclude each other")
            return RetryStrategy(max_retries=checks.retries("max_retries", self.max_retries))
        if self.retry_strategy is not None:
            return checks.retry_strategy("retry_strategy", self.retry_strategy)
        return None

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

    def overwritten(self) -> tuple[Overwritable, ...] | None:
        """Return what a duplicate replaces, if that is given.  Raises InvalidRequest."""
        if self.overwrite is None:
            return None
        known = get_args(Overwritable)
        if isinstance(self.overwrite, str):
            raise checks.wrong("overwrite", "must be a list of names, not one text")
        for name in self.overwrite:
            if name not in known:
                raise checks.wrong("overwrite", f"must be of {', '.join(known)}, not {name!r:.140}")
        return tuple(self.overwrite)

    def check_key(self) -> None:
        """Raise InvalidRequest if the options need a key and have none."""
        if self.dedupe_key is not None:
            return
        if self.held_until() is DedupeUntil.START:
            raise checks.wrong("dedupe_until", "needs a dedupe key")
        if self.overwrite:
            raise checks.wrong("overwrite", "needs a dedupe key")

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
