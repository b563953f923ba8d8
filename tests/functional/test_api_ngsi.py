"""Notifications of a context broker, as QuantumLeap takes them."""

import json

import pytest

from headrace.runtime.wiring import using
from tests.functional.conftest import Service, proxy_event

NOTIFICATION = '{"subscriptionId": "5ce3", "data": [{"id": "Room1", "temperature": 23.50}]}'


def test_a_notification_is_put_into_its_queue_as_it_came(call: Service) -> None:
    path = call.queue("ngsi.notify")
    headers = {
        "Fiware-Service": "smartcity",
        "Fiware-ServicePath": "/madrid",
        "Fiware-Correlator": "abc",
        "Fiware-TimeIndex-Attribute": "dateObserved",
        "X-Other": "x",
    }

    answer = call("POST", "/v2/notify", NOTIFICATION, headers)

    assert (answer.status, answer.body) == (200, "Notification successfully processed")
    assert answer.headers["content-type"] == "text/plain"
    assert NOTIFICATION in call("GET", f"{path}/tasks", query={"payload": "true"}).body
    (task,) = call.take(path)
    assert task["tags"] == {
        "fiware-service": "smartcity",
        "fiware-servicepath": "/madrid",
        "fiware-correlator": "abc",
        "fiware-timeindex-attribute": "dateObserved",
    }


LONG = "/" + "/".join(["a" * 50] * 10)
THIRTY = ", ".join(f"/district{number:02}" for number in range(30))


@pytest.mark.parametrize("path", [LONG, THIRTY])
@pytest.mark.parametrize("body", [NOTIFICATION, "{ }"])
def test_a_long_service_path_is_kept_as_a_whole(call: Service, path: str, body: str) -> None:
    queue = call.queue("ngsi.notify")
    headers = {"Fiware-ServicePath": path, "NGSILD-Tenant": "city"}

    assert call("POST", "/v2/notify", body, headers).status == 200
    call("POST", "/v2/notify", NOTIFICATION, {"Fiware-ServicePath": path[:-1]})

    listed = call("GET", "/management/queue/notifications", headers={"Fiware-ServicePath": path})
    (found,) = listed.json
    assert found["input"]["fiware_service_path"] == path
    taken = call.take(queue, batch_size=2)
    (task, other) = sorted(taken, key=lambda one: "ngsild-tenant" not in one["tags"])
    assert task["tags"] == {"fiware-servicepath": path[:256], "ngsild-tenant": "city"}
    assert task["payload"] == {**json.loads(body), "fiware-servicepath": path}
    assert other["payload"]["fiware-servicepath"] == path[:-1]


@pytest.mark.parametrize("name", ["Fiware-Service", "fiware-servicepath"])
def test_a_header_that_comes_twice_is_refused(call: Service, name: str) -> None:
    call.queue("ngsi.notify")
    sent = {"Authorization": f"Bearer {call.key}", name: "/b"}
    event = proxy_event("POST", "/v2/notify", NOTIFICATION, sent)
    event["multiValueHeaders"][name] = ["/a", "/b"]

    with using(call.use):
        answer = call.handler(event, call.context)

    (error,) = json.loads(answer["body"])["errors"]
    assert answer["statusCode"] == 400
    assert error == {"field": name.lower(), "message": "must be sent once"}
