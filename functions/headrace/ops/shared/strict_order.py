"""One task of a strict group after the other: whose turn it is, by the slot in the group's line.

See ``domain.strict``.  A delivery costs a write of the slot, and reads of the line, of the task and
of who holds the slot; of who is before it only where that is not the slot's.  A group whose next
task must wait is *blocked*, as one at its limit is (``group_limits``).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain.change import Entry
from headrace.domain.fairness import OnDead, line_name
from headrace.domain.group_slots import GroupLine, SlotTaking
from headrace.domain.queue import Queue
from headrace.domain.strict import BELIEVED_AFTER, Progress, Spot
from headrace.domain.task import State, Task

if TYPE_CHECKING:
    from headrace.ops.shared.group_limits import Blocking, GroupLimits

SLOT: Final = 0
_TRIES: Final = 3  # where others are quicker with a slot


@dataclass(slots=True, eq=False, repr=False)
class _Seen:
    """What is known of the tasks of some groups, read after their lines; None: gone."""

    queue: Queue
    now: datetime
    tasks: dict[str, Task | None]

    def progress(self, spot: Spot) -> Progress:
        """Return how far the task of *spot* has come."""
        task = self.tasks.get(spot.task_id)
        return spot.progress(task, self.queue.name, self.now, halt=halts(self.queue))


@dataclass(slots=True, eq=False, repr=False)
class StrictOrder:
    """The use case, for one look at what waits in *queue*.

    *looked* says of each shard since when all that this process knows of it was read.
    """

    limits: "GroupLimits"
    queue: Queue
    looked: Mapping[int, datetime]

    def take(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that may be delivered, each with the slot of its group.

        At most one of each group; where the slot's own task waits, that one in its place.
        """
        wanted: dict[str, Entry] = {}
        for entry in entries:
            wanted.setdefault(line_name(entry.group_key), entry)
        granted = list[Entry]()
        for _ in range(_TRIES):
            if not wanted:
                break
            lines = self.limits.store.lines(self.queue.name, wanted)
            seen = self._seen(lines, wanted.values())
            lost: dict[str, Entry] = {}
            for name, entry in wanted.items():
                found = self._next(name, lines.get(name, GroupLine()), entry, seen)
                if isinstance(found, SlotTaking):
                    if self.limits.store.take_slot(self.queue.name, found):
                        granted.append(entry)
                    else:
                        lost[name] = entry
                elif found is None:
                    self.limits.block(self.queue, name)
                else:
                    granted.append(found)
            wanted = lost
        return granted

    def _seen(self, lines: Mapping[str, GroupLine], entries: Collection[Entry]) -> _Seen:
        """Read the tasks that wait, who holds the slots, and who is before them besides."""
        held = [spot.task_id for line in lines.values() if (spot := slot_of(line))]
        first = {*held, *(entry.task_id for entry in entries)}
        tasks = self._read(first)
        before = (tasks[entry.task_id] for entry in entries)
        after = {Spot.parse(task.after).task_id for task in before if task and task.after}
        tasks |= self._read(after - first)
        return _Seen(self.queue, self.limits.now(), tasks)

    def _read(self, ids: Collection[str]) -> dict[str, Task | None]:
        found = self.limits.store.read(ids, payload=False) if ids else {}
        return {**dict.fromkeys(ids), **found}

    def _next(
        self, name: str, line: GroupLine, entry: Entry, seen: _Seen
    ) -> Entry | SlotTaking | None:
        """Return what may be delivered in a group of which *entry* waits; None: nothing yet."""
        slot, task = slot_of(line), seen.tasks[entry.task_id]
        if slot is not None and seen.progress(slot) not in (Progress.DONE, Progress.UNKNOWN):
            holder = seen.tasks[slot.task_id]
            waits = holder is not None and seen.progress(slot) is Progress.WAITING
            due = waits and holder is not None and holder.due_at <= seen.now
            return Entry.of(holder) if due and holder and holder.live(seen.now) else None
        if task is None or (task.queue, task.state) != (self.queue.name, State.ENQUEUED):
            return None
        if task.due_at != entry.own_time:
            return None
        before = None if task.after is None else Spot.parse(task.after)
        known = before is None or before.nobody or before == slot
        if before is not None and not known and not self._vouched(before, task, seen):
            return None
        own = Spot.of(task)
        expects = line.slots.get(SLOT)
        until = self.limits.kept_until(self.queue, line, entry)
        return SlotTaking(name, SLOT, own.text, expects, until)

    def _vouched(self, before: Spot, task: Task, seen: _Seen) -> bool:
        """Tell whether nothing that came before *task* may still be to come."""
        match seen.progress(before):
            case Progress.DONE:
                return True
            case Progress.UNKNOWN:
                since = max(task.enqueued_at, task.returned_at or task.enqueued_at)
                known_from = min(seen.now, self.looked.get(task.place.shard, seen.now))
                return known_from - since >= BELIEVED_AFTER
            case _:
                return False


def halts(queue: Queue) -> bool:
    """Tell whether a dead task stops those of its group behind it."""
    groups = queue.settings.groups
    return groups is not None and groups.on_dead is OnDead.HALT


def slot_of(line: GroupLine) -> Spot | None:
    """Return the place that the slot of *line* names."""
    text = line.slots.get(SLOT)
    return None if text is None else Spot.parse(text)


def blocking(
    limits: "GroupLimits", queue: Queue, keys: Collection[str | None], *, besides: str | None
) -> "dict[str | None, Blocking]":
    """Return what keeps the groups of these keys from their next task, if anything does.

    Not the task *besides*, which does not wait for itself.
    """
    from headrace.ops.shared.group_limits import Blocking  # noqa: PLC0415  it imports this one

    names = {line_name(key): key for key in keys}
    lines = limits.store.lines(queue.name, names)
    spots = {name: spot for name, line in lines.items() if (spot := slot_of(line))}
    ids = {spot.task_id for spot in spots.values()} - {besides}
    tasks = limits.store.read(ids, payload=False) if ids else {}
    found: dict[str | None, Blocking] = {}
    for name, spot in spots.items():
        task = tasks.get(spot.task_id)
        progress = spot.progress(task, queue.name, limits.now(), halt=halts(queue))
        if task is not None and progress not in (Progress.DONE, Progress.UNKNOWN):
            found[names[name]] = Blocking(task.id, *_why(task, limits.now()))
    return found


def _why(task: Task, now: datetime) -> tuple[str, datetime | None]:
    """Return in words why those behind *task* wait, and until when if that is known."""
    match task.state:
        case State.INFLIGHT:
            return f"{task.id} is in flight", task.lease_expires_at
        case State.DEAD:
            return f"{task.id} is dead", None
        case _ if task.due_at > now:
            return f"{task.id} retries at {task.due_at.isoformat(timespec='seconds')}", task.due_at
        case _:
            return f"{task.id} is about to be delivered", None
