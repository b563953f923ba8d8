"""Fair shares of a queue: whose turn is next, among groups that have tasks waiting.

Each group has a **line**: how far the turns of its tasks have been given out.  A task takes the
turn behind its line's last, or behind where the turns that were **delivered** have begun if the
line has not come so far; a group of twice the weight takes turns half as long.  Tasks are
delivered in the order in which their turns begin.  So a group that had nothing waiting comes behind
at most one task of each other group, however many those have waiting, and nobody saves turns up
while it is idle.

Turns are whole numbers.  The index sorts tasks by instants, so there a turn is an instant of the
year 1970 or later, before every due time there is: whoever asks for what is due by now finds every
task that has a turn, and whoever asks for what is due later finds none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from zlib import crc32

from headrace.domain.instants import EPOCH, MICROSECOND, micros_of
from headrace.domain.limits import EXPIRES_SECONDS
from headrace.domain.patch import (
    EXPIRES,
    Copy,
    Fields,
    Patch,
    Value,
    When,
    number,
    seconds_of,
    text,
)

DELIVERED: Final = "turn"
"""The kind of the control items with the highest turn delivered, each named by its queue."""

TURN: Final = "turn"
"""The field of a line that says how far its turns are taken, and of ``DELIVERED``."""

_TAIL: Final = "tail"  # of the line of a strict group: the last task that has taken a place,
_BEFORE: Final = "prev"  # the last task before that,
_SEQ: Final = "seq"  # and the place of the tail
_PARTS: Final = 16  # partitions for the lines of a queue

STEP: Final = 10_000
"""How far apart the turns of a group of weight 1 are."""

LINE_KEPT: Final = timedelta(days=30)
"""A line is kept for so long after the last of its tasks must have ended."""

DELIVERED_KEPT: Final = timedelta(seconds=EXPIRES_SECONDS[1]) + 2 * LINE_KEPT
"""The highest turn delivered is kept for so long, which is longer than any line."""


class GroupMode(StrEnum):
    """How the groups of a queue share it."""

    FAIR = "fair"
    STRICT = "strict"


class OnDead(StrEnum):
    """What a task of a strict group that is dead means to those behind it."""

    CONTINUE = "continue"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """That tasks may be of groups, and the shares of those that have another than 1.

    Of each, ``max_inflight_per_group`` tasks may be in flight at once; 0: any number.  ``on_dead``
    is set where the mode is strict, and only there.
    """

    mode: GroupMode
    weights: Mapping[str, float] = field(default_factory=dict)
    max_inflight_per_group: int = 0
    on_dead: OnDead | None = None

    @property
    def strict(self) -> bool:
        """Whether the tasks of a group are done one after the other, in the order they came in."""
        return self.mode is GroupMode.STRICT

    def weight(self, group_key: str | None) -> float:
        """Return the weight of a group; None: of the tasks without a key, which are one."""
        return 1.0 if group_key is None else self.weights.get(group_key, 1.0)

    def step(self, group_key: str | None) -> int:
        """Return how far apart the turns of a group are."""
        return max(1, round(STEP / self.weight(group_key)))


@dataclass(frozen=True, slots=True)
class TurnTaking:
    """Turns for the next tasks of a group: ``length`` further than the line ``name`` has come.

    Or further than ``delivered``, if the line has not come that far.  ``expires_at`` is when the
    store may remove the line, None: never.  In a strict queue ``count`` tasks take places too, and
    ``last`` begins with the id of the last of them.
    """

    queue: str
    name: str
    length: int
    delivered: int
    expires_at: datetime | None = None
    count: int = 0
    last: str | None = None

    def patch(self, line: Fields) -> Patch | None:
        """Return the write that takes the turns, for a line that probably has the fields *line*.

        None if an earlier try has taken them, and its answer was lost.  DynamoDB cannot take the
        larger of two numbers in one write, so a wrong guess of *line* is refused.
        """
        put: dict[str, Value | Copy | None] = {
            EXPIRES: None if self.expires_at is None else seconds_of(self.expires_at)
        }
        add: dict[str, int | frozenset[str]] = {}
        if number(line, TURN) > self.delivered:
            when = [When(TURN, ">", self.delivered)]
            add[TURN] = self.length
        else:
            when = [When(TURN, "<=", self.delivered, or_missing=True)]
            put[TURN] = self.delivered + self.length
        if self.last is not None:
            if text(line, _TAIL) == self.last:
                return None
            when.append(When(_TAIL, "<>", self.last, or_missing=True))
            put |= {_BEFORE: Copy(_TAIL, default=NOBODY), _TAIL: self.last}
            add[_SEQ] = self.count
        return Patch(*line_item(self.queue, self.name), tuple(when), put=put, add=add)


class Places(NamedTuple):
    """Where turns and places of tasks end, and what was the tail before."""

    end: int
    seq: int
    before: str

    @classmethod
    def of(cls, line: Fields) -> "Places":
        """Return the places that were taken last in the line with these fields."""
        return cls(number(line, TURN), number(line, _SEQ), text(line, _BEFORE))


def delivering(queue: str, turn: int, *, expires_at: datetime) -> Patch:
    """Return the write that turns are delivered up to *turn*, unless a higher turn is stored."""
    when = (When(TURN, "<", turn, or_missing=True),)
    put = {TURN: turn, EXPIRES: seconds_of(expires_at)}
    return Patch(DELIVERED, queue, when, put=put)


class Turn(NamedTuple):
    """Where the turn of a task begins, and in a strict group also the place of the one before it.

    ``group_key`` says on which shard the task waits there.
    """

    at: datetime
    after: str | None = None
    group_key: str | None = None


NOBODY: Final = "-"
"""Stands for the task before the first of a line."""


def line_name(group_key: str | None) -> str:
    """Return the name under which the line of a group is kept."""
    return "-" if group_key is None else f"={group_key}"


def line_item(queue: str, name: str) -> tuple[str, str]:
    """Return the key of the control item of a line.

    The lines of a queue are in several partitions, because a partition takes only so many writes.
    """
    return f"line:{queue}:{crc32(name.encode()) % _PARTS}", name


def instant_of_turn(turn: int) -> datetime:
    """Return the instant by which the index sorts *turn*."""
    return EPOCH + turn * MICROSECOND


def turn_of_instant(instant: datetime) -> int:
    """Return the turn that *instant* stands for."""
    return micros_of(instant)


def shown_turn(turn: int) -> float:
    """Return *turn* for people: 1.0 is the turn of one task of weight 1."""
    return turn / STEP
