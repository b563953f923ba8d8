"""Fixtures of the unit tests."""

import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from prometheus_client import REGISTRY
from prometheus_client.registry import Collector

from headrace.testing import MemoryService

# How long a draw takes tells how busy the machine is, and nothing of the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def metrics_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take back what a test has registered with the registry of the whole process."""
    made: list[Collector] = []
    register = REGISTRY.register

    def noted(collector: Collector) -> None:
        register(collector)
        made.append(collector)

    monkeypatch.setattr(REGISTRY, "register", noted)
    yield
    for collector in made:
        with suppress(KeyError):  # the test has taken it back
            REGISTRY.unregister(collector)


@pytest.fixture
def service() -> Iterator[MemoryService]:
    """Give a service in memory whose random numbers are the same each time."""
    with MemoryService(seed=1) as service:
        yield service


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Restore the handlers and the level of the root logger after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
