"""Slots for tasks in flight, taken before the delivery and without a transaction.

A queue that allows so many tasks in flight keeps as many places, sixteen to a pool.  Who wants to
deliver a task first writes a *reservation* into a pool that has room, then delivers the task on the
condition that it still waits with the due time that the reservation names.  A task has each due
time once: so its reservation stands while it waits with that due time and while it is in flight
under that very reservation, and is over for good after that.  No
release is needed: every process may remove a reservation that is over, and a reservation whose
maker died before the delivery is completed by the next process that finds its task waiting.

Slots of a group: how many of its tasks may be in flight, kept in its line.

A slot names the *stay* that holds it: a task, and the due time for which that may be delivered.
Who wants to deliver a task first writes its stay into a slot that is free, if the slot still names
what it did, and then delivers the task on the condition that it waits with that due time.  A task
has each due time once in a queue (see above), so a stay that is over stays over, and any
process may take its slot.  Slots are not released, so they cannot leak; a stay whose maker died
before the delivery is completed by the next process that finds its task waiting.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, auto
from typing import Final

from headrace.domain.patch import (
    EXPIRES,
    Copy,
    Fields,
    Patch,
    Value,
    When,
    expiry_of,
    members,
    number,
    seconds_of,
    text,
)
from headrace.domain.task import State, Task
from headrace.domain.task_groups import TURN, line_item
from headrace.domain.times import EPOCH, MICROSECOND, micros_of

_HELD: Final = "held"
_SLOT: Final = re.compile("s[0-9]+")
POOL: Final = 16
"""Places in a pool: as many reservations as fit one write unit."""


class ReservationStanding(StrEnum):
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

    def standing(self, task: Task | None, queue: str) -> ReservationStanding:
        """Return its standing in *queue*, by its *task* as read after it was made."""
        if task is None or task.queue != queue or task.due_at != self.due_at:
            return ReservationStanding.OVER
        if task.state is State.ENQUEUED:
            return ReservationStanding.WAITING
        in_use = task.state is State.INFLIGHT and task.slot == self.slot
        return ReservationStanding.IN_USE if in_use else ReservationStanding.OVER


def pools(limit: int) -> int:
    """Return how many pools *limit* places are in."""
    return -(-limit // POOL)


def pool_item(queue: str, pool: int) -> tuple[str, str]:
    """Return the key of the control item of a pool; names of pools sort by number."""
    return f"slots:{queue}", f"{pool:05}"


def reservations_in(fields: Fields | None) -> frozenset[str]:
    """Return the reservations in the *fields* of a pool's control item."""
    return members(fields or {}, _HELD)


def reservation_patch(queue: str, pool: int, texts: Collection[str], *, room: int) -> Patch:
    """Return the write of reservations into a pool, if it then has at most *room* of them."""
    most = room - len(texts)
    when = (When(_HELD, "size <=", most, or_missing=most >= 0),)
    return Patch(*pool_item(queue, pool), when, add={_HELD: frozenset(texts)})


def release_patch(queue: str, pool: int, texts: Collection[str]) -> Patch:
    """Return the write that takes reservations out of a pool, if they are in it."""
    return Patch(*pool_item(queue, pool), discard={_HELD: frozenset(texts)})


def places(limit: int, pool: int) -> int:
    """Return how many of *limit* places are in *pool*."""
    return max(0, min(POOL, limit - pool * POOL))


@dataclass(frozen=True, slots=True)
class Stay:
    """A task, and the due time for which it may be delivered."""

    task_id: str
    due_at: datetime

    @classmethod
    def parse(cls, text: str) -> "Stay":
        """Return the one that a slot keeps as *text*.

        The slot of an earlier strict queue of the same name (see ``domain.task_groups``) has the
        number of a place instead of a due time; no task is due then.
        """
        task_id, due, *_ = text.split(" ")
        return cls(task_id, EPOCH + int(due, 16) * MICROSECOND)

    @property
    def text(self) -> str:
        """What the slot keeps."""
        return f"{self.task_id} {micros_of(self.due_at):x}"

    def standing(self, task: Task | None, queue: str) -> ReservationStanding:
        """Return its standing in *queue*, by its *task* as read after the slot was."""
        if task is None or task.queue != queue or task.due_at != self.due_at:
            return ReservationStanding.OVER
        match task.state:
            case State.ENQUEUED:
                return ReservationStanding.WAITING
            case State.INFLIGHT:
                return ReservationStanding.IN_USE
            case _:
                return ReservationStanding.OVER


@dataclass(frozen=True, slots=True)
class GroupLine:
    """The line of a group: how far its turns are taken, and its slots by number.

    ``expires_at`` is when the store may remove it, None: never.
    """

    turn: int = 0
    slots: Mapping[int, str] = field(default_factory=dict)
    expires_at: datetime | None = None

    @classmethod
    def of(cls, fields: Fields) -> "GroupLine":
        """Return the line in the *fields* of its control item."""
        slots = {int(name[1:]): text(fields, name) for name in fields if _SLOT.fullmatch(name)}
        return cls(number(fields, TURN), slots, expiry_of(fields))


def slot_patch(
    queue: str,
    name: str,
    slot: int,
    stay: str,
    expects: str | None,
    expires_at: datetime | None = None,
) -> Patch:
    """Return the write of *stay* into a slot of the line *name*, if the slot contains *expects*.

    *expects* None: the slot was never used.  *expires_at* is when the store may remove the line
    from then on; None leaves that as it is.  A group that has no line yet gets a line.
    """
    field_name = f"s{slot}"
    put: dict[str, Value | Copy | None] = {field_name: stay}
    if expires_at is not None:
        put[EXPIRES] = seconds_of(expires_at)
    return Patch(*line_item(queue, name), (When(field_name, "=", expects),), put=put)
