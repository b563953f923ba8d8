"""Bringing the queues and schedules of a service to what an app declares.

A change is made only where the service still has what it was planned for.  Settings of queues have
a version, which is sent along, so that nobody's change is lost.  Schedules have none: each is read
once more just before it is written, and of two writes in that moment the later one stays.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

import msgspec

from headrace.client.app.declared import Declared, by_path, nested
from headrace.client.app.drift import (
    HIDDEN,
    MARK_FIELD,
    Declaration,
    Fields,
    FoundState,
    ScheduleName,
    SyncAction,
    SyncPlan,
    SyncStep,
    plan_sync,
    queue_step,
    schedule_body,
    schedule_fields,
    schedule_step,
    undeclared,
    with_mark,
)
from headrace.client.calls.queues import merged
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
from headrace.wire.base import NULL, JsonValue, Unreadable
from headrace.wire.queues import Queue, Schedule

_TRIES: Final = 5  # of a change that others get in the way of
_ENDING: Final = (Unavailable, RateLimited, Unauthenticated)
"""After these no other call would come to more."""

UNREADABLE: Final = "(unreadable)"


class StepOutcome(StrEnum):
    """What became of a step."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  #: for what failed before


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a step, and why it failed."""

    step: SyncStep
    outcome: StepOutcome
    error: HeadraceError | None = None


class AppSync:
    """One comparison of a service with what an app declares.

    Args:
        client: with the app's codec, as payloads are compared.
        declares: what the app declares.
        everywhere: whether schedules that are declared no more are looked for in all queues that
            the key may see, instead of those that the app declares.

    """

    def __init__(self, client: Client, declares: Declaration, *, everywhere: bool = False) -> None:
        self._client, self._declares, self._everywhere = client, declares, everywhere
        self._queues: dict[str, Queue] = {}

    def plan(self, *, prune: bool = False) -> SyncPlan:
        """Read what there is, and compare.  Raises headrace.domain.errors."""
        settings: dict[str, Declared] = {}
        schedules: dict[ScheduleName, Fields] = {}
        tags: dict[ScheduleName, Mapping[str, str]] = {}
        for name in self._names(everywhere=prune and self._everywhere):
            queue = self._queue(name)
            if queue is None:
                continue
            settings[name] = _settings_of(queue)
            for one in self._client.list_schedules(name, limit=limits.LIST_PAGE):
                tags[name, one.name] = one.tags
                if (name, one.name) in self._declares.schedules:
                    schedules[name, one.name] = _fields_of(one)
        return plan_sync(self._declares, FoundState(settings, schedules, tags), prune=prune)

    def _names(self, *, everywhere: bool) -> list[str]:
        names = list(self._declares.queues)
        if everywhere:
            known = set(names)
            names += [one.name for one in self._client.list_queues() if one.name not in known]
        return names

    def apply(self, steps: Iterable[SyncStep]) -> Iterator[StepResult]:
        """Take one step after the other; raises nothing that the service answers.

        What is refused keeps no other step back, save that nothing is removed after that, and that
        no schedule is put into a queue that could not be made.  When the service is away, no more
        is tried.
        """
        refused = ended = False
        unmade: set[str] = set()
        for step in steps:
            late = step.action is SyncAction.REMOVE and refused
            if ended or late or step.queue in unmade:
                yield StepResult(step, StepOutcome.SKIPPED)
                continue
            error = self._refusal(step)
            if error is None:
                yield StepResult(step, StepOutcome.DONE)
                continue
            refused, ended = True, isinstance(error, _ENDING)
            if step.schedule is None and step.action is SyncAction.CREATE:
                unmade.add(step.queue)
            yield StepResult(step, StepOutcome.FAILED, error)

    def _refusal(self, step: SyncStep) -> HeadraceError | None:
        """Take a step; what the service has against it."""
        try:
            if step.schedule is None:
                self._put_queue(step)
            else:
                self._put_schedule(step, (step.queue, step.schedule))
        except HeadraceError as error:
            return error
        return None

    # ------------------------------------------------------------------------------------ queues

    def _put_queue(self, step: SyncStep) -> None:
        name = step.queue
        fields = {change.field: change.new for change in step.fields}
        for left in reversed(range(_TRIES)):
            try:
                if step.action is SyncAction.CREATE:
                    self._client.create_queue(name, **nested(fields))
                else:
                    self._client.replace_queue(merged(self._queues[name], nested(fields)))
            except (QueueExists, VersionMismatch) as error:
                found = self._queue(name)
                settings = None if found is None else _settings_of(found)
                now = queue_step(name, self._declares.queues[name], settings)
                if now is None:
                    return  # somebody else has done the same
                if now != step:
                    raise VersionMismatch(_changed(step, now)) from error
                if not left:
                    raise
            else:
                return

    def _queue(self, name: str) -> Queue | None:
        try:
            found = self._queues[name] = self._client.get_queue(name)
        except NotFound:
            return None
        return found

    # --------------------------------------------------------------------------------- schedules

    def _put_schedule(self, step: SyncStep, key: ScheduleName) -> None:
        found = self._schedule(key)
        if step.action is SyncAction.REMOVE:
            self._remove(key, found)
            return
        fields = None if found is None else _fields_of(found)
        now = schedule_step(key, self._declares.schedules[key], fields, self._declares)
        if now is None:
            return
        if now.action is SyncAction.CONFLICT:
            raise Conflict(
                f"it is of the app {now.fields[0].old}: give this one another name with "
                f"periodic(name=…), or, if that was this app, run "
                f"`headrace schedule delete {' '.join(key)}` first"
            )
        if now != step:
            raise VersionMismatch(_changed(step, now))
        owner = None if fields is None else fields.get(MARK_FIELD)
        body = schedule_body(with_mark(self._declares.schedules[key], owner, self._declares))
        paused = found is not None and found.paused
        self._client.put_schedule(*key, paused=paused, **body)

    def _remove(self, key: ScheduleName, found: Schedule | None) -> None:
        if found is None:
            return
        if not undeclared(self._declares, {key: found.tags}):
            raise VersionMismatch("it is another app's now")
        try:
            self._client.delete_schedule(*key)
        except NotFound:
            return  # somebody was quicker

    def _schedule(self, key: ScheduleName) -> Schedule | None:
        try:
            return self._client.get_schedule(*key)
        except NotFound:
            return None


def failure_of(results: Iterable[StepResult]) -> HeadraceError | None:
    """One error for all steps that failed, of the kind of the first; None: there is none.

    It names what failed and why, and what was not tried.
    """
    failed: list[tuple[SyncStep, HeadraceError]] = []
    skipped: list[SyncStep] = []
    done = 0
    for each in results:
        if each.error is not None:
            failed.append((each.step, each.error))
        elif each.outcome is StepOutcome.SKIPPED:
            skipped.append(each.step)
        else:
            done += 1
    if not failed:
        return None
    first = failed[0][1]
    parts = [f"{step.subject}: {error.detail}" for step, error in failed]
    if skipped:
        parts.append("not tried: " + ", ".join(f"{one.action} {one.subject}" for one in skipped))
    if done or skipped:
        parts.append(f"{done} of {done + len(failed) + len(skipped)} changes done")
    errors = [
        FieldError(f"{step.path}.{one.field}", one.message)
        for step, error in failed
        for one in error.errors
    ]
    whole = copy(first)
    whole.detail = "; ".join(parts)
    whole.args, whole.errors = (whole.detail,), tuple(errors)
    return whole


def _fields_of(schedule: Schedule) -> Fields:
    """The fields of a stored schedule by path."""
    payload: JsonValue = HIDDEN
    if bytes(schedule.payload_json) != NULL:
        try:
            payload = schedule.payload
        except Unreadable:
            payload = UNREADABLE
    named = {name: getattr(schedule, name) for name in _SCHEDULE_FIELDS}
    return schedule_fields({**named, "payload": payload}, schedule.tags)


def _settings_of(queue: Queue) -> Declared:
    return by_path(msgspec.json.decode(msgspec.json.encode(queue)))


def _changed(planned: SyncStep, now: SyncStep) -> str:
    """Say what somebody else has changed since the plan."""
    before = {change.field: change.old for change in planned.fields}
    others = [
        f"{change.field} is {change.old!r}"
        for change in now.fields
        if now.action is planned.action and before.get(change.field) != change.old
    ]
    return f"it was changed meanwhile{': ' if others else ''}{', '.join(others)}; run it again"


_SCHEDULE_FIELDS: Final = tuple(
    field.name
    for field in fields(ScheduleSettings)
    if field.name not in ("payload", "tags", "paused")
)
