"""The threads of one process seldom race each other for a task, and never wait for one another."""

import random
import threading
from datetime import timedelta
from itertools import chain, pairwise

import pytest

from headrace.domain.change import Entry
from headrace.domain.task import Place, State
from headrace.domain.worker import Portion
from headrace.ops.delivery.contention import ALL, OVERTAKES_EVERY, Claims, Part
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

    assert claims().pick(window, 3, now=START, mine=ALL) == window[:3]
    assert claims().pick(window, 9, now=START, mine=ALL) == window
    assert claims().pick([], 3, now=START, mine=ALL) == []


def test_what_one_thread_takes_another_leaves_alone() -> None:
    taken, window = claims(), waiting(5)

    first = taken.pick(window, 2, now=START, mine=ALL)
    second = taken.pick(window, 2, now=START, mine=ALL)
    third = taken.pick(window, 2, now=START, mine=ALL)

    assert [first, second, third] == [window[:2], window[2:4], window[4:]]


def test_a_claim_is_forgotten_after_ten_seconds() -> None:
    taken, window = claims(), waiting(1)
    taken.pick(window, 1, now=START, mine=ALL)

    just_before, after = START + timedelta(seconds=9.99), START + timedelta(seconds=10)

    assert taken.pick(window, 1, now=just_before, mine=ALL) == []
    assert taken.pick(window, 1, now=after, mine=ALL) == window


def test_a_task_that_comes_back_at_another_time_is_free() -> None:
    taken, (entry,) = claims(), waiting(1)
    taken.pick([entry], 1, now=START, mine=ALL)
    again = Entry(entry.task_id, MAIL, START + timedelta(milliseconds=1))

    assert taken.pick([again], 1, now=START, mine=ALL) == [again]


def test_what_was_let_go_is_free_at_once() -> None:
    taken, window = claims(), waiting(3)
    picked = taken.pick(window, 2, now=START, mine=ALL)

    taken.drop(picked[:1])
    taken.drop(window[2:])  # never taken: nothing to let go of

    assert taken.pick(window, 3, now=START, mine=ALL) == [window[0], window[2]]


def test_what_is_free_can_be_counted_without_taking_it() -> None:
    taken, window = claims(), waiting(5)
    taken.pick(window, 2, now=START, mine=ALL)

    assert (taken.free(window), taken.free(window[:2]), taken.free([])) == (3, 0, 0)
    assert taken.pick(window, 5, now=START, mine=ALL) == window[2:]


def test_parts_share_all_tasks_out_and_halves_of_a_part_make_it_up() -> None:
    window = waiting(400)

    of_four = [
        [entry for entry in window if Part(4, number).may_take(entry, 0)] for number in range(4)
    ]

    assert sorted(chain(*of_four), key=lambda entry: entry.scheduled_at) == window
    assert all(60 < len(part) < 140 for part in of_four)
    halves = [
        entry for entry in window if Part(8, 3).may_take(entry, 0) or Part(8, 7).may_take(entry, 0)
    ]
    assert halves == of_four[3]


def test_of_the_tasks_that_fall_to_a_worker_some_are_in_every_part() -> None:
    mine = Portion(rank=0, members=2, shards=1)
    own = [entry for entry in waiting(400) if not mine.away(entry)]

    assert all(any(Part(4, number).may_take(entry, 0) for entry in own) for number in range(4))


def test_the_first_of_the_own_part_are_picked_in_order() -> None:
    window, part = waiting(40), Part(4, 1)
    own = [entry for entry in window if part.may_take(entry, 0)]

    assert claims().pick(window, 3, now=START, mine=part) == own[:3]
    assert claims().pick(window, 25, now=START, mine=part) == own


def test_when_the_own_part_is_empty_few_of_the_others_are_picked_from_the_head() -> None:
    part = Part(8, 5)
    window = [entry for entry in waiting(40) if not part.may_take(entry, 0)]

    assert claims().pick(window, 24, now=START, mine=part) == window[:3]


def test_a_task_that_was_overtaken_is_taken_by_more_and_soon_by_all() -> None:
    taken, part = claims(), Part(8, 1)
    others = [entry for entry in waiting(400) if not part.may_take(entry, 0)]
    own = next(entry for entry in waiting(400) if part.may_take(entry, 0))
    later = [entry._replace(task_id=f"{entry.task_id}-later") for entry in waiting(800)]
    behind = [own, *(entry for entry in later if part.may_take(entry, 0))]

    first = taken.pick([*others, *behind], 1, now=START, mine=part)
    at_once = taken.pick([*others, *behind], 1, now=START, mine=part)
    second = taken.pick([*others, *behind], 400, now=START + OVERTAKES_EVERY, mine=part)
    third = taken.pick([*others, *behind], 1, now=START + 2 * OVERTAKES_EVERY, mine=part)

    assert first == [own]
    assert at_once[0] in behind or part.may_take(at_once[0], 1)
    assert 50 < sum(entry in others for entry in second) < 150
    assert third == [next(entry for entry in others if entry not in [*at_once, *second])]


def test_who_loses_no_race_has_all_of_a_queue() -> None:
    taken = claims()
    for _ in range(100):
        taken.raced("mail", 25, 25, START)

    assert taken.part("mail", START) == ALL


@pytest.mark.parametrize(("won", "of"), [(25, 1), (24, 1), (12, 2), (5, 2), (0, 2)])
def test_the_fewer_are_won_the_smaller_the_part(won: int, of: int) -> None:
    taken = claims()

    taken.raced("mail", 25, won, START)

    assert taken.part("mail", START).of == of
    assert taken.part("news", START) == ALL


def test_races_lost_one_after_the_other_halve_a_part_again_and_again_within_bounds() -> None:
    taken = claims()
    parts = []
    for _ in range(8):
        taken.raced("mail", 1, 0, START)
        parts.append(taken.part("mail", START))

    assert [part.of for part in parts] == [2, 4, 8, 8, 8, 8, 8, 8]
    assert all(small.number % big.of == big.number for big, small in pairwise(parts[:3]))
    assert len({part.number for part in parts[2:]}) > 1  # elsewhere there may be nobody


def test_a_part_grows_by_won_races_and_by_time() -> None:
    taken, patient = claims(), claims()
    for lost in (taken, patient):
        for _ in range(3):
            lost.raced("mail", 25, 0, START)

    wins = 0
    while taken.part("mail", START) != ALL:
        taken.raced("mail", 25, 25, START)
        wins += 1

    assert 10 < wins < 40
    assert patient.part("mail", START + timedelta(seconds=10)).of == 4
    assert patient.part("mail", START + timedelta(seconds=50)) == ALL


def test_claims_take_bounded_memory() -> None:
    taken, window = claims(), waiting(45_000)

    for start in range(0, len(window), 25):
        taken.pick(window[start : start + 25], 25, now=START, mine=ALL)

    assert len(taken._taken) <= 20_025  # noqa: SLF001  what is bounded is not shown outside
    assert taken.pick(window[:1], 1, now=START, mine=ALL) == window[:1]
    assert taken.pick(window[-1:], 1, now=START, mine=ALL) == []


def test_sixteen_threads_claim_each_task_once() -> None:
    taken, window = claims(), waiting(800)
    picked: list[list[Entry]] = [[] for _ in range(16)]
    ready = threading.Barrier(16)

    def work(mine: list[Entry]) -> None:
        ready.wait()
        while batch := taken.pick(window, 7, now=START, mine=ALL):
            mine += batch

    threads = [threading.Thread(target=work, args=(mine,)) for mine in picked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    every = [entry for mine in picked for entry in mine]
    assert sorted(every, key=lambda entry: entry.scheduled_at) == window
