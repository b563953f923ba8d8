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
