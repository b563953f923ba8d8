"""`headrace smoke`: what it calls, how it ends, and that it removes what it has made."""

import re
import shlex
from typing import Any, TypeAlias

import httpx2 as httpx
import pytest

from console.chalicelib import urls
from console.chalicelib.routes import routes
from headrace.cli.session import CliSession
from headrace.cli.smoke import FIRST, OTHERS
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import invoke
from tests.unit.cli.smoke_harness import (
    OPERATIONS,
    REQUESTS,
    Answer,
    InterruptedAt,
    SmokeDeployment,
    for_operation,
    is_of,
    problem,
)


@pytest.fixture
def sound() -> SmokeDeployment:
    return SmokeDeployment()


Rows: TypeAlias = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def done() -> tuple[SmokeDeployment, Rows]:
    """Give a deployment that was found sound, and the rows: a run of all that takes long."""
    deployment = SmokeDeployment()
    return deployment, deployment.rows()


def test_a_sound_deployment_has_every_check_ok_and_nothing_is_left(
    done: tuple[SmokeDeployment, Rows],
) -> None:
    sound, rows = done

    assert [*rows] == [check.title for check in (*FIRST, *OTHERS)]
    assert {row["outcome"] for row in rows.values()} == {"ok"}
    assert sound.there() == set()
    assert len(sound.requests) < REQUESTS


def test_it_calls_every_operation_of_the_api(done: tuple[SmokeDeployment, Rows]) -> None:
    """An operation that is new fails here until the smoke test calls it."""
    sound, _ = done

    called = {
        operation
        for operation in OPERATIONS
        if any(is_of(operation, *request) for request in sound.requests)
    }
    assert called == set(OPERATIONS)


def test_it_opens_every_page_of_the_console(done: tuple[SmokeDeployment, Rows]) -> None:
    """A page that is new fails here until the smoke test opens it."""
    sound, _ = done
    pages = {route.path for route in routes.found if route.method == "GET"} - {urls.ELSEWHERE}
    opened = {path for method, path in sound.requests if method == "GET"}

    # Literal parts come before parameters, as in the console itself.
    found = {
        next(page for page in sorted(pages, key=lambda page: (page.count("{"), page))
             if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", page), path))
        for path in opened
        if path.startswith("/console")
    }  # fmt: skip
    assert found == pages


# ----------------------------------------------------------------------------------- exit codes


def test_an_address_of_something_else_is_exit_1(sound: SmokeDeployment) -> None:
    sound.spoil = lambda _request, _answer: httpx.Response(200, content=b"<html>Welcome</html>")

    ran = sound.smoke()

    assert ran.code == 1
    assert ran.error.startswith("error: https://queue.test/prod: ")
    assert ran.error.endswith("see HEADRACE_URL")
    assert len(sound.requests) == 1, "no key goes there"


def test_an_operation_that_fails_is_reported_and_the_rest_goes_on(sound: SmokeDeployment) -> None:
    sound.spoil = for_operation("put_schedule", lambda _request, _answer: problem(500))

    ran = sound.smoke("--json")

    wrong = [row for row in ran.json["checks"] if row["outcome"] == "wrong"]
    assert ran.code == 1
    assert (500, "internal_error", "req-1") in [
        (row["status"], row["code"], row["request_id"])
        for row in wrong
        if row["method"] and is_of("put_schedule", row["method"], row["path"])
    ]
    assert len(ran.json["checks"]) == len(FIRST) + len(OTHERS)
    assert ran.json["left_behind"] == []


@pytest.mark.slow
def test_jobs_that_do_not_run_are_reported(sound: SmokeDeployment) -> None:
    sound.timers = False

    assert {*sound.wrong()} == {"stream: metrics", "lease: taken back", "schedule: tick"}


# ------------------------------------------------------------------------------------ cleaning up


def fill(service: MemoryService) -> None:
    for name in ("mail", "ngsi.notify"):
        service.client.create_queue(name)
        service.client.enqueue(name, {"n": 1}, id=f"{name[:4]}-1", tags={"fiware-service": "city"})
        service.client.put_schedule(name, "nightly", cron="0 3 * * *")
    service.client.create_key("sensors", "producer", ["ngsi.*"])


def things_of(service: MemoryService) -> dict[str, Any]:
    client = service.client
    return {
        "queues": [client.get_queue(queue.name) for queue in client.list_queues()],
        "keys": list(client.list_keys()),
        "tasks": sorted(service.store.everything(), key=lambda task: task.id),
    }


def without_stats(things: dict[str, Any]) -> str:
    """Return all that can be told of things, save how long they have been there."""
    return re.sub(r"stats=Stats\(.*?\), schedules", "schedules", repr(things))


@pytest.mark.slow
def test_nothing_of_others_is_touched(sound: SmokeDeployment) -> None:
    fill(sound.service)
    before = things_of(sound.service)

    sound.rows()

    assert without_stats(things_of(sound.service)) == without_stats(before)


def test_ctrl_c_leaves_nothing() -> None:
    stopped = SmokeDeployment(InterruptedAt(4))

    ran = stopped.smoke()

    assert ran.code == 130
    assert stopped.there() == set()
    assert "left behind" not in ran.err


@pytest.mark.slow
def test_what_is_left_behind_is_told_with_the_command_that_removes_it(
    sound: SmokeDeployment,
) -> None:
    def refusing(request: httpx.Request, answer: Answer) -> httpx.Response:
        return problem(503, "unavailable") if request.method == "DELETE" else answer()

    sound.spoil = refusing

    ran = sound.smoke("--quiet")

    left = re.findall(r"^left behind: .*; remove it: headrace (.*)$", ran.err, re.MULTILINE)
    assert ran.code == 1
    assert len(left) == 6
    for command in left:
        session = CliSession(given_client=sound.client, env={}, at_terminal=lambda: True)
        answer = "ngsi.notify\n" if "ngsi.notify" in command and "--yes" not in command else None
        assert invoke(*shlex.split(command), session=session, input=answer).code == 0, command
    assert sound.there() == set()
