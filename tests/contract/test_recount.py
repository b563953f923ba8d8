"""A recount sets the counters of a queue, whatever the recorder has missed or not got yet."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.history.recounting import Recounted
from headrace.store.base import Store
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


def test_finished_tasks_count_until_they_are_removed(it: Recorder) -> None:
    """Also after their retention: the database removes them some time later."""
    queue = it.world.queue("mail", history_retention_in_seconds=60)
    it.world.put(queue)
    it.world.say(it.world.take(queue)[0], "SUCCEEDED")
    it.record()
    before = counts(it, queue)
    it.world.clock.forward(120)

    assert recount(it, queue).counts == before == counts(it, queue)


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


@pytest.mark.parametrize("writes", ["enqueue", "succeed", "swap"])
def test_a_recount_is_not_exact_if_a_task_was_written_since_it_began(
    it: Recorder, writes: str
) -> None:
    """Even if the recorder has not heard of it yet."""
    queue = worked(it)
    (held,) = it.world.take(queue)
    (waits,) = it.world.put(queue)
    acts: dict[str, Callable[[], object]] = {
        "enqueue": lambda: it.world.put(queue),
        "succeed": lambda: it.world.say(held, "SUCCEEDED"),
        "swap": lambda: (it.world.use.tasks.delete(waits), it.world.put(queue)),
    }
    it.world.clock.forward(1)

    exact = in_steps(it, queue, acts[writes])

    assert exact[:4] == [True] * 4
    assert exact[-1] is False


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


@pytest.mark.parametrize("written", [4, 8, 9])
def test_a_recount_that_dies_while_it_sets_the_counters_can_be_repeated(
    store: Store, clock: ManualClock, written: int
) -> None:
    """After half of the buffers, after all, and after the audit."""
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    queue = worked(it)
    with unsure.failing(*[None] * written, *["lost"] * 20), pytest.raises(Unavailable):
        recount(it, queue)
    it.world.clock.forward(1)

    it.record()

    assert recount(it, queue).exact
    assert counts(it, queue) == TRUTH


def test_the_last_step_can_be_repeated(it: Recorder) -> None:
    queue = worked(it)
    it.world.use.recounting.patience = -1
    step = it.world.use.recounting.step(queue)
    cursors = [step.cursor]
    while step.cursor is not None:
        step = it.world.use.recounting.step(queue, step.cursor)
        cursors.append(step.cursor)

    assert it.world.use.recounting.step(queue, cursors[-2]) == step
    it.world.clock.forward(1)
    it.record()
    assert counts(it, queue) == TRUTH


def test_faults_are_recounted(it: Recorder) -> None:
    queue = worked(it)
    it.world.put(queue)
    it.world.say(it.world.take(queue)[0], "FAILED")
    changes = it.stream.taken()
    it.record(changes[:-1])  # the recorder gets the rest when the queue is recounted
    it.world.clock.forward(1)
    counters = it.world.use.counters

    for _ in range(2):
        recount(it, queue)
        kinds = counters.faults(queue, counters.buffers()).kinds.values()
        assert sorted((kind.dead, kind.retried) for kind in kinds) == [(1, 1)]
        it.record(changes)
