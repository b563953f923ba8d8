"""Records of a queue, and of its removals: what is to be removed, and how far that is."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headrace.domain.queue import Queue
from headrace.domain.task import ORDINARY, State
from headrace.store.base import Position, Record
from headrace.store.records import body_of, read_body

KIND: Final = "queue"
ALERTS: Final = "alert"  # what ``alerts`` has, of which most processes need no more
_SELDOM: Final = (
    "drained",
    "resharded_at",
    "uncounted_since",
    "signing_generation",
    "rotated_at",
    "alerts_since",
    "on_end_for",
    "pause",
)
_LANES: Final = ("lanes_in_use", "lanes_ever")  # seldom others than the ordinary
_EMPTY: Final[tuple[object, ...]] = (
    None,
    "",
    [],
)  # settings that a record leaves out: their defaults say the same
_FOUND_OUT: Final = ("shards_in_use", "lanes_in_use", "drained", "uncounted_since")
"""What is not decided by anybody, but found out once settings have been changed."""


def to_record(queue: Queue) -> Record:
    """Return *queue* as a record."""
    usual = ["shards_ever"] if queue.shards_ever <= queue.shards_in_use else []
    usual += [name for name in _SELDOM if not getattr(queue, name)]
    usual += [name for name in _LANES if getattr(queue, name) == ORDINARY]
    body = body_of(queue, "name", "version", *usual)
    body["settings"] = {
        name: value for name, value in body["settings"].items() if value not in _EMPTY
    }
    return Record(KIND, queue.name, body, queue.version)


def from_record(record: Record) -> Queue:
    """Return the queue of *record*.  Raises NewerRecord."""
    stored = record.body
    body = {"shards_ever": stored["shards_in_use"], **stored, **_found_out(record)}
    body |= {name: body.get(name) or ORDINARY for name in _LANES}
    body["drained"] = body.get("drained") or ()
    return read_body(body, Queue, name=record.name, version=record.version)


def note_of(queue: Queue) -> str:
    """Return the note to leave on *queue*'s record: what was found out of it as it stands."""
    found = to_record(queue).body
    note = {name: found.get(name) for name in _FOUND_OUT}
    return json.dumps({"version": queue.version, **note})


def _found_out(record: Record) -> dict[str, Any]:
    """Return the content of a note on *record*, if it is about the settings as they are."""
    note: dict[str, Any] = json.loads(record.note) if record.note else {}
    if note.get("version") != record.version:
        return {}
    return {name: note[name] for name in _FOUND_OUT if name in note}


REMOVALS: Final = "chore"
_PURGE: Final = "purge:"
_DELETE: Final = "delete:"


@dataclass(frozen=True, slots=True)
class Removal:
    """Remove the tasks in *states* of *queue* whose life there began by *requested_at*.

    They are on ``shards`` and in ``lanes`` at the most.
    ``swept``: that is done as far as the index showed, and is looked at once more later.
    ``at`` and ``after`` are where the look that is under way has come to: which of its places, and
    what was seen last there.  ``quiet`` is how many looks in a row have found nothing; it is below
    zero while one is under way that has found something.  ``away`` are tasks that workers changed
    each time the removal tried to take them.  ``removed`` is how many are gone, for the audit's
    entry *noted*; ``undo`` is what they may be brought back by.
    """

    queue: str
    states: tuple[State, ...]
    requested_at: datetime
    shards: int
    deletes_queue: bool
    name: str = ""
    swept: bool = False
    at: int = 0
    after: Position | None = None
    quiet: int = 0
    away: frozenset[str] = frozenset()
    removed: int = 0
    noted: str | None = None
    undo: str | None = None
    version: int = 1
    lanes: frozenset[int] = ORDINARY

    @property
    def key(self) -> str:
        """The name of the record: one per deleted queue, any number of purges."""
        if self.deletes_queue:
            return deletion(self.queue)
        return f"{_PURGE}{self.queue}:{self.name}"

    def record(self) -> Record:
        """Return the removal as a record."""
        usual = ["lanes"] if self.lanes == ORDINARY else []
        usual += ["undo"] if self.undo is None else []
        body = body_of(self, "name", "requested_at", "version", *usual)
        body["asked_at"] = self.requested_at.isoformat()
        body["after"] = self.after and [*body["after"].values()]
        return Record(REMOVALS, self.key, body, self.version)

    @classmethod
    def of(cls, record: Record) -> "Removal":
        """Return the removal of *record*.  Raises NewerRecord."""
        body = {**record.body}
        body["requested_at"] = body.pop("asked_at")
        if body["after"]:
            body["after"] = dict(zip(("scheduled_at", "task_id"), body["after"], strict=True))
        name = record.name.rpartition(":")[2]
        return read_body(body, cls, name=name, version=record.version)


def deletion(queue: str) -> str:
    """Return the name of the record of *queue*'s deletion."""
    return f"{_DELETE}{queue}"
