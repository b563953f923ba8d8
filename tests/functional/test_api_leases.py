"""Group leases over HTTP."""

from typing import Any

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed

AT_NINE = "2026-11-21T08:01:00.000000Z"


def opened(call: Service, **body: Any) -> str:
    answer = call("POST", "/v1/leases", body)
    assert answer.status == 201, answer.body
    id_: str = answer.json["lease"]["id"]
    return id_


def test_the_life_of_a_lease(call: Service) -> None:
    mail = call.queue("mail")
    call.put(mail, "a", "b")
    made = call("POST", "/v1/leases", {"name": "batch-1", "keepalive_timeout_in_seconds": 60})
    assert made.status == 201
    lease = made.json["lease"]
    assert lease == {"id": lease["id"], "expires_at": AT_NINE}

    done, back = call.take(mail, 2, lease_id=lease["id"])
    assert [task["lease"] for task in (done, back)] == [lease, lease]
    assert done["lease_expires_at"] == AT_NINE
    call.clock.forward(30)
    extended = call("POST", f"/v1/leases/{lease['id']}/extend")
    assert extended.status == 200
    assert extended.headers["x-consumed-units"] in ("w=0, r=0", "w=1, r=0")  # in memory, on tables
    end = "2026-11-21T08:01:30.001000Z"
    assert extended.json == {"lease": {"id": lease["id"], "expires_at": end}}
    assert call.see(back["id"])["lease_expires_at"] == end
    (reason,) = call("GET", f"/v1/tasks/{back['id']}/explain").json["reasons"]
    assert (reason["code"], reason["until"]) == ("leased", end)
    beat = call.say(back, "INFLIGHT", progress=0.5)
    assert beat["lease"] == {"id": lease["id"], "expires_at": end}
    assert call.say(done, "SUCCEEDED")["outcome"] == "OK"

    assert call("DELETE", f"/v1/leases/{lease['id']}").status == 204
    waiting = call.see(back["id"])
    assert (waiting["state"], waiting["attempts"], waiting["lease_expires_at"]) == (
        "ENQUEUED",
        0,
        None,
    )
    assert call.say(back, "SUCCEEDED")["outcome"] == "NOT_INFLIGHT"
    assert call("DELETE", f"/v1/leases/{lease['id']}").status == 204


def test_keys_for_some_queues_stay_inside(call: Service) -> None:
    for name in ("mail", "news"):
        call.put(call.queue(name))
    worker = keyed(call, Role.WORKER, "mail")
    own, admins = opened(worker), opened(call)
    worker.take("/v1/queues/mail", lease_id=own)
    call.take("/v1/queues/news", lease_id=admins)

    assert worker("POST", "/v1/queues/news/dequeue", {"lease_id": own}).status == 403
    refused = worker("DELETE", f"/v1/leases/{admins}")
    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    assert "news" not in refused.body
    assert call("POST", f"/v1/leases/{admins}/extend").status == 200
    assert worker("DELETE", f"/v1/leases/{own}").status == 204
