"""The waiting tasks at the head of a shard, read past the groups that are at their limit.

A group at its limit may have a hundred thousand waiting tasks with earlier turns than all others.
A process remembers how far it has read such tasks, and the first tasks of each such group: it reads
on from there, and returns to the group when it has a free slot.  After a second, or more the
further it has read, it begins again, and so finds the tasks that came before that place since.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.change import Entry
from headrace.domain.queue import Queue
from headrace.domain.task_groups import line_name
from headrace.ops.shared.group_limits import GroupLimits, with_groups
from headrace.ops.shared.lanes import rank_of
from headrace.ops.shared.slots import remember
from headrace.store.base import Position

_LASTS: Final = timedelta(seconds=1)
_FOR_EACH: Final = timedelta(microseconds=200)  # longer, for each entry that was read
_PARKED: Final = 20_000  # entries of all groups
_OF_ONE: Final = 256  # of one group
_WINDOWS: Final = 64


@dataclass(slots=True, eq=False, repr=False)
class _Window:
    """The head of one shard: up to ``positions``, by lane, all that waits is of ``parked``.

    Or of groups of which only the first ones are there, which are ``cut``.
    """

    made_at: datetime
    read: int = 0
    positions: dict[int, Position] = field(default_factory=dict)
    parked: dict[str, dict[str, Entry]] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)

    def old(self, now: datetime) -> bool:
        """Return whether to begin again."""
        return now - self.made_at >= _LASTS + self.read * _FOR_EACH


@dataclass(slots=True, eq=False, repr=False)
class GroupWindows:
    """What a process knows of the heads of all shards."""

    limits: GroupLimits
    _windows: OrderedDict[tuple[str, int], _Window] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sieve(self, queue: Queue, shard: int) -> "Sieve":
        """Begin a look at one shard."""
        now = self.limits.now()
        with self._lock:
            window = self._windows.get((queue.name, shard))
            if window is None or window.old(now):
                window = _Window(now)
            remember(self._windows, (queue.name, shard), window, most=_WINDOWS)
            return Sieve(self.limits, queue, window, self._lock, dict(window.positions))

    def looked(self, queue: Queue, entries: Sequence[Entry]) -> dict[int, datetime]:
        """Return the times of the reads that show the tasks before *entries*, by shard."""
        with self._lock:
            return {
                shard: window.made_at
                for shard in {entry.place.shard for entry in entries}
                if (window := self._windows.get((queue.name, shard)))
            }

    def met(self, queue: Queue, entries: Sequence[Entry]) -> None:
        """Forget *entries*, which are being delivered, or were by somebody else."""
        with self._lock:
            for entry in entries:
                window = self._windows.get((queue.name, entry.place.shard))
                if window is not None:
                    parked = window.parked.get(line_name(entry.group_key), {})
                    parked.pop(entry.task_id, None)


@dataclass(slots=True, eq=False, repr=False)
class Sieve:
    """One look: lets through, of each group, as many entries as it may have in flight."""

    limits: GroupLimits
    queue: Queue
    window: _Window
    lock: threading.Lock
    begins: dict[int, Position]
    held_back: bool = field(default=False, init=False)
    _passed: dict[str, int] = field(default_factory=dict, init=False)
    _broken: set[int] = field(default_factory=set, init=False)
    _seen: set[str] = field(default_factory=set, init=False)
    _waits: set[str] = field(default_factory=set, init=False)

    def parked(self) -> list[Entry]:
        """Return the waiting tasks of groups that may have a free slot now."""
        with self.lock:
            parked = [[*of_group.values()] for of_group in self.window.parked.values()]
        ready = list[Entry]()
        for of_group in parked:
            for entry in of_group:
                if not self._passes(entry):
                    break
                ready.append(entry)
        self._seen.update(entry.task_id for of_group in parked for entry in of_group)
        now = self.limits.now()
        with self.lock:
            used_up = any(not self.window.parked.get(name) for name in self.window.cut)
            if used_up and now - self.window.made_at >= _LASTS:
                self.window.read, self.window.made_at = (
                    0,
                    now - _LASTS,
                )  # the next window begins again
        return sorted(ready, key=lambda entry: rank_of(self.queue, entry))

    def sift(self, page: Sequence[Entry]) -> list[Entry]:
        """Return those of *page* that may have a slot; the others are remembered."""
        entries = [
            entry
            for entry in with_groups(self.limits.store, page)
            if entry.task_id not in self._seen
        ]
        ready, back = list[Entry](), list[Entry]()
        for entry in entries:
            if not self._overtakes(entry) and self._passes(entry):
                ready.append(entry)
                self._broken.add(entry.place.lane)
            elif entry.place.lane not in self._broken:
                back.append(entry)
        with self.lock:
            self.window.read += len(page)
            total = sum(map(len, self.window.parked.values()))
            for entry in back:
                lane, position = entry.place.lane, Position(entry.scheduled_at, entry.task_id)
                before = self.window.positions.get(lane)
                self.window.positions[lane] = max(before, position) if before else position
                name = line_name(entry.group_key)
                parked = self.window.parked.setdefault(name, {})
                if len(parked) < _OF_ONE and total < _PARKED and name not in self.window.cut:
                    parked[entry.task_id] = entry
                    total += 1
                elif entry.task_id not in parked:
                    self.window.cut.add(name)
        return ready

    def _overtakes(self, entry: Entry) -> bool:
        """Return whether a blocked task of a strict group comes before *entry*."""
        if not self.queue.strict:
            return False
        name = line_name(entry.group_key)
        with self.lock:
            before = bool(self.window.parked.get(name)) or name in self.window.cut
        self.held_back = self.held_back or before or name in self._waits
        return before or name in self._waits

    def _passes(self, entry: Entry) -> bool:
        name = line_name(entry.group_key)
        if self._passed.get(name, 0) < self.queue.group_limit and not self.limits.blocked(
            self.queue, entry
        ):
            self._passed[name] = self._passed.get(name, 0) + 1
            return True
        self.held_back = True
        self._waits.add(name)
        return False
