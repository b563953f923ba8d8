"""The seat of a file's timers: held by one process at a time, free soon after it is gone."""

import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace import Client
from headrace.client.embedding import timers_of
from headrace.embedded.service import EmbeddedService
from headrace.embedded.timers import timers_seat
from headrace.ops.shared.seats import LASTS, Seat
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock
from tests.waiting import until


@dataclass
class Machine:
    """Its clock, which may be set, and the time since it was started, which may not."""

    clock: ManualClock = field(default_factory=ManualClock)
    up: float = 1000.0

    def passes(self, seconds: float) -> None:
        self.clock.forward(seconds)
        self.up += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def service() -> EmbeddedService:
    store = SqliteStore()
    return EmbeddedService(build(Settings(admin_key="k"), store), store)


@pytest.fixture
def seats(service: EmbeddedService, machine: Machine) -> tuple[Seat, Seat]:
    """Give the seat as two processes see it."""
    return tuple(timers_seat(service.store, machine.clock, lambda: machine.up) for _ in range(2))  # type: ignore[return-value]


def test_a_silent_process_loses_the_seat_after_a_minute(
    seats: tuple[Seat, Seat], machine: Machine
) -> None:
    first, second = seats
    first.take()
    machine.passes(LASTS.total_seconds() - 1)
    assert not second.take()
    machine.passes(1)

    assert not first.held
    assert second.take()
    assert not first.take()


def test_the_seat_of_a_killed_local_process_is_free_immediately(seats: tuple[Seat, Seat]) -> None:
    first, second = seats
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    first.holder = f"{socket.gethostname()}:{ended.pid}:0"
    first.take()

    assert second.take()


def test_the_seat_of_another_machine_stays_taken(seats: tuple[Seat, Seat]) -> None:
    first, second = seats
    first.holder = "elsewhere:1:0"
    first.take()

    assert not second.take()


def test_the_timers_of_a_file_tick_its_schedules(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/h.db"
    with Client(url) as client:
        client.create_queue("mail")
        client.put_schedule("mail", "hello", cron="* * * * *")
        with timers_of(client.settings.address):
            until(lambda: client.count_tasks("mail").count, 20)

        (tick, *_) = client.list_tasks("mail")

    assert tick.schedule == "hello"
