"""The filter that selects tasks of a queue, for lists, counts and bulk actions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final, Self, TypeAlias

from headrace.domain.change import Entry
from headrace.domain.errors import FieldError, InvalidRequest, Unavailable
from headrace.domain.fingerprints import current_fingerprint_of
from headrace.domain.task import SHOWN_STATES, Priority, State, Status, Task
from headrace.domain.texts import read_payload, text_at
from headrace.domain.times import MICROSECOND, duration_text, read_duration


class NewerRecord(Unavailable):
    """A newer version of Headrace wrote a record, and this version does not know all its fields.

    Ignoring a filter, a limit or a right would act on tasks that were not selected.
    """

    @classmethod
    def of(cls, field: str) -> Self:
        """Return the error about a record with this unknown *field*."""
        message = (
            f"a newer version of Headrace wrote this record (unknown field: {field}):"
            " update this process"
        )
        return cls(message, retry_after_seconds=30)  # about as long as a rolling update takes


ORDER: Final = (State.ENQUEUED, State.INFLIGHT, State.DEAD, State.SUCCEEDED)
"""A list of several states shows them in this order."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A period of the time by which the index sorts a state; both ends are included."""

    state: State
    since: datetime | None = None
    until: datetime | None = None

    def holds(self, task: Task) -> bool:
        """Return whether *task* has this state and its time is in this period."""
        return task.state is self.state and self.contains(
            task.due_at if task.state is State.ENQUEUED else task.scheduled_at
        )

    def contains(self, moment: datetime) -> bool:
        """Return whether *moment* is between the ends."""
        return (self.since is None or moment >= self.since) and (
            self.until is None or moment <= self.until
        )

    def within(self, after: datetime | None, before: datetime | None) -> "TimeSpan":
        """Return the part of this period between *after* and *before*."""
        since = max((at for at in (self.since, after) if at), default=None)
        until = min((at for at in (self.until, before) if at), default=None)
        return replace(self, since=since, until=until)


_WAITING: Final = TimeSpan(State.ENQUEUED)


def _meanings(now: datetime) -> dict[str, set[TimeSpan]]:
    return {
        **{str(state): {TimeSpan(state)} for state in SHOWN_STATES},
        "SCHEDULED": {TimeSpan(State.ENQUEUED, since=now + MICROSECOND)},
        "READY": {TimeSpan(State.ENQUEUED, until=now)},
        "pending": {_WAITING, TimeSpan(State.INFLIGHT)},
        "failed": {TimeSpan(State.DEAD)},
        "running": {TimeSpan(State.INFLIGHT)},
    }


STATE_WORDS: Final = tuple(_meanings(datetime(1970, 1, 1, tzinfo=UTC)))
"""The words of the ``state`` filter: stored states, derived states, aliases."""


_WAITS: Final = {Status.READY: datetime(1970, 1, 1, tzinfo=UTC)}
_WAITS[Status.SCHEDULED] = _WAITS[Status.READY] + MICROSECOND


def statuses_of(word: str) -> frozenset[Status]:
    """Return the statuses that *word*, one of STATE_WORDS, means."""
    found = set[Status]()
    for span in _meanings(_WAITS[Status.READY])[word]:
        if span.state is State.ENQUEUED:
            found |= {status for status, due in _WAITS.items() if span.contains(due)}
        else:
            found.add(Status(span.state))
    return frozenset(found)


def check_states(words: Sequence[str], *, name: str = "state") -> None:
    """Raise InvalidRequest naming the field *name* for a word that is no state."""
    for word in words:
        if word not in STATE_WORDS:
            detail = f"{name} must be one or more of {', '.join(STATE_WORDS)}, with commas between"
            raise InvalidRequest(detail, errors=(FieldError(name, detail),))


Since: TypeAlias = datetime | float
"""An instant, or seconds before now."""


def instant_before(since: Since | None, now: datetime) -> datetime | None:
    """Return the instant that *since* means at *now*."""
    return now - timedelta(seconds=since) if isinstance(since, int | float) else since


def _since_text(since: Since | None) -> str | None:
    if isinstance(since, datetime):
        return since.isoformat()
    return None if since is None else duration_text(since)


def _since(text: str) -> Since:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return read_duration(text)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Selects the tasks that fulfil every named condition; without conditions, every task.

    ``scheduled_after`` and ``scheduled_before`` limit the time by which the index sorts a state:
    the due time, the end of the lease as first granted, or the finish.  Both are excluded.
    Seconds mean so long before now.  A tag with the value None may have any value.
    ``error`` is a part of the latest error's type, message or detail, in upper or lower case.
    ``fingerprint`` is that of the current error (``is_error_current``).  ``payload`` has the text
    of values by their paths, and ``payload_text`` is a part of the payload, in upper or lower case;
    ``id_prefix`` is the beginning of the id.

    ``version`` is that of the worker of the latest delivery; ``version_workers`` has the names of
    its workers, once they are known.  Of each group in ``either`` one filter must match, and none
    of ``without``; these filters name no states and no times.
    """

    states: tuple[str, ...] = ()
    tags: Mapping[str, str | None] = field(default_factory=dict)
    worker: str | None = None
    scheduled_after: Since | None = None
    scheduled_before: Since | None = None
    min_attempts: int | None = None
    error: str | None = None
    fingerprint: str | None = None
    priority: Priority | None = None
    group_key: str | None = None
    payload: Mapping[str, str] = field(default_factory=dict)
    id_prefix: str | None = None
    version: str | None = None
    payload_text: str | None = None
    either: "tuple[tuple[TaskFilter, ...], ...]" = ()
    without: "tuple[TaskFilter, ...]" = ()
    version_workers: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def spans(self, now: datetime) -> tuple[TimeSpan, ...]:
        """Return the parts of the index that may have matching tasks, in the order of lists.

        Raises InvalidRequest for a word that is no state.
        """
        check_states(self.states)
        meanings = _meanings(now)
        found: set[TimeSpan] = set()
        for word in self.states or tuple(map(str, SHOWN_STATES)):
            found |= meanings[word]
        derived = meanings["READY"] | meanings["SCHEDULED"]
        if _WAITING in found or derived <= found:
            found = (found - derived) | {_WAITING}
        after = instant_before(self.scheduled_after, now)
        before = instant_before(self.scheduled_before, now)
        after = after and after + MICROSECOND
        before = before and before - MICROSECOND
        spans = [span.within(after, before) for span in found]
        possible = [
            span for span in spans if not (span.since and span.until and span.since > span.until)
        ]
        return tuple(sorted(possible, key=lambda span: ORDER.index(span.state)))

    def as_of(self, now: datetime) -> Self:
        """Return the filter with the instants that its seconds mean at *now*."""
        after = instant_before(self.scheduled_after, now)
        before = instant_before(self.scheduled_before, now)
        return replace(self, scheduled_after=after, scheduled_before=before)

    @property
    def parts(self) -> "Iterator[TaskFilter]":
        """The filter itself, and all filters in ``either`` and ``without``."""
        yield self
        for one in (*chain.from_iterable(self.either), *self.without):
            yield from one.parts

    @property
    def needs_payload(self) -> bool:
        """Whether payloads must be read to compare tasks."""
        return any(one.payload or one.payload_text for one in self.parts)

    def without_payloads(self) -> Self:
        """Return the conditions that need no payload."""
        return replace(
            self,
            payload={},
            payload_text=None,
            either=tuple(
                group for group in self.either if not any(one.needs_payload for one in group)
            ),
            without=tuple(one for one in self.without if not one.needs_payload),
        )

    def with_workers(self, workers: Mapping[str, frozenset[str]]) -> Self:
        """Return the filter with the names of the workers of each version."""
        return replace(
            self,
            version_workers=workers.get(self.version or "", frozenset()),
            either=tuple(
                tuple(one.with_workers(workers) for one in group) for group in self.either
            ),
            without=tuple(one.with_workers(workers) for one in self.without),
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON for the audit."""
        kept = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("scheduled_after", "scheduled_before"):
            kept[name] = _since_text(kept[name])
        del kept["version_workers"]
        states = ",".join(kept.pop("states"))
        kept["either"] = [[one.fields() for one in group] for group in self.either]
        kept["without"] = [one.fields() for one in self.without]
        named = {"state": states, **kept}
        return {name: value for name, value in named.items() if value or value == 0}

    @classmethod
    def of_fields(cls, named: Mapping[str, Any]) -> Self:
        """Return the filter that fields() wrote.

        Raises NewerRecord for an unknown field: without it the filter would select more tasks.
        """
        for name in named:
            if name != "state" and name not in cls.__dataclass_fields__:
                raise NewerRecord.of(f"where.{name}")
        known = {name: named[name] for name in cls.__dataclass_fields__ if name in named}
        for name in ("scheduled_after", "scheduled_before"):
            if name in named:
                known[name] = _since(named[name])
        if "state" in named:
            known["states"] = tuple(named["state"].split(","))
        if "priority" in named:
            known["priority"] = Priority(named["priority"])
        either = named.get("either", ())
        known["either"] = tuple(tuple(map(cls.of_fields, group)) for group in either)
        known["without"] = tuple(map(cls.of_fields, named.get("without", ())))
        return cls(**known)

    @property
    def by_index(self) -> bool:
        """Return whether the filter names only states and times, which the index has."""
        rest = replace(self, states=(), scheduled_after=None, scheduled_before=None)
        return rest == EVERY_TASK

    @property
    def by_time(self) -> bool:
        """Return whether a time is named."""
        return self.scheduled_after is not None or self.scheduled_before is not None

    def may_match(self, entry: Entry) -> bool:
        """Return whether the task of this index entry may match."""
        other = entry.knows_group and self.group_key not in (None, entry.group_key)
        return not other and entry.task_id.startswith(self.id_prefix or "")

    def matches(self, task: Task) -> bool:
        """Return whether *task* matches, apart from its state and times.

        If the filter needs payloads, *task* must have been read with its payload.
        """
        if not self._matches_fields(task) or any(one.matches(task) for one in self.without):
            return False
        return all(any(one.matches(task) for one in group) for group in self.either)

    def _matches_fields(self, task: Task) -> bool:
        named: tuple[tuple[object, object], ...] = (
            (self.priority, task.priority),
            (self.group_key, task.group_key),
            (self.worker, task.worker),
            (self.version, self.version if task.worker in self.version_workers else ""),
            *((value, task.tags.get(key, _MISSING)) for key, value in self.tags.items()),
        )
        if any(wanted is not None and wanted != found for wanted, found in named):
            return False
        if not self.tags.keys() <= task.tags.keys() or task.attempts < (self.min_attempts or 0):
            return False
        if not task.id.startswith(self.id_prefix or "") or not self._matches_error(task):
            return False
        if (self.payload_text or "").casefold() not in (task.payload or "").casefold():
            return False
        return not self.payload or _holds(task, self.payload)

    def _matches_error(self, task: Task) -> bool:
        if self.error is not None and not _mentions(task, self.error):
            return False
        return self.fingerprint is None or self.fingerprint == current_fingerprint_of(task)


_MISSING: Final = object()

EVERY_TASK: Final = TaskFilter()


def _holds(task: Task, values: Mapping[str, str]) -> bool:
    content = read_payload(task.payload)
    return all(text_at(content, path) == text for path, text in values.items())


def _mentions(task: Task, text: str) -> bool:
    if not task.errors:
        return False
    latest = task.errors[-1]
    wanted = text.casefold()
    return any(wanted in text.casefold() for text in (latest.type, latest.message, latest.detail))
