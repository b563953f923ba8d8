"""Answers near what Lambda lets out: measured as its client writes them, cut short in time."""

import json
from typing import Any

import pytest
import simplejson

from headrace.domain.limits import KIB
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.functional.conftest import KEY, Service
from tests.streamed import SHARD, Streamed

LAMBDA = 6_291_556  # "Exceeded maximum allowed payload size (6291556 bytes)"
HALF = 128 * KIB

# Each of 25 tasks takes a quarter of a MiB: as it stands, or as Lambda's client writes it.
PAYLOADS = {
    "greek": "λ" * (HALF - 8),
    "quotes": '"' * (HALF - 8),
}


class FittingService(Service):
    """A service whose every answer must fit through Lambda."""

    def _answer(self, event: dict[str, Any]) -> Any:
        answer = super()._answer(event)
        sent = {
            "statusCode": answer.status,
            "multiValueHeaders": {name: [value] for name, value in answer.headers.items()},
            "body": answer.body,
            "isBase64Encoded": False,
        }
        assert len(simplejson.dumps(sent, ensure_ascii=False).encode()) < LAMBDA
        return answer


def twenty_five(service: Service, queue: str, payload: str) -> list[str]:
    """Enqueue so many tasks with *payload*, as it is; return their ids."""
    body = json.dumps({"tasks": [{"payload": payload}] * 5}, ensure_ascii=False)
    ids = []
    for _ in range(5):
        ids += [result["id"] for result in service("POST", f"{queue}/tasks", body).json["results"]]
        service.clock.forward(0.001)
    return ids


@pytest.fixture
def watched(call: Service) -> FittingService:
    return FittingService(call.clock, call.use, handler=call.handler)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_dequeue_gives_back_what_would_not_fit_with_no_attempt_used(
    watched: FittingService, payload: str
) -> None:
    queue = watched.queue()
    ids = twenty_five(watched, queue, payload)

    first = watched.take(queue, 25)
    second = watched.take(queue, 25)

    assert 10 < len(first) < 25
    assert [task["id"] for task in first + second] == ids[: len(first) + len(second)]
    assert {task["attempts"] for task in second} == {1}
    assert first[0]["payload"] == payload


def test_a_list_ends_its_page_early_and_goes_on(watched: FittingService) -> None:
    queue = watched.queue()
    ids = twenty_five(watched, queue, PAYLOADS["quotes"])
    query = {"payload": "true", "limit": "250"}

    pages = [watched("GET", f"{queue}/tasks", query=query).json]
    while cursor := pages[-1]["cursor"]:
        pages.append(watched("GET", f"{queue}/tasks", query={**query, "cursor": cursor}).json)

    assert [task["id"] for page in pages for task in page["tasks"]] == ids
    assert len(pages) in (2, 3)


@pytest.mark.slow
def test_a_page_of_the_audit_ends_early_and_goes_on(watched: FittingService) -> None:
    queue = watched.queue()
    tags = {f"{number}{chr(34) * 62}": '"' * 256 for number in range(10)}
    body = {"filter": {"error": '"' * 4_096, "tags": tags}}
    for _ in range(250):
        assert watched("POST", f"{queue}/tasks/delete", body).status == 200
        watched.clock.forward(0.001)
    query = {"limit": "250", "action": "delete"}

    pages = [watched("GET", "/v1/audit", query=query).json]
    while cursor := pages[-1]["cursor"]:
        pages.append(watched("GET", "/v1/audit", query={**query, "cursor": cursor}).json)

    entries = [entry for page in pages for entry in page["entries"]]
    assert len({entry["at"] for entry in entries}) == len(entries) == 250
    assert len(pages) > 1


def pages(service: Service, path: str, noun: str) -> list[list[Any]]:
    """Return what each page of a list has, from the first to the last."""
    found, cursor = [], None
    while True:
        query = {"limit": "250"} if noun != "results" else {}
        page = service("GET", path, query=query | ({"cursor": cursor} if cursor else {})).json
        found.append(page[noun])
        cursor = page["cursor"]
        if cursor is None:
            return found


def names_of(found: list[list[Any]], field: str = "name") -> list[str]:
    return [one[field] for page in found for one in page]


def test_queues_with_much_to_show_come_on_several_pages(watched: FittingService) -> None:
    weights = {f"{number:04}{'k' * 124}": number + 0.5 for number in range(1000)}
    for number in range(48):
        settings = {"groups": {"mode": "fair", "weights": weights}}
        assert watched("POST", "/v1/queues", {"name": f"q{number:02}", **settings}).status == 201

    found = pages(watched, "/v1/queues", "queues")

    assert len(found) > 1
    assert names_of(found) == [f"q{number:02}" for number in range(48)]


def test_schedules_have_pages_and_their_queue_shows_the_first_hundred(
    watched: FittingService,
) -> None:
    queue = watched.queue("mail")
    payload = '"' * 60_000
    for number in range(130):
        body = {"every_seconds": 3600, "paused": True, "payload": payload}
        assert watched("PUT", f"{queue}/schedules/s{number:04}", body).status == 200

    found = pages(watched, f"{queue}/schedules", "schedules")
    whole = watched("GET", queue).json
    rest = watched("GET", f"{queue}/schedules", query={"cursor": whole["schedules_cursor"]}).json

    assert len(found) > 1
    every = [f"s{number:04}" for number in range(130)]
    assert names_of(found) == every
    assert found[0][0] == watched("GET", f"{queue}/schedules/s0000").json
    assert names_of([whole["schedules"]]) == every[:100]
    assert "payload" not in whole["schedules"][0]
    assert names_of([rest["schedules"]])[0] == "s0100"
    assert watched("PUT", queue, whole).status == 200


def test_the_results_of_a_batch_come_on_several_pages(call: Service) -> None:
    clock = call.clock
    stream = Streamed(SqliteStore(":memory:"), clock)
    watched = FittingService(clock, build(Settings(admin_key=KEY), stream.store, now=clock))
    queue = watched.queue("mail")
    watched("POST", "/v1/batches", {"id": "b", "total": 100})
    for _ in range(4):
        watched.put(queue, *[1] * 25, batches=["b"])
        for task in watched.take(queue, 25):
            watched.say(task, "SUCCEEDED", result='"' * 16_000)
    watched.use.recording.record(SHARD, stream.taken())

    found = pages(watched, "/v1/batches/b/results", "results")

    assert len(found) > 1
    assert len(set(names_of(found, "id"))) == 100
    assert watched("GET", "/v1/batches/b/results").json["truncated"] is False


def test_keys_with_many_patterns_come_on_several_pages(watched: FittingService) -> None:
    patterns = [f"{number:03}{chr(34) * 120}*" for number in range(100)]
    for number in range(250):
        body = {"name": f"k{number:03}", "role": "viewer", "queues": patterns}
        assert watched("POST", "/v1/keys", body).status == 201

    found = pages(watched, "/v1/keys", "keys")

    assert len(found) > 1
    assert len({*names_of(found)} - {"service"}) == 250
