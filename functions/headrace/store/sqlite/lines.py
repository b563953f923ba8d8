"""Lines of groups: records like others, which the file forgets by itself."""

import sqlite3
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from headrace.domain import cost
from headrace.domain.fairness import NOBODY, Places, PlaceTaking, TurnTaking
from headrace.domain.slots import GroupLine, SlotTaking
from headrace.store import keys
from headrace.store.base import Record
from headrace.store.call_scope import charge
from headrace.store.sqlite.control import record_at, write_record
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.units import record_bytes

_SLOTS: Final = "slots"


class LineRecords:
    """Implements the turns of ``headrace.store.base.Store``."""

    _db: Database

    def take_turns(self, queue: str, take: TurnTaking) -> int:
        def write(db: sqlite3.Connection) -> tuple[int, int]:
            stored = record_at(db, keys.LINES.format(queue), take.name)
            body = {} if stored is None else stored.body
            end = take.end(body.get(keys.TURN))
            body = {**body, keys.TURN: end}
            record = Record(keys.LINES.format(queue), take.name, body, 1, take.expires_at)
            write_record(db, record)
            return end, cost.write_units(record_bytes(stored), record_bytes(record))

        end, units = self._db.write(write)
        charge(write=units)
        return end

    def take_places(self, queue: str, take: PlaceTaking) -> Places:
        kind = keys.LINES.format(queue)

        def write(db: sqlite3.Connection) -> tuple[Places, int]:
            stored = record_at(db, kind, take.name)
            body = {} if stored is None else stored.body
            tail = body.get(keys.TAIL, NOBODY)
            if tail == take.last:
                return Places(body[keys.TURN], body[keys.SEQ], body[keys.BEFORE]), 1
            end = take.end(body.get(keys.TURN))
            taken = Places(end, body.get(keys.SEQ, 0) + take.count, tail)
            moved = {
                keys.TURN: end,
                keys.SEQ: taken.seq,
                keys.BEFORE: tail,
                keys.TAIL: take.last,
            }
            record = Record(kind, take.name, {**body, **moved}, 1, take.expires_at)
            write_record(db, record)
            return taken, cost.write_units(record_bytes(stored), record_bytes(record))

        taken, units = self._db.write(write)
        charge(write=units)
        return taken

    def line(self, queue: str, name: str) -> int | None:
        with self._db.reading() as db:
            found = record_at(db, keys.LINES.format(queue), name)
        charge(read=cost.read_units(record_bytes(found)))
        return None if found is None else found.body.get(keys.TURN)

    def lines(self, queue: str, names: Collection[str]) -> Mapping[str, GroupLine]:
        kind = keys.LINES.format(queue)
        with self._db.reading() as db:
            found = {name: record_at(db, kind, name) for name in names}
        charge(read=sum(cost.read_units(record_bytes(record)) for record in found.values()))
        return {name: _line(record) for name, record in found.items() if record is not None}

    def take_slot(self, queue: str, take: SlotTaking) -> bool:
        kind, number = keys.LINES.format(queue), str(take.number)

        def write(db: sqlite3.Connection) -> tuple[bool, int]:
            stored = record_at(db, kind, take.name)
            body = {} if stored is None else stored.body
            slots = body.get(_SLOTS, {})
            if slots.get(number) != take.expects:
                return slots.get(number) == take.stay, 1
            until = take.expires_at or (stored.expires_at if stored is not None else None)
            changed = {**body, _SLOTS: {**slots, number: take.stay}}
            record = Record(kind, take.name, changed, 1, until)
            write_record(db, record)
            return True, cost.write_units(record_bytes(stored), record_bytes(record))

        taken, units = self._db.write(write)
        charge(write=units)
        return taken

    def delivered_turn(self, queue: str) -> int:
        charge(read=0.5)
        with self._db.reading() as db:
            found = record_at(db, keys.DELIVERED, queue)
        return 0 if found is None else int(found.body[keys.TURN])

    def note_delivered(self, queue: str, turn: int, *, expires_at: datetime) -> None:
        def write(db: sqlite3.Connection) -> None:
            stored = record_at(db, keys.DELIVERED, queue)
            if stored is None or stored.body[keys.TURN] < turn:
                body = {keys.TURN: turn}
                write_record(db, Record(keys.DELIVERED, queue, body, 1, expires_at))

        charge(write=1.0)
        self._db.write(write)


def _line(record: Record) -> GroupLine:
    slots = {int(number): stay for number, stay in record.body.get(_SLOTS, {}).items()}
    return GroupLine(record.body.get(keys.TURN, 0), slots, record.expires_at)
