"""Limits of the tasks in flight per group: slots in the line of the group.

See ``domain.slots``.  A delivery costs a write of its slot and a read of the line; if every slot
has been used before, the tasks in them are read too.  A group without a free slot is *blocked*:
this process reads its line again after a second, or when it has ended one of its tasks itself.  If
a task waits in its slot for longer than a delivery takes, the process that took the slot has died:
the waiting task is delivered in place of the one that found it.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headrace.domain.change import Change, Entry
from headrace.domain.queue import Queue
from headrace.domain.slots import GroupLine, ReservationStanding, Stay, slot_patch
from headrace.domain.task import State, Task
from headrace.domain.task_groups import LINE_KEPT, line_name
from headrace.ops.shared.lines import group_lines
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.slots import remember
from headrace.store.base import Store

if TYPE_CHECKING:
    from headrace.runtime.service import Service


BLOCKED_FOR: Final = timedelta(seconds=1)
BLOCKED_WHERE_CHEAP_FOR: Final = timedelta(seconds=0.25)
"""How long a waiting dequeue does not look again at groups without a free slot."""

_DEAD_AFTER: Final = timedelta(seconds=1)  # a task seen waiting in its slot
_REMEMBERED: Final = 20_000
_TRIES: Final = 3  # where others are quicker with a slot


@dataclass(frozen=True, slots=True)
class Blocking:
    """The task that keeps a group from having another in flight: why, and until when if known."""

    task_id: str
    why: str
    until: datetime | None


@dataclass(slots=True, eq=False, repr=False)
class _Standings:
    """A line, and the state of the tasks in its slots."""

    line: GroupLine
    by_stay: Mapping[str, ReservationStanding]

    def number(self, limit: int, *standings: ReservationStanding, beyond: bool = False) -> int:
        """Count the slots of one of *standings*, of the first *limit* or *beyond* those."""
        return sum(
            (slot >= limit) == beyond and self.by_stay.get(stay) in standings
            for slot, stay in self.line.slots.items()
        )


class GroupLimits(ServicePart):
    """Takes and frees the slots of groups."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._blocked: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._over: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._waiting: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._lock: threading.Lock = threading.Lock()

    def take(
        self,
        queue: Queue,
        entries: Sequence[Entry],
        looked: Mapping[int, datetime] = MappingProxyType({}),
    ) -> list[Entry]:
        """Take a free slot for each of *entries*, in their order; return the deliverable entries.

        If a task waits in an abandoned slot, it replaces an entry that has found no slot.  *looked*
        has the times at which the entries of shards were read.
        """
        if queue.strict:
            from headrace.ops.shared.strict_order import StrictOrder  # noqa: PLC0415  few have it

            known = with_groups(self.store, entries)
            return StrictOrder(self, queue, looked).take(known)
        wanted = named_by_group(with_groups(self.store, entries))
        granted: dict[str, Entry] = {}
        for _ in range(_TRIES):
            if not wanted:
                break
            lines = group_lines(self.store, queue.name, wanted)
            tasks = self._holders(queue, lines, wanted)
            again: dict[str, list[Entry]] = {}
            for name, of_group in wanted.items():
                line = lines.get(name, GroupLine())
                left = self._take_of(queue, name, line, tasks, of_group, granted)
                if left:
                    again[name] = left
            wanted = again
        places = {entry.task_id: place for place, entry in enumerate(entries)}
        return sorted(granted.values(), key=lambda one: places.get(one.task_id, len(places)))

    def blocked(self, queue: Queue, entry: Entry) -> bool:
        """Return whether the group of *entry* is known to have no free slot."""
        with self._lock:
            until = self._blocked.get((queue.name, line_name(entry.group_key)))
        return until is not None and self.now() < until

    def ended(self, changes: Sequence[tuple[Change, Task]]) -> None:
        """Look again at the groups of the tasks whose deliveries *changes* have ended."""
        if not self._blocked:
            return
        for change, task in changes:
            with self._lock:
                self._blocked.pop((change.ends_delivery_in or "", line_name(task.group_key)), None)

    def blocking(
        self, queue: Queue, keys: Collection[str | None], *, besides: Task | None = None
    ) -> dict[str | None, Blocking]:
        """Return the reasons why the groups of these keys may have no other task in flight.

        The slot of the task *besides* is not counted.
        """
        if not queue.group_limit:
            return {}
        if queue.strict:
            from headrace.ops.shared import strict_order  # noqa: PLC0415  few have it

            return strict_order.blocking(self, queue, keys, besides=besides)
        names, own = {line_name(key): key for key in keys}, besides and besides.id
        lines = group_lines(self.store, queue.name, names)
        stays = {
            name: [Stay.parse(stay) for stay in line.slots.values()] for name, line in lines.items()
        }
        ids = {stay.task_id for of_group in stays.values() for stay in of_group}
        tasks = self.store.read(ids, payload=False) if ids else {}
        found: dict[str | None, Blocking] = {}
        for name, of_group in stays.items():
            holding = {
                stay.task_id: tasks[stay.task_id]
                for stay in of_group
                if stay.task_id != own
                and stay.standing(tasks.get(stay.task_id), queue.name)
                is not ReservationStanding.OVER
            }
            if len(holding) >= queue.group_limit:
                first = min(holding.values(), key=lambda one: (_free_at(one) or one.due_at, one.id))
                found[names[name]] = Blocking(first.id, _why(first), _free_at(first))
        return found

    def _holders(
        self, queue: Queue, lines: Mapping[str, GroupLine], wanted: Mapping[str, Sequence[Entry]]
    ) -> Mapping[str, Task | None]:
        """Read the tasks in the slots of those groups that have no other left; None: gone."""
        ids = set[str]()
        for name, line in lines.items():
            unset = queue.group_limit - sum(slot < queue.group_limit for slot in line.slots)
            named = set(line.slots.values()) & {_stay_of(one) for one in wanted[name]}
            if len(wanted[name]) - len(named) <= unset and max(line.slots, default=0) < (
                queue.group_limit
            ):
                continue
            for stay in line.slots.values():
                if (queue.name, stay) not in self._over:
                    ids.add(Stay.parse(stay).task_id)
        return {**dict.fromkeys(ids), **self.store.read(ids, payload=False)} if ids else {}

    def _take_of(
        self,
        queue: Queue,
        name: str,
        line: GroupLine,
        tasks: Mapping[str, Task | None],
        entries: Sequence[Entry],
        granted: dict[str, Entry],
    ) -> list[Entry]:
        """Take the slots of one group into *granted*; return those to try again."""
        limit = queue.group_limit
        known = self._standings(queue, line, tasks, {_stay_of(one) for one in entries})
        free = [slot for slot in range(limit) if self._free(known, slot)]
        room = len(free) - known.number(limit, ReservationStanding.IN_USE, beyond=True)
        usable = {stay for slot, stay in line.slots.items() if slot < limit}
        named = [one for one in entries if _stay_of(one) in usable]
        for one in named[: max(0, len(named) + min(0, room))]:
            granted[one.task_id] = one
        others = [one for one in entries if one not in named]
        fitting = others[: max(0, room)]
        lost: list[Entry] = []
        for slot, one in zip(free, fitting, strict=False):
            stay, expects = _stay_of(one), line.slots.get(slot)
            until = self.kept_until(queue, line, one)
            if self.store.patch(slot_patch(queue.name, name, slot, stay, expects, until)).made:
                granted[one.task_id] = one
            else:
                lost.append(one)
        if len(fitting) < len(others) and not lost:
            self.block(queue, name)
            for left in self._left(queue, known, tasks)[: len(others) - len(fitting)]:
                granted.setdefault(left.task_id, left)
        return [*lost, *others[len(fitting) :]] if lost else []

    def _standings(
        self, queue: Queue, line: GroupLine, tasks: Mapping[str, Task | None], met: set[str]
    ) -> _Standings:
        """Judge the slots of a line by *tasks*; the index shows that the tasks *met* wait."""
        found: dict[str, ReservationStanding] = {}
        for text in line.slots.values():
            stay = Stay.parse(text)
            if text in met:
                found[text] = ReservationStanding.WAITING
            elif (queue.name, text) in self._over:
                found[text] = ReservationStanding.OVER
            elif stay.task_id in tasks:
                found[text] = stay.standing(tasks[stay.task_id], queue.name)
                if found[text] is ReservationStanding.OVER:
                    with self._lock:
                        remember(self._over, (queue.name, text), None, most=_REMEMBERED)
        return _Standings(line, found)

    def _free(self, known: _Standings, slot: int) -> bool:
        stay = known.line.slots.get(slot)
        return stay is None or known.by_stay.get(stay) is ReservationStanding.OVER

    def _left(
        self, queue: Queue, known: _Standings, tasks: Mapping[str, Task | None]
    ) -> list[Entry]:
        """Return the tasks that have been waiting in their slots for too long."""
        now, left = self.now(), list[Entry]()
        for slot, text in sorted(known.line.slots.items()):
            task = tasks.get(Stay.parse(text).task_id)
            if known.by_stay.get(text) is not ReservationStanding.WAITING or task is None:
                continue
            with self._lock:
                since = self._waiting.setdefault((queue.name, text), now)
                remember(self._waiting, (queue.name, text), since, most=_REMEMBERED)
            if slot < queue.group_limit and now - since >= _DEAD_AFTER and task.is_live(now):
                left.append(Entry.of(task))
        return left

    def kept_until(self, queue: Queue, line: GroupLine, entry: Entry) -> datetime | None:
        """Return until when *line* must be kept for *entry* too; None where it is kept so long."""
        begun = line != GroupLine()
        expiry = entry.expires_at or queue.expiry(self.now())
        if expiry is None or (begun and line.expires_at is None):
            return None
        until = expiry + LINE_KEPT
        return None if line.expires_at is not None and line.expires_at >= until else until

    def block(self, queue: Queue, name: str) -> None:
        """Do not look at the group of the line *name* again for a while."""
        with self._lock:
            until = self.now() + BLOCKED_FOR
            remember(self._blocked, (queue.name, name), until, most=_REMEMBERED)


def with_groups(store: Store, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return *entries* with the groups that the index does not show."""
    unknown = [entry.task_id for entry in entries if not entry.knows_group]
    if not unknown:
        return entries
    tasks = store.read(unknown, payload=False)
    keys = {task.id: task.group_key for task in tasks.values()}
    return [
        entry
        if entry.knows_group
        else entry._replace(group_key=keys.get(entry.task_id), knows_group=True)
        for entry in entries
    ]


def named_by_group(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return *entries* by the name of their group's line."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(line_name(entry.group_key), []).append(entry)
    return found


def _free_at(task: Task) -> datetime | None:
    return task.lease_expires_at if task.state is State.INFLIGHT else None


def _why(task: Task) -> str:
    is_so = "is in flight" if task.state is State.INFLIGHT else "is about to be delivered"
    return f"{task.id} {is_so}"


def _stay_of(entry: Entry) -> str:
    return Stay(entry.task_id, entry.own_time).text
