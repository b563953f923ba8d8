"""Checkpoints of the passes of the reaper: the position of a pass, and its duration.

Each part of the work has a record.  While one pass does everything with time to spare, which is the
common case, there is no record: a pass then costs one read and no write.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Self

from headrace.domain.task import Place, State
from headrace.store.base import Position, Record
from headrace.store.records import body_of, read_body

KIND: Final = "reaper"
PARTS: Final = 16
"""The maximum of parallel passes; template.yaml reserves as many executions."""

COMFORT: Final = 0.5
"""The share of its time that a pass should use."""

_FORGOTTEN: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ReaperPart:
    """One part of the work, which is divided by shard among *parts* passes at a time.

    *run* is the start of the pass that assigned it, *until* its latest end.
    """

    part: int
    parts: int
    run: datetime
    until: datetime

    def holds(self, number: int) -> bool:
        """Return whether *number* belongs to this part."""
        return number % self.parts == self.part

    def event(self) -> dict[str, Any]:
        """Return it as an event for a function."""
        return body_of(self)

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self | None:
        """Return the part that event() wrote; None for another event, such as a timer's."""
        return read_body(event, cls) if "part" in event else None


@dataclass(frozen=True, slots=True)
class PassCheckpoint:
    """Where the pass over one part ended.

    *cut* is whether the time was over first, *next* the next queue, *scans* the positions in
    partitions where most entries stay, and *used* the used share of its time.
    """

    part: int
    parts: int
    run: datetime
    used: float
    cut: bool
    next: str = ""
    scans: Mapping[Place, Position] = field(default_factory=dict)

    def recent(self, now: datetime) -> bool:
        """Return whether the checkpoint is recent enough to use at *now*."""
        return now - self.run <= _FORGOTTEN

    def record(self) -> Record:
        """Return it as a record."""
        scans = [
            [place.queue, str(place.state), place.label, *at.state()]
            for place, at in self.scans.items()
        ]
        return Record(KIND, str(self.part), {**body_of(self, "part", "scans"), "scans": scans})

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the object that record() wrote."""
        scans = {
            Place.labelled(queue, State(state), label): Position.read(at)
            for queue, state, label, *at in record.body["scans"]
        }
        return read_body(record.body, cls, part=int(record.name), scans=scans)


def parts_for(left: Sequence[PassCheckpoint], now: datetime) -> int:
    """Return the number of parallel passes that the work needs, by the checkpoints *left*.

    The maximum, if one pass ran out of time; the number of passes that answered, if one did not
    answer; otherwise so many passes that each uses half of its time.
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
