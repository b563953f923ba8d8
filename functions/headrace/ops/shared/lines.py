"""Turns of the tasks of a queue with groups: take them, and record how far delivery is.

See ``domain.task_groups``.  A process may have old values of the lines and of the highest delivered
turn, which it reads and writes at most once a second.  A wrong guess of a line costs a write.  If a
delivered turn is not known here, groups without waiting tasks come a little earlier.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.change import Entry
from headrace.domain.errors import Unavailable
from headrace.domain.patch import Fields, number
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.slots import GroupLine
from headrace.domain.task import State, Task
from headrace.domain.task_groups import (
    DELIVERED,
    DELIVERED_KEPT,
    LINE_KEPT,
    TURN,
    Places,
    Spot,
    Turn,
    TurnTaking,
    delivered_patch,
    instant_of_turn,
    line_item,
    line_name,
    turn_of_instant,
)
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.slots import remember
from headrace.store.base import Store
from headrace.store.call_scope import metered

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_LOOKED_AT_FOR: Final = timedelta(seconds=1)
_LINES: Final = 20_000  # remembered
_QUEUES: Final = 10_000
_TRIES: Final = 6  # to take turns; a line stays ahead once it is, so that two tries suffice


@dataclass(slots=True)
class _Delivered:
    """Where the highest turn of a queue that was delivered began, as known here and as written."""

    turn: int = 0
    looked_at: datetime | None = None
    written: int = 0
    written_at: datetime | None = None


class Lines(ServicePart):
    """Takes turns, and records the delivered ones."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._lines: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._delivered: OrderedDict[str, _Delivered] = OrderedDict()
        self._lock: threading.Lock = threading.Lock()

    def take(
        self,
        queue: Queue,
        group_key: str | None,
        ids: Sequence[str],
        *,
        until: datetime | None = None,
    ) -> Sequence[Turn]:
        """Take turns for the tasks *ids* of a group of *queue*, in one write.

        *until* is the latest expiry of the tasks; None for the default of the queue.  Raises
        LookupError for a queue without groups.
        """
        settings = queue.settings.groups
        if settings is None:
            raise LookupError(f"queue {queue.name} has no groups")
        name, step, delivered = (
            line_name(group_key),
            settings.step(group_key),
            self.delivered(queue),
        )
        with self._lock:
            known = self._lines.get((queue.name, name), 0)
        now = self.now()
        ends = [end for end in (until, queue.expiry(now)) if end is not None]
        forget = max(ends, default=None) if queue.settings.expires_in_seconds else None
        length, count = step * len(ids), len(ids)
        expires_at = None if forget is None else forget + LINE_KEPT
        taking = TurnTaking(queue.name, name, length, delivered, expires_at)
        if settings.strict:
            taking = replace(taking, count=count, last=_tail(ids))
        end, seq, tail = self._taken(taking, {TURN: known})
        places: Sequence[str | None] = [None] * count
        if settings.strict:
            before, first = tail.partition(" ")[0], seq - count
            places = [
                Spot(task_id, first + number).text for number, task_id in enumerate((before, *ids))
            ][:-1]
        with self._lock:
            remember(self._lines, (queue.name, name), end, most=_LINES)
        begins = range(end - length, end, step)
        return [
            Turn(instant_of_turn(at), after, group_key)
            for at, after in zip(begins, places, strict=True)
        ]

    def _taken(self, taking: TurnTaking, line: Fields) -> Places:
        """Make *taking* in a line that probably has these fields; return where it ends."""
        for _ in range(_TRIES):
            patch = taking.patch(line)
            if patch is None:
                return Places.of(line)
            patched = self.store.patch(patch)
            line = patched.fields or {}
            if patched.made:
                return Places.of(line)
        raise Unavailable("the line of a group keeps changing; try again")

    def take_once(self, queue: Queue, task: Task) -> Turn:
        """Take a turn in *queue* for a task that comes from elsewhere."""
        (turn,) = self.take(queue, task.group_key, [task.id])
        return turn

    def keeps_place(self, queue: Queue, task: Task) -> bool:
        """Return whether the dead *task* halts its group; a restart keeps its place."""
        from headrace.ops.shared.strict_order import halts, slot_of  # noqa: PLC0415  few have it

        if not halts(queue) or task.queue != queue.name or task.state is not State.DEAD:
            return False
        own, name = Spot.of(task), line_name(task.group_key)
        line = group_lines(self.store, queue.name, [name]).get(name)
        slot = None if line is None else slot_of(line)
        return slot is None or slot.seq <= own.seq

    def take_for(
        self, new: Mapping[int, tuple[Queue, TaskSpec, str]], now: datetime
    ) -> dict[int, Turn]:
        """Return the turns of those of the *new* tasks that take one: a write for each group.

        Each new task is given as its queue, its fields and its id.
        """
        wanted: dict[tuple[str, str | None], list[int]] = {}
        for place, (queue, one, _) in new.items():
            if one.takes_turn(queue, now):
                wanted.setdefault((queue.name, one.group_key), []).append(place)
        turns: dict[int, Turn] = {}
        for places in wanted.values():
            queue, first, _ = new[places[0]]
            ends = [end for place in places if (end := new[place][1].expires_at)]
            until = max(ends, default=None)
            taken = self.take(
                queue, first.group_key, [new[place][2] for place in places], until=until
            )
            turns |= dict(zip(places, taken, strict=True))
        return turns

    def delivered(self, queue: Queue) -> int:
        """Return where the highest turn delivered began, as it was known within a second."""
        now = self.now()
        with self._lock:
            here = self._delivered.get(queue.name) or _Delivered()
            if here.looked_at is not None and now - here.looked_at < _LOOKED_AT_FOR:
                return here.turn
        with metered():  # now and then for all who ask here: no caller's to pay
            stored = number(self.store.item(DELIVERED, queue.name, consistent=False) or {}, TURN)
        with self._lock:
            here = self._delivered.get(queue.name) or _Delivered()
            here.turn, here.looked_at = max(here.turn, stored), now
            remember(self._delivered, queue.name, here, most=_QUEUES)
            return here.turn

    def note(self, queue: Queue, tasks: Iterable[Task], passed: Entry | None = None) -> None:
        """Note that *tasks* were delivered; write how far that is, at most once a second.

        *passed* is the first entry before the last of them that may still wait: turns are delivered
        up to there.
        """
        groups = queue.settings.groups
        if groups is None:
            return
        turns = [turn_of_instant(task.turn) for task in tasks if task.turn is not None]
        if turns and passed is not None:
            turns = [min(max(turns), turn_of_instant(passed.scheduled_at))]
        now = self.now()
        with self._lock:
            here = self._delivered.get(queue.name) or _Delivered()
            here.turn = max(here.turn, *turns) if turns else here.turn
            remember(self._delivered, queue.name, here, most=_QUEUES)
            lately = here.written_at is not None and now - here.written_at < _LOOKED_AT_FOR
            if lately or here.turn <= here.written:
                return
            here.written, here.written_at = here.turn, now
            turn = here.turn
        with metered(), suppress(Unavailable):  # the next delivery writes it
            self.store.patch(delivered_patch(queue.name, turn, expires_at=now + DELIVERED_KEPT))


def group_lines(store: Store, queue: str, names: Collection[str]) -> Mapping[str, GroupLine]:
    """Return the stored lines of these groups, without missing ones."""
    found = store.items_by_key([line_item(queue, name) for name in names])
    return {name: GroupLine.of(fields) for (_, name), fields in found.items()}


def _tail(ids: Sequence[str]) -> str:
    """Return the mark that a line keeps of a call for tasks *ids*: the last of them, and the call.

    So a write whose answer was lost takes no places twice.  Another call never gets the places:
    they may be noted as empty by then (see ``strict_order``).
    """
    return f"{ids[-1]} {secrets.token_hex(6)}"
