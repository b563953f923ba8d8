"""A new file for each test, and a store over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headrace.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    store = SqliteStore(str(path), now=clock)
    yield store
    store.close()
