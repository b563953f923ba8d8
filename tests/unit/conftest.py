"""What each test of the SDK leaves as it found it."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from prometheus_client import REGISTRY

# How long a draw takes tells how busy the machine is, and nothing of the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def metrics_of_its_own() -> Iterator[None]:
    """Take back what a test has registered with the registry of the whole process."""
    before = set(REGISTRY._collector_to_names)  # noqa: SLF001 (there is no other way to ask)
    yield
    for collector in set(REGISTRY._collector_to_names) - before:  # noqa: SLF001 (likewise)
        REGISTRY.unregister(collector)
