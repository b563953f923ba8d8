"""Group leases over HTTP."""

from tests.functional.conftest import Service

AT_NINE = "2026-11-21T08:01:00.000000Z"


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
    assert call.say(done, "SUCCEEDED")["outcome"] == "OK"

    assert call("DELETE", f"/v1/leases/{lease['id']}").status == 204
    waiting = call.see(back["id"])
    assert (waiting["state"], waiting["attempts"]) == ("ENQUEUED", 0)
    assert call.say(back, "SUCCEEDED")["outcome"] == "NOT_INFLIGHT"
    assert call("DELETE", f"/v1/leases/{lease['id']}").status == 204
