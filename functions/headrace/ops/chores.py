"""Removing many tasks: purges and the deletion of queues, which outlive the call that asks.

A chore is a record in the control table.  The call that made it works on it for a while; what is
left the reaper finishes.  Doing a part of it twice changes nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headrace.domain import plan
from headrace.domain.ids import new_request_token
from headrace.domain.task import Place, State
from headrace.ops.limiting import Limiting
from headrace.ops.marked import commit_proposed
from headrace.store.base import Done, Position, Record, Store

KIND: Final = "chore"
_PAGE: Final = 250
_PURGE: Final = "purge:"
_DELETE: Final = "delete:"
# A service that has cached a queue's settings may still enqueue to it after its deletion.
_LATECOMERS: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Chore:
    """Remove what was in *states* of *queue* at *asked_at*; a deleted queue is swept twice."""

    queue: str
    states: tuple[State, ...]
    asked_at: datetime
    shards: int
    deletes_queue: bool
    name: str = ""
    swept: bool = False

    def record(self) -> Record:
        body = {
            "queue": self.queue,
            "states": [str(state) for state in self.states],
            "asked_at": self.asked_at.isoformat(),
            "shards": self.shards,
            "deletes_queue": self.deletes_queue,
            "swept": self.swept,
        }
        return Record(KIND, self.key, body, version=2 if self.swept else 1)

    @property
    def key(self) -> str:
        """The name of the record: one per deleted queue, any number of purges."""
        return (
            f"{_DELETE}{self.queue}" if self.deletes_queue else f"{_PURGE}{self.queue}:{self.name}"
        )

    @classmethod
    def of(cls, record: Record) -> "Chore":
        body = record.body
        return cls(
            body["queue"],
            tuple(State(state) for state in body["states"]),
            datetime.fromisoformat(body["asked_at"]),
            body["shards"],
            body["deletes_queue"],
            record.name.rpartition(":")[2],
            body["swept"],
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tasks a piece of work removed, and whether it was the last."""

    deleted: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Chores:
    """Works on chores, at most *patience* seconds at a time."""

    store: Store
    now: Callable[[], datetime]
    limiting: Limiting
    patience: float = 20.0

    def begin(self, chore: Chore) -> Progress:
        """Write a purge down and work on it."""
        named = Chore(
            chore.queue,
            chore.states,
            chore.asked_at,
            chore.shards,
            chore.deletes_queue,
            new_request_token(),
        )
        self.write(named)
        return self.work(named)

    def write(self, chore: Chore) -> None:
        """Write *chore* down, instead of one of the same name."""
        if not self.store.put_record(chore.record(), replaces=None):
            self.store.drop_record(KIND, chore.key)
            self.store.put_record(chore.record(), replaces=None)

    def deleting(self, queue: str) -> bool:
        """Tell whether tasks of a deleted queue of this name are still there."""
        record = self.store.record(KIND, f"{_DELETE}{queue}")
        return record is not None and not Chore.of(record).swept

    def pending(self) -> list[Chore]:
        """Return everything that waits to be finished."""
        chores: list[Chore] = []
        more = True
        while more:
            records, more = self.store.records(
                KIND, after=chores[-1].key if chores else "", limit=_PAGE
            )
            chores += [Chore.of(record) for record in records]
        return chores

    def work(self, chore: Chore) -> Progress:
        """Remove tasks until none is left or patience ends."""
        until = self.now() + timedelta(seconds=self.patience)
        gone: set[str] = set()
        for _ in self.pages(chore, gone):
            if self.now() >= until:
                return Progress(len(gone), finished=False)
        return Progress(len(gone), finished=True)

    def pages(self, chore: Chore, gone: set[str]) -> Iterator[None]:
        """Remove tasks and note in *gone* which; after each page that another follows, yield.

        When this ends, so does the chore; whoever stops earlier leaves the rest for later.
        """
        before = chore.asked_at
        if chore.swept:
            if self.now() < chore.asked_at + _LATECOMERS:
                return
            before = self._latecomers_before(chore)
        while True:
            known = len(gone)
            yield from self._pass(chore, before, gone)
            if len(gone) == known or len(chore.states) == 1:
                break  # else once more: a task may have moved behind our back
        self._tick_off(chore)

    def _pass(self, chore: Chore, before: datetime, gone: set[str]) -> Iterator[None]:
        """Go once over every partition and note in *gone* what went.

        What is gone when it is to be removed went by this very work, if the answer was lost.
        """
        for state in chore.states:
            for shard in range(chore.shards):
                place = Place(chore.queue, state, shard)
                after: Position | None = None
                while True:
                    page = self.store.entries(place, after=after, limit=_PAGE)
                    outcomes = commit_proposed(
                        self.store, page.entries, partial(plan.purge, before=before)
                    )
                    gone |= {
                        entry.task_id
                        for entry, outcome in zip(page.entries, outcomes, strict=True)
                        if isinstance(outcome, Done) or outcome.task is None
                    }
                    after = page.last
                    if after is None:
                        break
                    yield

    def _tick_off(self, chore: Chore) -> None:
        self.store.drop_record(KIND, chore.key)
        if chore.deletes_queue:
            self.limiting.forget(chore.queue)
        if chore.deletes_queue and not chore.swept:
            swept = Chore(
                chore.queue,
                chore.states,
                chore.asked_at,
                chore.shards,
                deletes_queue=True,
                swept=True,
            )
            self.store.put_record(swept.record(), replaces=None)

    def _latecomers_before(self, chore: Chore) -> datetime:
        """What came to the deleted queue late goes; what came to a new one of its name stays."""
        record = self.store.record("queue", chore.queue)
        if record is None:
            return self.now()
        return datetime.fromisoformat(record.body["created_at"]) - timedelta(microseconds=1)
