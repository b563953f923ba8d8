"""Schedules declared beside the functions they call."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headrace.client.app import checks
from headrace.client.app.checks import Duration, optional
from headrace.client.app.function import TaskFunction
from headrace.client.app.signature import name_of
from headrace.client.app.sync import Fields, ScheduleName, schedule_fields
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.schedule import Missed
from headrace.domain.task import DedupeUntil, OnExpiry
from headrace.domain.task_fields import SetBy, texts

Task: TypeAlias = TaskFunction[..., Any, ..., Any]

_CRON_FIELDS: Final = range(5, 8)
_CRON_CHARACTERS: Final = re.compile(r"[A-Za-z0-9*,/?#\s-]+")


def _check_cron(cron: object) -> None:
    """Check what needs no calendar; the service checks the rest.  Raises InvalidRequest."""
    if not isinstance(cron, str):
        raise checks.wrong("cron", f"must be a text, not {type(cron).__name__}")
    fields = len(cron.split())
    if fields not in _CRON_FIELDS:
        raise checks.wrong(
            "cron",
            "must have 5 fields (minute, hour, day of month, month, weekday), 6 with seconds "
            f"before them, or 7 with the year behind them too; it has {fields}",
        )
    if not _CRON_CHARACTERS.fullmatch(cron):
        raise checks.wrong(
            "cron", f"must be of letters, digits and * , - / ? #, which {cron!r:.80} is not"
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """When, and with what: exactly one of ``cron`` and ``every``.

    Raises InvalidRequest naming the field that is wrong.
    """

    cron: str | None
    every: Duration | None
    timezone: str | None
    name: str | None
    args: Mapping[str, Any]
    missed: str = Missed.LATEST
    on_expiry: str = OnExpiry.DEAD

    def __post_init__(self) -> None:
        """Check what was declared."""
        if (self.cron is None) == (self.every is None):
            raise checks.wrong("cron", "or every: give exactly one of the two")
        if self.cron is not None:
            _check_cron(self.cron)
        self.every_seconds()
        if self.name is not None:
            checks.name("name", self.name)
        checks.one_of("missed", self.missed, Missed)
        checks.one_of("on_expiry", self.on_expiry, OnExpiry)

    def every_seconds(self) -> float | None:
        """Return the seconds between two ticks, if they are given."""
        return optional("every", self.every, limits.EVERY_SECONDS)

    def schedule_of(self, function: Task) -> tuple[str, Fields]:
        """Return the name and the fields of the schedule of *function*.

        Raises TypeError for a name that no schedule can have, InvalidRequest for its arguments.
        """
        name = self.name or function.name
        if not limits.NAME_RE.fullmatch(name):
            raise TypeError(f"no schedule can be named {name!r}: give periodic(name=…)")
        declared, given = function.declared, function.declared.given
        if len(given.get("tags", ())) >= limits.TAGS:
            message = f"must have at most {limits.TAGS - 1} tags for a schedule: one names the app"
            raise checks.wrong("tags", message)
        if "group_key" in given:
            message = "has no meaning for a schedule, whose tasks take no turn; leave it out"
            raise checks.wrong("group_key", message)
        key = given.get("dedupe_key") or function.dedupe_key(self.args)
        until = given.get("dedupe_until", DedupeUntil.END)
        if until is DedupeUntil.START and key is None:
            raise checks.wrong("dedupe_until", "needs a dedupe key")
        fields = {
            "cron": self.cron,
            "every_seconds": self.every_seconds(),
            "timezone": self.timezone or "UTC",
            "payload": function.envelope(self.args),
            "dedupe_key": key,
            "dedupe_until": str(until),
            "expires_in_seconds": given.get("expires"),
            "keepalive_timeout_in_seconds": given.get("lease_seconds"),
            "retry_strategy": declared.retries(),
            "priority": given.get("priority"),
            **{one.name: given[one.name] for one in texts(SetBy.SCHEDULE) if one.name in given},
            "missed": str(self.missed),
            "on_expiry": str(self.on_expiry),
        }
        return name, schedule_fields(fields, given.get("tags") or {})


class AppSchedules:
    """The schedules of an app, by queue and name."""

    def __init__(self) -> None:
        self._schedules: dict[ScheduleName, tuple[Task, Fields]] = {}
        self._timings: dict[Callable[..., Any], list[Timing]] = {}  # of functions that are no tasks

    @property
    def declared(self) -> Mapping[ScheduleName, Fields]:
        """Their fields by path."""
        return {key: fields for key, (_, fields) in self._schedules.items()}

    def check(self) -> None:
        """Raise InvalidRequest for a periodic function that is no task."""
        for function in self._timings:
            raise InvalidRequest(f"{name_of(function)} is periodic but no task: add @app.task")

    def declare(self, target: Callable[..., Any], timing: Timing) -> None:
        """Add a schedule of a task, or of a function that will be a task.

        Raises ValueError if the queue has a schedule of this name.
        """
        if not isinstance(target, TaskFunction):
            self._timings.setdefault(target, []).append(timing)
            return
        name, fields = timing.schedule_of(target)
        if (target.queue, name) in self._schedules:
            raise ValueError(f"two schedules are named {name}: give periodic(name=…)")
        self._schedules[target.queue, name] = target, fields

    def add(self, task: Task) -> None:
        """Add the timings that were declared before the function was a task."""
        for timing in self._timings.pop(task.function, ()):
            self.declare(task, timing)

    def drop(self, task: Task | None) -> None:
        """Drop the schedules of a task that is declared again."""
        kept = {key: one for key, one in self._schedules.items() if one[0] is not task}
        self._schedules = kept
