"""Readers of one share that interrupt each other and die at any call: all get one list of rows.

The queue, its index and the claim log are models. At each call of a reader, chance may let another
reader take its next page first, or kill the reader.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headrace.spark.sources.claims import GroupClaims, Lease, ShardShare, leases_in
from headrace.store.base import Record

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PAGE = 2


class Killed(BaseException):
    """The process of a reader ends."""


def batch(leases: Sequence[Lease]) -> pa.RecordBatch:
    columns = {"id": [one[0] for one in leases], "lease": [one[1] for one in leases]}
    rows = {**columns, "payload": ["{}"] * len(leases)}
    return pa.RecordBatch.from_pydict({name: pa.array(rows[name], pa.string()) for name in rows})


class World:
    """One shard, the group that leases from it, the claim log, and the readers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tasks, self.room = self.chance.randint(0, 7), self.chance.randint(1, 8)
        self.lag = self.chance.randint(0, 3)  # the index shows so many leases late
        self.due = [f"t{number}" for number in range(self.tasks)]
        self.attempts = dict.fromkeys(self.due, 0)
        self.holder: dict[str, str] = {}
        self.leases = 0
        self.records: dict[str, Record] = {}
        self.quiet = False
        self.readers = [Reader(self) for _ in range(self.chance.randint(1, 3))]

    def call(self) -> None:
        idle = [one for one in self.readers if not (one.busy or one.over)]
        if idle and not self.quiet and self.chance.random() < 0.3:
            self.chance.choice(idle).step()
        if not self.quiet and self.chance.random() < 0.05:
            raise Killed

    def lease(self, room: int) -> Iterator[pa.RecordBatch]:
        while room > 0:
            self.call()
            taken, self.due = self.due[: min(PAGE, room)], self.due[min(PAGE, room) :]
            if not taken:
                return
            for one in taken:
                self.leases += 1
                self.holder[one] = f"g:{self.leases}"
                self.attempts[one] += 1
            room -= len(taken)
            yield batch([(one, self.holder[one]) for one in taken])

    def held(self) -> Iterator[pa.RecordBatch]:
        self.call()
        shown = list(self.holder.items())
        shown = shown[: max(0, len(shown) - self.lag)]
        self.call()  # what the index showed may have changed when it is used
        if shown:
            yield batch(shown)

    def release(self, leases: Iterable[Lease]) -> None:
        self.call()
        for id_, lease in leases:
            if self.holder.get(id_) == lease:
                del self.holder[id_]
                self.attempts[id_] -= 1
                self.due.append(id_)

    def record(self, kind: str, name: str) -> Record | None:
        self.call()
        return self.records.get(name)

    def put_record(self, record: Record, *, replaces: int | None) -> bool:
        self.call()
        return self.records.setdefault(record.name, record) is record


@dataclass
class Reader:
    """One reader of the share, and what it was given."""

    world: World
    rows: list[Lease] = field(default_factory=list)
    done: bool = False
    over: bool = False
    busy: bool = False

    def __post_init__(self) -> None:
        world, store = self.world, self.world  # it is all that GroupClaims asks of a store
        claims: Any = GroupClaims(store, "g")  # type: ignore[arg-type]
        self.pages = ShardShare(
            claims, 0, world.room, world.lease, world.held, world.release, lambda: NOW
        ).pages()

    def step(self) -> None:
        """Take the next page."""
        self.busy = True
        try:
            page, _ = next(self.pages)
            self.rows += leases_in(page)
        except StopIteration:
            self.done = self.over = True
        except Killed:
            self.over = True
        self.busy = False


def play(seed: int) -> None:
    """Let the readers of one world run; check what each was given, and what the queue has then."""
    world = World(seed)
    while running := [one for one in world.readers if not one.over]:
        world.chance.choice(running).step()
        if any(one.over and not one.done for one in running) and len(world.readers) < 6:
            world.readers.append(Reader(world))  # Spark runs the part again
    alone, world.quiet = len(world.readers) == 1, True
    world.readers.append(last := Reader(world))
    while not last.over:
        last.step()

    assert last.done
    assert len(last.rows) <= world.room
    assert len({id_ for id_, _ in last.rows}) == len(last.rows)
    for one in world.readers:
        assert one.rows == last.rows[: len(one.rows)]
        assert one.rows == last.rows or not one.done
    assert all(world.holder.get(id_) == lease for id_, lease in last.rows)
    world.release([one for one in world.holder.items() if one not in last.rows])  # the sweep
    claimed = {id_ for id_, _ in last.rows}
    assert world.attempts == {id_: int(id_ in claimed) for id_ in world.attempts}
    if alone and world.readers[0].done:
        assert len(last.rows) == min(world.room, world.tasks)


def test_all_readers_of_a_share_are_given_the_same_rows_whoever_dies() -> None:
    for seed in range(300):
        play(seed)
