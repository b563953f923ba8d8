"""`headrace smoke` on a deployment with nothing wrong; and what it ends with."""

import re
from itertools import cycle
from typing import Any, TypeAlias

import httpx2 as httpx
import pytest

from console.chalicelib import urls
from console.chalicelib.routes import routes
from headrace.cli.session import CliSession
from headrace.cli.smoke import FIRST, OTHERS
from headrace.runtime.wiring import Settings, build
from headrace.testing import MemoryService
from headrace.testing.transport import responder
from tests.unit.cli.cli_runner import invoke
from tests.unit.cli.smoke_harness import (
    OPERATIONS,
    REQUESTS,
    Answer,
    SmokeDeployment,
    bodies,
    for_operation,
    is_of,
    no_answer,
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


def test_a_page_of_the_console_that_fails_is_told() -> None:
    def spoil(request: httpx.Request, answer: Answer) -> httpx.Response:
        return problem(500) if request.url.path == "/prod/console/audit" else answer()

    wrong = SmokeDeployment(spoil).wrong()

    assert wrong["console: every page"]["seen"] == "/console/audit: the status 500"


def test_people_get_a_table_and_what_it_has_cost(sound: SmokeDeployment) -> None:
    ran = sound.smoke()

    assert ran.code == 0
    assert re.search(
        r"^queue: create +ok +smoke-\w+ and smoke-\w+-2 +[\d,]+$", ran.out, re.MULTILINE
    )
    assert re.search(r"^\d+ checks: \d+ ok\. \d+ calls in .* write units", ran.err, re.MULTILINE)
    assert sound.smoke("--quiet").err == ""


def test_programs_get_one_document(sound: SmokeDeployment) -> None:
    reported = sound.smoke("--json").json

    assert reported["url"] == "https://queue.test/prod"
    assert re.fullmatch(r"smoke-[0-9a-f]{8}", reported["name"])
    assert reported["counts"] == {"ok": len(reported["checks"]), "wrong": 0, "left out": 0}
    assert reported["left_behind"] == []


def test_what_runs_once_a_minute_is_set_going_before_all_else_and_says_how_long_it_took(
    done: tuple[SmokeDeployment, Rows],
) -> None:
    seen = {title: row["seen"] for title, row in done[1].items()}

    assert re.match(r"\d+\.\d s after the schedule, for ", seen["schedule: tick"])
    assert re.match(r"\d+\.\d s after its end", seen["lease: taken back"])
    assert re.search(r"; after \d+\.\d s$", seen["stream: metrics"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_an_index_that_is_behind_for_a_moment_is_no_fault(seed: int) -> None:
    behind = SmokeDeployment(service=MemoryService(seed=seed))
    behind.service.faults.slow_index(rate=0.4)

    rows = behind.rows()

    assert {row["outcome"] for row in rows.values()} == {"ok"}


def test_functions_that_each_remember_settings_for_a_minute_are_no_fault(
    sound: SmokeDeployment,
) -> None:
    service = sound.service
    settings = Settings(admin_key=service.key, settings_ttl_seconds=60)
    store = service.use_cases.queues.store
    functions = cycle(responder(build(settings, store, now=service.clock)) for _ in range(3))

    def of_one(request: httpx.Request) -> httpx.Response:
        service.clock.forward(0.02)
        return next(functions)(request)

    service.transport = httpx.MockTransport(of_one)

    rows = sound.rows()

    assert {row["outcome"] for row in rows.values()} == {"ok"}


def test_its_checks_have_names_of_their_own() -> None:
    titles = [check.title for check in (*FIRST, *OTHERS)]

    assert len(titles) == len(set(titles))


# ----------------------------------------------------------------------------------- exit codes


def test_a_key_that_is_not_known_is_exit_4(sound: SmokeDeployment) -> None:
    ran = sound.smoke(key="hr_of-nobody-at-all")

    assert (ran.code, ran.out) == (4, "")
    assert ran.error == "error: the key is not known; see HEADRACE_KEY"


@pytest.mark.parametrize("role", ["viewer", "operator", "producer", "worker"])
def test_a_key_that_is_no_admins_is_exit_4(sound: SmokeDeployment, role: str) -> None:
    key = sound.client.create_key(role, role, ["*"])

    ran = sound.smoke(key=key.secret)

    assert ran.code == 4
    assert f"{role} key may not" in ran.error
    assert list(sound.client.list_queues()) == []


def test_an_admins_key_for_other_queues_is_exit_4(sound: SmokeDeployment) -> None:
    key = sound.client.create_key("mail", "admin", ["mail"])

    assert sound.smoke(key=key.secret).code == 4


@pytest.mark.slow
def test_an_admins_key_for_its_queues_alone_is_enough(sound: SmokeDeployment) -> None:
    key = sound.client.create_key("tests", "admin", ["smoke-*"])

    ran = sound.smoke("--json", key=key.secret)

    left_out = {row["check"]: row for row in ran.json["checks"] if row["outcome"] != "ok"}
    assert ran.code == 0, left_out
    assert left_out["NGSI: notify"]["seen"] == "the key is not for ngsi.notify"


def test_a_service_that_cannot_be_reached_is_exit_6(sound: SmokeDeployment) -> None:
    sound.spoil = no_answer

    ran = sound.smoke()

    assert ran.code == 6
    assert ran.error == (
        "error: https://queue.test/prod gave no answer (connection refused): is it running? "
        "see HEADRACE_URL"
    )


def test_a_service_whose_tables_are_away_is_exit_6(sound: SmokeDeployment) -> None:
    sound.spoil = lambda _request, _answer: problem(503, "unavailable")

    assert sound.smoke().code == 6


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"<html>Welcome</html>"),
        httpx.Response(404, content=b"<html>Nothing here</html>"),
        httpx.Response(403, content=b'{"message":"Forbidden"}'),
        httpx.Response(301, headers={"Location": "https://elsewhere.test/"}),
    ],
)
def test_an_address_of_something_else_is_exit_1(
    sound: SmokeDeployment, answer: httpx.Response
) -> None:
    sound.spoil = lambda _request, _answer: answer

    ran = sound.smoke()

    assert ran.code == 1
    assert ran.error.startswith("error: https://queue.test/prod: ")
    assert ran.error.endswith("see HEADRACE_URL")
    assert len(sound.requests) == 1, "no key goes there"


def test_a_clock_that_is_minutes_off_is_told_before_anything_is_made(
    sound: SmokeDeployment,
) -> None:
    sound.spoil = for_operation(
        "health", bodies(lambda body: re.sub(rb'"now":"....', b'"now":"2001', body))
    )

    ran = sound.smoke()

    assert ran.code == 1
    assert "its clock is" in ran.error


def test_no_address_is_exit_2() -> None:
    assert invoke("smoke", session=CliSession(env={})).code == 2
