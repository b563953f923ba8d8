"""Change the queues and schedules of a service as an app declares them.

- A setting that the app does not name keeps its value, in nested objects too.
- A schedule is declared as a whole; only a pause by an operator is kept.
- A schedule has the name of its app as a tag, ``MARK``, so that no app removes another's.
- Queues are never removed, because their tasks would go with them.

A change is made only if the service still has what was compared: a queue is written with its
version, and a schedule, which has none, is read again just before it is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from headrace.client.app.declared import Settings, merged
from headrace.client.calls import queues as calls
from headrace.client.client import Client
from headrace.domain import limits
from headrace.domain.errors import (
    Conflict,
    FieldError,
    HeadraceError,
    NotFound,
    QueueExists,
    RateLimited,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from headrace.domain.schedule import ScheduleSettings
from headrace.domain.texts import amount
from headrace.wire.base import NULL, JsonValue, Unreadable
from headrace.wire.queues import Queue, Schedule

MARK: Final = "headrace-app"
"""The tag of a schedule that names the app that declares it; its tasks have it too."""

ScheduleName: TypeAlias = tuple[str, str]
"""Queue and name."""

Fields: TypeAlias = Mapping[str, JsonValue]
"""The fields of a schedule; a tag is the field ``tags.NAME``."""

_TAG: Final = "tags."
_MARK_FIELD: Final = f"{_TAG}{MARK}"
_MAPS: Final = ("groups.weights", "target.headers")  # compared as a whole
_ENDING: Final = (Unavailable, RateLimited, Unauthenticated)
"""After these errors every other call would fail too."""
_UNREADABLE: Final = "(unreadable)"
_HIDDEN: Final = object()
"""The payload of a schedule that the key may not see; it counts as unchanged."""
_DEFAULTS: Final[Fields] = {
    "timezone": "UTC",
    "missed": "latest",
    "on_expiry": "dead",
    "dedupe_until": "end",
}
_CHANGED: Final = "another program has changed it; run it again"


class SyncAction(StrEnum):
    """The kind of a step."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    CONFLICT = "conflict"  #: nothing: another app has a schedule of this name


class StepOutcome(StrEnum):
    """The outcome of a step."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  #: because of an earlier failure


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field by its path, with its old and new value or None."""

    field: str
    old: JsonValue
    new: JsonValue


@dataclass(frozen=True, slots=True)
class SyncStep:
    """A change of one queue, or of one *schedule* of it, to what is declared."""

    action: SyncAction
    queue: str
    schedule: str | None = None
    fields: tuple[FieldChange, ...] = ()

    @property
    def subject(self) -> str:
        """The queue or schedule, in words."""
        if self.schedule is None:
            return f"queue {self.queue}"
        return f"schedule {self.schedule} of {self.queue}"

    @property
    def path(self) -> str:
        """The queue or schedule, as the path of a field."""
        of_queue = f"queues.{self.queue}"
        return of_queue if self.schedule is None else f"{of_queue}.schedules.{self.schedule}"


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step and its outcome, with the error if it failed."""

    step: SyncStep
    outcome: StepOutcome
    error: HeadraceError | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """The queues and schedules of an app.

    ``mark`` is the value of the tag for its schedules; ``names`` are the values that mean this app.
    Both are empty for an app without a name, whose schedules keep their mark.
    """

    queues: Mapping[str, Settings]
    schedules: Mapping[ScheduleName, Fields]
    mark: str | None = None
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The steps in their order: queues, their schedules, removals.

    ``unchanged`` are the subjects that are as declared; ``undeclared`` the schedules that this app
    made and no longer declares, if they are not to be removed.
    """

    steps: tuple[SyncStep, ...]
    unchanged: tuple[str, ...] = ()
    undeclared: tuple[ScheduleName, ...] = ()


class AppSync:
    """One comparison of a service with what an app declares.

    Args:
        client: with the app's codec, because payloads are compared.
        declares: what the app declares.
        everywhere: whether to look for undeclared schedules in all queues that the key may see,
            not only in the app's own queues.

    """

    def __init__(self, client: Client, declares: Declaration, *, everywhere: bool = False) -> None:
        self._client, self._declares, self._everywhere = client, declares, everywhere
        self._found: dict[str, Queue | None] = {}

    def plan(self, *, prune: bool = False) -> SyncPlan:
        """Read what there is, and compare.  Raises headrace.domain.errors."""
        found = {name: self._queue(name) for name in self._declares.queues}
        self._found = found
        steps = [
            (SyncStep(SyncAction.CHANGE, name), self._queue_step(name, queue))
            for name, queue in found.items()
        ]
        names = [name for name, queue in found.items() if queue is not None and queue.schedules]
        if prune and self._everywhere:
            names += [one.name for one in self._client.list_queues() if one.name not in found]
        there = {
            (name, one.name): one
            for name in names
            for one in self._client.list_schedules(name, limit=limits.LIST_PAGE)
        }
        steps += [
            (SyncStep(SyncAction.CHANGE, *key), self._schedule_step(key, there.get(key)))
            for key in self._declares.schedules
        ]
        gone = tuple(key for key, one in there.items() if self._may_remove(key, one))
        removals = [SyncStep(SyncAction.REMOVE, *key) for key in gone if prune]
        return SyncPlan(
            (*(step for _, step in steps if step is not None), *removals),
            tuple(same.subject for same, step in steps if step is None),
            () if prune else gone,
        )

    def apply(self, steps: Iterable[SyncStep]) -> Iterator[StepResult]:
        """Take one step after the other; a refusal is in the result, and is not raised.

        After a refusal nothing is removed, and no schedule is put into a queue that could not be
        created; the other steps go on.  Once the service is away, all are skipped.
        """
        refused = ended = False
        missing: set[str] = set()
        for step in steps:
            late = step.action is SyncAction.REMOVE and refused
            if ended or late or step.queue in missing:
                yield StepResult(step, StepOutcome.SKIPPED)
                continue
            try:
                self._take(step)
            except HeadraceError as error:
                refused, ended = True, isinstance(error, _ENDING)
                if step.schedule is None and step.action is SyncAction.CREATE:
                    missing.add(step.queue)
                yield StepResult(step, StepOutcome.FAILED, error)
            else:
                yield StepResult(step, StepOutcome.DONE)

    def put_schedules(self) -> None:
        """Bring the schedules to what is declared.  Raises the first error."""
        steps = [step for step in self.plan().steps if step.schedule is not None]
        error = failure_of(self.apply(steps))
        if error is not None:
            raise error

    def _take(self, step: SyncStep) -> None:
        if step.schedule is None:
            self._put_queue(step)
        elif step.action is SyncAction.REMOVE:
            self._remove((step.queue, step.schedule))
        else:
            self._put_schedule(step, (step.queue, step.schedule))

    # ------------------------------------------------------------------------------------ queues

    def _queue(self, name: str) -> Queue | None:
        try:
            return self._client.get_queue(name)
        except NotFound:
            return None

    def _queue_step(self, name: str, found: Queue | None) -> SyncStep | None:
        """Return the step for a queue; None if it is as declared."""
        old = {} if found is None else _as_json(found)
        changes = tuple(_changes(old, self._declares.queues[name]))
        if found is None:
            return SyncStep(SyncAction.CREATE, name, fields=changes)
        return SyncStep(SyncAction.CHANGE, name, fields=changes) if changes else None

    def _put_queue(self, step: SyncStep) -> None:
        """Create the queue, or replace the version that was compared."""
        declared, found = self._declares.queues[step.queue], self._found.get(step.queue)
        try:
            if found is None:
                self._client.create_queue(step.queue, **declared)
            else:
                whole = merged(_as_json(found), declared)
                changes = {name: whole[name] for name in declared}
                self._client.replace_queue(calls.merged(found, changes))
        except (QueueExists, VersionMismatch) as error:
            if self._queue_step(step.queue, self._queue(step.queue)) is not None:
                raise VersionMismatch(_CHANGED) from error

    # --------------------------------------------------------------------------------- schedules

    def _schedule(self, key: ScheduleName) -> Schedule | None:
        try:
            return self._client.get_schedule(*key)
        except NotFound:
            return None

    def _schedule_step(self, key: ScheduleName, found: Schedule | None) -> SyncStep | None:
        """Return the step for a schedule; None if it is as declared."""
        if found is None:
            wanted = {name: new for name, new in self._wanted(key, None).items() if new is not None}
            wanted = {name: new for name, new in wanted.items() if new != _DEFAULTS.get(name)}
            return SyncStep(SyncAction.CREATE, *key, tuple(_changes({}, wanted)))
        owner = found.tags.get(MARK)
        names, mark = self._declares.names, self._declares.mark
        if owner is not None and names and owner not in names:
            conflict = FieldChange(_MARK_FIELD, owner, mark)
            return SyncStep(SyncAction.CONFLICT, *key, (conflict,))
        old = _fields_of(found)
        wanted = {**dict.fromkeys(old), **self._wanted(key, owner)}
        changes = tuple(
            FieldChange(name, old.get(name), new)
            for name, new in wanted.items()
            if old.get(name) is not _HIDDEN and old.get(name) != new
        )
        return SyncStep(SyncAction.CHANGE, *key, changes) if changes else None

    def _wanted(self, key: ScheduleName, owner: JsonValue) -> dict[str, JsonValue]:
        """Return the fields of a schedule with the mark that it is to have."""
        mark = self._declares.mark or owner
        return {**self._declares.schedules[key], **({_MARK_FIELD: mark} if mark else {})}

    def _put_schedule(self, step: SyncStep, key: ScheduleName) -> None:
        found = self._schedule(key)
        now = self._schedule_step(key, found)
        if now is None:
            return
        if now.action is SyncAction.CONFLICT:
            raise Conflict(
                f"it is of the app {now.fields[0].old}: give this one another name with "
                f"periodic(name=…), or, if that was this app, run "
                f"`headrace schedule delete {' '.join(key)}` first"
            )
        if now != step:
            raise VersionMismatch(_CHANGED)
        wanted = self._wanted(key, None if found is None else found.tags.get(MARK))
        body: dict[str, Any] = {
            name: value for name, value in wanted.items() if not name.startswith(_TAG)
        }
        tags = {name.removeprefix(_TAG): wanted[name] for name in wanted if name not in body}
        paused = found is not None and found.paused
        self._client.put_schedule(*key, paused=paused, tags=tags, **body)

    def _may_remove(self, key: ScheduleName, found: Schedule) -> bool:
        """Whether this app made a schedule and no longer declares it."""
        return key not in self._declares.schedules and found.tags.get(MARK) in self._declares.names

    def _remove(self, key: ScheduleName) -> None:
        found = self._schedule(key)
        if found is None:
            return
        if not self._may_remove(key, found):
            raise VersionMismatch("it is another app's now")
        try:
            self._client.delete_schedule(*key)
        except NotFound:
            return  # another program has deleted it


def failure_of(results: Iterable[StepResult]) -> HeadraceError | None:
    """Return one error for all steps that failed, of the type of the first; None if none did.

    It names what failed and why, and what was not tried.
    """
    every = list(results)
    failed = [(one.step, one.error) for one in every if one.error is not None]
    if not failed:
        return None
    skipped = [one.step for one in every if one.outcome is StepOutcome.SKIPPED]
    done = len(every) - len(failed) - len(skipped)
    parts = [f"{step.subject}: {error.detail}" for step, error in failed]
    if skipped:
        parts.append("not tried: " + ", ".join(f"{one.action} {one.subject}" for one in skipped))
    if done or skipped:
        parts.append(f"{done} of {amount(len(every), 'change')} done")
    whole = copy(failed[0][1])
    whole.detail = "; ".join(parts)
    whole.args = (whole.detail,)
    whole.errors = tuple(
        FieldError(f"{step.path}.{one.field}", one.message)
        for step, error in failed
        for one in error.errors
    )
    return whole


def schedule_fields(fields: Mapping[str, JsonValue], tags: Mapping[str, str]) -> Fields:
    """Return the *fields* of a schedule and its *tags* as one mapping."""
    plain = {**fields, "retry_strategy": msgspec.to_builtins(fields["retry_strategy"])}
    return {**plain, **{f"{_TAG}{tag}": value for tag, value in tags.items()}}


def _as_json(queue: Queue) -> Settings:
    settings: Settings = msgspec.json.decode(msgspec.json.encode(queue))
    return settings


def _fields_of(schedule: Schedule) -> Fields:
    payload: JsonValue = _HIDDEN
    if bytes(schedule.payload_json) != NULL:
        try:
            payload = schedule.payload
        except Unreadable:
            payload = _UNREADABLE
    named = {name: getattr(schedule, name) for name in _SCHEDULE_FIELDS}
    return schedule_fields({**named, "payload": payload}, schedule.tags)


def _changes(old: Fields, new: Fields, at: str = "") -> Iterator[FieldChange]:
    """Yield what *new* changes in *old*, by path."""
    for name, value in new.items():
        path, before = f"{at}{name}", old.get(name)
        if isinstance(value, dict) and isinstance(before, dict) and path not in _MAPS:
            yield from _changes(before, value, f"{path}.")
        elif before != value:
            yield FieldChange(path, before, value)


_SCHEDULE_FIELDS: Final = tuple(
    field.name
    for field in fields(ScheduleSettings)
    if field.name not in ("payload", "tags", "paused")
)
