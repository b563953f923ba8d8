"""What tasks cost: the arithmetic.  That it is DynamoDB's too is in tests/contract/test_cost.py."""

import pytest

from headrace.domain import cost
from headrace.domain.cost import Load, Prices, Units


def test_the_life_of_a_small_task_is_eight_writes() -> None:
    assert cost.life().write == 8
    assert cost.life(kept=False).write == 7
    assert cost.life(batch=25).read == 0.02


def test_retries_and_heartbeats_cost_on_average() -> None:
    assert cost.life(retries=0.5).write == 8 + 0.5 * 6
    assert cost.life(heartbeats=2).write == 8 + 2
    assert cost.life(retries=1).read == 1.0


@pytest.mark.parametrize(
    ("payload", "units"), [(0, 1), (424, 1), (425, 2), (1448, 2), (1449, 3), (262_144, 257)]
)
def test_an_item_is_rounded_up_to_whole_kilobytes(payload: int, units: int) -> None:
    assert cost.item_units(payload) == units
    assert cost.enqueue(payload).write == units + 1
    assert cost.heartbeat(payload).write == units


@pytest.mark.parametrize(
    ("rate", "retries", "shards"),
    [(0.1, 0, 1), (500, 0, 1), (501, 0, 2), (500, 0.2, 2), (5e3, 0, 10)],
)
def test_a_shard_carries_five_hundred_deliveries_a_second(
    rate: float, retries: float, shards: int
) -> None:
    assert cost.shards_for(rate, retries=retries) == shards


def test_calls_carry_whole_batches() -> None:
    assert cost.calls_per_task() == 3
    assert cost.calls_per_task(batch=25, retries=0.5, heartbeats=1) == 5 / 25


def test_a_bill_is_its_lines() -> None:
    bill = cost.bill(Load(rate=10, payload_bytes=300))
    lines = {line.name: line for line in bill.lines}

    assert bill.tasks == 25_920_000
    assert bill.units == Units(8, 0.02)
    assert lines["DynamoDB writes"].usd == pytest.approx(25.92 * 8 * 0.625)
    assert lines["DynamoDB reads"].usd == pytest.approx(25.92 * 0.02 * 0.125)
    assert lines["DynamoDB storage"].usd == pytest.approx(10 * 86_400 * 1300 / 1e9 * 0.25)
    assert lines["API Gateway calls"].usd == pytest.approx(25.92 * 0.12 * 3.5)
    assert lines["Lambda calls"].usd == pytest.approx(25.92 * 0.12 * 0.2)
    assert bill.usd == pytest.approx(sum(line.usd for line in bill.lines))


def test_programs_that_use_the_tables_themselves_pay_for_units_and_storage_only() -> None:
    load = Load(rate=10, payload_bytes=300, batch=1)
    through, over = cost.bill(load), cost.bill(load, over_tables=True)

    assert over.lines == through.lines[:3]
    assert {line.name.split()[0] for line in over.lines} == {"DynamoDB"}
    assert (over.units, over.calls) == (through.units, 0)
    assert cost.idle_worker_usd(over_tables=True) == pytest.approx(
        30 * 86_400 * (0.125 / cost.IDLE_POLL_SECONDS + 0.625 / 30) / 1e6
    )


def test_another_price_changes_its_line_only() -> None:
    load = Load(rate=10, payload_bytes=300)

    here, there = cost.bill(load), cost.bill(load, Prices(write=1.25))

    assert there.lines[0].usd == 2 * here.lines[0].usd
    assert there.lines[1:] == here.lines[1:]


def test_without_history_nothing_is_stored() -> None:
    bill = cost.bill(Load(rate=10, payload_bytes=300, history_seconds=0))

    assert bill.units.write == 7
    assert {line.name: line.usd for line in bill.lines}["DynamoDB storage"] == 0


def test_an_idle_worker_costs_its_calls_and_a_read_for_each_queue() -> None:
    requested = cost.MONTH_SECONDS / cost.IDLE_POLL_SECONDS
    heartbeats = cost.MONTH_SECONDS / cost.WORKER_HEARTBEAT_SECONDS

    one, ten, many = (cost.idle_worker_usd(queues=count) for count in (1, 10, 33))

    assert (
        3.7
        < (one - (requested * 0.125 + heartbeats * 0.625) / 1e6) / (requested + heartbeats) * 1e6
        < 4.0
    )
    assert ten - one == pytest.approx(requested * 9 * 0.125 / 1e6)
    assert many - one > requested * 3.7 / 1e6  # a second call


def test_every_price_says_what_it_is_of() -> None:
    assert set(cost.price_names()) == {
        "write",
        "read",
        "storage",
        "put",
        "get",
        "objects",
        "api",
        "invocations",
        "gb_second",
    }
    assert all(cost.price_names().values())


def test_a_payload_over_the_bound_costs_its_objects_and_the_units_of_a_small_task() -> None:
    large = cost.bill(Load(rate=10, payload_bytes=200_000, batch=1, retries=0.5))
    small = cost.bill(Load(rate=10, payload_bytes=300, batch=1, retries=0.5))
    inside = cost.bill(Load(rate=10, payload_bytes=200_000, batch=1, retries=0.5, offload_bytes=0))

    assert large.units == small.units
    of_s3 = {line.name: line.usd for line in large.lines if line.name.startswith("S3")}
    assert of_s3["S3 writes"] == pytest.approx(large.tasks * 5 / 1e6)
    assert of_s3["S3 reads"] == pytest.approx(large.tasks * 1.5 * 0.4 / 1e6)
    assert of_s3["S3 storage"] == pytest.approx(10 * 86_400 * 200_000 / 1e9 * 0.023)
    assert inside.usd > 10 * large.usd


def test_a_payload_of_just_the_bound_is_inside() -> None:
    assert not Load(rate=1, payload_bytes=cost.OFFLOAD_BYTES_DEFAULT).offloads
    assert Load(rate=1, payload_bytes=cost.OFFLOAD_BYTES_DEFAULT + 1).offloads
