"""Strict order in a group: one of its tasks after the other, in the order in which they came in.

Each task takes a *place* in its group's line: a number, and which task has the one before.  The
slot of the group (see ``domain.slots``) names a place, and that is done with, for good, once
its task has ended, is gone, or has another place by now.  A task goes when the slot's place is done
with and the place before its own is the slot's, or vouched for: by its task having ended after a
delivery, for that was let go in the same way.  Else something that came before may be hidden, for
the index lags: it is waited for until the task has been there for ten seconds.

A line also has *notes* of places that nobody is to wait for: who leaves one without a delivery, or
has taken one and puts no task in, notes whose was before it, and so does, where the dead halt their
group, who is about to end a task that nobody has had.  The notes of these are read before anybody
is believed to be gone, so what is missing between hides none of them.  What a note says never
changes, whenever it is written.

Whoever puts a task in has taken its place before.  So a place is good for half of these ten
seconds, and whoever is slower takes another.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, auto
from typing import Final, Self

from headrace.domain.fairness import NOBODY
from headrace.domain.task import State, Task

BELIEVED_AFTER: Final = timedelta(seconds=10)
"""Who has waited for so long is not behind somebody whom the index does not show yet."""

NOTES: Final = range(1, 33)
"""The slots of a line that keep its notes."""

_DIGITS_OF_TIMES: Final = 12  # at least; see domain.slots.Stay

PLACE_GOOD_FOR: Final = timedelta(seconds=5)
"""How long after a place was taken its task may be put in."""


class PlaceProgress(StrEnum):
    """How far the task of a place has come, as it was read after the place was."""

    WAITING = auto()
    INFLIGHT = auto()
    HALTING = auto()  #: it is dead, and those behind it are not to go on
    DONE = auto()  #: it has ended after a delivery
    UNKNOWN = auto()  #: it is gone, has another place, or has ended without a delivery


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a line: the task that has taken it, and its number."""

    task_id: str
    seq: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the one that is kept as *text*."""
        task_id, seq = text.rsplit(" ", 1)
        return cls(task_id, int(seq))

    @classmethod
    def kept(cls, text: str) -> Self | None:
        """Return the one that a slot keeps as *text*.

        None for what one that is not strict kept there: a time in microseconds stands where the
        number of a place does.
        """
        number = text.rsplit(" ", 1)[1]
        return cls.parse(text) if number.isdecimal() and len(number) < _DIGITS_OF_TIMES else None

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return the place of *task*; before all others if it has taken none."""
        return cls(task.id, 0 if task.after is None else cls.parse(task.after).seq + 1)

    @property
    def text(self) -> str:
        """What a slot and the next task keep."""
        return f"{self.task_id} {self.seq}"

    @property
    def nobody(self) -> bool:
        """Whether this is the place before the first one."""
        return self.task_id == NOBODY and self.seq == 0

    def progress(
        self, task: Task | None, queue: str, now: datetime, *, halt: bool
    ) -> PlaceProgress:
        """Return how far its *task* has come in *queue*; with *halt* the dead stop others."""
        if task is None or task.queue != queue or task.hidden(now) or Spot.of(task) != self:
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
    """That what comes after the place ``spot`` comes after ``before``, but for ``spot`` itself."""

    spot: Spot
    before: Spot

    @classmethod
    def kept(cls, text: str) -> Self | None:
        """Return the one that a slot keeps as *text*; None for what one that is not strict kept."""
        match text.split(" "):
            case [task_id, seq, before, number]:
                return cls(Spot(task_id, int(seq)), Spot(before, int(number)))
            case _:
                return None

    @classmethod
    def of(cls, task: Task) -> Self | None:
        """Return the note of the place of *task*; None if it has none, or was delivered there."""
        if task.after is None or was_delivered(task):
            return None
        return cls.unused(task.id, task.after)

    @classmethod
    def unused(cls, task_id: str, after: str) -> Self:
        """Return the note of the place behind *after* that was taken for a task *task_id*."""
        before = Spot.parse(after)
        return cls(Spot(task_id, before.seq + 1), before)

    @property
    def text(self) -> str:
        """What the line keeps."""
        return f"{self.spot.text} {self.before.text}"


def was_delivered(task: Task) -> bool:
    """Tell whether somebody has had *task* since it came to where it is."""
    return task.started_at is not None and task.started_at >= task.enqueued_at


def in_runs(notes: Iterable[Note]) -> list[Note]:
    """Return *notes* of places that were left: one for each run of such, one after the other."""
    runs: list[Note] = []
    for note in sorted(notes, key=lambda one: one.spot.seq):
        if runs and runs[-1].spot == note.before:
            runs[-1] = Note(note.spot, runs[-1].before)
        else:
            runs.append(note)
    return runs
