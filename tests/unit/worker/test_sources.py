"""Which queue is asked next, and when."""

import random
from collections import Counter

import pytest

from headrace.client.worker.fetcher import Source, Sources
from headrace.wire.tasks import Dequeued
from tests.unit.worker.worker_harness import START, dice, leased


def sources(*, strict: bool = False, **weights: float) -> Sources:
    return Sources(weights, strict=strict, chance=dice())


def source(chance: random.Random | None = None) -> Source:
    return Source("mail", 1, chance or dice())


def pauses(*reported: float) -> list[float]:
    polled = source()
    found = []
    for poll_after in reported:
        polled.had_nothing(poll_after, 100.0, sent_at=100.0)
        found.append(polled.next_at - 100.0)
    return found


def names(polled: list[Source]) -> list[str]:
    return [source.queue for source in polled]


def answer(*gave: str, poll_after: float = 1.0) -> Dequeued:
    """The answer of a call: a task of each queue named."""
    tasks = [leased(number, queue=queue) for number, queue in enumerate(gave)]
    return Dequeued(tasks=tasks, now=START, poll_after_seconds=poll_after)


def answered(
    queues: Sources, polled: list[Source], *gave: str, now: float, wanted: int = 25
) -> None:
    queues.answered(polled, answer(*gave), wanted, now, sent_at=now)


def test_the_weights_decide_which_queue_comes_first() -> None:
    queues = sources(often=3, seldom=1)

    first = Counter(names(queues.next(1.0))[0] for _ in range(4000))

    assert first["often"] / first["seldom"] == pytest.approx(3, rel=0.2)
    assert {len(queues.next(1.0)) for _ in range(50)} == {2}


def test_strict_order_is_the_order_of_the_call() -> None:
    queues = sources(strict=True, first=1, second=1, third=1)

    assert names(queues.next(1.0)) == ["first", "second", "third"]


def test_idle_queues_are_asked_together_and_rest_together() -> None:
    queues = sources(one=1, two=5, three=1)
    now = 100.0
    for _ in range(20):
        polled = queues.next(now)
        assert sorted(names(polled)) == ["one", "three", "two"]
        answered(queues, polled, now=now)
        assert queues.next(now) == []
        assert len({source.next_at for source in queues.all}) == 1
        now += queues.rest(now)
    assert now > 100.0 + 20 * 1.5  # their common pause has grown


def test_while_tasks_come_the_empty_queues_are_left_out_until_their_pause_is_over() -> None:
    queues = sources(strict=True, empty=1, busy=1, behind=1)
    answered(queues, queues.next(100.0), "busy", now=100.0, wanted=1)

    assert names(queues.next(100.5)) == ["busy", "behind"]  # behind was not looked at
    answered(queues, queues.next(100.5), "busy", now=100.5)
    assert names(queues.next(100.6)) == ["busy"]
    assert names(queues.next(101.2)) == ["empty", "busy"]
    answered(queues, queues.next(101.2), now=101.2)
    assert queues.next(101.3) == []
    assert names(queues.next(101.2 + 5.3)) == ["empty", "busy", "behind"]


def test_a_pause_that_ends_while_nothing_comes_ends_for_all() -> None:
    queues = sources(strict=True, one=1, two=1)
    one, two = queues.all
    one.had_nothing(5.0, 100.0, sent_at=100.0)
    answered(queues, [two], now=100.0)

    assert names(queues.next(101.5)) == ["one", "two"]


def test_more_queues_than_one_call_takes_are_asked_one_lot_after_the_other() -> None:
    queues = sources(strict=True, **{f"q{number:02}": 1 for number in range(70)})
    seen = []
    while polled := queues.next(100.0):
        seen.append(names(polled))
        answered(queues, polled, now=100.0)

    assert [len(lot) for lot in seen] == [32, 32, 6]
    assert [name for lot in seen for name in lot] == [f"q{number:02}" for number in range(70)]
    assert queues.drained(since=100.0)


def test_all_are_drained_when_each_was_found_empty_since() -> None:
    queues = sources(one=1, other=1)
    one, other = queues.all
    answered(queues, [one, other], "one", now=1.0)
    assert not queues.drained(since=1.0)
    answered(queues, [one], now=1.0)
    assert queues.drained(since=1.0)
    assert not queues.drained(since=1.5)


def test_a_refused_queue_is_left_out_and_the_others_are_asked() -> None:
    queues = sources(strict=True, bad=1, good=1)
    queues.all[0].refused(100.0)

    assert names(queues.next(100.0)) == ["good"]
    assert names(queues.next(200.0)) == ["bad", "good"]


def test_a_queue_that_gave_tasks_is_asked_again_at_once() -> None:
    polled = source()
    polled.had_nothing(1.0, 100.0, sent_at=100.0)

    polled.gave()

    assert polled.next_at == 0.0


def test_the_pause_doubles_up_to_five_times_what_the_service_says() -> None:
    first, second, third, *rest = pauses(*[1.0] * 8)

    assert 1.0 <= first <= 1.05
    assert 1.0 <= second <= 2.1
    assert 1.0 <= third <= 4.2
    assert all(1.0 <= pause <= 5.25 for pause in rest)
    assert max(pauses(*[1.0] * 50)) > 4.2


def test_after_tasks_came_the_pause_begins_anew() -> None:
    polled = source()
    for _ in range(5):
        polled.had_nothing(1.0, 100.0, sent_at=100.0)
    polled.gave()

    polled.had_nothing(1.0, 100.0, sent_at=100.0)

    assert polled.next_at <= 101.05


def test_a_pause_cut_short_by_a_task_that_is_due_soon_is_kept_as_it_is() -> None:
    assert pauses(1.0, 1.0, 1.0, 0.3)[-1] == pytest.approx(0.3, rel=0.06)


def test_the_long_pause_of_a_paused_queue_does_not_grow() -> None:
    assert max(pauses(*[5.0] * 6)) <= 5.25


def test_a_pause_of_nothing_is_still_a_pause() -> None:
    assert min(pauses(0.0, 0.0, 0.0)) > 0


def test_a_queue_that_refuses_is_left_alone_for_longer_each_time_and_no_longer_empty() -> None:
    polled = source()
    polled.had_nothing(0.02, 100.0, sent_at=100.0)
    found = []
    for _ in range(20):
        polled.refused(100.0)
        found.append(polled.open_at - 100.0)

    assert found[0] <= 0.1
    assert 30 <= found[-1] <= 60
    assert polled.empty_since is None
