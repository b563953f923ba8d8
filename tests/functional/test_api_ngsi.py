"""Notifications of a context broker, as QuantumLeap takes them."""

import pytest

from tests.functional.conftest import Service

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


def test_headers_that_were_not_sent_leave_no_tag(call: Service) -> None:
    path = call.queue("ngsi.notify")

    call("POST", "/v2/notify", NOTIFICATION, {"Fiware-Service": ""})

    assert call.take(path)[0]["tags"] == {}


@pytest.mark.parametrize("content_type", ["application/json", "application/ld+json", ""])
def test_any_json_object_is_taken(call: Service, content_type: str) -> None:
    path = call.queue("ngsi.notify")

    answer = call("POST", "/v2/notify", " {}\n", {"Content-Type": content_type})

    assert answer.status == 200
    assert call.take(path)[0]["payload"] == {}


def test_without_its_queue_there_is_nowhere_to_put_it(call: Service) -> None:
    answer = call("POST", "/v2/notify", NOTIFICATION)

    assert (answer.status, answer.json["code"]) == (404, "not_found")
    assert "ngsi.notify" in answer.json["detail"]
