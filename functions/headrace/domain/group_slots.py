"""Slots of a group: how many of its tasks may be in flight, kept in its line.

A slot names the *stay* that holds it: a task, and the due time for which that may be delivered.
Who wants to deliver a task first writes its stay into a slot that is free, if the slot still names
what it did, and then delivers the task on the condition that it waits with that due time.  A task
has each due time once in a queue (see ``domain.slots``), so a stay that is over is so for good, and
whoever finds it may have its slot.  Nobody gives a slot back, so none can leak; and one whose maker
died before the delivery is completed by whoever finds its task still waiting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headrace.domain.instants import EPOCH, MICROSECOND, micros_of
from headrace.domain.slots import Standing
from headrace.domain.task import State, Task


@dataclass(frozen=True, slots=True)
class Stay:
    """A task, and the due time for which it may be delivered."""

    task_id: str
    due_at: datetime

    @classmethod
    def parse(cls, text: str) -> "Stay":
        """Return the one that a slot keeps as *text*."""
        task_id, due = text.split(" ")
        return cls(task_id, EPOCH + int(due, 16) * MICROSECOND)

    @property
    def text(self) -> str:
        """What the slot keeps."""
        return f"{self.task_id} {micros_of(self.due_at):x}"

    def standing(self, task: Task | None, queue: str) -> Standing:
        """Return its standing in *queue*, by its *task* as read after the slot was."""
        if task is None or task.queue != queue or task.due_at != self.due_at:
            return Standing.OVER
        match task.state:
            case State.ENQUEUED:
                return Standing.WAITING
            case State.INFLIGHT:
                return Standing.IN_USE
            case _:
                return Standing.OVER


@dataclass(frozen=True, slots=True)
class GroupLine:
    """The record of a group: how far its turns are taken, and its slots by number.

    ``expires_at`` is when it may be forgotten, None: never.
    """

    turn: int = 0
    slots: Mapping[int, str] = field(default_factory=dict)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SlotTaking:
    """``stay`` for the slot ``number`` of the line ``name``, if that names ``expects`` still.

    ``expects`` None: it was never used.  ``expires_at`` is when the line may be forgotten from
    then on; None leaves that as it is.
    """

    name: str
    number: int
    stay: str
    expects: str | None = None
    expires_at: datetime | None = None
