"""What each test of the SDK leaves as it found it."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from prometheus_client import REGISTRY
from prometheus_client.registry import Collector

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
