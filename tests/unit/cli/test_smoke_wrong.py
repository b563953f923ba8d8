"""`headrace smoke` on deployments that are not sound: each fault is found, and ends nothing."""

import json
import re
from collections.abc import Sequence

import httpx2 as httpx
import pytest

from headrace.cli.smoke import FIRST, OTHERS
from tests.unit.cli.cli_runner import Ran
from tests.unit.cli.smoke_harness import (
    OPERATIONS,
    Answer,
    SmokeDeployment,
    Spoil,
    another,
    bodies,
    for_operation,
    headers,
    is_of,
    problem,
    replaced,
    without,
)

VITAL = {"health", "list_keys"}  # without these two there is nothing to check
ALONE = [
    each for each in OPERATIONS if each not in VITAL and not each.startswith(("get_", "list_"))
]
READS = [each for each in OPERATIONS if each not in VITAL and each.startswith(("get_", "list_"))]
TOGETHER = 5  # reads that fail in one run, which takes a third of a second: none hides another
FAILING = [*((each,) for each in ALONE), *(READS[at::TOGETHER] for at in range(TOGETHER))]
SOME = ("put_schedule",)


@pytest.fixture
def sound() -> SmokeDeployment:
    return SmokeDeployment()


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param(some, marks=[] if some == SOME else [pytest.mark.slow], id=",".join(some))
        for some in FAILING
    ],
)
def test_an_operation_that_fails_is_told_and_the_rest_goes_on(operations: Sequence[str]) -> None:
    broken = SmokeDeployment()
    for operation in operations:
        broken.spoil = for_operation(
            operation, lambda _request, _answer: problem(500), broken.spoil
        )

    ran = broken.smoke("--json")

    assert ran.code == 1
    wrong = [row for row in ran.json["checks"] if row["outcome"] == "wrong"]
    for operation in operations:
        named = [
            (row["status"], row["code"], row["request_id"])
            for row in wrong
            if row["method"] and is_of(operation, row["method"], row["path"])
        ]
        assert (500, "internal_error", "req-1") in named
    left = [what for operation in operations for what in left_by(operation, ran)]
    assert [one["what"] for one in ran.json["left_behind"]] == left
    assert {thing for thing in broken.there() if "smoke" in thing} == {
        what for what in left if "smoke" in what and "of fiware" not in what
    }


def left_by(operation: str, ran: Ran) -> list[str]:
    """The things that cannot be removed where *operation* fails."""
    name, ngsi = ran.json["name"], "queue ngsi.notify, if nobody else uses it"
    return {
        "delete_queue": [ngsi, f"queue {name}-2", f"queue {name}"],
        "revoke_key": [f"key {name}"],
        "delete_batch": [f"batch {name}"],
        "delete_notifications": [f"notifications of fiware-service {name}", ngsi],
        "count_tasks": [f"notifications of fiware-service {name}", ngsi],
    }.get(operation, [])


AT_ONCE = 8  # operations: how many of them spoil a run at a time, which takes a third of a second


@pytest.mark.slow
@pytest.mark.parametrize("first", range(AT_ONCE))
@pytest.mark.parametrize("body", [b"{}", b'{"results":[]}'])
def test_answers_that_mean_nothing_end_nothing(first: int, body: bytes) -> None:
    broken = SmokeDeployment()
    for operation in [each for each in OPERATIONS if each not in VITAL][first::AT_ONCE]:
        broken.spoil = for_operation(operation, bodies(lambda _: body), broken.spoil)

    ran = broken.smoke("--json")

    assert ran.code in (0, 1), ran.err  # 0: nobody reads that body
    assert len(ran.json["checks"]) == len(FIRST) + len(OTHERS)
    kept = {one["what"] for one in ran.json["left_behind"]}
    assert {thing for thing in broken.there() if "smoke" in thing} <= kept


FLOATS = bodies(lambda body: body.replace(b"123456789012345678901234567890", b"1.2345678901e29"))
ASCII = bodies(lambda body: json.dumps(json.loads(body)).encode() if body else body)


# Those of a list are in one run, which takes half a second; none of them hides another.
@pytest.mark.parametrize(
    "faults",
    [
        [
            ("get_task", FLOATS, "task: show", "another payload came back"),
            ("list_tasks", ASCII, "answer of 1 MB", "another payload came back"),
            ("enqueue", replaced(b"EXISTING", b"CREATED"), "task: same ids again", "the outcomes"),
            ("report", replaced(b"STALE_LEASE", b"OK"), "task: heartbeat", "the outcomes"),
            ("docs", without("content-security-policy"), "document: page", "policy"),
            (
                "explain_task",
                without("x-content-type-options"),
                "headers of all answers",
                "/explain, answered with 200, has no X-Content-Type-Options: nosniff",
            ),
            (
                "create_queue",
                another("content-type", "text/html"),
                "queue: name taken",
                "text/html",
            ),
        ],
        pytest.param(
            [
                ("get_task", ASCII, "task: show", "another payload came back"),
                ("enqueue", replaced(b"DUPLICATE", b"CREATED"), "task: dedupe key", "the outcome"),
                ("dequeue", FLOATS, "task: dequeue", "another payload came back"),
                ("run_tasks", without("x-request-id"), "headers of all answers", "no X-Request-Id"),
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [
                (
                    "dequeue",
                    replaced(b'"tasks":[{', b'"tasks":[],"x":[{'),
                    "task: dequeue",
                    "within 15 s",
                ),
                (
                    "run_tasks",
                    another("x-consumed-units", "2"),
                    "headers of all answers",
                    "no X-Consumed",
                ),
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [("dequeue", without("idempotent-replay"), "task: dequeue", "Idempotent-Replay: None")],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_answer_that_is_not_as_it_should_be_is_told(
    faults: list[tuple[str, Spoil, str, str]],
) -> None:
    deployment = SmokeDeployment()
    for operation, spoilt, _, _ in faults:
        deployment.spoil = for_operation(operation, spoilt, deployment.spoil)

    wrong = deployment.wrong()

    for _, _, check, says in faults:
        assert says in wrong[check]["seen"]


@pytest.mark.slow
def test_a_secret_that_is_shown_again_is_told(sound: SmokeDeployment) -> None:
    made: list[bytes] = []

    def kept(_request: httpx.Request, answer: Answer) -> httpx.Response:
        given = answer()
        made.append(given.json()["secret"].encode())
        return given

    shown = bodies(lambda body: body.replace(b'"prefix":"', b'"prefix":"' + b"".join(made)))
    making, listing = for_operation("create_key", kept), for_operation("list_keys", shown)
    sound.spoil = lambda request, answer: making(request, lambda: listing(request, answer))

    ran = sound.smoke("--json")

    [wrong] = [row for row in ran.json["checks"] if row["outcome"] == "wrong"]
    assert (wrong["check"], wrong["seen"]) == ("key: list", "the list shows its secret")
    assert made[0].decode() not in ran.out + ran.err


@pytest.mark.slow
def test_a_key_that_is_let_in_everywhere_is_told(sound: SmokeDeployment) -> None:
    def let_in(request: httpx.Request, answer: Answer) -> httpx.Response:
        request.headers["Authorization"] = f"Bearer {sound.service.key}"
        return answer()

    sound.spoil = let_in

    wrong = sound.wrong()

    assert {*wrong} == {
        "key: where it may not",
        "refusal: no key",
        "key: refused once revoked",
    }
    assert wrong["refusal: no key"]["status"] == 200
    assert wrong["key: where it may not"]["seen"] == "was let through; 403 forbidden is right"


@pytest.mark.slow
def test_a_list_without_an_end_is_told() -> None:
    endless = replaced(b'"cursor":null', b'"cursor":"on"')

    def first_page(request: httpx.Request, answer: Answer) -> httpx.Response:
        request.url = request.url.copy_remove_param("cursor")
        return endless(request, answer)

    hidden = bodies(lambda body: body.replace(b'"name":"smoke', b'"name":"other'))
    spoilt = for_operation(
        "list_workers",
        lambda request, answer: hidden(request, lambda: first_page(request, answer)),
    )

    wrong = SmokeDeployment(spoilt).wrong()

    assert wrong["worker: list"]["seen"] == "the list goes on after 100 pages"


def test_timers_and_a_recorder_that_do_not_run_are_told(sound: SmokeDeployment) -> None:
    sound.timers = False

    wrong = sound.wrong()

    assert {title: row["seen"] for title, row in wrong.items()} == {
        "stream: metrics": "no counts of 12 enqueued, 5 started, 1 succeeded, 1 failed, 1 dead, 1 "
        "cancelled within 60 s",
        "lease: taken back": "no lapsed lease taken back within 90 s",
        "schedule: tick": "no tick of the scheduler within 90 s",
    }


WRONG_CONSOLES: list[tuple[Spoil, str, str]] = [
    (
        headers(lambda name, text: re.sub(r"(; (HttpOnly|Secure|SameSite=|Path=).*)+", "", text)),
        "console: sign in",
        "has no HttpOnly, SameSite=Strict, Secure, Path=/prod/console",
    ),
    (without("content-security-policy"), "console: page", "Content-Security-Policy"),
    (replaced(b'name="token"', b'name="other"'), "console: sign in", "the status: 403"),
    (replaced(b'rel="stylesheet"', b'rel="none"'), "console: page", "no style sheet"),
    (another("location", "https://elsewhere.test/"), "console: sign in", "elsewhere.test"),
    (replaced(b'action="/prod', b'action="https://elsewhere.test'), "console: sign in", "else"),
    (lambda _request, _answer: problem(404, "not_found"), "console: page", "the status: 404"),
]


@pytest.mark.parametrize(
    ("spoilt", "check", "says"),
    [
        WRONG_CONSOLES[0],
        *(pytest.param(*other, marks=pytest.mark.slow) for other in WRONG_CONSOLES[1:]),
    ],
)
def test_a_console_that_is_not_as_it_should_be_is_told(
    spoilt: Spoil, check: str, says: str
) -> None:
    def spoil(request: httpx.Request, answer: Answer) -> httpx.Response:
        return spoilt(request, answer) if "/console" in request.url.path else answer()

    wrong = SmokeDeployment(spoil).wrong()

    assert says in wrong[check]["seen"]


@pytest.mark.slow
def test_sessions_that_outlive_signing_out_are_told(sound: SmokeDeployment) -> None:
    def kept_alive(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.url.path == "/prod/console/sign-out":
            return httpx.Response(303, headers={"Location": "/prod/console/sign-in"})
        return answer()

    sound.spoil = kept_alive

    wrong = sound.wrong()

    assert wrong["console: sign out"]["seen"].startswith("the status of the first page afterwards")


def test_what_is_wrong_stands_first_with_the_request_to_look_for(sound: SmokeDeployment) -> None:
    sound.spoil = for_operation(
        "pause_queue", lambda _request, _answer: problem(503, "unavailable")
    )

    ran = sound.smoke()

    first = ran.out.splitlines()[2]
    assert re.match(
        r"queue: pause +wrong +POST /v1/queues/smoke-\w+-2/pause: 503 unavailable, "
        r"request req-1: spoilt +\d+$",
        first,
    )
    assert ran.code == 1


def test_where_no_queue_can_be_made_nothing_else_is_looked_at(sound: SmokeDeployment) -> None:
    sound.spoil = for_operation("create_queue", lambda _request, _answer: problem(500))

    rows = sound.rows(code=1)

    assert [row["outcome"] for row in rows.values()].count("wrong") == 1
    assert rows["task: enqueue"]["seen"] == "nothing can be checked without “queue: create”"
