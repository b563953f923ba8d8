"""Counting a queue anew mends its counters, whatever the recorder has missed or is yet to hear.

Long, because each thing that may come between a recount's steps is a test of its own.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.instants import instant_of
from headrace.domain.task import Place, State
from headrace.history.recount import DONE, OPEN
from headrace.history.recounting import Recounted
from headrace.ops.shared.audit import AuditFilter
from headrace.store.base import Record, Store
from tests.contract.conftest import new_world
from tests.contract.test_recording import Recorder, new_recorder
from tests.manual_clock import ManualClock
from tests.streamed import Unsure


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


def worked(it: Recorder) -> str:
    """Have three tasks wait, one be worked on, and of two one dead and one done."""
    queue = it.world.queue("mail", shards=2)
    it.world.put(queue, *["{}"] * 6)
    it.world.clock.forward(1)
    tasks = it.world.take(queue, 3)
    it.world.say(tasks[0], "SUCCEEDED")
    it.world.say(tasks[1], "FAILED", retryable=False)
    it.world.clock.forward(1)
    return queue


TRUTH = [3, 1, 1, 1, 0]


def recount(it: Recorder, queue: str) -> Recounted:
    """Go on to the end, a second after the other."""
    step = it.world.use.recounting.step(queue)
    while step.cursor is not None:
        it.world.clock.forward(1)
        step = it.world.use.recounting.step(queue, step.cursor)
    it.world.clock.forward(1)
    return step


def counts(it: Recorder, queue: str) -> list[int]:
    return list(it.counts(queue))


@pytest.mark.gate
def test_what_the_recorder_has_missed_is_counted(it: Recorder) -> None:
    queue = worked(it)
    it.record(it.stream.taken()[:4])  # and of the rest it never hears

    step = recount(it, queue)

    assert (step.counts, step.was, step.cursor) == (TRUTH, [4, 0, 0, 0, 0], None)
    assert counts(it, queue) == TRUTH
    tasks = it.world.take(queue, 2)
    it.world.say(tasks[0], "SUCCEEDED")
    it.record()
    assert counts(it, queue) == [1, 2, 2, 1, 0]


def test_what_the_recorder_is_yet_to_hear_counts_once(it: Recorder) -> None:
    queue = worked(it)

    assert recount(it, queue).counts == TRUTH
    it.record()

    assert counts(it, queue) == TRUTH


@pytest.mark.parametrize("patience", [-1, 5])
def test_what_happens_between_the_steps_counts_once(it: Recorder, patience: float) -> None:
    queue = worked(it)
    it.record()
    it.world.use.recounting.patience = patience
    step = it.world.use.recounting.step(queue)
    steps = 1
    while step.cursor is not None:
        it.world.clock.forward(1)
        for task in it.world.take(queue):
            it.world.say(task, "SUCCEEDED")
        if steps % 2:
            it.record()
        it.world.clock.forward(1)
        step = it.world.use.recounting.step(queue, step.cursor)
        steps += 1
    it.record()

    assert steps == (8 if patience < 0 else 1)
    places = it.world.use.inspect.count(queue).by_state
    assert counts(it, queue) == [*places.values(), 0]


def test_a_queue_that_is_right_stays_as_it_is(it: Recorder) -> None:
    queue = worked(it)
    it.record()

    step = recount(it, queue)

    assert step.counts == step.was == TRUTH
    assert recount(it, queue).was == TRUTH


def in_steps(it: Recorder, queue: str, act: Callable[[], object]) -> list[bool]:
    """Return whether each step of a recount is exact; *act* comes after the first places."""
    it.world.use.recounting.patience = -1
    step = it.world.use.recounting.step(queue)
    exact = [step.exact]
    while step.cursor is not None:
        it.world.clock.forward(1)
        if len(exact) == 4:  # all that waits and is in flight is counted
            act()
        it.world.clock.forward(1)
        step = it.world.use.recounting.step(queue, step.cursor)
        exact.append(step.exact)
    return exact


def test_a_recount_of_a_queue_at_rest_is_exact(it: Recorder) -> None:
    queue = worked(it)
    it.world.put(queue, delay_in_seconds=60)
    it.stream.taken()

    assert set(in_steps(it, queue, lambda: None)) == {True}
    assert recount(it, queue).exact


@pytest.mark.parametrize("writes", ["enqueue", "delay", "take", "succeed", "die", "delete", "swap"])
def test_a_recount_is_not_exact_if_a_task_was_written_since_it_began(
    it: Recorder, writes: str
) -> None:
    """Even if the recorder has not heard of it yet."""
    queue = worked(it)
    (held,) = it.world.take(queue)
    (waits,) = it.world.put(queue)
    acts: dict[str, Callable[[], object]] = {
        "enqueue": lambda: it.world.put(queue),
        "delay": lambda: it.world.put(queue, delay_in_seconds=60),
        "take": lambda: it.world.take(queue),
        "succeed": lambda: it.world.say(held, "SUCCEEDED"),
        "die": lambda: it.world.say(held, "FAILED", retryable=False),
        "delete": lambda: it.world.use.tasks.delete(waits),
        "swap": lambda: (it.world.use.tasks.delete(waits), it.world.put(queue)),
    }
    it.world.clock.forward(1)

    exact = in_steps(it, queue, acts[writes])

    assert exact[:4] == [True] * 4
    assert exact[-1] is False


def test_a_recount_in_one_step_that_is_repeated_says_the_same(it: Recorder) -> None:
    queue = worked(it)
    it.world.use.recounting.patience = -1
    step = it.world.use.recounting.step(queue)
    cursor = step.cursor
    it.world.clock.forward(1)
    it.world.put(queue)
    while step.cursor is not None:
        it.world.clock.forward(1)
        cursor = step.cursor
        step = it.world.use.recounting.step(queue, cursor)

    again = it.world.use.recounting.step(queue, cursor)

    assert (step.exact, again.exact) == (False, False)


def test_other_queues_are_left_as_they_are(it: Recorder) -> None:
    queue, other = worked(it), it.world.queue("other")
    it.world.put(other)
    it.record()
    it.world.put(other)
    it.stream.taken()

    recount(it, queue)

    assert counts(it, other) == [1, 0, 0, 0, 0]


def test_tasks_past_their_retention_count_until_the_table_removes_them(it: Recorder) -> None:
    queue = it.world.queue("mail", history_retention_in_seconds=60)
    it.world.put(queue)
    it.world.say(it.world.one(queue), "SUCCEEDED")
    it.record()
    it.world.clock.forward(100)

    assert recount(it, queue).counts == [0, 0, 1, 0, 0]


def test_of_the_dead_those_that_were_cancelled_are_counted(it: Recorder) -> None:
    queue = worked(it)
    for task_id in it.world.put(queue, "{}", "{}"):
        it.world.use.cancelling.cancel(task_id)
    it.stream.taken()  # of which the recorder never hears

    assert recount(it, queue).counts == [3, 1, 1, 3, 2]
    assert counts(it, queue) == [3, 1, 1, 3, 2]
    (entry,) = it.world.use.audit.list(AuditFilter(action="recount")).shown
    assert (entry.matched, entry.changed) == (8, 10)


def test_a_recount_needs_no_recorder_and_says_nothing_of_its_age(it: Recorder) -> None:
    queue = worked(it)
    it.stream.taken()

    assert recount(it, queue).was == [0, 0, 0, 0, 0]
    assert it.world.use.stats.of(queue).staleness < 60
    assert it.world.use.stats.overview([it.world.use.queues.get(queue)]).as_of is None


def test_each_recount_is_noted(it: Recorder) -> None:
    queue = worked(it)

    recount(it, queue)

    (entry,) = it.world.use.audit.list(AuditFilter(action="recount")).shown
    assert (entry.queue, entry.matched, entry.changed) == (queue, 6, 6)


def refused(do: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest) as error:
        do()
    assert [one.field for one in error.value.errors] == ["cursor"]


def test_a_cursor_is_good_for_its_own_recount_only(it: Recorder) -> None:
    queue, step = worked(it), it.world.use.recounting.step
    it.world.queue("other")
    it.world.use.recounting.patience = -1
    first = step(queue)

    refused(lambda: step("other", first.cursor))
    refused(lambda: step(queue, "forged"))
    with pytest.raises(NotFound):
        step("none")
    second = step(queue)  # somebody begins anew
    refused(lambda: step(queue, first.cursor))
    it.world.clock.forward(timedelta(hours=2))  # and goes away
    refused(lambda: step(queue, second.cursor))
    it.record()
    assert counts(it, queue) == TRUTH


def test_the_last_step_may_be_repeated(it: Recorder) -> None:
    queue = worked(it)
    it.world.use.recounting.patience = -1
    steps = [it.world.use.recounting.step(queue)]
    while (cursor := steps[-1].cursor) is not None:
        it.world.clock.forward(1)
        steps.append(it.world.use.recounting.step(queue, cursor))
    it.world.put(queue)

    assert it.world.use.recounting.step(queue, steps[-2].cursor) == steps[-1]


def test_what_is_known_of_a_recount_is_forgotten_when_nothing_can_come_any_more(
    it: Recorder,
) -> None:
    queue = worked(it)
    recount(it, queue)
    it.world.clock.forward(timedelta(hours=27))
    it.world.put(queue)
    it.record()

    buffers = it.world.use.recording.counters.buffers()
    assert (
        sum("recounts" in buffer.body for buffer in buffers) == len(buffers) - 1
    )  # who wrote forgot


# -- who is in the way, or dies ----------------------------------------------------------------


class InterruptedRecount(Unsure):
    """A store in whose calls something may come between; its tasks may be ``gone`` when read."""

    gone = False

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.before: dict[tuple[str, str], Callable[[], object]] = {}

    def record(self, kind: str, name: str) -> Record | None:
        self._come("record", kind)
        return self._store.record(kind, name)

    def count(self, *given: Any, **named: Any) -> Any:
        self._come("count", "")
        return self._store.count(*given, **named)

    def entries(self, place: Place, **named: Any) -> Any:
        self._come("entries", place.state)
        return self._store.entries(place, **named)

    def read(self, *given: Any, **named: Any) -> Any:
        self._come("read", "")
        return {} if self.gone else self._store.read(*given, **named)

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:
        done = super().put_record(record, replaces=replaces, lazy=lazy)
        self._come("written", record.kind)
        return done

    def _come(self, call: str, kind: str) -> None:
        if (act := self.before.pop((call, kind), None)) is not None:
            act()


@pytest.fixture
def interrupted(store: Store) -> InterruptedRecount:
    return InterruptedRecount(store)


@pytest.fixture
def that(interrupted: InterruptedRecount, clock: ManualClock) -> Recorder:
    recorder = new_recorder(interrupted.store, clock)
    recorder.recording.counters.sleep = clock.forward
    return recorder


def test_while_a_page_is_counted_the_recorder_waits_and_then_goes_on(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue = worked(that)
    began = that.world.clock()
    interrupted.before["count", ""] = that.record  # as if the step took for ever
    with pytest.raises(Unavailable, match="repeat this step"):
        that.world.use.recounting.step(queue)

    assert that.world.clock() - began >= timedelta(seconds=20)
    assert counts(that, queue) == TRUTH
    assert recount(that, queue).counts == TRUTH


def test_others_are_counted_while_one_is_held(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue, other = worked(that), that.world.queue("other")
    that.record()
    that.world.put(other)
    began = that.world.clock()
    interrupted.before["count", ""] = that.record

    that.world.use.recounting.step(queue)

    assert that.world.clock() - began < timedelta(seconds=1)
    assert counts(that, other) == [1, 0, 0, 0, 0]


def test_of_two_that_begin_at_once_one_goes_on(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue, step = worked(that), that.world.use.recounting.step
    that.world.use.recounting.patience = -1
    first = step(queue)
    begun: list[Recounted] = []
    interrupted.before["record", "recorder"] = lambda: begun.append(step(queue))
    that.world.clock.forward(1)

    refused(lambda: step(queue, first.cursor))

    last = begun[0]
    while last.cursor is not None:
        that.world.clock.forward(1)
        last = step(queue, last.cursor)
    that.world.clock.forward(1)
    that.record()
    assert counts(that, queue) == TRUTH


def test_who_dies_when_all_is_written_but_the_lanes_leaves_true_counters(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue = worked(that)

    def die() -> None:
        interrupted.fate = iter(["lost"] * 1000)

    interrupted.before["written", DONE] = die
    with pytest.raises(Unavailable):
        that.world.use.recounting.step(queue)
    interrupted.fate = iter(())
    that.world.clock.forward(30)

    that.record()

    assert counts(that, queue) == TRUTH
    assert interrupted.record(OPEN, queue) is not None  # until it is forgotten


def test_a_recount_that_is_given_up_leaves_the_counters_as_they_were(that: Recorder) -> None:
    queue = worked(that)
    that.record(that.stream.taken()[:4])
    that.world.use.recounting.patience = -1
    that.world.use.recounting.step(queue)
    that.world.clock.forward(timedelta(hours=2))
    that.world.put(queue)

    that.record()

    assert counts(that, queue) == [5, 0, 0, 0, 0]


def test_a_new_process_knows_of_a_recount_that_it_has_not_seen(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue = worked(that)
    recount(that, queue)
    fresh = new_world(interrupted.store, that.world.clock)

    fresh.use.recording.record("shard-1", that.stream.taken())

    assert counts(that, queue) == TRUTH


def test_a_dead_task_that_goes_while_it_is_counted_is_counted_as_gone(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue = worked(that)
    first, second = that.world.put(queue, "{}", "{}")
    for task_id in (first, second):
        that.world.use.cancelling.cancel(task_id)
    that.record()
    interrupted.before["entries", State.DEAD] = lambda: interrupted.before.update(
        {("read", ""): lambda: that.world.use.tasks.delete(first)}
    )

    step = recount(that, queue)

    assert step.counts == [3, 1, 1, 2, 1]
    that.record()
    assert counts(that, queue) == step.counts


def test_dead_tasks_that_go_as_quickly_as_they_are_counted_end_the_step(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue = worked(that)
    that.record()

    interrupted.gone = True
    with pytest.raises(Unavailable, match="repeat this step"):
        that.world.use.recounting.step(queue)
    interrupted.gone = False

    began = that.world.clock()
    that.world.put(queue)
    that.record()
    assert that.world.clock() - began < timedelta(seconds=1)  # nothing is held
    assert recount(that, queue).counts == [4, 1, 1, 1, 0]


# -- what tasks fail of ------------------------------------------------------------------------


def standing(it: Recorder, queue: str) -> list[tuple[int, int]]:
    counters = it.world.use.recording.counters
    kinds = counters.faults(queue, counters.buffers()).kinds.values()
    return [(kind.dead, kind.retried) for kind in kinds]


def failed(it: Recorder) -> str:
    """Have one task dead, one wait to be tried again, and one be tried again."""
    queue = it.world.queue("mail")
    for retryable in (False, True, True):
        it.world.put(queue)
        it.world.say(it.world.one(queue), "FAILED", retryable=retryable)
        it.world.clock.forward(1)
    it.world.clock.forward(60)
    it.world.one(queue)
    it.world.clock.forward(1)
    return queue


def test_faults_of_before_they_were_counted_are_found(it: Recorder) -> None:
    queue = failed(it)
    it.stream.taken()  # as if an older version had recorded them

    recount(it, queue)

    assert standing(it, queue) == [(1, 2)]
    counters = it.world.use.recording.counters
    (kind,) = counters.faults(queue, counters.buffers()).kinds.values()
    assert it.world.clock() - instant_of(kind.first) > timedelta(seconds=3)
    it.world.use.queues.purge(queue, (State.DEAD, State.ENQUEUED))
    it.record()
    assert standing(it, queue) == [(0, 1)]


def test_faults_that_are_right_stay_with_what_was_seen_of_them(it: Recorder) -> None:
    queue = failed(it)
    it.record()
    counters = it.world.use.recording.counters
    before = counters.faults(queue, counters.buffers()).kinds

    recount(it, queue)

    assert counters.faults(queue, counters.buffers()).kinds == before


def test_a_task_that_changes_between_index_and_reading_counts_once(
    that: Recorder, interrupted: InterruptedRecount
) -> None:
    queue = failed(that)
    that.record()

    def fails_for_good() -> None:
        (task,) = that.world.take(queue)
        that.world.say(task, "FAILED", retryable=False)

    interrupted.before["read", ""] = fails_for_good
    recount(that, queue)
    that.record()

    assert standing(that, queue) == [(2, 1)]
