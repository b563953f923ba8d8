"""An index that is built while tasks go on in any order has each of them once it is ready."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from headrace.domain.errors import Conflict
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.domain.write import TaskWrite
from headrace.history.matching import Matching
from headrace.ops.delivery.indexing import Indexing
from headrace.store.memory import MemoryStore
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

FIELDS = ("tag:tenant", "payload.order")
AT_ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0, max_retries=3)
QUEUES = ("mail", "sms")
VALUES = st.sampled_from(["a", "b"])


class Indexes(RuleBasedStateMachine):
    """Tasks of two queues, their recorder, and a reaper that builds indexes bit by bit."""

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.stream = Streamed(MemoryStore(), self.clock)
        self.world = new_world(self.stream.store, self.clock)
        for queue in QUEUES:
            self.world.queue(queue, retry_strategy=AT_ONCE, keepalive_timeout_in_seconds=600)
        use = self.world.use
        self.indexing = Indexing(
            use.indexing.store, use.queues, use.inspect, use.texts, self.tick, 0.015, 2
        )
        self.leased: list[Task] = []

    def tick(self) -> datetime:
        """So that a run of the reaper is over after a step or two."""
        self.clock.forward(0.005)
        return self.clock()

    @rule(queue=st.sampled_from(QUEUES), tenant=VALUES, order=VALUES)
    def put(self, queue: str, tenant: str, order: str) -> None:
        self.world.put(queue, f'{{"order": "{order}"}}', tags={"tenant": tenant})

    @rule(queue=st.sampled_from(QUEUES))
    def take(self, queue: str) -> None:
        self.leased += self.world.take(queue, 2)

    @rule(status=st.sampled_from(["FAILED", "SUCCEEDED", "RELEASED"]), retryable=st.booleans())
    def say(self, status: str, retryable: bool) -> None:  # noqa: FBT001  drawn by name
        if self.leased:
            more = {"retryable": retryable} if status == "FAILED" else {}
            self.world.say(self.leased.pop(), status, **more)

    @rule(queue=st.sampled_from(QUEUES), act=st.sampled_from(BulkAction), data=st.data())
    def act(self, queue: str, act: BulkAction, data: st.DataObject) -> None:
        listed = self.world.use.inspect.list(queue).tasks
        if listed:
            task = data.draw(st.sampled_from(listed))
            (other,) = {*QUEUES} - {queue}
            target = other if act is BulkAction.MOVE else None
            try:
                self.world.use.bulk.by_ids(queue, act, [task.id], to_queue=target)
            except Conflict:
                return

    @rule(queue=st.sampled_from(QUEUES), fields=st.sampled_from([FIELDS, FIELDS[:1], ()]))
    def name(self, queue: str, fields: tuple[str, ...]) -> None:
        wanted = QueueSettings(
            retry_strategy=AT_ONCE, keepalive_timeout_in_seconds=600, indexed_fields=fields
        )
        self.world.use.queues.replace(queue, wanted)

    @rule(queue=st.sampled_from(QUEUES))
    def build_anew(self, queue: str) -> None:
        with suppress(Conflict):  # nothing is indexed
            self.world.use.queues.reindex(queue)

    @rule(count=st.integers(1, 5))
    def record(self, count: int) -> None:
        some = self.stream.changes[:count]
        del self.stream.changes[:count]
        self.world.use.recording.record(SHARD, some)

    @rule()
    def record_all(self) -> None:
        self.world.use.recording.record(SHARD, self.stream.taken())

    @rule(seconds=st.sampled_from([1, 31, 95]))
    def wait(self, seconds: int) -> None:
        self.record_all()  # a recorder lags behind by less than that
        self.clock.forward(seconds)

    @rule()
    def reap(self) -> None:
        self.indexing.run()

    @rule(value=VALUES)
    def search(self, value: str) -> None:
        """What an index finds is what a look at every task finds, once all is recorded."""
        self.record_all()
        inspect = self.world.use.inspect
        for queue in QUEUES:
            every = inspect.list(queue, limit=250, payload=True).tasks
            for where in (
                TaskFilter(tags={"tenant": value}),
                TaskFilter(payload={"order": value}),
                TaskFilter(states=(State.ENQUEUED,), tags={"tenant": value}),
            ):
                found = inspect.list(queue, where, limit=250)
                meant = {
                    task.id
                    for task in every
                    if where.means(task) and (not where.states or task.state in where.states)
                }
                assert {task.id for task in found.tasks} == meant, (queue, where)


STEPS = settings(max_examples=25, stateful_step_count=40, deadline=None)


def test_an_index_has_each_task_once_it_is_ready() -> None:
    run_state_machine_as_test(Indexes, settings=STEPS)


class Forgetful(Matching):
    """Forgets those who come to wait again in the queue they are in."""

    def write(self, writes: Sequence[TaskWrite]) -> None:
        super().write([one for one in writes if not self._stays(one)])

    @staticmethod
    def _stays(write: TaskWrite) -> bool:
        sides = (write.before, write.after)
        spots = [side.spot for side in sides if side is not None and side.spot is not None]
        return len(spots) == len(sides) and spots[0][0] == spots[1][0]


def missed(after_steps: int, *, forgetful: bool) -> set[str]:
    """Let a worker give tasks back *after_steps* of a look at all; return who is not found."""
    it = Indexes()
    it.begin()
    noted = it.world.use.recording
    assert noted.matching is not None
    if forgetful:
        noted.matching = Forgetful(noted.matching.store, noted.matching.texts, it.clock)
    for _ in range(3):
        it.put("mail", "a", "a")
    it.take("mail")
    it.record_all()
    it.name("mail", FIELDS)
    it.wait(95)
    for _ in range(after_steps):
        it.reap()
    while it.leased:
        it.say("RELEASED", retryable=True)
    it.record_all()
    for _ in range(10):
        it.reap()
    inspect, where = it.world.use.inspect, TaskFilter(tags={"tenant": "a"})
    found = inspect.list("mail", where)
    assert found.by_creation
    return {task.id for task in inspect.list("mail").tasks} - {task.id for task in found.tasks}


def test_who_waits_again_during_the_look_is_not_missed() -> None:
    assert [missed(steps, forgetful=False) for steps in range(6)] == [set()] * 6


@pytest.mark.slow
def test_the_same_catches_a_recorder_that_forgets_them() -> None:
    assert any(missed(steps, forgetful=True) for steps in range(6))
