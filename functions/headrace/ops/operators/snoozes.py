"""Snoozed incidents: what is wrong with a queue, has been seen, and stays off home for a while."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.retry import Seconds
from headrace.ops.shared.audit import checked_reason
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record, every_record
from headrace.store.call_scope import caller, visible
from headrace.store.records import body_of, read_body

SECONDS: Final = (60, 604_800)
"""The shortest and the longest time of a snooze."""

_KIND: Final = "snooze"
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Snooze:
    """A snooze of an *incident* of *queue*: its end, its actor and the reason."""

    queue: str
    incident: str
    until: datetime
    by: str
    reason: str = ""


class Snoozes(ServicePart):
    """Snoozes incidents, and shows them."""

    def all(self) -> Mapping[tuple[str, str], Snooze]:
        """Return the snoozes of the caller's queues, by queue and incident."""
        now = self.now()
        found = (read_body(one.body, Snooze) for one in every_record(self.store, _KIND, page=_PAGE))
        return {
            (one.queue, one.incident): one
            for one in found
            if one.until > now and visible(one.queue)
        }

    def snooze(self, queue: str, incident: str, seconds: Seconds, *, reason: str = "") -> Snooze:
        """Snooze *incident* of *queue* for *seconds*.  Raises NotFound, and as checked_reason()."""
        self.service.queues.get(queue)
        why, until = checked_reason(reason), self.now() + timedelta(seconds=seconds)
        snooze = Snooze(queue, incident, until, caller().actor, why)
        where = {"incident": incident}
        with self.service.audit.action("snooze", queue=queue, where=where, reason=why):
            record = Record(_KIND, _name(queue, incident), body_of(snooze), expires_at=until)
            self.store.renew_record(record)
        return snooze

    def wake(self, queue: str, incident: str) -> None:
        """End the snooze of *incident* of *queue*, if there is one."""
        with self.service.audit.action("wake", queue=queue, where={"incident": incident}) as done:
            done.changed = int(self.store.drop_record(_KIND, _name(queue, incident)))


def _name(queue: str, incident: str) -> str:
    return f"{queue}:{incident}"
