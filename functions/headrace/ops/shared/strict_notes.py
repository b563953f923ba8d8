"""Notes in the lines of strict groups; see ``domain.task_groups``.

A note costs a read and a write unit for each call and group.  There is room for some thirty in a
line, of those that it has not come past; what finds none is not noted, as if whoever wrote it had
died before: then the next one waits for ten seconds.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from headrace.domain.change import Change
from headrace.domain.errors import Unavailable
from headrace.domain.queue import Queue
from headrace.domain.slots import GroupLine, slot_taking
from headrace.domain.task import State, Task
from headrace.domain.task_groups import NOTES, Note, OnDead, Spot, Turn, in_runs, line_name
from headrace.ops.shared.lines import group_lines
from headrace.store.base import Store

SLOT: Final = 0
_TRIES: Final = 3  # where others are quicker with a slot


def halts(queue: Queue) -> bool:
    """Tell whether a dead task stops those of its group behind it."""
    groups = queue.settings.groups
    return groups is not None and groups.on_dead is OnDead.HALT


def slot_of(line: GroupLine) -> Spot | None:
    """Return the place that the slot of *line* names."""
    text = line.slots.get(SLOT)
    return None if text is None else Spot.kept(text)


def notes_of(line: GroupLine) -> dict[int, Note]:
    """Return the notes of *line* that say something still, by slot."""
    slot = slot_of(line)
    kept = {at: Note.kept(text) for at, text in line.slots.items() if at in NOTES}
    found = {at: note for at, note in kept.items() if note is not None}
    return {at: one for at, one in found.items() if slot is None or one.spot.seq > slot.seq}


def note_left(store: Store, queue: str, tasks: Iterable[Task]) -> None:
    """Note that *tasks*, as they were, have left their places in *queue*: nobody waits for them."""
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
        runs = {name: in_runs(notes) for name, notes in by_line.items()}
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
    """Write *notes*; those who have *left* need none themselves of who is before them."""
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
        if not store.patch(slot_taking(queue, name, at, text, line.slots.get(at))).made:
            lost.append(note)
    return lost


def _has_left(store: Store, queue: str, spot: Spot) -> bool:
    task = store.read([spot.task_id], payload=False).get(spot.task_id)
    return task is None or task.queue != queue or Spot.of(task) != spot
