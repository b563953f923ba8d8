"""The filter that selects tasks of a queue, for lists, counts and bulk actions.

Similar errors share a fingerprint: a hash of type and message without ids, numbers and quoted
texts.  The console groups errors by it.  Spark computes the same fingerprint from ``BLANKS``, for
the lake's table of failures.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Self

from headrace.domain.change import Entry
from headrace.domain.errors import FieldError, InvalidRequest, Unavailable
from headrace.domain.task import SHOWN_STATES, Priority, State, Status, Task
from headrace.domain.texts import read_payload, text_at
from headrace.domain.times import MICROSECOND

MESSAGE: Final = 1024
"""The lake keeps this many characters of a message, so the fingerprint uses no more."""

LENGTH: Final = 16
FINGERPRINT_RE: Final = re.compile(rf"[0-9a-f]{{{LENGTH}}}", re.ASCII)

# Where a word begins and ends, as Python's ASCII has it; \b of Java 17 knows other alphabets.
_BEGIN: Final = r"(?<![0-9a-z_])"
_END: Final = r"(?![0-9a-z_])"
BLANKS: Final = (
    (r"'[^']*'|\"[^\"]*\"|`[^`]*`", "?"),
    (_BEGIN + r"(tsk|lse|lsg|rpl)_[0-9a-z_]+", "?"),
    (_BEGIN + r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}" + _END, "?"),
    (_BEGIN + r"(0x)?(?=[0-9a-f]*[0-9])[0-9a-f]{6,}" + _END, "?"),
    (r"[0-9]+([.,:][0-9]+)*", "?"),
    (r"\s+", " "),
)
"""Patterns to replace in a message in lower case, in order: quotes, ids, hex, numbers, space.

Expressions mean the same to Python (ASCII) and to Java.
"""

_BLANKS: Final = tuple((re.compile(pattern, re.ASCII), blank) for pattern, blank in BLANKS)


def fingerprint(kind: str, message: str) -> str:
    """Return the fingerprint that similar errors share: 16 hex digits."""
    return _fingerprint(kind, message[:MESSAGE])


@lru_cache(512)
def _fingerprint(kind: str, message: str) -> str:
    text = message.lower()
    for pattern, blank in _BLANKS:
        text = pattern.sub(blank, text)
    whole = f"{kind}\n{text.strip(' ')}"
    return sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


def fingerprint_of(task: Task) -> str:
    """Return the fingerprint of the latest error of *task*."""
    return fingerprint(*fault_of(task))


_TRIED_BEFORE: Final = {State.ENQUEUED: 0, State.INFLIGHT: 1}


def is_error_current(state: State, attempts: int, *, cancelled: bool) -> bool:
    """Return whether the latest error of a task ended it, or caused the retry that it waits for.

    A restart or a move begins a new life; errors before it are no longer current.
    """
    if state is State.DEAD:
        return not cancelled
    before = _TRIED_BEFORE.get(state)
    return before is not None and attempts > before


def fault_of(task: Task) -> tuple[str, str]:
    """Return type and message of the latest error; without errors, the reason of the death."""
    if not task.errors:
        return "", str(task.dead_reason or "")
    latest = task.errors[-1]
    return latest.type, latest.message


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


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Selects the tasks that fulfil every named condition; without conditions, every task.

    ``scheduled_after`` and ``scheduled_before`` limit the time by which the index sorts a state:
    the due time, the end of the lease as first granted, or the finish.  Both are excluded.
    ``error`` is a part of the latest error's type, message or detail, in upper or lower case.
    ``fingerprint`` is that of the current error (``is_error_current``).  ``payload`` has the text
    of values by their paths; ``id_prefix`` is the beginning of the id.
    """

    states: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    worker: str | None = None
    scheduled_after: datetime | None = None
    scheduled_before: datetime | None = None
    min_attempts: int | None = None
    error: str | None = None
    fingerprint: str | None = None
    priority: Priority | None = None
    group_key: str | None = None
    payload: Mapping[str, str] = field(default_factory=dict)
    id_prefix: str | None = None

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
        after = self.scheduled_after and self.scheduled_after + MICROSECOND
        before = self.scheduled_before and self.scheduled_before - MICROSECOND
        spans = [span.within(after, before) for span in found]
        possible = [
            span for span in spans if not (span.since and span.until and span.since > span.until)
        ]
        return tuple(sorted(possible, key=lambda span: ORDER.index(span.state)))

    def fields(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON for the audit."""
        kept = asdict(self)
        states = ",".join(kept.pop("states")) or None
        some = {name: kept[name] or None for name in ("tags", "payload")}
        named = {"state": states, **kept, **some}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in named.items()
            if value is not None
        }

    @classmethod
    def of_fields(cls, named: Mapping[str, Any]) -> Self:
        """Return the filter that fields() wrote.

        Raises NewerRecord for an unknown field: without it the filter would select more tasks.
        """
        for name in named:
            if name != "state" and name not in cls.__dataclass_fields__:
                raise NewerRecord.of(f"where.{name}")
        times = {
            name: datetime.fromisoformat(named[name])
            for name in ("scheduled_after", "scheduled_before")
            if name in named
        }
        known = {name: named[name] for name in cls.__dataclass_fields__ if name in named}
        states = tuple(named["state"].split(",")) if "state" in named else ()
        level = {"priority": Priority(named["priority"])} if "priority" in named else {}
        return cls(**{**known, **times, **level, "states": states})

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

        If the filter has ``payload``, *task* must have been read with its payload.
        """
        named: tuple[tuple[object, object], ...] = (
            (self.priority, task.priority),
            (self.group_key, task.group_key),
            (self.worker, task.worker),
        )
        other = any(wanted is not None and wanted != found for wanted, found in named)
        if other or not task.id.startswith(self.id_prefix or ""):
            return False
        if self.min_attempts is not None and task.attempts < self.min_attempts:
            return False
        if any(task.tags.get(key) != value for key, value in self.tags.items()):
            return False
        if self.error is not None and not _mentions(task, self.error):
            return False
        if self.fingerprint is not None and self.fingerprint != current_fingerprint_of(task):
            return False
        return not self.payload or _holds(task, self.payload)


EVERY_TASK: Final = TaskFilter()


def current_fingerprint_of(task: Task) -> str | None:
    """Return the fingerprint of the current error of *task*, or None."""
    stands = is_error_current(task.state, task.attempts, cancelled=task.cancelled)
    return fingerprint_of(task) if stands else None


def _holds(task: Task, values: Mapping[str, str]) -> bool:
    content = read_payload(task.payload)
    return all(text_at(content, path) == text for path, text in values.items())


def _mentions(task: Task, text: str) -> bool:
    if not task.errors:
        return False
    latest = task.errors[-1]
    wanted = text.casefold()
    return any(wanted in text.casefold() for text in (latest.type, latest.message, latest.detail))
