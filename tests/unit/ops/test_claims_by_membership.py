"""Separate services drain a queue together and seldom try to lease the same task.

Each has a memory of its own, and the table is some milliseconds away; see ``tests.fleet``.
Handlers take 20 to 60 ms: workers that do nothing with their tasks lose more (the last test).
"""

import pytest

from tests.fleet import Fleet

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


@pytest.mark.parametrize("services", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_on_one_shard_fewer_than_a_twentieth_of_the_claims_is_lost(services: int) -> None:
    assert drained(services, 1, 100 * services, (10,), 1).claimed.share < 0.05


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
def test_with_a_shard_for_each_service_it_is_fewer_than_a_hundredth() -> None:
    assert drained(16, 16, 1000, (10,), 1).claimed.share < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("services", "shards", "batch_sizes", "seed"),
    [(16, 16, (1,), 1), (16, 64, MIXED, 3), (64, 64, (10,), 2), (64, 64, MIXED, 3)],
)
def test_with_enough_shards_fewer_than_a_fiftieth_is_lost_for_batches_of_any_size(
    services: int, shards: int, batch_sizes: tuple[int, ...], seed: int
) -> None:
    assert drained(services, shards, 4000, batch_sizes, seed).claimed.share < 0.02


@pytest.mark.parametrize("services", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_workers_that_are_busy_between_their_batches_seldom_race(services: int) -> None:
    fleet = Fleet(services, seed=1)
    fleet.heartbeat()
    fleet.enqueue(400)

    fleet.play([fleet.worker(place, works_for=(1.0, 3.0)) for place in range(services)])

    assert len(fleet.taken) == 400
    assert fleet.claimed.share < 0.05


@pytest.mark.slow
def test_workers_whose_calls_come_to_any_service_seldom_race() -> None:
    fleet = Fleet(16, seed=1)
    fleet.heartbeat()
    fleet.enqueue(1600)

    fleet.play(
        [fleet.worker(place, batch_size=10, works_for=WORKS, anywhere=True) for place in range(16)]
    )

    assert len(fleet.taken) == 1600
    assert fleet.claimed.share < 0.05


def test_a_worker_that_is_quicker_than_the_other_gets_whole_batches_all_the_same() -> None:
    fleet = Fleet(2, seed=1)
    fleet.heartbeat()
    fleet.enqueue(400)

    got = [len(fleet.ask(0, batch_size=25).tasks) for _ in range(6)]

    assert got == [25] * 6


@pytest.mark.slow
def test_workers_that_are_long_gone_are_no_reason_to_race() -> None:
    fleet = Fleet(16, seed=1)
    fleet.heartbeats_of_others(1200)  # the table removes them when it comes to it
    fleet.stage.sleep(3600)
    fleet.heartbeat()
    fleet.enqueue(1600)

    fleet.play([fleet.worker(place, batch_size=10, works_for=WORKS) for place in range(16)])

    assert len(fleet.taken) == 1600
    assert fleet.claimed.share < 0.05


@pytest.mark.slow
def test_without_names_fewer_than_a_quarter_is_lost() -> None:
    fleet = Fleet(16, seed=1)
    fleet.enqueue(1600)

    fleet.play(
        [fleet.worker(place, batch_size=10, works_for=WORKS, named=False) for place in range(16)]
    )

    assert len(fleet.taken) == 1600
    assert 0.05 < fleet.claimed.share < 0.25  # below, the simulation would show nothing


@pytest.mark.slow
@pytest.mark.parametrize("batch_sizes", [(1,), (10,), MIXED])
def test_workers_that_do_nothing_with_their_tasks_lose_less_than_half(
    batch_sizes: tuple[int, ...],
) -> None:
    fleet = drained(16, 1, 2000, batch_sizes, 1, works_for=(0.0, 0.0))

    assert fleet.claimed.share < 0.5
