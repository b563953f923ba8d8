"""Groups of the tasks of a queue: fair turns, and the strict order of a group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, auto
from typing import Final, NamedTuple, Self
from zlib import crc32

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
from headrace.domain.task import State, Task
from headrace.domain.times import EPOCH, MICROSECOND, micros_of

DELIVERED: Final = "turn"
"""The kind of the control items with the highest turn delivered, each named by its queue."""

TURN: Final = "turn"
"""The field of a line that says how far its turns are taken, and of ``DELIVERED``."""

_TAIL: Final = "tail"  # of the line of a strict group: the last task that has taken a place,
_BEFORE: Final = "prev"  # the last task before that,
_SEQ: Final = "seq"  # and the place of the tail
_PARTS: Final = 16  # partitions for the lines of a queue

STEP: Final = 10_000
"""The distance between the turns of a group of weight 1."""

LINE_KEPT: Final = timedelta(days=30)
"""A line is kept for so long after the last of its tasks must have ended."""

DELIVERED_KEPT: Final = timedelta(seconds=EXPIRES_SECONDS[1]) + 2 * LINE_KEPT
"""The highest turn delivered is kept for so long, which is longer than any line."""


class GroupMode(StrEnum):
    """How the groups of a queue share it."""

    FAIR = "fair"
    STRICT = "strict"


class OnDead(StrEnum):
    """What a dead task of a strict group does to the tasks behind it."""

    CONTINUE = "continue"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How the groups of a queue share it, and the weights other than 1.

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
        """Return the distance between the turns of a group."""
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


def delivered_patch(queue: str, turn: int, *, expires_at: datetime) -> Patch:
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
"""The id in place of a task before the first task of a line."""


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


BELIEVED_AFTER: Final = timedelta(seconds=10)
"""A turn of this age is never behind a task that the index does not show yet."""

NOTES: Final = range(1, 33)
"""The slots of a line that keep its notes."""

_DIGITS_OF_TIMES: Final = 12  # at least; see domain.slots.Stay

PLACE_GOOD_FOR: Final = timedelta(seconds=5)
"""How long after a place was taken its task may be put in."""


class PlaceProgress(StrEnum):
    """The progress of the task of a place, as it was read after the place."""

    WAITING = auto()
    INFLIGHT = auto()
    HALTING = auto()  #: it is dead, and stops the tasks behind it
    DONE = auto()  #: it has ended after a delivery
    UNKNOWN = auto()  #: it does not exist, has another place, or has ended without a delivery


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a line: the task that has taken it, and its number."""

    task_id: str
    seq: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the place that is stored as *text*."""
        task_id, seq = text.rsplit(" ", 1)
        return cls(task_id, int(seq))

    @classmethod
    def from_slot(cls, text: str) -> Self | None:
        """Return the place that a slot stores as *text*.

        None for the stay of a queue that was not strict: it has a time in microseconds where a
        place has its number.
        """
        number = text.rsplit(" ", 1)[1]
        return cls.parse(text) if number.isdecimal() and len(number) < _DIGITS_OF_TIMES else None

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return the place of *task*; before all others if it has taken none."""
        return cls(task.id, 0 if task.after is None else cls.parse(task.after).seq + 1)

    @property
    def text(self) -> str:
        """The place as a slot and the next task store it."""
        return f"{self.task_id} {self.seq}"

    @property
    def is_before_first(self) -> bool:
        """Whether this is the place before the first task."""
        return self.task_id == NOBODY and self.seq == 0

    def progress(
        self, task: Task | None, queue: str, now: datetime, *, halt: bool
    ) -> PlaceProgress:
        """Return the progress of its *task* in *queue*; with *halt* dead tasks stop others."""
        if task is None or task.queue != queue or task.is_hidden(now) or Spot.of(task) != self:
            return PlaceProgress.UNKNOWN
        match task.state:
            case State.ENQUEUED:
                return PlaceProgress.WAITING
            case State.INFLIGHT:
                return PlaceProgress.INFLIGHT
            case State.DEAD if halt:
                return PlaceProgress.HALTING
        return PlaceProgress.DONE if was_delivered(task) else PlaceProgress.UNKNOWN


@dataclass(frozen=True, slots=True)
class Note:
    """A note that the place ``spot`` is empty: the places after it come after ``before``."""

    spot: Spot
    before: Spot

    @classmethod
    def from_slot(cls, text: str) -> Self | None:
        """Return the note that a slot stores as *text*; None for text of a queue not strict."""
        match text.split(" "):
            case [task_id, seq, before, number]:
                return cls(Spot(task_id, int(seq)), Spot(before, int(number)))
            case _:
                return None

    @classmethod
    def of(cls, task: Task) -> Self | None:
        """Return the note about the place of *task*; None if none is needed."""
        if task.after is None or was_delivered(task):
            return None
        return cls.unused(task.id, task.after)

    @classmethod
    def unused(cls, task_id: str, after: str) -> Self:
        """Return the note that the place of *task_id* behind *after* is not used."""
        before = Spot.parse(after)
        return cls(Spot(task_id, before.seq + 1), before)

    @property
    def text(self) -> str:
        """The note as the line stores it."""
        return f"{self.spot.text} {self.before.text}"


def was_delivered(task: Task) -> bool:
    """Return whether *task* was delivered since it came to its place."""
    return task.started_at is not None and task.started_at >= task.enqueued_at


def merge_runs(notes: Iterable[Note]) -> list[Note]:
    """Return *notes*, with one note for each run of successive places."""
    runs: list[Note] = []
    for note in sorted(notes, key=lambda one: one.spot.seq):
        if runs and runs[-1].spot == note.before:
            runs[-1] = Note(note.spot, runs[-1].before)
        else:
            runs.append(note)
    return runs
