"""What differs between the queues and schedules that an app declares and those of a service.

Nothing here asks a service: what is declared and what was found give the steps that bring the
service to what is declared.

- A setting that the app does not name is left as it is, in nested ones too.
- A schedule is declared as a whole; only that an operator has paused it is left as it is.
- Schedules carry the name of their app as a tag, ``MARK``, so that nobody removes another's.
- Queues are never removed: their tasks would go with them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from headrace.client.app.declared import Declared
from headrace.wire.base import JsonValue

MARK: Final = "headrace-app"
"""The tag of a schedule that names the app that declares it; its tasks have it too."""

_TAG: Final = "tags."
MARK_FIELD: Final = f"{_TAG}{MARK}"

HIDDEN: Final = object()
"""A value that the key may not see: whether it differs is open."""

ScheduleName: TypeAlias = tuple[str, str]
"""Queue and name."""

Fields: TypeAlias = Mapping[str, JsonValue]


class SyncAction(StrEnum):
    """What is done about a difference."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    CONFLICT = "conflict"  #: nothing: another app's schedule has this name


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field by its path, and its values; None where there is none."""

    field: str
    old: JsonValue
    new: JsonValue


@dataclass(frozen=True, slots=True)
class SyncStep:
    """What brings one queue, or one *schedule* of it, to what is declared."""

    action: SyncAction
    queue: str
    schedule: str | None = None
    fields: tuple[FieldChange, ...] = ()

    @property
    def subject(self) -> str:
        """What is created, changed or removed."""
        if self.schedule is None:
            return f"queue {self.queue}"
        return f"schedule {self.schedule} of {self.queue}"

    @property
    def path(self) -> str:
        """The same as the path of a field."""
        of_queue = f"queues.{self.queue}"
        return of_queue if self.schedule is None else f"{of_queue}.schedules.{self.schedule}"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What an app declares.

    ``mark`` is the name that its schedules get; ``names`` those by which it knows them.  Both are
    empty for an app that nothing names: its schedules keep the mark they have.
    """

    queues: Mapping[str, Declared]
    schedules: Mapping[ScheduleName, Fields]
    mark: str | None = None
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundState:
    """What a service has: settings by path; declared schedules; the tags of all of them."""

    queues: Mapping[str, Declared]
    schedules: Mapping[ScheduleName, Fields]
    tags: Mapping[ScheduleName, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The steps in their order: queues, their schedules, removals.

    ``unchanged`` are subjects that are as declared, ``undeclared`` the schedules that this app has
    made and declares no more, where they are not to be removed.
    """

    steps: tuple[SyncStep, ...]
    unchanged: tuple[str, ...] = ()
    undeclared: tuple[ScheduleName, ...] = ()


def plan_sync(declares: Declaration, found: FoundState, *, prune: bool = False) -> SyncPlan:
    """Compare what is declared with what was found."""
    steps: list[SyncStep] = []
    unchanged: list[str] = []
    for queue, settings in _told_first(declares.queues).items():
        step = queue_step(queue, settings, found.queues.get(queue))
        if step is None:
            unchanged.append(SyncStep(SyncAction.CHANGE, queue).subject)
        else:
            steps.append(step)
    for key, fields in declares.schedules.items():
        step = schedule_step(key, fields, found.schedules.get(key), declares)
        if step is None:
            unchanged.append(SyncStep(SyncAction.CHANGE, *key).subject)
        else:
            steps.append(step)
    gone = undeclared(declares, found.tags)
    if not prune:
        return SyncPlan(tuple(steps), tuple(unchanged), gone)
    removals = (SyncStep(SyncAction.REMOVE, *key) for key in gone)
    return SyncPlan((*steps, *removals), tuple(unchanged))


def _told_first(queues: Mapping[str, Declared]) -> dict[str, Declared]:
    """Return *queues* with those first that others tell something: they must be there by then."""
    ordered: dict[str, Declared] = {}

    def put(name: str, chain: tuple[str, ...]) -> None:
        if name not in queues or name in ordered or name in chain:
            return
        for setting in _TELLS:
            put((queues[name].get(setting) or {}).get("queue", ""), (*chain, name))
        ordered[name] = queues[name]

    for name in queues:
        put(name, ())
    return ordered


def undeclared(
    declares: Declaration, tags: Mapping[ScheduleName, Mapping[str, str]]
) -> tuple[ScheduleName, ...]:
    """The schedules among *tags* that this app has made and declares no more."""
    return tuple(
        key
        for key, each in tags.items()
        if key not in declares.schedules and each.get(MARK) in declares.names
    )


def queue_step(name: str, declared: Declared, found: Declared | None) -> SyncStep | None:
    """The step for a queue, None where it is as declared."""
    if found is None:
        changes = tuple(FieldChange(path, None, value) for path, value in declared.items())
        return SyncStep(SyncAction.CREATE, name, fields=changes)
    changes = _changes(declared, found, declared)
    return SyncStep(SyncAction.CHANGE, name, fields=changes) if changes else None


def schedule_step(
    key: ScheduleName, declared: Fields, found: Fields | None, declares: Declaration
) -> SyncStep | None:
    """The step for a schedule, None where it is as declared."""
    if found is None:
        wanted = with_mark(declared, None, declares)
        changes = tuple(
            FieldChange(field, None, value)
            for field, value in wanted.items()
            if value is not None and value != _DEFAULTS.get(field)
        )
        return SyncStep(SyncAction.CREATE, *key, changes)
    owner = found.get(MARK_FIELD)
    if owner is not None and declares.names and owner not in declares.names:
        conflict = FieldChange(MARK_FIELD, owner, declares.mark)
        return SyncStep(SyncAction.CONFLICT, *key, (conflict,))
    wanted = with_mark(declared, owner, declares)
    changes = _changes(wanted, found, {**wanted, **found})
    return SyncStep(SyncAction.CHANGE, *key, changes) if changes else None


def with_mark(declared: Fields, owner: JsonValue, declares: Declaration) -> dict[str, JsonValue]:
    """The fields of a schedule with the mark it is to have."""
    mark = declares.mark or owner
    return {**declared, **({MARK_FIELD: mark} if mark else {})}


def schedule_fields(fields: Mapping[str, JsonValue], tags: Mapping[str, str]) -> Fields:
    """The *fields* of a schedule and its tags, by path."""
    plain = {**fields, "retry_strategy": msgspec.to_builtins(fields["retry_strategy"])}
    return {**plain, **{f"{_TAG}{tag}": value for tag, value in tags.items()}}


def schedule_body(fields: Fields) -> dict[str, Any]:
    """The same as the API has them."""
    named = {name: value for name, value in fields.items() if not name.startswith(_TAG)}
    tags = {name.removeprefix(_TAG): fields[name] for name in fields if name not in named}
    return {**named, "tags": tags}


def _changes(wanted: Fields, found: Fields, fields: Collection[str]) -> tuple[FieldChange, ...]:
    return tuple(
        FieldChange(field, old, new)
        for field in fields
        if (old := found.get(field)) is not HIDDEN and old != (new := wanted.get(field))
    )


_TELLS: Final = ("on_end", "alerts")
_DEFAULTS: Final[Fields] = {
    "timezone": "UTC",
    "missed": "latest",
    "on_expiry": "dead",
    "dedupe_until": "end",
}
