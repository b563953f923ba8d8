"""Slots for tasks in flight, taken before the delivery and without a transaction.

A queue with a limit of tasks in flight has as many places, sixteen to a pool.  Before a process
delivers a task, it writes a *reservation* into a pool that has room.  It then delivers the task on
condition that the task still waits with the due time that the reservation names.  A task has each
due time once.  So its reservation is valid while the task waits with that due time, and while it is
in flight under that reservation; afterwards it is never valid again.  No release is needed: every
process may remove an invalid reservation.  If a process dies between reservation and delivery, the
next process that finds the task waiting delivers it under that reservation.

The slots of a group limit how many of its tasks are in flight; they are in the group's line.  A
slot has a *stay*: a task, and the due time for which it may be delivered.  A process writes a stay
into a free slot, on condition that the slot has not changed.  It then delivers the task, on
condition of that due time.  As above, an ended stay never becomes valid again, so any process may
take its slot, and slots cannot leak.
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
    """The meaning of a reservation, by the present state of its task."""

    WAITING = auto()  #: a process is about to deliver the task, or has died
    IN_USE = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place in a pool for one delivery of one task.

    ``mark`` is the second in which it was made (hexadecimal) and random text (base 32).  It
    distinguishes the reservations of one due time.
    """

    task_id: str
    due_at: datetime
    mark: str
    pool: int

    @classmethod
    def made(
        cls, task_id: str, due_at: datetime, pool: int, *, now: datetime, token: str
    ) -> "Reservation":
        """Return a new reservation; *token* is four random characters."""
        return cls(task_id, due_at, f"{int(now.timestamp()):x}.{token}", pool)

    @classmethod
    def parse(cls, text: str, pool: int) -> "Reservation":
        """Return the reservation that a pool stores as *text*."""
        task_id, due, mark = text.split(" ")
        return cls(task_id, EPOCH + int(due, 16) * MICROSECOND, mark, pool)

    @classmethod
    def of(cls, task: Task) -> "Reservation | None":
        """Return the reservation of the last delivery of *task*, if it had one."""
        if task.slot is None:
            return None
        pool, text = task.slot.split(" ", 1)
        return cls.parse(f"{task.id} {text}", int(pool))

    @property
    def text(self) -> str:
        """The reservation as a pool stores it."""
        return f"{self.task_id} {self._due} {self.mark}"

    @property
    def slot(self) -> str:
        """The reservation as the task stores it."""
        return f"{self.pool} {self._due} {self.mark}"

    @property
    def _due(self) -> str:
        return f"{micros_of(self.due_at):x}"

    @property
    def made_at(self) -> datetime:
        """When it was made, to the second."""
        return EPOCH + timedelta(seconds=int(self.mark.partition(".")[0], 16))

    def standing(self, task: Task | None, queue: str) -> ReservationStanding:
        """Return the meaning of the reservation in *queue*, by its *task* as read later."""
        if task is None or task.queue != queue or task.due_at != self.due_at:
            return ReservationStanding.OVER
        if task.state is State.ENQUEUED:
            return ReservationStanding.WAITING
        in_use = task.state is State.INFLIGHT and task.slot == self.slot
        return ReservationStanding.IN_USE if in_use else ReservationStanding.OVER


def pools(limit: int) -> int:
    """Return the number of pools for *limit* places."""
    return -(-limit // POOL)


def pool_item(queue: str, pool: int) -> tuple[str, str]:
    """Return the key of the control item of a pool; names of pools sort by number."""
    return f"slots:{queue}", f"{pool:05}"


def reservations_in(fields: Fields | None) -> frozenset[str]:
    """Return the reservations in the *fields* of a pool's control item."""
    return members(fields or {}, _HELD)


def reservation_patch(queue: str, pool: int, texts: Collection[str], *, room: int) -> Patch:
    """Return the write of reservations into a pool, if it has at most *room* of them then."""
    most = room - len(texts)
    when = (When(_HELD, "size <=", most, or_missing=most >= 0),)
    return Patch(*pool_item(queue, pool), when, add={_HELD: frozenset(texts)})


def release_patch(queue: str, pool: int, texts: Collection[str]) -> Patch:
    """Return the write that removes reservations from a pool."""
    return Patch(*pool_item(queue, pool), discard={_HELD: frozenset(texts)})


def places(limit: int, pool: int) -> int:
    """Return the number of places of *pool*, of *limit* in all."""
    return max(0, min(POOL, limit - pool * POOL))


@dataclass(frozen=True, slots=True)
class Stay:
    """A task, and the due time for which it may be delivered."""

    task_id: str
    due_at: datetime

    @classmethod
    def parse(cls, text: str) -> "Stay":
        """Return the stay that a slot stores as *text*.

        The slot of an earlier strict queue of the same name (see ``domain.task_groups``) has the
        number of a place instead of a due time; no task is due then.
        """
        task_id, due, *_ = text.split(" ")
        return cls(task_id, EPOCH + int(due, 16) * MICROSECOND)

    @property
    def text(self) -> str:
        """The stay as a slot stores it."""
        return f"{self.task_id} {micros_of(self.due_at):x}"

    def standing(self, task: Task | None, queue: str) -> ReservationStanding:
        """Return the meaning of the stay in *queue*, by its *task* as read after the slot."""
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
    """The line of a group: the end of its taken turns, and its slots by number.

    The store may remove it at ``expires_at`` (None: never).
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
