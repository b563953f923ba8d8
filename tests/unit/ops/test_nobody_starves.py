"""A task in the share of a worker that does not ask is soon taken by another worker.

Services with memories of their own on one clock, over one store; each seed is another order.
"""

from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.worker import TURN, Command
from tests.fleet import Fleet

FARTHEST = 0.2  # seconds
A_LOOK = 0.1


def fleet_of(count: int, *, seed: int, shards: int = 1) -> Fleet:
    fleet = Fleet(count, seed=seed, shards=shards)
    fleet.heartbeat()
    return fleet


@pytest.mark.parametrize("count", [2, 16, 64])
@pytest.mark.parametrize("shards", [1, 16])
def test_one_call_finds_what_is_there_though_nobody_else_asks(count: int, shards: int) -> None:
    for seed in range(5):
        fleet = fleet_of(count, seed=seed, shards=shards)
        fleet.enqueue(1)

        fleet.play([partial(fleet.ask, 0)])

        assert len(fleet.taken) == 1
        assert fleet.waited[0] < FARTHEST + shards * A_LOOK


def test_who_is_alone_alive_waits_for_nobody() -> None:
    fleet = fleet_of(1, seed=1)
    fleet.enqueue(25)

    fleet.play([lambda: fleet.ask(0, batch_size=25)])

    assert len(fleet.taken) == 25
    assert fleet.waited[0] < A_LOOK


def test_a_process_in_which_all_ask_divides_nothing() -> None:
    fleet = Fleet(1, seed=1, workers=4)
    fleet.heartbeat()
    fleet.enqueue(3)
    fleet.play([partial(fleet.ask, place) for place in range(3)])
    fleet.stage.sleep(1)

    fleet.play([lambda: fleet.ask(3)])
    fleet.enqueue(25)
    fleet.play([lambda: fleet.ask(3, batch_size=25)])

    assert len(fleet.taken) == 28
    assert fleet.waited[-1] < 1.0


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_the_first_tasks_of_one_who_died_are_taken_in_the_turns_of_those_before_it(
    seed: int,
) -> None:
    fleet = fleet_of(4, seed=seed)
    fleet.enqueue(1200)  # half a minute's work: nobody is without tasks of its own

    fleet.play([fleet.worker(place, batch_size=4, works_for=(0.05, 0.15)) for place in range(3)])

    first = [fleet.taken_at[f"task-{seed}-{number}"] for number in range(40)]
    assert max(first) < 2 * TURN.total_seconds() + 1
    assert fleet.claimed.share < 0.05


@pytest.mark.slow
def test_who_joins_has_its_part_and_who_leaves_none() -> None:
    fleet = fleet_of(4, seed=1)
    fleet.enqueue(3000)
    workers = [fleet.worker(place, batch_size=5, works_for=(0.02, 0.06)) for place in range(3)]

    def join() -> None:
        fleet.stage.sleep(12)
        fleet.worker(3, batch_size=5, works_for=(0.02, 0.06))()

    fleet.play([*workers, join])

    assert len(fleet.taken) == 3000
    assert fleet.claimed.share < 0.05


def test_a_worker_that_alone_asks_has_whole_batches_nearly_in_order() -> None:
    fleet = fleet_of(16, seed=1)
    ids = fleet.enqueue(1000)

    fleet.play([fleet.worker(0, batch_size=25)])

    assert len(fleet.waited) < 50
    places = [ids.index(name) for name in fleet.taken]
    assert max(abs(place - number) for number, place in enumerate(places)) <= 16 * 25


@pytest.mark.slow
def test_a_few_who_ask_have_whole_batches_though_most_of_the_queue_is_others() -> None:
    fleet = fleet_of(16, seed=1)
    fleet.enqueue(1000)

    fleet.play([fleet.worker(place, batch_size=10, works_for=(0.02, 0.06)) for place in range(4)])

    assert len(fleet.waited) < 150
    assert fleet.claimed.share < 0.05


def test_who_was_silent_for_75_seconds_has_no_part_any_more() -> None:
    fleet = fleet_of(2, seed=1)
    fleet.stage.sleep(50)
    fleet.heartbeat([0])
    fleet.stage.sleep(25)
    fleet.enqueue(25)

    fleet.play([lambda: fleet.ask(0, batch_size=25)])

    assert len(fleet.taken) == 25


def test_who_is_asked_to_be_quiet_has_no_part_any_more() -> None:
    fleet = fleet_of(2, seed=1)
    fleet.command(1, Command.QUIET)
    fleet.enqueue(25)

    fleet.play([lambda: fleet.ask(0, batch_size=25)])

    assert len(fleet.taken) == 25


behaviours = st.one_of(
    st.just("asks"),
    st.just("asks slowly"),
    st.just("waits long"),
    st.just("is dead"),
    st.just("dies"),
    st.just("asks without a name"),
    st.just("gives no sign"),
)


@pytest.mark.parametrize("examples", [6, pytest.param(14, marks=pytest.mark.slow)])
def test_every_task_is_taken_within_a_turn_of_each_member_that_does_not_ask(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        others=st.lists(behaviours, min_size=1, max_size=5),
        shards=st.sampled_from([1, 2, 8]),
        gaps=st.lists(st.sampled_from([0.0, 0.02, 0.3, 2.0]), min_size=1, max_size=12),
        seed=st.integers(0, 1000),
    )
    def run(others: list[str], shards: int, gaps: list[float], seed: int) -> None:
        every_task_is_taken_in_time(others, shards, gaps, seed)

    run()


def every_task_is_taken_in_time(
    others: list[str], shards: int, gaps: list[float], seed: int
) -> None:
    fleet = Fleet(len(others) + 1, seed=seed, shards=shards)
    silent = ("asks without a name", "gives no sign")
    fleet.heartbeat(place for place, does in enumerate(["asks", *others]) if does not in silent)
    end = sum(gaps) + TURN.total_seconds() * (len(others) + 1) + 2 * FARTHEST

    def produce() -> None:
        for gap in gaps:
            fleet.stage.sleep(gap)
            fleet.enqueue(3)

    def worker(place: int, does: str) -> None:
        fleet.worker(
            place,
            batch_size=2,
            until=0.5 if does == "dies" else end,
            works_for=(2.0, 4.0) if does == "asks slowly" else (0.0, 0.2),
            wait_seconds=8 if does == "waits long" else 0,
            named=does != "asks without a name",
            reports=does != "dies",
        )()

    actors = [
        lambda place=place, does=does: worker(place, does)
        for place, does in enumerate(["asks", *others])
        if does != "is dead"
    ]
    fleet.play([produce, *actors])

    assert len(fleet.taken) == 3 * len(gaps)
    turns = 1 + others.count("is dead") + others.count("dies") + others.count("asks slowly")
    assert max(fleet.ages) <= turns * TURN.total_seconds() + FARTHEST + len(gaps) * 0.6
    assert timedelta(seconds=max(fleet.ages)) < TURN * (len(others) + 1)
