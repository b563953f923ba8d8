"""The bill of a load; tests/contract/test_cost.py measures calls."""

import pytest

from benchmarks import bill


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
