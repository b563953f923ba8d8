"""`headrace smoke` on a deployment with nothing wrong; and what it ends with."""

import re
from typing import Any, TypeAlias

import httpx2 as httpx
import pytest

from console.chalicelib import urls
from console.chalicelib.routes import routes
from headrace.cli.smoke import FIRST, OTHERS
from tests.unit.cli.smoke_harness import (
    OPERATIONS,
    REQUESTS,
    Answer,
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


def test_people_get_a_table_and_what_it_has_cost(sound: SmokeDeployment) -> None:
    ran = sound.smoke()

    assert ran.code == 0
    assert re.search(
        r"^queue: create +ok +smoke-\w+ and smoke-\w+-2 +[\d,]+$", ran.out, re.MULTILINE
    )
    assert re.search(r"^\d+ checks: \d+ ok\. \d+ calls in .* write units", ran.err, re.MULTILINE)
    assert sound.smoke("--quiet").err == ""


# ----------------------------------------------------------------------------------- exit codes


def test_a_key_that_is_not_known_is_exit_4(sound: SmokeDeployment) -> None:
    ran = sound.smoke(key="hr_of-nobody-at-all")

    assert (ran.code, ran.out) == (4, "")
    assert ran.error == "error: the key is not known; see HEADRACE_KEY"


@pytest.mark.parametrize("role", ["viewer"])
def test_a_key_that_is_no_admins_is_exit_4(sound: SmokeDeployment, role: str) -> None:
    key = sound.client.create_key(role, role, ["*"])

    ran = sound.smoke(key=key.secret)

    assert ran.code == 4
    assert f"{role} key may not" in ran.error
    assert list(sound.client.list_queues()) == []


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"<html>Welcome</html>"),
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


@pytest.mark.parametrize(
    ("operation", "left"),
    [("put_schedule", []), ("delete_queue", ["ngsi.notify, if nobody else uses it", "-2", ""])],
)
def test_an_operation_that_fails_is_reported_and_the_rest_goes_on(
    sound: SmokeDeployment, operation: str, left: list[str]
) -> None:
    sound.spoil = for_operation(operation, lambda _request, _answer: problem(500))

    ran = sound.smoke("--json")

    wrong = [row for row in ran.json["checks"] if row["outcome"] == "wrong"]
    assert ran.code == 1
    assert (500, "internal_error", "req-1") in [
        (row["status"], row["code"], row["request_id"])
        for row in wrong
        if row["method"] and is_of(operation, row["method"], row["path"])
    ]
    assert len(ran.json["checks"]) == len(FIRST) + len(OTHERS)
    assert len(ran.json["left_behind"]) == len(left)
    for thing, end in zip(ran.json["left_behind"], left, strict=True):
        assert thing["what"].endswith(end)


def test_a_key_that_may_do_everything_is_reported(sound: SmokeDeployment) -> None:
    def with_the_admins_key(request: httpx.Request, answer: Answer) -> httpx.Response:
        request.headers["Authorization"] = f"Bearer {sound.service.key}"
        return answer()

    sound.spoil = with_the_admins_key

    assert {*sound.wrong()} == {
        "key: where it may not",
        "refusal: no key",
        "key: refused once revoked",
    }


def test_jobs_that_do_not_run_are_reported(sound: SmokeDeployment) -> None:
    sound.timers = False

    assert {*sound.wrong()} == {"stream: metrics", "lease: taken back", "schedule: tick"}
