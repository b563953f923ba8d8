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

from headrace.domain.instants import EPOCH, MICROSECOND, micros_of
from headrace.domain.limits import EXPIRES_SECONDS

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

    Or further than ``delivered``, if the line has not come so far.  ``ahead`` is a guess that it
    has: a wrong one costs a write.  ``expires_at`` is when the line may be forgotten, None: never.
    """

    name: str
    length: int
    delivered: int
    ahead: bool
    expires_at: datetime | None = None

    def end(self, line: int | None) -> int:
        """Return how far a line comes that has come as far as *line*."""
        return max(self.delivered, line or 0) + self.length


@dataclass(frozen=True, slots=True)
class PlaceTaking(TurnTaking):
    """Turns for the next ``count`` tasks of a strict group, and their places in its line.

    ``last`` begins with the id of the last of them.  Made again while that is the line's tail, it
    gives the same once more.
    """

    count: int = 1
    last: str = ""


class Places(NamedTuple):
    """Where turns and places of tasks end, and what was the tail before."""

    end: int
    seq: int
    before: str


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


def instant_of_turn(turn: int) -> datetime:
    """Return the instant by which the index sorts *turn*."""
    return EPOCH + turn * MICROSECOND


def turn_of_instant(instant: datetime) -> int:
    """Return the turn that *instant* stands for."""
    return micros_of(instant)


def shown_turn(turn: int) -> float:
    """Return *turn* for people: 1.0 is the turn of one task of weight 1."""
    return turn / STEP
