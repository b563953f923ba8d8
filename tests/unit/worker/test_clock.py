"""The end of a lease by the monotonic clock, however wrong this machine's time is."""

from datetime import timedelta

import pytest

from headrace.client.worker.service import ServiceClock
from headrace.testing.clock import START

LEASE = timedelta(seconds=30)


def test_a_lease_ends_when_the_service_says_counted_from_when_it_was_asked() -> None:
    clock = ServiceClock(lambda: 1002.0)  # the answer took two seconds

    clock.heard(START, sent_at=1000.0)

    assert clock.monotonic_at(START + LEASE) == pytest.approx(1030)


def test_a_service_whose_clock_was_set_is_believed() -> None:
    clock = ServiceClock(lambda: 1000.0)
    clock.heard(START, sent_at=1000.0)

    clock.heard(START + timedelta(hours=1), sent_at=1000.0)

    assert clock.monotonic_at(START + timedelta(hours=1) + LEASE) == pytest.approx(1030)


def test_clocks_that_drift_apart_are_followed() -> None:
    time = [1000.0]
    clock = ServiceClock(lambda: time[0])
    clock.heard(START, sent_at=1000.0)
    time[0] = 11_000

    clock.heard(START + timedelta(seconds=9_995), sent_at=11_000)

    assert clock.monotonic_at(START + timedelta(seconds=10_025)) == pytest.approx(11_030, abs=0.1)
