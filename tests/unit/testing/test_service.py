"""The service in memory is the real one: the same HTTP, keys, roles and rules, at manual time."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from headrace.testing import ManualClock, MemoryService


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService(seed=1) as service:
        service.client.create_queue("mail")
        yield service


def test_a_clock_never_goes_back_and_knows_its_zone() -> None:
    with pytest.raises(ValueError, match="seconds must be 0 or more, not -1"):
        ManualClock().forward(-1)
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 (that is what is refused)


def test_the_timers_run_when_told(service: MemoryService) -> None:
    service.client.put_schedule("mail", "nightly", every_seconds=60)
    service.client.enqueue("mail", expires_at=service.clock.now + timedelta(seconds=5))
    service.clock.forward(65)

    timers = service.tick()

    assert timers.reaped.expired == 1
    assert timers.ticked.enqueued >= 1
    assert timers.recorded.counted >= 3
    assert service.client.get_stats("mail").counts.dead == 1
