"""Answers near what Lambda lets out: measured as its client writes them, cut short in time."""

import json
from typing import Any

import pytest
import simplejson

from headrace.domain.limits import KIB
from tests.functional.conftest import Service

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
