"""What a pass of the reaper leaves for the next one: how far it came, and how long it took.

A record in the control table for each part of the work; none while one pass does everything and
has time to spare, which is the common case: then it costs a read a minute, and no write.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from headrace.domain.task import Place, State
from headrace.store.base import Position, Record

KIND: Final = "reaper"
PARTS: Final = 16
"""The most passes at a time; template.yaml reserves as many executions."""

COMFORT: Final = 0.5
"""What a pass should take of the time it has."""

_FORGOTTEN: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ReaperPart:
    """One part of the work, which is divided by shard among *parts* passes at a time.

    *run* is when the pass began that handed it out, *until* when it must be over.
    """

    number: int
    parts: int
    run: datetime
    until: datetime

    def holds(self, number: int) -> bool:
        """Tell whether what has this number belongs to this part."""
        return number % self.parts == self.number

    def event(self) -> dict[str, Any]:
        """Return it as an event for a function."""
        return {
            "part": self.number,
            "parts": self.parts,
            "run": self.run.isoformat(),
            "until": self.until.isoformat(),
        }

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self | None:
        """Return the part that event() wrote; None for another event, such as a timer's."""
        if "part" not in event:
            return None
        run, until = (datetime.fromisoformat(event[name]) for name in ("run", "until"))
        return cls(event["part"], event["parts"], run, until)


@dataclass(frozen=True, slots=True)
class Left:
    """Where the pass over one part ended.

    *cut* is whether time was over before it was done, *next* the queue whose turn it was, *scans*
    how far it came in partitions where much stays as it is; *used* what it took of its time.
    """

    part: int
    parts: int
    run: datetime
    used: float
    cut: bool
    next: str = ""
    scans: Mapping[Place, Position] = field(default_factory=dict)

    def recent(self, now: datetime) -> bool:
        """Tell whether it says something about *now*."""
        return now - self.run <= _FORGOTTEN

    def record(self) -> Record:
        """Return it as a record."""
        body = {
            "parts": self.parts,
            "run": self.run.isoformat(),
            "used": round(self.used, 3),
            "cut": self.cut,
            "next": self.next,
            "scans": [
                [
                    place.queue,
                    str(place.state),
                    place.label,
                    at.scheduled_at.isoformat(),
                    at.task_id,
                ]
                for place, at in self.scans.items()
            ],
        }
        return Record(KIND, str(self.part), body)

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the object that record() wrote."""
        body = record.body
        scans = {
            Place.labelled(queue, State(state), label): Position(
                datetime.fromisoformat(at).astimezone(UTC), task_id
            )
            for queue, state, label, at, task_id in body["scans"]
        }
        run = datetime.fromisoformat(body["run"])
        number = int(record.name)
        return cls(number, body["parts"], run, body["used"], body["cut"], body["next"], scans)


def parts_for(left: Sequence[Left], now: datetime) -> int:
    """Return how many passes at a time the work needs, by what the last ones have *left*.

    As many as there may be when time was over for one of them; as many as have answered when one
    that was called did not; else so many that each is done in half of its time.
    """
    first = next((one for one in left if one.part == 0), None)
    if first is None or not first.recent(now):
        return 1
    answered = [one for one in left if one.run == first.run]
    if len(answered) < first.parts:
        return len(answered)
    if any(one.cut for one in answered):
        return PARTS
    needed = math.ceil(sum(one.used for one in answered) / COMFORT)
    return min(PARTS, max(1, needed))
