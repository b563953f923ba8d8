"""Readers of one share, in any order of their calls, killed at any of them: one list of rows.

Each reader is a thread that goes on only when it is told to, call by call, so Hypothesis chooses
the order of all that they do.  The queue, its index and the claim log are models.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.spark.sources.claims import GroupClaims, Lease, ShardShare, leases_in
from headrace.store.base import Record

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PAGE = 2


class Killed(BaseException):
    """The process of a reader ends: nothing of it runs any more."""


def batch(leases: Sequence[Lease]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([id_ for id_, _ in leases], pa.string()),
            "lease": pa.array([lease for _, lease in leases], pa.string()),
            "payload": pa.array(["{}"] * len(leases), pa.string()),
        }
    )


@dataclass
class Turn:
    """Lets one reader go on at a time, for one call."""

    killed: bool = False
    over: bool = False
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _stands: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def call(self) -> None:
        self._stands.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def step(self) -> None:
        self._go.release()
        self._stands.acquire()

    def first(self) -> None:
        self._stands.acquire()

    def end(self) -> None:
        self.over = True
        self._stands.release()


@dataclass
class World:
    """One shard, the group that leases of it, and the control table."""

    tasks: int
    lag: int
    due: list[str] = field(init=False)
    holder: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(init=False)
    records: dict[str, Record] = field(default_factory=dict)
    tokens: int = 0

    def __post_init__(self) -> None:
        self.due = [f"t{n}" for n in range(self.tasks)]
        self.attempts = dict.fromkeys(self.due, 0)

    def lease(self, call: Callable[[], None], room: int) -> Iterator[pa.RecordBatch]:
        while room > 0:
            call()
            taken, self.due = self.due[: min(PAGE, room)], self.due[min(PAGE, room) :]
            if not taken:
                return
            for one in taken:
                self.tokens += 1
                self.holder[one] = f"g:{self.tokens}"
                self.attempts[one] += 1
            room -= len(taken)
            yield batch([(one, self.holder[one]) for one in taken])

    def held(self, call: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        call()
        shown = list(self.holder.items())
        shown = shown[: max(0, len(shown) - self.lag)]  # the index shows the last ones late
        call()  # what it showed may have changed by the time that it is used
        if shown:
            yield batch(shown)

    def release(self, leases: Sequence[Lease]) -> None:
        for id_, lease in leases:
            if self.holder.get(id_) == lease:
                del self.holder[id_]
                self.attempts[id_] -= 1
                self.due.append(id_)

    # What GroupClaims asks of a store.

    def record(self, kind: str, name: str) -> Record | None:
        return self.records.get(name)

    def put_record(self, record: Record, *, replaces: int | None) -> bool:
        if record.name in self.records:
            return False
        self.records[record.name] = record
        return True

    def claimed(self) -> dict[str, str]:
        claims = GroupClaims(self.store, "g")
        pages = [claims.page(0, number) for number in range(len(self.records))]
        return {id_: lease for page in pages if page is not None for id_, lease in leases_in(page)}

    @property
    def store(self) -> Any:
        return self


@dataclass
class Reader:
    """One reader of the share, and what it was given."""

    world: World
    room: int
    kind: type[ShardShare]
    turn: Turn = field(default_factory=Turn)
    rows: list[Lease] = field(default_factory=list)
    done: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.turn.first()

    def _run(self) -> None:
        call, world = self.turn.call, self.world

        class Stepped:
            """The store, one call at a time."""

            def record(self, kind: str, name: str) -> Record | None:
                call()
                return world.record(kind, name)

            def put_record(self, record: Record, *, replaces: int | None) -> bool:
                call()
                return world.put_record(record, replaces=replaces)

        def release(leases: Sequence[Lease]) -> None:
            call()
            world.release(leases)

        store: Any = Stepped()
        share = self.kind(
            GroupClaims(store, "g"),
            0,
            self.room,
            lambda room: world.lease(call, room),
            lambda: world.held(call),
            release,
            lambda: NOW,
        )
        with suppress(Killed):
            call()
            for page, _ in share.pages():
                self.rows += leases_in(page)
                call()
            self.done = True
        self.turn.end()

    def kill(self) -> None:
        self.turn.killed = True
        self.turn.step()


def played(data: st.DataObject, kind: type[ShardShare], most_steps: int = 60) -> None:
    """Let readers run in a drawn order; check what each was given, and what the queue has then."""
    world = World(data.draw(st.integers(0, 7), "tasks"), data.draw(st.integers(0, 3), "lag"))
    room = data.draw(st.integers(1, 8), "room")
    readers = [Reader(world, room, kind) for _ in range(data.draw(st.integers(1, 3), "readers"))]
    for _ in range(most_steps):
        running = [one for one in readers if not one.turn.over]
        if not running:
            break
        number = data.draw(st.integers(0, 4 * len(running)), "next")
        if number < len(running) or len(running) < 1:
            running[number].turn.step()
        elif number == 4 * len(running) and len(readers) < 6:
            running[0].kill()
            readers.append(Reader(world, room, kind))  # Spark runs it again
        else:
            running[number % len(running)].turn.step()
    for one in readers:
        while not one.turn.over:
            one.turn.step()
    readers.append(last := Reader(world, room, kind))  # whoever asks later
    while not last.turn.over:
        last.turn.step()

    assert last.done
    assert len(last.rows) <= room
    assert len({id_ for id_, _ in last.rows}) == len(last.rows)
    for one in readers:
        assert one.rows == last.rows[: len(one.rows)]
        assert one.rows == last.rows or not one.done
    assert dict(last.rows) == world.claimed()
    assert all(world.holder.get(id_) == lease for id_, lease in last.rows)
    world.release([one for one in world.holder.items() if one not in last.rows])  # the sweep
    claimed = {id_ for id_, _ in last.rows}
    assert world.attempts == {id_: int(id_ in claimed) for id_ in world.attempts}
    if len(readers) == 2:  # nobody came in between, and nobody died
        assert len(last.rows) == min(room, world.tasks)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_all_readers_of_a_share_are_given_the_same_rows_whoever_dies(data: st.DataObject) -> None:
    played(data, ShardShare)


class Greedy(ShardShare):
    """Gives back what it has lost a page with, though the page has it too."""

    def _note(self, page: pa.RecordBatch) -> None:
        before = list(self._own)
        super()._note(page)
        lost = [rows for rows in before if self._source is None]
        for rows in lost:
            self.release(leases_in(rows))


class Forgetful(ShardShare):
    """Takes what it has leased for its own, although another one has claimed it."""

    def _left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows


class Hasty(ShardShare):
    """Gives back what it has leased in vain before the last page is known."""

    def _note(self, page: pa.RecordBatch) -> None:
        super()._note(page)
        if self._source is None:
            for rows in self._own:
                self.release(leases_in(rows))
            self._own.clear()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Greedy, Forgetful, Hasty])
def test_the_model_catches_a_reader_that(fault: type[ShardShare]) -> None:
    @settings(
        max_examples=400,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    @given(st.data())
    def wrong(data: st.DataObject) -> None:
        played(data, fault)

    with pytest.raises(AssertionError):
        wrong()
