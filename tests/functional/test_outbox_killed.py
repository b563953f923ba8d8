"""Relays killed at any moment while transactions commit and a worker works: each task runs once."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from headrace import Client, NewTask, Report
from headrace.outbox.relay import Relay
from headrace.outbox.sqlalchemy import SqlAlchemyOutbox
from tests.postgres import postgres, postgres_folder
from tests.waiting import until

RELAYS = 3
KILLS = 20
OUTBOX = SqlAlchemyOutbox()


def forked(live: Callable[[], None]) -> int:
    """Run *live* in a child process, for ever; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            live()
        finally:
            os._exit(1)
    return pid


def ended(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def relay_of(url: str, service: str) -> Relay:
    engine = sa.create_engine(url, poolclass=NullPool)
    return Relay(OUTBOX.open(engine), Client(service), batch=10)


def relaying(url: str, service: str) -> None:
    relay = relay_of(url, service)
    while True:
        relay.step()


def working(service: str, ran: int) -> None:
    """Take and finish tasks, and write the id of each that was taken to *ran*."""
    client = Client(service)
    while True:
        tasks = client.dequeue("mail", batch_size=25, wait_seconds=1).tasks
        os.write(ran, "".join(f"{task.id}\n" for task in tasks).encode())
        done = [Report(task_id=one.id, lease_id=one.lease.id, status="SUCCEEDED") for one in tasks]
        client.report("mail", done)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shop.db'}"
        return
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not on this machine: relays are killed on SQLite alone")
    with postgres(programs) as found:
        yield found


@pytest.mark.slow
def test_relays_killed_in_a_storm_enqueue_each_committed_row_once(url: str, tmp_path: Path) -> None:
    service = f"file:{tmp_path / 'headrace.db'}"
    with Client(service) as client:
        # Nothing is kept of what is done, and no lease lapses: whatever runs twice was made twice.
        client.create_queue(
            "mail", history_retention_in_seconds=0, keepalive_timeout_in_seconds=3600
        )
    engine = sa.create_engine(url, poolclass=NullPool)
    OUTBOX.open(engine).create()
    chance = random.Random(KILLS)
    seen = tmp_path / "ran"
    worker = forked(lambda: working(service, os.open(seen, os.O_CREAT | os.O_WRONLY | os.O_APPEND)))
    relays = [forked(lambda: relaying(url, service)) for _ in range(RELAYS)]
    committed: list[str] = []

    for _ in range(KILLS):
        for _ in range(chance.randint(3, 20)):
            with Session(engine) as session:
                ids = OUTBOX.add_many(session, "mail", [NewTask()] * chance.randint(1, 9))
                if chance.random() < 0.7:
                    session.commit()
                    committed += ids
        ended(relays.pop(0))
        relays.append(forked(lambda: relaying(url, service)))
    for pid in relays:
        ended(pid)
    relay_of(url, service).drain()
    until(lambda: seen.read_text().count("\n") >= len(committed), 30)
    ended(worker)

    ran = seen.read_text().splitlines()
    assert len(ran) == len(set(ran))
    assert set(ran) == set(committed)
    assert OUTBOX.open(engine).state().waiting == 0
