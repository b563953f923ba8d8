"""`headrace smoke`: its checks, its exit codes, and that it removes what it has created."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

import httpx2 as httpx
import pytest

from headrace.cli.session import CliSession
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Ran, invoke

Spoil: TypeAlias = Callable[[httpx.Request], httpx.Response | None]
TITLES = ["service", "key", "queue: create", "task: enqueue", "task: show", "task: list",
          "task: dequeue", "task: heartbeat", "task: report", "queue: counters", "console",
          "queue: delete"]  # fmt: skip


@pytest.fixture
def service() -> MemoryService:
    return MemoryService()


def smoke(service: MemoryService, *args: str, spoil: Spoil | None = None, key: str = "") -> Ran:
    """Run it; *spoil* may answer in place of the service."""

    def answer(request: httpx.Request) -> httpx.Response:
        spoilt = spoil and spoil(request)
        if spoilt:
            return spoilt
        if request.url.path.startswith("/console"):
            return httpx.Response(200, content=b"<form>")
        return service.transport.handle_request(request)

    def sleep(seconds: float) -> None:
        service.clock.forward(timedelta(seconds=seconds))
        service.tick()

    session = CliSession(
        env={"HEADRACE_URL": service.url, "HEADRACE_KEY": key or service.key},
        now=service.clock,
        sleep=sleep,
        retries=0,
        transport=httpx.MockTransport(answer),
    )
    return invoke("smoke", *args, session=session)


def refuse(method: str, path: str, status: int = 500) -> Spoil:
    body = {"status": status, "code": "internal_error", "detail": "spoilt"}

    def spoil(request: httpx.Request) -> httpx.Response | None:
        if request.method == method and request.url.path.endswith(path):
            return httpx.Response(status, json=body, headers={"X-Request-Id": "req-1"})
        return None

    return spoil


def queues(service: MemoryService) -> list[str]:
    return [queue.name for queue in service.client.list_queues()]


def test_a_sound_deployment_passes_every_check_and_nothing_is_left(service: MemoryService) -> None:
    service.client.create_queue("kept")

    ran = smoke(service, "--json")

    assert (ran.code, ran.json["left_behind"]) == (0, []), ran.out
    assert [row["check"] for row in ran.json["checks"]] == TITLES
    assert ran.json["counts"] == {"ok": len(TITLES), "wrong": 0, "skipped": 0}
    assert queues(service) == ["kept"]


def test_a_call_that_fails_is_reported_with_its_request_and_the_rest_is_skipped(
    service: MemoryService,
) -> None:
    ran = smoke(service, "--json", spoil=refuse("POST", "/dequeue"))

    rows = {row["check"]: row for row in ran.json["checks"]}
    assert ran.code == 1
    assert rows["task: dequeue"]["outcome"] == "wrong"
    assert (rows["task: dequeue"]["code"], rows["task: dequeue"]["request_id"]) == (
        "internal_error",
        "req-1",
    )
    assert rows["task: report"]["outcome"] == "skipped"
    assert queues(service) == []


def test_a_key_that_is_not_an_admins_is_exit_4(service: MemoryService) -> None:
    worker = service.client.create_key("w", "worker", ["*"])

    assert smoke(service, key=worker.secret).code == 4


def test_ctrl_c_leaves_nothing(service: MemoryService) -> None:
    def interrupt(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/reports"):
            raise KeyboardInterrupt
        return None

    ran = smoke(service, spoil=interrupt)

    assert (ran.code, queues(service)) == (130, [])
    assert "left behind" not in ran.err


def test_a_queue_that_cannot_be_deleted_is_named_with_the_command_that_deletes_it(
    service: MemoryService,
) -> None:
    def spoil(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(503, json={}) if request.method == "DELETE" else None

    ran = smoke(service, "--quiet", spoil=spoil)

    [name] = queues(service)
    assert ran.code == 1
    assert f"left behind: queue {name}; remove it: headrace queue delete {name} --yes" in ran.err
