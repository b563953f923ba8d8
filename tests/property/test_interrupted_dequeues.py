"""A dequeue under a key, interrupted at each of its calls of the store in each way there is.

Its process dies before or after the call takes effect, the table is away, others take the tasks, or
a repeat comes while it runs.  Whatever happens, who repeats until there is an answer holds all that
was ever leased by that call and is still under its lease, and nothing is leased after that answer.

The faults at the end are planted, and found: so the search is one that could fail.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DequeuingSettings, IntervalUnit, RateLimiting
from headrace.domain.repeat import KeyedRequest
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.ops.delivery.idempotency import DeliveryBatch, Overtaken
from headrace.store.base import Outcome, Record
from headrace.store.memory import MemoryStore
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.property.stores import everything

TOKENS: Final = 20
SECONDS: Final = timedelta(seconds=10)  # that a call may take
IDS: Final = ("a", "b", "c", "d", "e")  # of two shards they are on both
WRITES: Final = ("commit", "put_record", "set_key_lock", "change_group")
CALLS: Final = (*WRITES, "read", "record", "entries", "key_locks", "key_lock", "group")
QUEUES: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "all of them": {},
    "two shards": {"shards": 2},
    "tokens": {
        "dequeuing_settings": DequeuingSettings(
            rate_limiting=RateLimiting(TOKENS, 1, IntervalUnit.HOURS)
        )
    },
    "slots": {"dequeuing_settings": DequeuingSettings(max_inflight_tasks=3)},
    "lapsed ones": {"keepalive_timeout_in_seconds": 60},
}
EVENTS: Final = ("dies before", "dies after", "is away", "is half done", "is late", "is repeated")
STOLEN: Final = "others take some"


class ProcessDied(BaseException):
    """It does nothing more, not even what stands in a ``finally``."""


class InterruptedStore:
    """Lets an event happen at the n-th call of the store beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.at: int | None = None
        self.event: Callable[[Callable[[], Any]], Any] = lambda call: call()
        self.dead = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CALLS or object.__getattribute__(self, "at") is None:
            return found
        return lambda *args, **more: self.called(lambda: found(*args, **more))

    def called(self, call: Callable[[], Any]) -> Any:
        if self.dead:
            raise ProcessDied
        self.calls += 1
        if self.calls == self.at:
            return self.event(call)
        return call()


class InMemory(InterruptedStore, MemoryStore):
    """In memory."""


class OnSqlite(InterruptedStore, SqliteStore):
    """On SQLite, in memory too."""


ON: dict[str, type[InMemory | OnSqlite]] = {"memory": InMemory, "sqlite": OnSqlite}


@dataclass
class DequeueStory:
    """One dequeue of three tasks under a key, what happens to it, and how it goes on."""

    how: str
    batches: type[DeliveryBatch] = DeliveryBatch
    on: str = "memory"
    store: InMemory | OnSqlite = field(init=False)
    world: World = field(init=False)
    answers: list[list[Task]] = field(default_factory=list)
    tries: int = 0

    def __post_init__(self) -> None:
        self.store = ON[self.on]()
        self.world = new_world(self.store, ManualClock())
        at_once = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0, max_retries=9)
        self.world.queue("mail", retry_strategy=at_once, **QUEUES[self.how])
        use = self.world.use
        use.deliveries.chance = use.deliveries.claims.chance = random.Random(7)
        ids = IDS[:3] if self.how == "all of them" else IDS
        use.tasks.enqueue("mail", [TaskSpec("1", id=id) for id in ids])
        if self.how == "lapsed ones":
            assert len(self.world.take("mail", 4, worker="gone")) == 4
            self.world.clock.forward(60)
        self.world.clock.forward(0.001)
        batches = self.world.use.batches
        of = batches.of

        def made(request: KeyedRequest, **more: Any) -> DeliveryBatch:
            plain = of(request, **more)
            return self.batches(*(getattr(plain, name) for name in DeliveryBatch.__slots__))

        self._made = made

    def dequeue(self) -> list[Task] | None:
        """Send the call once more; None for an answer that says to come again."""
        self.world.clock.forward(0.001)
        self.tries += 1
        batch = self._made(KeyedRequest("key", "k", "of"), within=SECONDS, attempt=self.tries)
        try:
            found = self.world.use.deliveries.dequeue(
                "mail", batch_size=3, worker="ada", batch=batch
            )
        except Unavailable:
            return None
        self.answers.append(list(found.tasks))
        return self.answers[-1]

    def happens(self, event: str, at: int) -> bool:
        """Send the call, with *event* at its *at*-th call of the store; False: it has fewer."""
        store = self.store
        store.calls, store.at, store.event = 0, at, lambda call: self._event(event, call)
        try:
            if self.dequeue() is not None:
                self.answers.pop()  # it is lost on the way
        except ProcessDied:
            pass
        happened = store.calls >= at
        store.at, store.dead = None, False
        return happened

    def _event(self, event: str, call: Callable[[], Any]) -> Any:
        match event:
            case "dies before":
                self.store.dead = True
                raise ProcessDied
            case "dies after":
                call()
                self.store.dead = True
                raise ProcessDied
            case "is away":
                raise Unavailable("the table is away")
            case "is half done":
                call()
                raise Unavailable("the answer of the table was lost")
            case "is late":
                self.world.clock.forward(3)
            case "is repeated":
                self._aside(self.dequeue)
            case _:
                self._aside(lambda: self.world.take("mail", 2, worker="bob"))
        return call()

    def _aside(self, what: Callable[[], object]) -> None:
        at, self.store.at = self.store.at, None
        what()
        self.store.at = at

    def repeated(self) -> list[Task]:
        """Repeat the call until there is an answer."""
        for _ in range(20):
            answer = self.dequeue()
            if answer is not None:
                return answer
            self.world.clock.forward(2)
        raise AssertionError("there is never an answer")

    def check(self) -> None:
        """Compare what was answered with what stands in the store."""
        now = self.world.clock()
        every = [task for task in everything(self.store) if task.spent is None]
        held = {
            task.id: task.lease_id
            for task in every
            if task.state is State.INFLIGHT
            and task.worker == "ada"
            and task.lease_expires_at is not None
            and task.lease_expires_at > now
        }
        for answer in self.answers:
            given = {task.id: task.lease_id for task in answer}
            assert given.items() >= held.items(), "leased, and nobody was given it"
        assert len(held) <= 3
        assert len(self.answers[-1]) == len(held)

    def check_limits(self, *, exactly: bool) -> None:
        """No token or slot is taken again: as many are gone as there were deliveries."""
        if self.how == "tokens":
            self.world.put("mail", *["1"] * 25)
            self.world.take("mail", 25, worker="bob")
            leased = sum(task.attempts for task in everything(self.store))
            assert leased <= TOKENS
            assert not exactly or leased == TOKENS
        if self.how == "slots":
            flying = [t for t in everything(self.store) if t.state is State.INFLIGHT]
            assert len(flying) <= 3


def stories(
    how: str, event: str, batches: type[DeliveryBatch] = DeliveryBatch, on: str = "memory"
) -> Iterator[DequeueStory]:
    """Yield every story in which *event* happens once, at whatever call of the store."""
    for at in range(1, 100):
        story = DequeueStory(how, batches, on)
        if not story.happens(event, at):
            assert at > 3
            return
        yield story
    raise AssertionError("a dequeue makes no hundred calls")


@pytest.mark.parametrize("event", [*EVENTS, STOLEN])
@pytest.mark.parametrize("how", QUEUES)
@pytest.mark.parametrize("on", ["memory", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_whatever_happens_a_repeat_gets_all_that_was_leased(on: str, how: str, event: str) -> None:
    for story in stories(how, event, on=on):
        story.repeated()
        story.check()
        story.repeated()
        story.check()
        story.check_limits(exactly=event in {"is late", STOLEN})
        if event in {"dies after", "is half done"}:
            assert len(story.world.take("mail", 25, worker="bob")) <= 5


@pytest.mark.parametrize("event", EVENTS)
def test_a_repeat_after_some_are_over_gets_the_others(event: str) -> None:
    for story in stories("plain", event):
        before = story.repeated()
        for task in before[:2]:
            story.world.say(task, "RELEASED")
        again = story.repeated()
        assert [task.id for task in again] == [task.id for task in before[2:]]


# ---------------------------------------------------------------------------------- planted faults


class NotesNothing(DeliveryBatch):
    """As before: there is no record."""

    def commit(self, changes: Any, *, now: Any) -> list[Outcome]:
        return self.store.commit(changes, partly=True)


class NotesLater(DeliveryBatch):
    """The record follows the leases: who dies between leaves them to nobody."""

    def commit(self, changes: Any, *, now: Any) -> list[Outcome]:
        outcomes = self.store.commit(changes, partly=True)
        super().commit([changes[0]], now=now)
        return outcomes


class Overwrites(DeliveryBatch):
    """The record asks no condition: two tries at once both lease."""

    def commit(self, changes: Any, *, now: Any) -> list[Outcome]:
        there = self.store.record("repeat:key:k", "first")
        self.version = there.version if there is not None else None
        return super().commit(changes, now=now)


class LeasesAllTheSame(DeliveryBatch):
    """The record is refused, and the leases are written without it."""

    def commit(self, changes: Any, *, now: Any) -> list[Outcome]:
        try:
            return super().commit(changes, now=now)
        except Overtaken:
            return self.store.commit(changes, partly=True)


class AnswersAtOnce(DeliveryBatch):
    """A repeat does not ask whether the first try is still leasing."""

    def leased_before(self, group: Any, queues: Any) -> list[Task] | None:
        self.within = -self.within
        record: Record | None = self.store.record("repeat:key:k", "first")
        if record is not None:
            body = {**record.body, "until": record.body["at"]}
            self.store.put_record(
                Record(record.kind, record.name, body, 99), replaces=record.version
            )
        return super().leased_before(group, queues)


class NeverLooks(NotesNothing):
    """A repeat leases like a first try."""

    def leased_before(self, group: Any, queues: Any) -> list[Task] | None:
        return None


class TopsUp(DeliveryBatch):
    """A repeat that finds too little leases more."""

    def leased_before(self, group: Any, queues: Any) -> list[Task] | None:
        held = super().leased_before(group, queues)
        if held is not None and len(held) < 3:
            record = self.store.record("repeat:key:k", "first")
            self.version = record.version if record is not None else None
            return None
        return held


class LeavesOpen(DeliveryBatch):
    """A repeat that is answered does not end the batch: the first try goes on leasing into it."""

    def _write(self, batch: Any) -> bool:
        return (batch.closed and batch.task_ids) or super()._write(batch)


class SaysNothing(DeliveryBatch):
    """A repeat that is told of no task does not note it: a first try that waits leases some."""

    def note_nothing(self, *, now: Any) -> bool:
        return True


def caught(how: str, event: str, batches: type[DeliveryBatch]) -> bool:
    """Whether some story goes wrong."""
    try:
        for story in stories(how, event, batches):
            before = story.repeated()
            story.check()
            for task in before[:1]:
                story.world.say(task, "SUCCEEDED")
            assert len(story.repeated()) == max(0, len(before) - 1)
            story.check()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(
    ("fault", "how", "event"),
    [
        (NotesNothing, "plain", "is late"),
        (NotesLater, "plain", "dies after"),
        (NotesLater, "plain", "is half done"),
        (Overwrites, "plain", "is repeated"),
        (LeasesAllTheSame, "plain", "is repeated"),
        (AnswersAtOnce, "plain", "is repeated"),
        (NeverLooks, "plain", "is late"),
        (TopsUp, "plain", "is late"),
        (LeavesOpen, "two shards", "is repeated"),
        (SaysNothing, "all of them", "is repeated"),
    ],
)
def test_a_planted_fault_is_found(fault: type[DeliveryBatch], how: str, event: str) -> None:
    assert caught(how, event, fault)
    assert not caught(how, event, DeliveryBatch)
