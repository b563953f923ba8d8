"""The cost of tasks: the formulas.  tests/contract/test_cost.py measures calls."""

import pytest

from benchmarks import bill


def test_the_life_of_a_small_task_is_eight_writes() -> None:
    assert bill.life().write == 8
    assert bill.life(kept=False).write == 7
    assert bill.life(batch=25).read == 0.02
    assert bill.life(batch=25, retries=1).read == 1.04


@pytest.mark.parametrize(
    ("payload", "units"),
    [
        (424, 1),
        (425, 2),
        (262_144, 257),
    ],
)
def test_an_item_is_rounded_up_to_whole_kilobytes(payload: int, units: int) -> None:
    assert bill.item_units(payload) == units
    assert bill.enqueue(payload).write == units + 1
    assert bill.heartbeat(payload).write == units


@pytest.mark.parametrize(
    ("rate", "retries", "shards"),
    [
        (500, 0, 1),
        (501, 0, 2),
        (500, 0.2, 2),
    ],
)
def test_a_shard_carries_five_hundred_deliveries_a_second(
    rate: float, retries: float, shards: int
) -> None:
    assert bill.shards_for(rate, retries=retries) == shards


def test_a_payload_over_the_bound_costs_its_objects_and_the_units_of_a_small_task() -> None:
    large = bill.bill(bill.Load(rate=10, payload_bytes=200_000, batch=1, retries=0.5))
    small = bill.bill(bill.Load(rate=10, payload_bytes=300, batch=1, retries=0.5))
    inside = bill.bill(
        bill.Load(rate=10, payload_bytes=200_000, batch=1, retries=0.5, offload_bytes=0)
    )

    assert large.units == small.units
    of_s3 = {line.name: line.usd for line in large.lines if line.name.startswith("S3")}
    assert of_s3["S3 writes"] == pytest.approx(large.tasks * 5 / 1e6)
    assert of_s3["S3 reads"] == pytest.approx(large.tasks * 1.5 * 0.4 / 1e6)
    assert of_s3["S3 storage"] == pytest.approx(10 * 86_400 * 200_000 / 1e9 * 0.023)
    assert inside.usd > 10 * large.usd
