"""Schedules declared beside the functions they call, and putting them into the service."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.client.app import checks
from headrace.client.app.checks import Duration, optional
from headrace.client.app.function import TaskFunction
from headrace.client.app.posting import AppQueues
from headrace.client.client import Client
from headrace.client.codec import Unreadable
from headrace.domain import limits
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound
from headrace.wire.queues import Schedule

_UTC: Final = "UTC"  # what the service takes for a schedule without a time zone
_EVERY_SECONDS: Final = (1, 31_536_000)


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

    def __post_init__(self) -> None:
        """Check what was declared."""
        if (self.cron is None) == (self.every is None):
            raise checks.wrong("cron", "or every: give exactly one of the two")
        if self.cron is not None:
            _check_cron(self.cron)
        self.every_seconds()
        if self.name is not None:
            checks.name("name", self.name)

    def every_seconds(self) -> float | None:
        """The seconds between two ticks, if that is given."""
        return optional("every", self.every, _EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task function and its beat, as a schedule of the function's queue."""

    name: str
    function: TaskFunction[..., ..., Any]
    fields: Mapping[str, Any]  # as put_schedule takes them

    @classmethod
    def of(cls, function: TaskFunction[..., ..., Any], beat: Timing) -> "Periodic":
        """Check that the beat fits the function.

        Raises TypeError for a name that no schedule can have, InvalidRequest for its arguments.
        """
        name = beat.name or function.name
        if not limits.NAME_RE.fullmatch(name):
            raise TypeError(f"no schedule can be named {name!r}: give periodic(name=…)")
        declared = function.declared
        fields = {
            "cron": beat.cron,
            "every_seconds": beat.every_seconds(),
            "timezone": beat.timezone,
            "payload": function.envelope(beat.args),
            "tags": dict(declared.tags) if declared.tags else None,
            "dedupe_key": declared.key or function.dedupe_key(beat.args),
            "expires_in_seconds": declared.expires_seconds(),
            "keepalive_timeout_in_seconds": declared.keepalive_seconds(),
            "retry_strategy": declared.retry_strategy(),
        }
        return cls(name, function, fields)

    @property
    def queue(self) -> str:
        """The queue that the schedule belongs to."""
        return self.function.queue

    def sync(self, client: Client, queues: AppQueues) -> Schedule:
        """Put the schedule unless it is there already; one that was paused stays paused.

        Raises Forbidden that says what to do when the key may not put schedules.
        """
        stored = self._stored(client)
        if stored is not None and self._is(stored):
            return stored
        paused = stored is not None and stored.paused
        try:
            return queues.with_queue(
                client,
                self.queue,
                lambda: client.put_schedule(self.queue, self.name, paused=paused, **self.fields),
            )
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.name}: {error.detail}", errors=error.errors) from None
        except Forbidden as error:
            raise Forbidden(
                f"this key may not put schedule {self.name} of queue {self.queue}: run "
                f"`headrace schedule sync` with an operator's key ({error.detail})"
            ) from error

    def _stored(self, client: Client) -> Schedule | None:
        try:
            return client.get_schedule(self.queue, self.name)
        except NotFound:
            return None

    def _is(self, stored: Schedule) -> bool:
        """Whether *stored* says the same; what the service defaults is not compared."""
        wanted = {**self.fields, "tags": self.fields["tags"] or {}}
        if wanted["timezone"] is None:
            wanted["timezone"] = _UTC
        try:
            return all(getattr(stored, name) == value for name, value in wanted.items())
        except Unreadable:
            return False
