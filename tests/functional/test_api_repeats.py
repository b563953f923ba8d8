"""`Idempotency-Key`: a POST that is sent again does nothing more, and is answered as before."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.change import Change, KeyLock, Outcome
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Record, Store
from headrace.store.sqlite import SqliteStore
from tests.functional.conftest import KEY, Answer, Service
from tests.functional.roles import ADMIN, VIEWER, example, keyed, tasks
from tests.functional.roles import KEYED as ROUTES
from tests.manual_clock import ManualClock

POSTS = [route for route in ROUTES if route.startswith("POST ")]
BY_THEMSELVES = [
    "POST /v1/queues/{queue}/dequeue",
    "POST /v1/dequeue",
    "POST /v1/queues/{queue}/reports",
    "POST /v1/queues/{queue}/payloads",
    "POST /v1/leases",
]
RECORDED = [route for route in POSTS if route not in BY_THEMSELVES]


def under(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def replayed(answer: Answer) -> bool:
    return answer.headers.get("idempotent-replay") == "true"


def path_of(route: str, **names: str) -> str:
    path = route.removeprefix("POST ")
    for name in ("queue", "id", "name"):
        path = path.replace(f"{{{name}}}", names.get(name, "nothing"))
    return path


BODIES: dict[str, Any] = {
    "POST /v1/queues": {"name": "new"},
    "POST /v1/actions": {"action": "run", "queues": ["mail"], "filter": {}},
    "POST /v1/queues/{queue}/tasks": {"tasks": [{"payload": 1}, {"payload": 2}]},
}
"""Where the example of the documents would be refused here, or needs no record."""


def named(call: Service, route: str) -> dict[str, str]:
    """Return names for the path of *route* that stand for something."""
    names = {"queue": "mail", "name": "nightly"}
    if "/workers/" in route:
        call("PUT", "/v1/workers/ada", {"queues": ["mail"], "concurrency": 1, "running": []})
        names["name"] = "ada"
    if "/actions/{id}" in route:
        names["id"] = call("POST", "/v1/actions", BODIES["POST /v1/actions"]).json["id"]
    if route.endswith("/reindex"):
        assert call("PUT", "/v1/queues/mail", {"indexed_fields": ["tag:to"]}).status == 200
    if "/keys/{id}" in route:
        names["id"] = call("POST", "/v1/keys", example("POST /v1/keys")).json["id"]
    if "/undos/{id}" in route:
        (task,) = call.put("/v1/queues/mail")
        deleted = call("DELETE", f"/v1/tasks/{task}", query={"undo_in_seconds": "60"})
        names["id"] = deleted.json["undo"]["id"]
    if "/tasks/{id}" in route:
        call.put("/v1/queues/mail", id="wait-1")
        names["id"] = "wait-1"
    if "/batches/{id}" in route:
        names["id"] = call("POST", "/v1/batches", {"id": "night", "total": None}).json["id"]
    if "/leases/{id}" in route:
        names["id"] = call("POST", "/v1/leases").json["lease"]["id"]
    return names


def dead(call: Service, path: str, *ids: str) -> None:
    for task_id in ids:
        call.put(path, id=task_id)
        (task,) = call.take(path)
        call.say(task, "FAILED", retryable=False)


@pytest.mark.parametrize("route", RECORDED)
def test_the_same_request_under_the_same_key_is_answered_as_before_and_does_nothing(
    filled: Service, route: str
) -> None:
    path = path_of(route, **named(filled, route))
    body = BODIES.get(route, example(route))
    audited = len(filled("GET", "/v1/audit").json["entries"])

    first = filled("POST", path, body, under("k-1"))
    filled.clock.forward(3)
    waiting = tasks(filled, "mail")
    again = filled("POST", path, body, under("k-1"))

    assert first.status in {200, 201, 202, 204}, first.body
    assert not replayed(first)
    assert (again.status, replayed(again)) == (first.status, True)
    if "secret" in first.body:
        hidden = dict.fromkeys({"secret", "previous"} & first.json.keys())
        assert again.json == {**first.json, **hidden}
    else:
        assert again.body == first.body
    assert again.headers.get("content-type") == first.headers.get("content-type")
    assert tasks(filled, "mail") == waiting
    assert len(filled("GET", "/v1/audit").json["entries"]) <= audited + 1


def test_a_bad_key_is_refused_naming_the_header(filled: Service) -> None:
    requests = [(route, "a b") for route in POSTS]
    requests += [("POST /v1/queues/{queue}/pause", key) for key in ("x" * 65, "", "ä", "a,b")]
    for route, key in requests:
        answer = filled("POST", path_of(route, queue="mail"), example(route), under(key))
        assert (answer.status, answer.fields) == (400, {"Idempotency-Key"}), route
    assert filled("POST", "/v1/queues/mail/resume", headers=under("_" * 64)).status == 200


def test_who_may_not_hears_of_that_first(filled: Service) -> None:
    filled("POST", "/v1/queues/mail/pause", headers=under("k"))
    viewer, elsewhere = keyed(filled, VIEWER), keyed(filled, ADMIN, "ngsi.*")

    for headers in (under("k"), under("no key")):
        for service in (viewer, elsewhere):
            assert service("POST", "/v1/queues/mail/pause", headers=headers).status == 403


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/queues/mail/resume", None),
        ("/v1/queues/mail/pause", '{ "resume_in_seconds": 60}'),
        ("/v1/queues/mail/dequeue", {"batch_size": 1}),
    ],
)
def test_another_request_under_the_key_is_a_conflict(
    call: Service, path: str, body: object
) -> None:
    call.queue("other")
    call.put(call.queue("mail"))
    first = '{"resume_in_seconds": 60}'
    call("POST", "/v1/queues/mail/pause", first, under("k"))
    if path.endswith("dequeue"):
        call("POST", "/v1/queues/mail/resume")

    answer = call("POST", path, body, under("k"))

    assert (answer.status, answer.json["code"]) == (409, "idempotency_conflict")
    assert call("POST", "/v1/queues/mail/pause", first, under("k")).status == 200


def test_a_refusal_is_not_kept(call: Service) -> None:
    body = {"tasks": [{"payload": 1}]}
    assert call("POST", "/v1/queues/mail/tasks", body, under("k")).status == 404
    call.queue("mail")

    taken = call("POST", "/v1/queues/mail/tasks", body, under("k"))
    other = call("POST", "/v1/queues/nowhere/tasks", body, under("l"))
    anything = call("POST", "/v1/queues/mail/pause", headers=under("l"))

    assert (taken.status, replayed(taken)) == (200, False)
    assert (other.status, anything.status) == (404, 200)


def test_a_secret_is_shown_once_and_kept_nowhere(tmp_path: Path) -> None:
    call = service_over(SqliteStore(str(tmp_path / "headrace.db")))
    body = {"name": "ada", "role": "worker", "queues": ["*"]}

    first = call("POST", "/v1/keys", body, under("k"))
    again = call("POST", "/v1/keys", body, under("k"))

    assert (first.status, again.status) == (201, 201)
    assert first.json["secret"]
    assert again.json == {**first.json, "secret": None}
    assert len(call("GET", "/v1/keys").json["keys"]) == 1
    files = [file.read_bytes() for file in tmp_path.iterdir()]
    assert any(first.json["id"].encode() in content for content in files)
    assert not any(first.json["secret"].encode() in content for content in files)


def outcomes(answer: Answer) -> list[str]:
    return [result["outcome"] for result in answer.json["results"]]


def test_an_overwrite_that_is_repeated_does_not_undo_a_later_one(call: Service) -> None:
    path = call.queue("mail")
    call.put(path, id="holder", dedupe_key="ada")
    entry = {"dedupe_key": "ada", "overwrite_on_duplicate": ["payload"]}
    old = {"tasks": [{**entry, "payload": "v1"}]}
    new = {"tasks": [{**entry, "payload": "v2"}]}

    first = call("POST", f"{path}/tasks", old, under("k-1"))
    second = call("POST", f"{path}/tasks", new, under("k-2"))
    again = call("POST", f"{path}/tasks", old, under("k-1"))

    assert outcomes(first) == outcomes(second) == ["OVERWRITTEN"]
    assert (again.body, replayed(again)) == (first.body, True)
    assert call("GET", "/v1/tasks/holder").json["payload"] == "v2"


def test_a_duplicate_that_is_repeated_after_its_holder_ended_makes_no_task(call: Service) -> None:
    path = call.queue("mail")
    call.put(path, id="holder", dedupe_key="ada")
    body = {"tasks": [{"id": "plain"}, {"id": "second", "dedupe_key": "ada"}]}

    first = call("POST", f"{path}/tasks", body, under("k"))
    for task in call.take(path, 25):
        call.say(task, "SUCCEEDED")
    again = call("POST", f"{path}/tasks", body, under("k"))

    assert outcomes(first) == ["CREATED", "DUPLICATE"]
    assert (again.body, replayed(again)) == (first.body, True)
    assert call("GET", "/v1/tasks/second").status == 404


@pytest.mark.parametrize(
    ("action", "by"),
    [
        ("restart", "ids"),
        ("move", "filter"),
        ("purge", "filter"),
    ],
)
def test_a_repeated_action_answers_what_the_first_one_did(
    call: Service, action: str, by: str
) -> None:
    path = call.queue("mail")
    call.queue("other")
    dead(call, path, "dead")
    body: dict[str, Any] = {"ids": ["dead"]} if by == "ids" else {"filter": {}}
    if action == "move":
        body["to_queue"] = "other"
    url = f"{path}/tasks/{action}"
    if action == "purge":
        url, body = f"{path}/purge", {"states": ["DEAD"]}

    first = call("POST", url, body, under("k"))
    again = call("POST", url, body, under("k"))

    assert first.json.get("changed", first.json.get("deleted")), first.body
    assert (again.body, replayed(again)) == (first.body, True)


# -------------------------------------------------------- while the first request runs, or dies


class Died(BaseException):
    """The process died; it writes nothing more."""


class InterruptedStore(SqliteStore):
    """Calls *before_write*, with the kind of the record that is written, before each write."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.before_write: Callable[[str], None] = lambda _: None

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        self.before_write("tasks")
        return super().commit(changes, **how)

    def put_record(self, record: Record, **how: Any) -> bool:
        self.before_write(record.kind)
        return super().put_record(record, **how)

    def renew_record(self, record: Record) -> Record:
        self.before_write(record.kind)
        return super().renew_record(record)

    def set_key_lock(self, lock: KeyLock) -> bool:
        self.before_write("key lock")
        return super().set_key_lock(lock)


def service_over(store: Store) -> Service:
    clock = ManualClock()
    settings = Settings(admin_key=KEY, poll_after_seconds=0.02, settings_ttl_seconds=0)
    return Service(clock, build(settings, store, now=clock))


def die_before(number: int) -> Callable[[str], None]:
    """Let the process die before a write, counted from 0."""
    left = [number]

    def write(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Died

    return write


def test_a_repeat_while_the_first_one_runs_is_to_come_again() -> None:
    store = InterruptedStore()
    call = service_over(store)
    call.queue("mail")
    seen: list[Answer] = []

    def repeat(kind: str) -> None:
        if kind == "queue":
            store.before_write = lambda _: None
            call.clock.forward(4)
            seen.append(call("POST", "/v1/queues/mail/pause", headers=under("k")))
            seen.append(call("POST", "/v1/queues/mail/resume", headers=under("k")))

    store.before_write = repeat
    first = call("POST", "/v1/queues/mail/pause", headers=under("k"))

    running, another = seen
    assert (running.status, running.json["code"]) == (503, "unavailable")
    assert running.headers["retry-after"] == "4"  # as long as it has been running
    assert (another.status, another.json["code"]) == (409, "idempotency_conflict")
    again = call("POST", "/v1/queues/mail/pause", headers=under("k"))
    assert (first.status, again.body) == (200, first.body)


def test_a_first_one_whose_process_died_lapses_and_the_next_goes_on() -> None:
    store = InterruptedStore()
    call = service_over(store)
    call.queue("mail")
    store.before_write = die_before(1)
    with pytest.raises(Died):
        call("POST", "/v1/queues/mail/pause", headers=under("k"))
    store.before_write = lambda _: None

    soon = call("POST", "/v1/queues/mail/pause", headers=under("k"))
    call.clock.forward(31)  # longer than a function may run
    late = call("POST", "/v1/queues/mail/pause", headers=under("k"))
    again = call("POST", "/v1/queues/mail/pause", headers=under("k"))

    assert (soon.status, "retry-after" in soon.headers) == (503, True)
    assert (late.status, replayed(late)) == (200, False)
    assert (again.body, replayed(again)) == (late.body, True)


def at_each_write(path: str, body: Any, prepare: Callable[[Service], Any]) -> Iterator[Any]:
    """Yield the service and the answer to a repeat, for a death before each write in turn."""
    for number in range(40):
        store = InterruptedStore()
        call = service_over(store)
        prepared = prepare(call)
        sent = body(prepared) if callable(body) else body
        store.before_write = die_before(number)
        try:
            call("POST", path, sent, headers=under("k"))
        except Died:
            store.before_write = lambda _: None
        else:
            assert number > 1
            return
        call.clock.forward(31)
        yield call, call("POST", path, sent, headers=under("k"))
    raise AssertionError("the process always died")


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, [{"dedupe_key": "one"}, {"dedupe_key": "another"}]),
        ({"groups": {"mode": "strict"}}, [{"group_key": "a"}] * 2),
    ],
)
def test_whenever_the_process_dies_the_repeat_of_an_enqueue_makes_each_task_once(
    settings: dict[str, Any], more: list[dict[str, Any]]
) -> None:
    first, second = more
    own = {**first, "id": "ours", "dedupe_key": "ours"}
    body = {"tasks": [first, own, second]}
    path = "/v1/queues/mail"

    for call, answer in at_each_write(
        f"{path}/tasks", body, lambda call: call.queue("mail", **settings)
    ):
        made = [result["outcome"] for result in answer.json["results"]]
        assert made[0] == made[2] == "CREATED"
        call.clock.forward(600)  # a strict group waits for a place that was drawn and not used
        done = 0
        while taken := call.take(path, 25):
            assert {call.say(task, "SUCCEEDED")["outcome"] for task in taken} == {"OK"}
            done += len(taken)
        assert done == 3


def test_whenever_the_process_dies_the_undo_of_the_repeat_brings_all_back() -> None:
    path = "/v1/queues/mail"

    for call, answer in at_each_write(
        f"{path}/tasks/delete",
        lambda ids: {"ids": ids, "undo_in_seconds": 600},
        lambda call: call.put(call.queue("mail"), 1, 2, 3),
    ):
        call("POST", f"/v1/undos/{answer.json['undo']['id']}")
        assert len(call("GET", f"{path}/tasks").json["tasks"]) == 3
