"""Whatever happens to the members of a batch, and however that is seen, it calls back once.

The machine is the service itself over a store in memory, its log cut into shards that a recorder
reads as late, as often and in as many parts as it likes, with processes that end anywhere and
writes whose answers are lost.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from headrace.domain.batch import BatchEvent, Callback, hash_of
from headrace.domain.errors import NotFound, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DeadLetterConfig
from headrace.domain.task import FINISHED, State, Task
from headrace.domain.write import TaskWrite
from headrace.history.counters import Counters
from headrace.history.recorder import Recording
from headrace.ops.tasks.batches import BatchOperations
from headrace.store.memory import MemoryStore
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.streamed import Streamed, Unsure

SHARDS = 3
MOST = 8  # direct members
EVENTS = tuple(BatchEvent)
FATES = st.lists(st.sampled_from(["lost", "unanswered", None]), max_size=3)


def no_wait(_: float) -> None:
    """Do not wait."""


class UnsureOfAll(Unsure):
    """Fails writes of records that tasks come with, too."""

    def put_records(self, writes: Any, *, tasks: Any = ()) -> bool:
        fate = next(self.fate, None)
        if fate == "lost":
            raise Unavailable("lost on the way")
        done = self._store.put_records(writes, tasks=tasks)
        if fate == "unanswered":
            raise Unavailable("done, but the answer was lost")
        return bool(done)


class BatchMachine(RuleBasedStateMachine):
    """One batch, its members in a queue that keeps nothing, and what it calls back.

    Ids are random, and which shard a task is in hangs on its id; so no rule has a precondition.
    """

    operations: Callable[..., BatchOperations] = BatchOperations
    counters: Callable[..., Counters] = Counters
    watch_from = 1  # of so few members too it is known whether more ends come

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.stream = Streamed(MemoryStore(), self.clock)
        self.world = new_world(self.stream.store, self.clock)
        self.world.queue(
            "work",
            history_retention_in_seconds=0,
            dead_letter_queue_config=DeadLetterConfig(enable=False),
        )
        self.world.queue("told")
        self.unsure = UnsureOfAll(self.stream.store)
        self.batch = "b"
        self.key = self.create()
        self.logs: list[list[TaskWrite]] = [[] for _ in range(SHARDS)]
        self.at = [0] * SHARDS  # how far each log was handed on and taken
        self.made = 0
        self.members: dict[str, str] = {}  # "live", "SUCCEEDED", "DEAD" or "deleted"
        self.ever_ended: set[str] = set()
        self.ever_dead = False
        self.restarted: set[str] = set()  # what they make may be seen when all had ended
        self.held: list[Task] = []
        self.undos: list[str] = []
        self.told: Counter[str] = Counter()
        self.new_process()

    def create(self) -> str:
        """Make the batch, and return what its members know it by."""
        on = {event: Callback("told", TaskSpec(f'"{event}"')) for event in EVENTS}
        return self.world.use.task_batches.create(on, batch_id=self.batch).batch.key

    # -- what is done to tasks -----------------------------------------------------------------

    @initialize(number=st.integers(0, 2), closed=st.sampled_from([True, True, False]))
    def begin(self, number: int, *, closed: bool) -> None:
        """Most begin with a few members, and nobody adds to them but they themselves."""
        self.enqueue(number=number)
        if closed and number:
            self.close(wrong=False)

    @rule(number=st.integers(1, 3))
    def enqueue(self, number: int) -> None:
        batch = self.world.use.task_batches.get(self.batch)
        room = (MOST if batch.total is None else batch.total) - self.made
        number = min(number, room)
        if self.finished or number < 1:
            return
        ids = self.world.put("work", *["{}"] * number, batches=(self.batch,))
        self.made += number
        self.members |= dict.fromkeys(ids, "live")
        self.look()

    @rule()
    def take(self) -> None:
        self.held += self.world.take("work", 2)
        self.look()

    @rule(
        which=st.integers(0, 9),
        status=st.sampled_from([*["SUCCEEDED"] * 4, "MOVED", "FAILED", "RELEASED"]),
        children=st.lists(st.sampled_from([True, True, False]), max_size=3),
        again=st.booleans(),
    )
    def report(self, which: int, status: str, children: list[bool], *, again: bool) -> None:
        self.held += self.world.take("work", 2)
        if not self.held:
            return
        task = self.held.pop(which % len(self.held))
        fields: dict[str, Any] = {}
        if status == "FAILED":
            fields = {"retryable": which % 2 == 0}
        if status == "MOVED":
            fields = {"to_queue": "work"}
        may = task.id not in self.restarted and len(self.members) < 4 * MOST
        if status in ("SUCCEEDED", "MOVED") and may:
            own = task.id in self.members  # what a stranger names into it would count as enqueued
            named = [(self.batch,) if inside and own else () for inside in children]
            fields["spawn"] = tuple(("work", TaskSpec("{}", batches=of)) for of in named)
        for _ in range(2 if again else 1):
            self.world.say(task, status, **fields)
        self.look()

    @rule(action=st.sampled_from(["restart", "delete", "cancel"]))
    def operate(self, action: str) -> None:
        self.world.use.bulk.by_filter("work", BulkAction(action), TaskFilter(), limit=1)
        self.look()

    @rule(which=st.integers(0, 30))
    def delete_for_now(self, which: int) -> None:
        if not self.members:
            return
        with suppress(NotFound):
            task_id = sorted(self.members)[which % len(self.members)]
            undo = self.world.use.tasks.delete(task_id, undo_in_seconds=86_400)
            self.undos += [undo.id] if undo is not None else []
        self.look()

    @rule(which=st.integers(0, 30))
    def undo(self, which: int) -> None:
        if not self.undos:
            return
        with suppress(NotFound):  # it is over after a day
            self.world.use.undoing.undo(self.undos[which % len(self.undos)])
        self.look()

    @rule(seconds=st.sampled_from([1, 61, 4_000]))
    def wait(self, seconds: float) -> None:
        self.clock.forward(seconds)
        self.world.use.reaping.run()
        self.look()

    @rule(wrong=st.sampled_from([False, False, False, True]))
    def close(self, *, wrong: bool) -> None:
        if not self.finished:
            self.world.use.task_batches.close(self.batch, self.made + wrong)
        self.look()

    @rule(really=st.sampled_from([*[False] * 7, True]))
    def begin_anew(self, *, really: bool) -> None:
        """Forget the batch and make another of its id: old members go on, and are none of it."""
        if not really:
            return
        self.look()
        self.world.use.task_batches.delete(self.batch)
        self.clock.forward(0.001)
        self.key, self.made = self.create(), 0
        self.members, self.ever_ended, self.ever_dead = {}, set(), False
        self.restarted, self.told = set(), Counter()

    # -- what is seen of them ------------------------------------------------------------------

    @rule(
        shard=st.integers(0, SHARDS - 1),
        number=st.integers(1, 6),
        back=st.sampled_from([0, 0, 1, 5]),
        fates=st.one_of(st.just([]), FATES),
    )
    def record(self, shard: int, number: int, back: int, fates: list[str | None]) -> None:
        self.look()
        log, at = self.logs[shard], self.at[shard]
        part = log[max(0, at - back) : at + number]
        with self.unsure.failing(*fates):
            recorded = self.recording.record(f"shard-{shard}", part)
        if recorded.failed_at is None:
            self.at[shard] = max(at, min(len(log), at + number))
        self.look()

    @rule(fates=FATES)
    def post_left(self, fates: list[str | None]) -> None:
        with self.unsure.failing(*fates), suppress(Unavailable):
            self.recording.counters.post_left()
        self.look()

    @rule()
    def new_process(self) -> None:
        """Whoever counted ends, and another begins with what is stored."""
        store, use = self.unsure.store, self.world.use
        batches = self.operations(
            store, use.queues, self.clock, use.task_batches.cursors, use.task_batches.ids
        )
        self.recording = Recording(
            self.counters(store, self.clock, no_wait, batches=batches, watch_from=self.watch_from)
        )

    # -- what must hold ------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self.world.use.task_batches.get(self.batch).finished_at is not None

    @property
    def all_ended(self) -> bool:
        total = self.world.use.task_batches.get(self.batch).total
        return total == self.made and "live" not in self.members.values()

    def look(self) -> None:
        """Learn what happened: to whom, and whom it was told."""
        for write in self.stream.taken():
            task_id = (write.after or write.before or write).id  # type: ignore[union-attr]
            self.logs[hash_of(task_id) % SHARDS].append(write)
            self._learn(task_id, write)

    def _learn(self, task_id: str, write: TaskWrite) -> None:
        after = write.after
        if after is not None and after.spot and after.spot[0] == "told":
            if write.before is None:
                self._told(task_id)
            return
        view = after or write.before
        if view is None or self.key not in {one.batch for one in view.memberships}:
            return
        where = None if after is None else after.spot or after.ended
        if after is None or where is None:  # gone, or kept for an undo
            if self.members[task_id] == "live":
                self.members[task_id] = "deleted"
                self.ever_ended.add(task_id)
            return
        if after.last_move in ("restart", "undelete"):
            self.restarted.add(task_id)
        spot = after.spot or after.ended
        assert spot is not None
        state = spot[1]
        self.members[task_id] = str(state) if state in FINISHED else "live"
        if state in FINISHED:
            self.ever_ended.add(task_id)
        self.ever_dead = self.ever_dead or state is State.DEAD

    def _told(self, task_id: str) -> None:
        task = self.world.see(task_id)
        event = str(task.payload).strip('"')
        self.told[event] += 1
        assert task.batch is not None
        if event == BatchEvent.FAILED:
            assert self.ever_dead
            return
        assert self.ever_ended == set(self.members), "called back before the last end"
        assert task.batch.total == len(self.members)

    @invariant()
    def nothing_is_told_twice(self) -> None:
        assert all(number == 1 for number in self.told.values())

    def teardown(self) -> None:
        """In the end everything is seen, and what was to be told has been."""
        self.look()
        for shard, log in enumerate(self.logs):
            assert self.recording.record(f"shard-{shard}", log).failed_at is None
            self.look()
        if self.all_ended:
            assert self.told[BatchEvent.ENDED] == 1, "the last end waited for its minute"
        if self.ever_dead:
            assert self.told[BatchEvent.FAILED] == 1, "the first death waited for its minute"
        self.clock.forward(61)
        self.recording.counters.post_left()
        self.look()
        batch = self.world.use.task_batches.get(self.batch)
        counts = Counter(self.members.values())
        assert {
            "created": batch.created,
            "direct": batch.direct,
            "owed": batch.owed,
            "live": batch.live,
            "succeeded": batch.succeeded,
            "dead": batch.dead,
            "deleted": batch.deleted,
        } == {
            "created": len(self.members),
            "direct": self.made,
            "owed": 0,
            "live": counts["live"],
            "succeeded": counts["SUCCEEDED"],
            "dead": counts["DEAD"],
            "deleted": counts["deleted"],
        }
        if self.all_ended:
            assert self.told[BatchEvent.ENDED] == 1
            assert self.told[BatchEvent.SUCCEEDED] == 1 or counts["DEAD"]
        if self.ever_dead:
            assert self.told[BatchEvent.FAILED] == 1
