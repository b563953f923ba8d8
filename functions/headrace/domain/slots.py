"""Slots for tasks in flight, taken before the delivery and without a transaction.

A queue that allows so many tasks in flight keeps as many places, sixteen to a pool.  Who wants to
deliver a task first writes a *reservation* into a pool that has room, then delivers the task on the
condition that it still waits with the due time that the reservation names.  A task has each due
time once: so its reservation stands while it waits with that due time and while it is in flight
under that very reservation, and is over for good after that, whoever looks.  Nobody need give it
back: one that is over may be removed by anybody, and one whose maker died before the delivery is
completed by whoever finds its task still waiting.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, auto
from typing import Final

from headrace.domain.instants import EPOCH, MICROSECOND, micros_of
from headrace.domain.task import State, Task

POOL: Final = 16
"""Places in a pool: as many reservations as fit one write unit."""


class Standing(StrEnum):
    """What a reservation means, by its task as it is now."""

    WAITING = auto()  #: its maker is about to deliver the task, or has died
    IN_USE = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place in a pool for one delivery of one task.

    ``mark`` is the second in which it was made and some chance, in hexadecimal and base 32: it
    tells the reservations of one due time apart.
    """

    task_id: str
    due_at: datetime
    mark: str
    pool: int

    @classmethod
    def made(
        cls, task_id: str, due_at: datetime, pool: int, *, now: datetime, token: str
    ) -> "Reservation":
        """Return a new one; *token* is four characters of chance."""
        return cls(task_id, due_at, f"{int(now.timestamp()):x}.{token}", pool)

    @classmethod
    def parse(cls, text: str, pool: int) -> "Reservation":
        """Return the one that a pool keeps as *text*."""
        task_id, due, mark = text.split(" ")
        return cls(task_id, EPOCH + int(due, 16) * MICROSECOND, mark, pool)

    @classmethod
    def of(cls, task: Task) -> "Reservation | None":
        """Return the one *task* was delivered under last, if it was under one."""
        if task.slot is None:
            return None
        pool, text = task.slot.split(" ", 1)
        return cls.parse(f"{task.id} {text}", int(pool))

    @property
    def text(self) -> str:
        """What the pool keeps."""
        return f"{self.task_id} {self._due} {self.mark}"

    @property
    def slot(self) -> str:
        """What the task keeps of it."""
        return f"{self.pool} {self._due} {self.mark}"

    @property
    def _due(self) -> str:
        return f"{micros_of(self.due_at):x}"

    @property
    def made_at(self) -> datetime:
        """When it was made, to the second."""
        return EPOCH + timedelta(seconds=int(self.mark.partition(".")[0], 16))

    def standing(self, task: Task | None, queue: str) -> Standing:
        """Return its standing in *queue*, by its *task* as read after it was made."""
        if task is None or task.queue != queue or task.due_at != self.due_at:
            return Standing.OVER
        if task.state is State.ENQUEUED:
            return Standing.WAITING
        in_use = task.state is State.INFLIGHT and task.slot == self.slot
        return Standing.IN_USE if in_use else Standing.OVER


def pools(limit: int) -> int:
    """Return how many pools *limit* places are in."""
    return -(-limit // POOL)


def places(limit: int, pool: int) -> int:
    """Return how many of *limit* places are in *pool*."""
    return max(0, min(POOL, limit - pool * POOL))
