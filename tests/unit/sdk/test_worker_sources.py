"""Which queue is asked next, and when."""

import random
from collections import Counter

import pytest

from headrace.client.worker.sources import Source, Sources
from tests.unit.sdk.worker_ground import dice


def sources(*, strict: bool = False, **weights: float) -> Sources:
    return Sources(weights, strict=strict, chance=dice())


def source(chance: random.Random | None = None) -> Source:
    return Source("mail", 1, chance or dice())


def pauses(*told: float) -> list[float]:
    asked = source()
    found = []
    for poll_after in told:
        asked.had_nothing(poll_after, 100.0, asked_at=100.0)
        found.append(asked.next_at - 100.0)
    return found


def test_queues_are_asked_as_often_as_their_weights_say() -> None:
    queues = sources(often=3, seldom=1)

    asked = Counter(found.queue for _ in range(4000) if (found := queues.next(1.0)) is not None)

    assert asked["often"] / asked["seldom"] == pytest.approx(3, rel=0.2)


def test_strict_order_asks_a_later_queue_only_while_the_first_is_in_its_pause() -> None:
    queues = sources(strict=True, first=1, second=1)
    first, second = queues.all

    assert queues.next(1.0) is first
    first.had_nothing(0.02, 1.0, asked_at=1.0)
    assert queues.next(1.0) is second
    second.gave()
    assert queues.next(2.0) is first


def test_an_empty_queue_is_left_out_until_its_pause_is_over() -> None:
    queues = sources(one=100, other=1)
    one, other = queues.all
    one.had_nothing(10.0, 1.0, asked_at=1.0)

    assert {queues.next(1.0) for _ in range(50)} == {other}
    other.had_nothing(5.0, 1.0, asked_at=1.0)
    assert queues.next(1.0) is None
    assert 4.9 < queues.rest(1.0) < 5.4
    assert queues.drained(since=1.0)
    assert not queues.drained(since=1.5)


def test_a_queue_that_gave_tasks_is_asked_again_at_once() -> None:
    asked = source()
    asked.had_nothing(1.0, 100.0, asked_at=100.0)

    asked.gave()

    assert asked.next_at == 0.0


def test_the_pause_doubles_up_to_five_times_what_the_service_says() -> None:
    first, second, third, *rest = pauses(*[1.0] * 8)

    assert 1.0 <= first <= 1.05
    assert 1.0 <= second <= 2.1
    assert 1.0 <= third <= 4.2
    assert all(1.0 <= pause <= 5.25 for pause in rest)
    assert max(pauses(*[1.0] * 50)) > 4.2


def test_after_tasks_came_the_pause_begins_anew() -> None:
    asked = source()
    for _ in range(5):
        asked.had_nothing(1.0, 100.0, asked_at=100.0)
    asked.gave()

    asked.had_nothing(1.0, 100.0, asked_at=100.0)

    assert asked.next_at <= 101.05


def test_a_pause_cut_short_by_a_task_that_is_due_soon_is_kept_as_it_is() -> None:
    assert pauses(1.0, 1.0, 1.0, 0.3)[-1] == pytest.approx(0.3, rel=0.06)


def test_the_long_pause_of_a_paused_queue_does_not_grow() -> None:
    assert max(pauses(*[5.0] * 6)) <= 5.25


def test_a_pause_of_nothing_is_still_a_pause() -> None:
    assert min(pauses(0.0, 0.0, 0.0)) > 0


def test_a_queue_that_refuses_is_left_alone_for_longer_each_time_and_no_longer_empty() -> None:
    asked = source()
    asked.had_nothing(0.02, 100.0, asked_at=100.0)
    found = []
    for _ in range(20):
        asked.refused(100.0)
        found.append(asked.next_at - 100.0)

    assert found[0] <= 0.1
    assert 30 <= found[-1] <= 60
    assert asked.empty_since is None
