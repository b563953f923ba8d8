"""Worker heartbeats, and what operators ask."""

import time
from typing import Any

from headrace.client.threads import UNTIL_WOKEN
from headrace.client.worker.heartbeats import Registry
from headrace.client.worker.inflight import InflightTask
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import Forbidden, NotFound, Unavailable
from tests.unit.worker.worker_harness import START, FakeService, Noted, held


class RegistryHarness:
    def __init__(self) -> None:
        self.service = FakeService(time.monotonic)
        self.inflight: list[InflightTask] = []
        self.commands: list[str] = []
        self.registry = Registry(
            self.service,
            WorkerSettings.of(["mail", "sms"], name="host-1:4711"),
            version="1.2",
            started_at=START,
        )

    def step(self) -> float:
        command = self.registry.beat(self.inflight)
        if command is not None:
            self.commands.append(command)
        return self.registry.rest


def test_a_worker_heartbeat_says_what_is_being_worked_on() -> None:
    harness = RegistryHarness()
    waiting, running = held(1), held(2)
    running.begin(Noted(), 1.0)
    harness.inflight.append(waiting)
    harness.inflight.append(running)

    assert harness.step() == 30.0

    expected: dict[str, Any] = {
        "name": "host-1:4711",
        "queues": ["mail", "sms"],
        "concurrency": 10,
        "running": ["task-2"],
        "version": "1.2",
        "started_at": START,
    }
    assert harness.service.signs == [expected]


def test_no_more_than_a_hundred_tasks_are_named() -> None:
    harness = RegistryHarness()
    for number in range(120):
        task = held(number)
        task.begin(Noted(), 1.0)
        harness.inflight.append(task)

    harness.step()

    assert len(harness.service.signs[0]["running"]) == 100


def test_a_command_that_is_repeated_counts_once() -> None:
    harness = RegistryHarness()
    for command in (None, "quiet", "quiet", "stop", "stop"):
        harness.service.command = command
        harness.step()

    assert harness.commands == ["quiet", "stop"]


def test_a_service_that_is_away_is_told_later() -> None:
    harness = RegistryHarness()
    harness.service.fault = Unavailable("away")

    assert harness.step() == 30.0


def test_a_name_that_another_has_is_asked_for_when_that_is_forgotten() -> None:
    harness = RegistryHarness()
    harness.service.fault = Forbidden("not you")

    assert harness.step() == 300.0


def test_a_service_that_knows_no_signs_is_given_no_more() -> None:
    harness = RegistryHarness()
    harness.service.fault = NotFound("no such route")

    assert harness.step() == UNTIL_WOKEN


def test_a_worker_that_ends_signs_off_if_it_was_listed() -> None:
    harness = RegistryHarness()
    harness.registry.sign_off()
    assert harness.service.signs == []

    harness.step()
    harness.registry.sign_off()

    last = harness.service.signs[-1]
    assert (last["name"], last["running"], last["stopped"]) == ("host-1:4711", [], True)


def test_a_service_that_is_away_does_not_keep_a_worker_from_ending() -> None:
    harness = RegistryHarness()
    harness.step()
    harness.service.fault = Unavailable("away")

    harness.registry.sign_off()

    assert len(harness.service.signs) == 1
