"""The threads of one process seldom race each other for a task, and never wait for one another."""

import random
import threading
from collections import Counter
from datetime import timedelta

from headrace.domain.change import Entry
from headrace.domain.task import Place, State
from headrace.ops.claims import Claims
from tests.manual_clock import ManualClock

MAIL = Place("mail", State.ENQUEUED, 0)
START = ManualClock()()


def waiting(count: int) -> list[Entry]:
    """Return *count* waiting tasks, a microsecond apart."""
    return [
        Entry(f"task-{number}", MAIL, START + timedelta(microseconds=number))
        for number in range(count)
    ]


def claims() -> Claims:
    return Claims(chance=random.Random(7))


def test_the_first_of_the_window_are_picked_in_order() -> None:
    window = waiting(5)

    assert claims().pick(window, 3, now=START, crowded=False) == window[:3]
    assert claims().pick(window, 9, now=START, crowded=False) == window
    assert claims().pick([], 3, now=START, crowded=True) == []


def test_what_one_thread_takes_another_leaves_alone() -> None:
    taken, window = claims(), waiting(5)

    first = taken.pick(window, 2, now=START, crowded=False)
    second = taken.pick(window, 2, now=START, crowded=False)
    third = taken.pick(window, 2, now=START, crowded=True)

    assert [first, second, third] == [window[:2], window[2:4], window[4:]]


def test_a_claim_is_forgotten_after_two_seconds() -> None:
    taken, window = claims(), waiting(1)
    taken.pick(window, 1, now=START, crowded=False)

    just_before, after = START + timedelta(seconds=1.99), START + timedelta(seconds=2)

    assert taken.pick(window, 1, now=just_before, crowded=False) == []
    assert taken.pick(window, 1, now=after, crowded=False) == window


def test_a_task_that_comes_back_at_another_time_is_free() -> None:
    taken, (entry,) = claims(), waiting(1)
    taken.pick([entry], 1, now=START, crowded=False)
    again = Entry(entry.task_id, MAIL, START + timedelta(milliseconds=1))

    assert taken.pick([again], 1, now=START, crowded=False) == [again]


def test_what_was_let_go_is_free_at_once() -> None:
    taken, window = claims(), waiting(3)
    picked = taken.pick(window, 2, now=START, crowded=False)

    taken.drop(picked[:1])
    taken.drop(window[2:])  # never taken: nothing to let go of

    assert taken.pick(window, 3, now=START, crowded=False) == [window[0], window[2]]


def test_what_is_free_can_be_counted_without_taking_it() -> None:
    taken, window = claims(), waiting(5)
    taken.pick(window, 2, now=START, crowded=False)

    assert (taken.free(window), taken.free(window[:2]), taken.free([])) == (3, 0, 0)
    assert taken.pick(window, 5, now=START, crowded=False) == window[2:]


def test_in_a_crowd_any_of_the_window_are_picked_still_in_order() -> None:
    window = waiting(20)

    picks = [
        Claims(chance=random.Random(seed)).pick(window, 3, now=START, crowded=True)
        for seed in range(200)
    ]

    assert all(pick == sorted(pick, key=lambda entry: entry.scheduled_at) for pick in picks)
    assert all(len(set(pick)) == 3 for pick in picks)
    chosen = Counter(entry for pick in picks for entry in pick)
    assert set(chosen) == set(window)
    assert max(chosen.values()) < 3 * min(chosen.values())


def test_a_lost_race_makes_a_crowd_of_that_queue_for_a_second() -> None:
    taken = claims()
    assert not taken.crowded("mail", START)

    taken.lost("mail", START)

    assert taken.crowded("mail", START + timedelta(seconds=0.99))
    assert not taken.crowded("mail", START + timedelta(seconds=1))
    assert not taken.crowded("news", START)


def test_claims_take_bounded_memory() -> None:
    taken, window = claims(), waiting(45_000)

    for start in range(0, len(window), 25):
        taken.pick(window[start : start + 25], 25, now=START, crowded=False)

    assert len(taken._taken) <= 20_025  # noqa: SLF001  what is bounded is not shown outside
    assert taken.pick(window[:1], 1, now=START, crowded=False) == window[:1]
    assert taken.pick(window[-1:], 1, now=START, crowded=False) == []


def test_sixteen_threads_claim_each_task_once() -> None:
    taken, window = claims(), waiting(800)
    picked: list[list[Entry]] = [[] for _ in range(16)]
    ready = threading.Barrier(16)

    def work(mine: list[Entry]) -> None:
        ready.wait()
        while batch := taken.pick(window, 7, now=START, crowded=False):
            mine += batch

    threads = [threading.Thread(target=work, args=(mine,)) for mine in picked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    every = [entry for mine in picked for entry in mine]
    assert sorted(every, key=lambda entry: entry.scheduled_at) == window
