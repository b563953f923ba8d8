"""Strict groups: deliver one task of a group after the other, by its slot in the group's line.

See ``domain.task_groups``.  A delivery costs a write of the slot, a read of the line, and half a
read of the task and of the holder of the slot; also of the task before it unless that is the
holder.  A group whose next task must wait is *blocked*, like a group at its limit
(``group_limits``).

Notes tell the line about tasks that will not come or are gone.  A note costs a read and a write
unit for each call and group.  A line has room for about thirty notes.  If there is no room, the
next task waits for ten seconds, as after a crash of the writer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain.change import Change, Entry
from headrace.domain.errors import Unavailable
from headrace.domain.patch import Patch
from headrace.domain.queue import Queue
from headrace.domain.slots import GroupLine, slot_patch
from headrace.domain.task import State, Task
from headrace.domain.task_groups import (
    BELIEVED_AFTER,
    NOTES,
    Note,
    OnDead,
    PlaceProgress,
    Spot,
    Turn,
    line_name,
    merge_runs,
)
from headrace.ops.shared.lines import group_lines
from headrace.store.base import Store

if TYPE_CHECKING:
    from headrace.ops.shared.group_limits import Blocking, GroupLimits

SLOT: Final = 0
_TRIES: Final = 3  # where others are quicker with a slot


def halts(queue: Queue) -> bool:
    """Return whether a dead task halts the tasks of its group behind it."""
    groups = queue.settings.groups
    return groups is not None and groups.on_dead is OnDead.HALT


def slot_of(line: GroupLine) -> Spot | None:
    """Return the place that the slot of *line* names."""
    text = line.slots.get(SLOT)
    return None if text is None else Spot.from_slot(text)


def notes_of(line: GroupLine) -> dict[int, Note]:
    """Return the notes of *line* that say something still, by slot."""
    slot = slot_of(line)
    kept = {at: Note.from_slot(text) for at, text in line.slots.items() if at in NOTES}
    found = {at: note for at, note in kept.items() if note is not None}
    return {at: one for at, one in found.items() if slot is None or one.spot.seq > slot.seq}


def note_left(store: Store, queue: str, tasks: Iterable[Task]) -> None:
    """Note that *tasks*, as they were, have left their places in *queue*."""
    _note_empty(store, queue, _by_line(tasks))


def note_unused(store: Store, queue: str, taken: Iterable[tuple[str, Turn]]) -> None:
    """Note that the turns *taken* in *queue*, each for a task of this id, have become no task."""
    by_line: dict[str, list[Note]] = {}
    for task_id, turn in taken:
        if turn.after is not None:
            note = Note.unused(task_id, turn.after)
            by_line.setdefault(line_name(turn.group_key), []).append(note)
    _note_empty(store, queue, by_line)


def note_unmade(store: Store, changes: Iterable[Change]) -> None:
    """Note the places that were taken for *changes*, of which none was made."""
    by_queue: dict[str, list[tuple[str, Turn]]] = {}
    for change in changes:
        if change.turn is not None:
            queue = change.put["place"].queue
            by_queue.setdefault(queue, []).append((change.task_id, change.turn))
    for queue, taken in by_queue.items():
        note_unused(store, queue, taken)


def _note_empty(store: Store, queue: str, by_line: Mapping[str, list[Note]]) -> None:
    if not by_line:
        return
    with suppress(Unavailable):  # they are empty, whether it is noted or not
        runs = {name: merge_runs(notes) for name, notes in by_line.items()}
        _write(store, queue, runs, left=True)


def note_dying(store: Store, queue: Queue, tasks: Iterable[Task]) -> None:
    """Note those of *tasks* that are about to die without a delivery, where the dead halt.

    Raises Unavailable when that cannot be done: then they must not die.
    """
    if not halts(queue):
        return
    waiting = [one for one in tasks if (one.queue, one.state) == (queue.name, State.ENQUEUED)]
    if by_line := _by_line(waiting):
        _write(store, queue.name, by_line, left=False)


def _by_line(tasks: Iterable[Task]) -> dict[str, list[Note]]:
    found: dict[str, list[Note]] = {}
    for task in tasks:
        if note := Note.of(task):
            found.setdefault(line_name(task.group_key), []).append(note)
    return found


def _write(store: Store, queue: str, notes: Mapping[str, list[Note]], *, left: bool) -> None:
    """Write *notes*; tasks that have *left* need no note of the task before them."""
    for _ in range(_TRIES):
        lines = group_lines(store, queue, notes)
        notes = {
            name: lost
            for name, line in lines.items()
            if (lost := _write_in(store, queue, name, line, notes[name], left=left))
        }
        if not notes:
            return


def _write_in(
    store: Store, queue: str, name: str, line: GroupLine, notes: list[Note], *, left: bool
) -> list[Note]:
    """Write *notes* into one line; return those for whose slots somebody else was quicker."""
    there, slot = notes_of(line), slot_of(line)
    known, lost = {one.spot: at for at, one in there.items()}, list[Note]()
    free = [at for at in NOTES if at not in there]
    for note in notes:
        if note.spot in known or (slot is not None and note.spot.seq <= slot.seq):
            continue
        at, text = known.get(note.before), note.text
        if at is not None and left and _has_left(store, queue, note.before):
            text = Note(note.spot, there[at].before).text
        elif free:
            at = free.pop(0)
        else:
            return lost
        if not store.patch(slot_patch(queue, name, at, text, line.slots.get(at))).made:
            lost.append(note)
    return lost


def _has_left(store: Store, queue: str, spot: Spot) -> bool:
    task = store.read([spot.task_id], payload=False).get(spot.task_id)
    return task is None or task.queue != queue or Spot.of(task) != spot


_FAR: Final = 32  # places before one's own, each of which must be read to know the next
_OVER: Final = (PlaceProgress.DONE, PlaceProgress.UNKNOWN)


@dataclass(slots=True, eq=False, repr=False)
class _KnownTasks:
    """What is known of the tasks of some groups, read after their lines; None: gone."""

    queue: Queue
    now: datetime
    tasks: dict[str, Task | None]

    def progress(self, spot: Spot) -> PlaceProgress:
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
            lines = group_lines(self.limits.store, self.queue.name, wanted)
            seen = self._seen(lines, wanted.values())
            lost: dict[str, Entry] = {}
            for name, entry in wanted.items():
                found = self._next(name, lines.get(name, GroupLine()), entry, seen)
                if isinstance(found, Patch):
                    if self.limits.store.patch(found).made:
                        granted.append(entry)
                    else:
                        lost[name] = entry
                elif found is None:
                    self.limits.block(self.queue, name)
                else:
                    granted.append(found)
            wanted = lost
        return granted

    def _seen(self, lines: Mapping[str, GroupLine], entries: Collection[Entry]) -> _KnownTasks:
        """Read the tasks that wait, and who holds the slots.

        What only shows how it was a moment ago costs half, and is good enough where it shows an
        end, or a task that waits as the index says: neither can have another place since.  What it
        shows else is read again.
        """
        seen = _KnownTasks(self.queue, self.limits.now(), {})
        held = [spot for line in lines.values() if (spot := slot_of(line))]
        kept = self.queue.settings.history_retention_in_seconds > 0
        ids = {entry.task_id for entry in entries} | {spot.task_id for spot in held if kept}
        seen.tasks = self._read(ids, consistent=False)
        doubtful = {spot.task_id for spot in held if seen.progress(spot) is not PlaceProgress.DONE}
        for entry in entries:
            task, slot = seen.tasks[entry.task_id], slot_of(lines.get(_line(entry), GroupLine()))
            behind = task is not None and (slot is None or Spot.of(task).seq > slot.seq)
            if not (behind and _as_met(task, entry)):
                doubtful.add(entry.task_id)
        seen.tasks |= self._read(doubtful)
        seen.now = self.limits.now()
        return seen

    def _read(self, ids: Collection[str], *, consistent: bool = True) -> dict[str, Task | None]:
        store = self.limits.store
        found = store.read(ids, payload=False, consistent=consistent) if ids else {}
        return {**dict.fromkeys(ids), **found}

    def _next(
        self, name: str, line: GroupLine, entry: Entry, seen: _KnownTasks
    ) -> Entry | Patch | None:
        """Return the deliverable task of the group of *entry*, or None."""
        slot, task = slot_of(line), seen.tasks[entry.task_id]
        if slot is not None and seen.progress(slot) not in _OVER:
            holder = seen.tasks[slot.task_id]
            waits = holder is not None and seen.progress(slot) is PlaceProgress.WAITING
            due = waits and holder is not None and holder.due_at <= seen.now
            return Entry.of(holder) if due and holder and holder.is_live(seen.now) else None
        if task is None or not _as_met(task, entry) or not self._follows(task, line, seen):
            return None
        expects = line.slots.get(SLOT)
        until = self.limits.kept_until(self.queue, line, entry)
        return slot_patch(self.queue.name, name, SLOT, Spot.of(task).text, expects, until)

    def _follows(self, task: Task, line: GroupLine, seen: _KnownTasks) -> bool:
        """Return whether all tasks before *task* are done, with the slot of *line* over."""
        if task.after is None:
            return True
        slot, notes = slot_of(line), notes_of(line).values()
        noted = {note.spot: note.before for note in notes}
        before = Spot.parse(task.after)
        for _ in range(_FAR):
            if before.is_before_first or (slot is not None and before.seq <= slot.seq):
                return True
            seen.tasks |= self._read([before.task_id])
            progress = seen.progress(before)
            if progress is not PlaceProgress.UNKNOWN:
                return progress is PlaceProgress.DONE
            further = noted.get(before) or self._before(before, seen)
            if further is None:
                break
            before = further
        return self._believed(task, seen) and not self._stopped(task, notes, seen)

    def _before(self, spot: Spot, seen: _KnownTasks) -> Spot | None:
        """Return the spot before *spot*, if its task ended there without a delivery."""
        task = seen.tasks[spot.task_id]
        if task is None or task.queue != self.queue.name or Spot.of(task) != spot:
            return None
        return None if task.is_hidden(seen.now) or task.after is None else Spot.parse(task.after)

    def _believed(self, task: Task, seen: _KnownTasks) -> bool:
        """Return whether every task before *task* would be visible by now."""
        since = max(task.enqueued_at, task.returned_at or task.enqueued_at)
        known_from = min(seen.now, self.looked.get(task.place.shard, seen.now))
        return known_from - since >= BELIEVED_AFTER

    def _stopped(self, task: Task, notes: Iterable[Note], seen: _KnownTasks) -> bool:
        """Return whether a noted task before *task* exists and is not done."""
        spots = [note.spot for note in notes if note.spot.seq < Spot.of(task).seq]
        seen.tasks |= self._read({spot.task_id for spot in spots})
        return any(seen.progress(spot) not in _OVER for spot in spots)


def _line(entry: Entry) -> str:
    return line_name(entry.group_key)


def _as_met(task: Task | None, entry: Entry) -> bool:
    """Return whether *task* waits as *entry* shows."""
    waits = task is not None and (task.queue, task.state) == (entry.place.queue, State.ENQUEUED)
    return waits and task is not None and task.due_at == entry.own_time


def blocking(
    limits: "GroupLimits", queue: Queue, keys: Collection[str | None], *, besides: Task | None
) -> "dict[str | None, Blocking]":
    """Return the reasons why the groups of these keys may not get their next task.

    The task *besides* does not block itself or the tasks behind it.
    """
    from headrace.ops.shared.group_limits import Blocking  # noqa: PLC0415  it imports this one

    names = {line_name(key): key for key in keys}
    lines = group_lines(limits.store, queue.name, names)
    notes = {
        name: sorted(notes_of(line).values(), key=lambda one: one.spot.seq)
        for name, line in lines.items()
    }
    spots = {spot for line in lines.values() if (spot := slot_of(line))}
    spots |= {spot for noted in notes.values() for one in noted for spot in (one.spot, one.before)}
    own = None if besides is None else Note.of(besides)
    ids = {spot.task_id for spot in spots} | ({own.before.task_id} if own else set())
    tasks = limits.store.read(ids, payload=False) if ids else {}
    seen = _KnownTasks(queue, limits.now(), {**dict.fromkeys(ids), **tasks})
    found: dict[str | None, Blocking] = {}
    for name, line in lines.items():
        spot = _first_in_the_way(slot_of(line), notes[name], own, seen)
        task = spot and tasks.get(spot.task_id)
        if task and not (besides and task.id == besides.id):
            found[names[name]] = Blocking(task.id, *_why(task, limits.now()))
    return found


def _first_in_the_way(
    slot: Spot | None, notes: Sequence[Note], own: Note | None, seen: _KnownTasks
) -> Spot | None:
    """Return which place keeps its group, or the task of *own*, from going on."""
    if slot is not None and seen.progress(slot) not in _OVER:
        return slot
    for note in [*notes, *([Note(own.before, own.before)] if own else [])]:
        if own is not None and note.spot.seq >= own.spot.seq:
            continue
        if seen.progress(note.spot) is PlaceProgress.HALTING:
            waits = seen.progress(note.before) in (PlaceProgress.WAITING, PlaceProgress.INFLIGHT)
            return None if waits and own is None else note.spot
    return None


def _why(task: Task, now: datetime) -> tuple[str, datetime | None]:
    """Return in words why those behind *task* wait, and until when if that is known."""
    match task.state:
        case State.INFLIGHT:
            return f"{task.id} is in flight", task.lease_expires_at
        case State.DEAD:
            return f"{task.id} is dead", None
        case _ if task.due_at > now:
            return f"{task.id} retries at {task.due_at:%Y-%m-%dT%H:%M:%SZ}", task.due_at
        case _:
            return f"{task.id} is about to be delivered", None
