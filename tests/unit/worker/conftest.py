"""The worker of these tests."""

from collections.abc import Iterator

import pytest

from tests.unit.worker.worker_harness import WorkerHarness


@pytest.fixture
def harness() -> Iterator[WorkerHarness]:
    """A worker that is stopped after the test."""
    harness = WorkerHarness()
    yield harness
    harness.close()
