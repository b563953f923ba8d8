"""Strict order in a group: one of its tasks after the other, in the order in which they came in.

Each task takes a *place* in its group's line: a number, and which task has the one before.  The
slot of the group (see ``domain.group_slots``) names a place, and that is done with, for good, once
its task has ended, is gone, or has another place by now.  A task goes when the slot's place is done
with and the place before its own is the slot's, or vouched for: by its task having ended after a
delivery, for that was let go in the same way.  Else something that came before may be hidden, for
the index lags: it is waited for until the task has been there for ten seconds.

Whoever puts a task in has taken its place before.  So a place is good for half of these ten
seconds, and whoever is slower takes another.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, auto
from typing import Final, Self

from headrace.domain.fairness import NOBODY
from headrace.domain.task import State, Task

BELIEVED_AFTER: Final = timedelta(seconds=10)
"""Who has waited for so long is not behind somebody whom the index does not show yet."""

PLACE_GOOD_FOR: Final = timedelta(seconds=5)
"""How long after a place was taken its task may be put in."""


class Progress(StrEnum):
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

    def progress(self, task: Task | None, queue: str, now: datetime, *, halt: bool) -> Progress:
        """Return how far its *task* has come in *queue*; with *halt* the dead stop others."""
        if task is None or task.queue != queue or task.hidden(now) or Spot.of(task) != self:
            return Progress.UNKNOWN
        match task.state:
            case State.ENQUEUED:
                return Progress.WAITING
            case State.INFLIGHT:
                return Progress.INFLIGHT
            case State.DEAD if halt:
                return Progress.HALTING
        delivered = task.started_at is not None and task.started_at >= task.enqueued_at
        return Progress.DONE if delivered else Progress.UNKNOWN
