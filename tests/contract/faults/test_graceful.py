"""What a client and an operator see while the table is throttled or away, and what is done then."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import reaper
import scheduler
from headrace.domain.errors import Unavailable
from headrace.runtime.wiring import using
from headrace.store.dynamo import Sender
from tests.console.conftest import SECRET, Browser
from tests.contract.conftest import World
from tests.contract.faults.service import FaultyService, everything
from tests.contract.faults.test_throttling import about, alone, away_after_a_lease
from tests.functional.conftest import Answer
from tests.functional.conftest import Service as Api

FAULTS = [{"throttled": 1}, {"away": 1}]
FAULT_IDS = ["throttled", "away"]
KEY = "test"

Act = Callable[[Api, dict[str, Any]], Answer]


@pytest.fixture
def sender() -> Sender:
    """Send as it is wired: test_throttling shows what becomes of calls with the other, too."""
    return "batch"


@pytest.fixture
def api(world: World) -> Api:
    return Api(world.clock, world.use, key=KEY)


def report(task: dict[str, Any], status: str, **fields: Any) -> dict[str, Any]:
    return {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": status, **fields}


def refused(answer: Answer) -> None:
    assert (answer.status, answer.json["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json["request_id"]


MAIL = "/v1/queues/mail"
ACTS: dict[str, Act] = {
    "enqueue": lambda api, _: api("POST", f"{MAIL}/tasks", {"tasks": [{"payload": {}}] * 25}),
    "dequeue": lambda api, _: api("POST", f"{MAIL}/dequeue", {"worker": "ada:1"}),
    "report": lambda api, task: api(
        "POST", f"{MAIL}/reports", {"reports": [report(task, "SUCCEEDED")]}
    ),
    "report that spawns": lambda api, task: api(
        "POST",
        f"{MAIL}/reports",
        {"reports": [report(task, "SUCCEEDED", spawn=[{"queue": "mail", "payload": 1}])]},
    ),
    "delete": lambda api, task: api("DELETE", f"/v1/tasks/{task['id']}"),
    "bulk": lambda api, task: api("POST", f"{MAIL}/tasks/delete", {"ids": [task["id"]]}),
    "purge": lambda api, _: api("POST", f"{MAIL}/purge", {"states": ["ENQUEUED"]}),
    "create queue": lambda api, _: api("POST", "/v1/queues", {"name": "new"}),
    "schedule": lambda api, _: api("PUT", f"{MAIL}/schedules/daily", {"every_seconds": 60}),
    "create key": lambda api, _: api(
        "POST", "/v1/keys", {"name": "ada", "role": "worker", "queues": ["*"]}
    ),
}


@pytest.mark.parametrize("fault", FAULTS, ids=FAULT_IDS)
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_a_request_is_a_503_that_says_when_to_come_again_and_nothing_is_half_done(
    service: FaultyService, api: Api, act: Act, fault: dict[str, float]
) -> None:
    api.put(api.queue("mail"), *range(3))
    (task,) = api.take(MAIL)
    before = everything(service)

    with service.suffering(**fault):
        answer = act(api, task)

    refused(answer)
    assert everything(service) == before


def test_a_dequeue_hands_out_its_leases_though_the_table_is_away_from_then_on(
    service: FaultyService, api: Api, world: World
) -> None:
    queue = api.queue("mail", retry_strategy={"kind": "fixed", "max_retries": 0})
    ids = api.put(queue, *range(3))
    world.use.queues.cache_seconds = 0  # so its settings are read for the answer once more

    with service.suffering(blocked=away_after_a_lease(service)):
        tasks = api.take(queue, 3)

    assert tasks
    assert {task["max_retries"] for task in tasks} == {0}
    leased = {task_id for task_id in ids if api.see(task_id)["state"] == "INFLIGHT"}
    assert leased == {task["id"] for task in tasks}


def test_a_key_that_cannot_be_looked_up_is_not_refused(service: FaultyService, api: Api) -> None:
    made = api("POST", "/v1/keys", {"name": "ada", "role": "viewer", "queues": ["*"]}).json
    worker = replace(api, key=made["secret"])

    with service.suffering(away=1):
        refused(worker("GET", "/v1/queues"))

    assert worker("GET", "/v1/queues").status == 200


def test_an_enqueue_throttled_in_the_middle_of_a_batch_may_be_sent_again_with_its_ids(
    service: FaultyService, api: Api
) -> None:
    queue = api.queue("mail")
    body = {"tasks": [{"payload": number, "id": f"order-{number}"} for number in range(10)]}

    with service.suffering(stuck=about("order-4"), blocked=alone("order-4")):
        refused(api("POST", f"{queue}/tasks", body))

    results = api("POST", f"{queue}/tasks", body).json["results"]
    assert results[4]["outcome"] == "CREATED"
    assert {result["outcome"] for result in results} <= {"CREATED", "EXISTING"}
    assert api("GET", f"{queue}/count").json["count"] == 10


def test_reports_throttled_in_the_middle_of_a_batch_may_be_sent_again(
    service: FaultyService, api: Api
) -> None:
    queue = api.queue("mail")
    api.put(queue, *range(10))
    tasks = api.take(queue, 10)
    body = {"reports": [report(task, "SUCCEEDED") for task in tasks]}
    stuck = tasks[4]["id"]

    with service.suffering(stuck=about(stuck), blocked=alone(stuck)):
        refused(api("POST", f"{queue}/reports", body))
        assert api.see(stuck)["state"] == "INFLIGHT"

    results = api("POST", f"{queue}/reports", body).json["results"]
    assert {result["outcome"] for result in results} == {"OK"}
    assert api("GET", f"{queue}/count").json["by_state"]["SUCCEEDED"] == 10


def test_the_reaper_and_the_scheduler_leave_it_to_the_next_minute(
    service: FaultyService, api: Api
) -> None:
    queue = api.queue("mail", keepalive_timeout_in_seconds=5)
    (waiting,) = api.put(queue)
    api.take(queue)
    api("PUT", f"{queue}/schedules/often", {"every_seconds": 20})
    service.world.clock.forward(300)
    before = everything(service)

    with using(service.world.use):
        with service.suffering(away=1):
            assert reaper.handler({}, api.context)["throttled"]
            with pytest.raises(Unavailable):  # which Lambda counts, and an alarm shows
                scheduler.handler({}, api.context)
        assert everything(service) == before
        assert reaper.handler({}, api.context)["retried"] == 1
        assert scheduler.handler({}, api.context)["enqueued"] > 0
    assert api.see(waiting)["state"] == "ENQUEUED"


@pytest.fixture
def browser(world: World) -> Browser:
    world.use.settings = replace(world.use.settings, session_secret=SECRET)
    return Browser(world.clock, world.use).sign_in(KEY)


@pytest.mark.parametrize("path", ["", "/queues/mail", "/schedules", "/keys", "/audit", "/errors"])
def test_a_page_says_so_in_words_and_when_to_come_again(
    service: FaultyService, browser: Browser, world: World, path: str
) -> None:
    world.put(world.queue())

    with service.suffering(away=1):
        shown = browser.get(f"/console{path}")

    assert shown.status == 503
    assert int(shown.headers["retry-after"]) >= 1
    assert shown.page.one("h1").text
    assert "Traceback" not in shown.body
    assert browser.get(f"/console{path}").status == 200


@pytest.mark.parametrize("fault", FAULTS, ids=FAULT_IDS)
def test_a_form_says_that_nothing_was_done_and_nothing_is(
    service: FaultyService, browser: Browser, world: World, fault: dict[str, float]
) -> None:
    world.queue()
    page = browser.get("/console/queues/mail").page
    before = everything(service)

    with service.suffering(**fault):
        shown = browser.submit(page, "/pause")

    assert shown.status == 503
    assert int(shown.headers["retry-after"]) >= 1
    assert everything(service) == before
