"""`headrace smoke`: that it finds what is wrong, touches nothing of others, and cleans up."""

import json
import re
import shlex
from itertools import cycle
from typing import Any

import httpx2 as httpx
import pytest

from headrace.cli.checks import every
from headrace.cli.session import Session
from headrace.runtime.wiring import Settings, build
from headrace.testing import MemoryService
from headrace.testing.transport import responder
from tests.unit.sdk.cli_runner import Ran, invoke
from tests.unit.sdk.smoke_harness import (
    OPERATIONS,
    Answer,
    Deployment,
    Spoil,
    bodies,
    for_operation,
    headers,
    is_of,
    problem,
)

VITAL = {"health", "list_keys"}  # without these two there is nothing to check
SOME = ("explain_task", "get_metrics", "extend_lease", "notify", "docs", "put_schedule")


@pytest.fixture
def sound() -> Deployment:
    return Deployment()


def no_answer(_request: httpx.Request, _answer: Answer) -> httpx.Response:
    message = "[Errno 111] Connection refused"
    raise httpx.ConnectError(message)


# ------------------------------------------------------------------------ with nothing wrong


def test_a_sound_deployment_has_every_check_ok_and_nothing_is_left(sound: Deployment) -> None:
    rows = sound.rows()

    assert [*rows] == [check.title for check in (*every.FIRST, *every.OTHERS)]
    assert {row["outcome"] for row in rows.values()} == {"ok"}
    assert sound.there() == set()
    assert len(sound.requests) < REQUESTS


def test_it_calls_every_operation_of_the_api(sound: Deployment) -> None:
    """An operation that is new fails here until the smoke test calls it."""
    sound.rows()

    called = {
        operation
        for operation in OPERATIONS
        if any(is_of(operation, *request) for request in sound.requests)
    }
    assert called == set(OPERATIONS)


def test_people_get_a_table_and_what_it_has_cost(sound: Deployment) -> None:
    ran = sound.smoke()

    assert ran.code == 0
    assert re.search(
        r"^queue: create +ok +smoke-\w+ and smoke-\w+-2 +[\d,]+$", ran.out, re.MULTILINE
    )
    assert re.search(r"^\d+ checks: \d+ ok\. \d+ calls in .* write units", ran.err, re.MULTILINE)
    assert sound.smoke("--quiet").err == ""


def test_programs_get_one_document(sound: Deployment) -> None:
    told = sound.smoke("--json").json

    assert told["url"] == "https://queue.test/prod"
    assert re.fullmatch(r"smoke-[0-9a-f]{8}", told["name"])
    assert told["counts"] == {"ok": len(told["checks"]), "wrong": 0, "left out": 0}
    assert told["left_behind"] == []


def test_what_runs_once_a_minute_is_set_going_before_all_else_and_says_how_long_it_took(
    sound: Deployment,
) -> None:
    seen = {title: row["seen"] for title, row in sound.rows().items()}

    assert re.match(r"\d+\.\d s after the schedule, for ", seen["schedule: tick"])
    assert re.match(r"\d+\.\d s after its end", seen["lease: taken back"])
    assert re.search(r"; after \d+\.\d s$", seen["stream: metrics"])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_index_that_is_behind_for_a_moment_is_no_fault(seed: int) -> None:
    behind = Deployment(service=MemoryService(seed=seed))
    behind.service.faults.slow_index(rate=0.4)

    rows = behind.rows()

    assert {row["outcome"] for row in rows.values()} == {"ok"}


def test_functions_that_each_remember_settings_for_a_minute_are_no_fault(
    sound: Deployment,
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


# ---------------------------------------------------------------------------- what is others'


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


@pytest.mark.parametrize("option", [[], ["--ngsi"]])
def test_nothing_of_others_is_touched(sound: Deployment, option: list[str]) -> None:
    fill(sound.service)
    before = things_of(sound.service)

    sound.rows(*option)

    assert without_stats(things_of(sound.service)) == without_stats(before)


def test_a_queue_of_notifications_that_is_in_use_is_left_alone(sound: Deployment) -> None:
    fill(sound.service)

    rows = sound.rows()

    of_ngsi = {title: row for title, row in rows.items() if title.startswith("NGSI")}
    assert len(of_ngsi) == 5
    assert {row["outcome"] for row in of_ngsi.values()} == {"left out"}
    assert "ngsi.notify is in use here" in of_ngsi["NGSI: notify"]["seen"]
    assert rows["operations of the API"]["seen"].endswith("5 of them left out")
    assert not [path for _, path in sound.requests if path.startswith(("/v2", "/management"))]


def test_a_queue_of_notifications_that_is_in_use_is_checked_if_that_is_wanted(
    sound: Deployment,
) -> None:
    fill(sound.service)

    rows = sound.rows("--ngsi")

    assert {row["outcome"] for row in rows.values()} == {"ok"}


def test_a_worker_may_take_the_notification_before_it_is_found(sound: Deployment) -> None:
    fill(sound.service)

    def taking(request: httpx.Request, answer: Answer) -> httpx.Response:
        given = answer()
        for task in sound.client.dequeue("ngsi.notify", batch_size=25).tasks:
            sound.client.delete_task(task.id)
        return given

    sound.spoil = for_operation("notify", taking)

    rows = sound.rows("--ngsi")

    assert rows["NGSI: list"]["seen"] == "none any more: a worker has moved it on"


def test_what_others_put_into_the_queue_of_notifications_meanwhile_is_not_deleted(
    sound: Deployment,
) -> None:
    def joined(request: httpx.Request, answer: Answer) -> httpx.Response:
        given = answer()
        sound.client.enqueue("ngsi.notify", {"theirs": True}, id="theirs")
        return given

    sound.spoil = for_operation("notify", joined)

    ran = sound.smoke("--json")

    assert ran.code == 1
    assert ran.json["left_behind"] == [
        {
            "what": "queue ngsi.notify, if nobody else uses it",
            "command": "headrace queue delete ngsi.notify",
        }
    ]
    assert [task.id for task in sound.client.list_tasks("ngsi.notify")] == ["theirs"]


# ------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(each, marks=[] if each in SOME else [pytest.mark.slow])
        for each in OPERATIONS
        if each not in VITAL
    ],
)
def test_an_operation_that_fails_is_told_and_the_rest_goes_on(operation: str) -> None:
    broken = Deployment(for_operation(operation, lambda _request, _answer: problem(500)))

    ran = broken.smoke("--json")

    assert ran.code == 1
    wrong = [row for row in ran.json["checks"] if row["outcome"] == "wrong"]
    named = [
        (row["status"], row["code"], row["request_id"])
        for row in wrong
        if row["method"] and is_of(operation, row["method"], row["path"])
    ]
    assert (500, "internal_error", "req-1") in named
    assert [one["what"] for one in ran.json["left_behind"]] == left_by(operation, ran)
    assert {thing for thing in broken.there() if "smoke" in thing} == {
        what for what in left_by(operation, ran) if "smoke" in what and "of fiware" not in what
    }


def left_by(operation: str, ran: Ran) -> list[str]:
    """Return what cannot be removed where *operation* fails."""
    name, ngsi = ran.json["name"], "queue ngsi.notify, if nobody else uses it"
    return {
        "delete_queue": [ngsi, f"queue {name}-2", f"queue {name}"],
        "revoke_key": [f"key {name}"],
        "delete_notifications": [f"notifications of fiware-service {name}", ngsi],
        "count_tasks": [f"notifications of fiware-service {name}", ngsi],
    }.get(operation, [])


@pytest.mark.slow
@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each not in VITAL])
@pytest.mark.parametrize("body", [b"{}", b'{"results":[]}'])
def test_an_answer_that_means_nothing_ends_nothing(operation: str, body: bytes) -> None:
    broken = Deployment(for_operation(operation, bodies(lambda _: body)))

    ran = broken.smoke("--json")

    assert ran.code in (0, 1), ran.err  # 0: nobody reads that body
    assert len(ran.json["checks"]) == len(every.FIRST) + len(every.OTHERS)
    kept = {one["what"] for one in ran.json["left_behind"]}
    assert {thing for thing in broken.there() if "smoke" in thing} <= kept


FLOATS = bodies(lambda body: body.replace(b"123456789012345678901234567890", b"1.2345678901e29"))
ASCII = bodies(lambda body: json.dumps(json.loads(body)).encode() if body else body)


def replaced(old: bytes, new: bytes) -> Spoil:
    return bodies(lambda body: body.replace(old, new))


def without(header: str) -> Spoil:
    return headers(lambda name, text: None if name == header else text)


def another(header: str, text: str) -> Spoil:
    return headers(lambda name, given: text if name == header else given)


@pytest.mark.parametrize(
    ("operation", "spoilt", "check", "says"),
    [
        ("get_task", FLOATS, "task: show", "another payload came back"),
        ("get_task", ASCII, "task: show", "another payload came back"),
        ("dequeue", FLOATS, "task: dequeue", "another payload came back"),
        ("list_tasks", ASCII, "answer of 1 MB", "another payload came back"),
        ("enqueue", replaced(b"EXISTING", b"CREATED"), "task: same ids again", "the outcomes"),
        ("enqueue", replaced(b"DUPLICATE", b"CREATED"), "task: dedupe key", "the outcome"),
        ("report", replaced(b"STALE_LEASE", b"OK"), "task: heartbeat", "the outcomes"),
        ("dequeue", without("idempotent-replay"), "task: dequeue", "Idempotent-Replay: None"),
        ("dequeue", replaced(b'"tasks":[{', b'"tasks":[],"x":[{'), "task: dequeue", "within 15 s"),
        ("docs", without("content-security-policy"), "document: page", "policy"),
        (
            "explain_task",
            without("x-content-type-options"),
            "headers of all answers",
            "/explain, answered with 200, has no X-Content-Type-Options: nosniff",
        ),
        ("run_tasks", without("x-request-id"), "headers of all answers", "no X-Request-Id"),
        ("run_tasks", another("x-consumed-units", "2"), "headers of all answers", "no X-Consumed"),
        ("create_queue", another("content-type", "text/html"), "queue: name taken", "text/html"),
    ],
)
def test_an_answer_that_is_not_as_it_should_be_is_told(
    operation: str, spoilt: Spoil, check: str, says: str
) -> None:
    wrong = Deployment(for_operation(operation, spoilt)).wrong()

    assert says in wrong[check]["seen"]


def test_a_secret_that_is_shown_again_is_told(sound: Deployment) -> None:
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


def test_a_key_that_is_let_in_everywhere_is_told(sound: Deployment) -> None:
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

    wrong = Deployment(spoilt).wrong()

    assert wrong["worker: list"]["seen"] == "the list goes on after 100 pages"


def test_timers_and_a_recorder_that_do_not_run_are_told(sound: Deployment) -> None:
    sound.timers = False

    wrong = sound.wrong()

    assert {title: row["seen"] for title, row in wrong.items()} == {
        "stream: metrics": "no counts of 12 enqueued, 5 started, 1 succeeded, 1 failed, 1 dead "
        "within 60 s",
        "lease: taken back": "no lapsed lease taken back within 90 s",
        "schedule: tick": "no tick of the scheduler within 90 s",
    }


@pytest.mark.parametrize(
    ("spoilt", "check", "says"),
    [
        (
            headers(lambda name, text: text.replace("; HttpOnly", "")),
            "console: sign in",
            "has no HttpOnly",
        ),
        (
            headers(lambda name, text: text.replace("SameSite=Strict", "SameSite=Lax")),
            "console: sign in",
            "has no SameSite=Strict",
        ),
        (
            headers(lambda name, text: text.replace("; Secure", "")),
            "console: sign in",
            "has no Secure",
        ),
        (
            headers(lambda name, text: text.replace("Path=/prod/console", "Path=/")),
            "console: sign in",
            "has no Path=/prod/console",
        ),
        (without("content-security-policy"), "console: page", "Content-Security-Policy"),
        (replaced(b'name="token"', b'name="other"'), "console: sign in", "the status: 403"),
        (replaced(b'rel="stylesheet"', b'rel="none"'), "console: page", "no style sheet"),
        (another("location", "https://elsewhere.test/"), "console: sign in", "elsewhere.test"),
        (replaced(b'action="/prod', b'action="https://elsewhere.test'), "console: sign in", "else"),
        (lambda _request, _answer: problem(404, "not_found"), "console: page", "the status: 404"),
    ],
)
def test_a_console_that_is_not_as_it_should_be_is_told(
    spoilt: Spoil, check: str, says: str
) -> None:
    def spoil(request: httpx.Request, answer: Answer) -> httpx.Response:
        return spoilt(request, answer) if "/console" in request.url.path else answer()

    wrong = Deployment(spoil).wrong()

    assert says in wrong[check]["seen"]


def test_sessions_that_outlive_signing_out_are_told(sound: Deployment) -> None:
    def kept_alive(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.url.path == "/prod/console/sign-out":
            return httpx.Response(303, headers={"Location": "/prod/console/sign-in"})
        return answer()

    sound.spoil = kept_alive

    wrong = sound.wrong()

    assert wrong["console: sign out"]["seen"].startswith("the status of the first page afterwards")


def test_what_is_wrong_stands_first_with_the_request_to_look_for(sound: Deployment) -> None:
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


def test_where_no_queue_can_be_made_nothing_else_is_looked_at(sound: Deployment) -> None:
    sound.spoil = for_operation("create_queue", lambda _request, _answer: problem(500))

    rows = sound.rows(code=1)

    assert [row["outcome"] for row in rows.values()].count("wrong") == 1
    assert rows["task: enqueue"]["seen"] == "nothing can be checked without “queue: create”"


# ----------------------------------------------------------------------------------- exit codes


def test_a_key_that_is_not_known_is_exit_4(sound: Deployment) -> None:
    ran = sound.smoke(key="hr_of-nobody-at-all")

    assert (ran.code, ran.out) == (4, "")
    assert ran.error == "error: the key is not known; see HEADRACE_KEY"


@pytest.mark.parametrize("role", ["viewer", "operator", "producer", "worker"])
def test_a_key_that_is_no_admins_is_exit_4(sound: Deployment, role: str) -> None:
    key = sound.client.create_key(role, role, ["*"])

    ran = sound.smoke(key=key.secret)

    assert ran.code == 4
    assert f"{role} key may not" in ran.error
    assert list(sound.client.list_queues()) == []


def test_an_admins_key_for_other_queues_is_exit_4(sound: Deployment) -> None:
    key = sound.client.create_key("mail", "admin", ["mail"])

    assert sound.smoke(key=key.secret).code == 4


def test_an_admins_key_for_its_queues_alone_is_enough(sound: Deployment) -> None:
    key = sound.client.create_key("tests", "admin", ["smoke-*"])

    ran = sound.smoke("--json", key=key.secret)

    left_out = {row["check"]: row for row in ran.json["checks"] if row["outcome"] != "ok"}
    assert ran.code == 0, left_out
    assert left_out["NGSI: notify"]["seen"] == "the key is not for ngsi.notify"


def test_a_service_that_cannot_be_reached_is_exit_6(sound: Deployment) -> None:
    sound.spoil = no_answer

    ran = sound.smoke()

    assert ran.code == 6
    assert ran.error == (
        "error: https://queue.test/prod gave no answer (connection refused): is it running? "
        "see HEADRACE_URL"
    )


def test_a_service_whose_tables_are_away_is_exit_6(sound: Deployment) -> None:
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
def test_an_address_of_something_else_is_exit_1(sound: Deployment, answer: httpx.Response) -> None:
    sound.spoil = lambda _request, _answer: answer

    ran = sound.smoke()

    assert ran.code == 1
    assert ran.error.startswith("error: https://queue.test/prod: ")
    assert ran.error.endswith("see HEADRACE_URL")
    assert len(sound.requests) == 1, "no key goes there"


def test_a_clock_that_is_minutes_off_is_told_before_anything_is_made(sound: Deployment) -> None:
    sound.spoil = for_operation(
        "health", bodies(lambda body: re.sub(rb'"now":"....', b'"now":"2001', body))
    )

    ran = sound.smoke()

    assert ran.code == 1
    assert "its clock is" in ran.error


def test_no_address_is_exit_2() -> None:
    assert invoke("smoke", session=Session(env={})).code == 2


# ------------------------------------------------------------------------------------ cleaning up


class _Counting:
    """Lets so many requests through, and then something happens: before or after the next one."""

    def __init__(self, number: int, error: BaseException, *, after: bool) -> None:
        self.left, self.error, self.after = number, error, after

    def __call__(self, _request: httpx.Request, answer: Answer) -> httpx.Response:
        self.left -= 1
        if self.left == 0:
            if self.after:
                answer()
            raise self.error
        return answer()


REQUESTS = 130
PLACES = [3, 4, 5, 9, 60]


@pytest.mark.parametrize(
    ("number", "after"),
    [(each, after) for each in PLACES for after in (False, True)]
    + [pytest.param(each, True, marks=pytest.mark.slow) for each in range(1, REQUESTS)],
)
def test_ctrl_c_leaves_nothing_wherever_it_comes(number: int, *, after: bool) -> None:
    stopped = Deployment(_Counting(number, KeyboardInterrupt(), after=after))

    ran = stopped.smoke()

    assert ran.code == (130 if len(stopped.requests) >= number else 0)
    assert stopped.there() == set()
    assert "left behind" not in ran.err


@pytest.mark.parametrize("number", [4, 12, 70])
def test_an_answer_that_is_lost_on_the_way_is_one_wrong_row(number: int) -> None:
    lost = Deployment(_Counting(number, httpx.ReadTimeout("timed out"), after=True))

    ran = lost.smoke("--json")

    [wrong, *_] = [row for row in ran.json["checks"] if row["outcome"] == "wrong"]
    assert wrong["seen"].endswith("got no answer: timed out")
    assert wrong["status"] is None
    assert lost.there() == set()


def test_a_defect_of_ours_cleans_up_too(sound: Deployment) -> None:
    sound.spoil = _Counting(40, ZeroDivisionError("a defect"), after=False)

    ran = sound.smoke()

    assert ran.code == 1
    assert ran.error == "error: unexpected ZeroDivisionError: a defect; --debug shows where"
    assert sound.there() == set()


def test_a_service_that_goes_away_meanwhile_is_not_asked_for_ever(sound: Deployment) -> None:
    sound.spoil = lambda request, answer: (
        no_answer(request, answer) if len(sound.requests) > 30 else answer()
    )

    ran = sound.smoke("--json")

    assert ran.code == 1
    outcomes = [row["outcome"] for row in ran.json["checks"]]
    assert outcomes.count("wrong") == 2
    assert ran.json["checks"][-1]["seen"] == "the service gives no answer any more"
    assert len(sound.requests) < 40
    assert [one["what"] for one in ran.json["left_behind"]] == [
        f"queue {ran.json['name']}-2",
        f"queue {ran.json['name']}",
    ]


def test_what_is_left_behind_is_told_with_the_command_that_removes_it(sound: Deployment) -> None:
    def refusing(request: httpx.Request, answer: Answer) -> httpx.Response:
        return problem(503, "unavailable") if request.method == "DELETE" else answer()

    sound.spoil = refusing

    ran = sound.smoke("--quiet")

    left = re.findall(r"^left behind: .*; remove it: headrace (.*)$", ran.err, re.MULTILINE)
    assert ran.code == 1
    assert len(left) == 5
    for command in left:
        session = Session(given_client=sound.client, env={}, at_terminal=lambda: True)
        answer = "ngsi.notify\n" if "ngsi.notify" in command and "--yes" not in command else None
        assert invoke(*shlex.split(command), session=session, input=answer).code == 0, command
    assert sound.there() == set()


def test_what_cannot_be_removed_at_once_is_tried_again(sound: Deployment) -> None:
    refused: list[str] = []

    def refusing(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.method == "DELETE" and refused.count(request.url.path) < 2:
            refused.append(request.url.path)
            return problem(503, "unavailable")
        return answer()

    sound.spoil = refusing

    ran = sound.smoke("--json")

    assert ran.code == 1
    assert ran.json["left_behind"] == []
    assert sound.there() == set()


def test_no_secret_is_in_what_it_writes(sound: Deployment) -> None:
    secrets: list[str] = [sound.service.key]

    def kept(_request: httpx.Request, answer: Answer) -> httpx.Response:
        given = answer()
        secrets.append(given.json()["secret"])
        return given

    sound.spoil = lambda request, answer: for_operation("rotate_key", kept)(
        request, lambda: for_operation("create_key", kept)(request, answer)
    )

    ran = sound.smoke("--json")

    assert len(secrets) == 3
    assert not [one for one in secrets if one in ran.out + ran.err]


def test_its_checks_have_names_of_their_own() -> None:
    titles = [check.title for check in (*every.FIRST, *every.OTHERS)]

    assert len(titles) == len(set(titles))
