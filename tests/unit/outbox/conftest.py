"""Databases of a user, one after the other, and the service that the outbox is for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import FaultyService
from tests.postgres import postgres, postgres_folder


@pytest.fixture
def service() -> Iterator[FaultyService]:
    with FaultyService() as made:
        made.client.create_queue("mail")
        yield made


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not on this machine: the outbox is tested on SQLite alone")
    with postgres(programs) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"
