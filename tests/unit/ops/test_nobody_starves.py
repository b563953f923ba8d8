"""A task in the share of a worker that does not ask is soon taken by another worker.

Services with memories of their own on one clock, over one store; each seed is another order.
"""

from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.worker import TURN
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


# -- claims that are lost to another service -------------------------------------------------------

MIXED = (1, 3, 10, 25)
WORKS = (0.02, 0.06)


def drained(
    services: int,
    shards: int,
    tasks: int,
    batch_sizes: tuple[int, ...],
    seed: int,
    *,
    works_for: tuple[float, float] = WORKS,
) -> Fleet:
    """Return the fleet that has drained a queue of so many tasks."""
    fleet = Fleet(services, shards=shards, seed=seed)
    fleet.heartbeat()
    fleet.enqueue(tasks)
    fleet.play(
        [
            fleet.worker(
                place, batch_size=batch_sizes[place % len(batch_sizes)], works_for=works_for
            )
            for place in range(services)
        ]
    )
    assert len(fleet.taken) == tasks
    return fleet


@pytest.mark.slow
# Each number of services and each size; each case has a seed of its own, so that chance plays
# differently in each.
@pytest.mark.parametrize(
    ("services", "batch_sizes", "seed"),
    [(4, (10,), 2), (16, (1,), 1), (64, (10,), 2), (64, MIXED, 3)],
)
def test_on_one_shard_fewer_than_a_tenth_is_lost_for_batches_of_any_size(
    services: int, batch_sizes: tuple[int, ...], seed: int
) -> None:
    assert drained(services, 1, 4000, batch_sizes, seed).claimed.share < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("services", "shards", "batch_sizes", "seed"),
    [(16, 16, (1,), 1), (16, 64, MIXED, 3), (64, 64, (10,), 2), (64, 64, MIXED, 1)],
)
def test_with_enough_shards_fewer_than_a_fiftieth_is_lost_for_batches_of_any_size(
    services: int, shards: int, batch_sizes: tuple[int, ...], seed: int
) -> None:
    assert drained(services, shards, 4000, batch_sizes, seed).claimed.share < 0.02
