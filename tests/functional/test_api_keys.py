"""Keys over HTTP: made, shown once, listed, revoked, and never wider than their maker's."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed


def test_a_key_is_made_shown_and_revoked(call: Service) -> None:
    body = {"name": "sensors", "role": "producer", "queues": ["ngsi.*"]}
    made = call("POST", "/v1/keys", body)
    key = made.json
    secret = key.pop("secret")

    assert made.status == 201
    assert key.items() >= body.items()
    assert {*key} == {"id", "name", "role", "queues", "prefix", "created_at", "expires_at"}
    assert secret.startswith(key["prefix"])
    assert call("GET", "/v1/keys").json == {"keys": [{**key, "last_used_at": None}], "cursor": None}

    sensors = replace(call, key=secret)
    call.queue("ngsi.notify")
    assert sensors("POST", "/v1/queues/ngsi.notify/tasks", {"tasks": [{}]}).status == 200
    (listed,) = call("GET", "/v1/keys").json["keys"]
    assert listed["last_used_at"] == "2026-11-21T08:00:00.000000Z"
    assert secret not in json.dumps(listed)

    gone = call("DELETE", f"/v1/keys/{key['id']}")
    assert (gone.status, gone.body) == (204, "")
    assert sensors("GET", "/v1/queues").status == 401
    assert call("DELETE", f"/v1/keys/{key['id']}").status == 404
    assert call("DELETE", "/v1/keys/bootstrap").status == 404
    assert call("GET", "/v1/keys").json["keys"] == []


def test_a_key_revoked_elsewhere_stops_within_ten_seconds(call: Service) -> None:
    made = call("POST", "/v1/keys", {"name": "x", "role": "viewer", "queues": ["*"]}).json
    service = replace(call, key=made["secret"])
    assert service("GET", "/v1/queues").status == 200

    call.use.keys.store.drop_record("key", made["id"])
    call.clock.forward(10)

    assert service("GET", "/v1/queues").status == 401


def while_waiting(call: Service, happens: dict[float, Callable[[], object]]) -> None:
    """Let a dequeue that waits move the clock, and things happen so many seconds on."""
    began, left = call.clock(), dict(happens)

    def nap(seconds: float) -> None:
        call.clock.forward(seconds)
        for after in sorted(left):
            if call.clock() - began >= timedelta(seconds=after):
                left.pop(after)()

    call.polls(nap)


def test_a_key_revoked_while_its_dequeue_waits_leases_nothing_more(call: Service) -> None:
    queue = call.queue()
    elsewhere = call.keyed(call.use.settings.admin_key)
    elsewhere.use.keys.cache_seconds = 10.0
    worker = keyed(elsewhere, Role.WORKER)
    assert worker("POST", f"{queue}/dequeue", {}).status == 200
    (key_id,) = [key["id"] for key in call("GET", "/v1/keys").json["keys"]]
    tasks: list[str] = []
    while_waiting(
        elsewhere,
        {
            0.3: lambda: call.use.keys.store.drop_record("key", key_id),
            11: lambda: tasks.extend(call.put(queue)),
        },
    )

    answer = worker("POST", f"{queue}/dequeue", {"wait_seconds": 20})

    assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
    assert not tasks  # it did not even wait for them
    assert call("GET", f"{queue}/count").json["by_state"]["INFLIGHT"] == 0


def brief_admin(call: Service, seconds: float = 3_600) -> tuple[Service, str]:
    """Return the service as an admin key calls it that expires, and when that is."""
    until = (call.clock() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = {"name": "brief", "role": "admin", "queues": ["*"], "expires_at": until}
    made = call("POST", "/v1/keys", body)
    assert made.status == 201, made.body
    return replace(call, key=made.json["secret"]), until


def test_a_key_that_expires_makes_and_rotates_none_that_lives_longer(call: Service) -> None:
    brief, until = brief_admin(call)
    lasting = call("POST", "/v1/keys", {"name": "a", "role": "viewer", "queues": ["*"]}).json
    later = (call.clock() + timedelta(seconds=3_601)).isoformat()
    own = next(key["id"] for key in call("GET", "/v1/keys").json["keys"] if key["name"] == "brief")

    body = {"name": "b", "role": "viewer", "queues": ["*"]}
    for expiry in ({}, {"expires_at": None}, {"expires_at": later}):
        answer = brief("POST", "/v1/keys", {**body, **expiry})
        assert (answer.status, answer.json["code"]) == (403, "forbidden")
        assert answer.fields == {"expires_at"}
    rotated = brief("POST", f"/v1/keys/{lasting['id']}/rotate")
    assert (rotated.status, rotated.json["code"]) == (403, "forbidden")
    assert replace(call, key=lasting["secret"])("GET", "/v1/queues").status == 200

    made = brief("POST", "/v1/keys", {**body, "expires_at": until})
    assert made.status == 201, made.body
    assert brief("POST", f"/v1/keys/{made.json['id']}/rotate").status == 200
    assert brief("POST", f"/v1/keys/{own}/rotate").status == 200


def test_schedules_of_a_revoked_key_go_on_and_are_taken_over_by_putting_them_again(
    call: Service,
) -> None:
    call.queue("mail")
    made = call("POST", "/v1/keys", {"name": "op", "role": "operator", "queues": ["mail"]}).json
    body = {"every_seconds": 60, "payload": {"report": 1}}
    replace(call, key=made["secret"])("PUT", "/v1/queues/mail/schedules/s", body)
    revoked_at = call.clock()
    call("DELETE", f"/v1/keys/{made['id']}")
    call.clock.forward(300)
    assert call.use.ticking.run().enqueued > 0

    shown = call("GET", f"/v1/keys/{made['id']}").json
    assert shown["schedules"] == [{"queue": "mail", "name": "s"}]
    assert datetime.fromisoformat(shown["revoked_at"]) >= revoked_at
    waiting = call("GET", "/v1/queues/mail/count").json
    assert call("PUT", "/v1/queues/mail/schedules/s", body).status == 200

    assert call("GET", f"/v1/keys/{made['id']}").json["schedules"] == []
    assert call("GET", "/v1/queues/mail/count").json["by_state"] == waiting["by_state"]


def test_revoked_and_expired_keys_are_shown_for_ninety_days(call: Service) -> None:
    revoked = call("POST", "/v1/keys", {"name": "a", "role": "viewer", "queues": ["*"]}).json
    call("DELETE", f"/v1/keys/{revoked['id']}")
    brief_admin(call, 1)
    keys = call("GET", "/v1/keys").json["keys"]
    expired = next(key["id"] for key in keys if key["name"] == "brief")
    assert revoked["id"] not in {key["id"] for key in keys}

    call.clock.forward(89 * 86_400)
    shown = [call("GET", f"/v1/keys/{id_}").json for id_ in (revoked["id"], expired)]
    assert [one["revoked_at"] is None for one in shown] == [False, True]
    assert call("DELETE", f"/v1/keys/{revoked['id']}").status == 404
    call.clock.forward(2 * 86_400)
    for id_ in (revoked["id"], expired):
        assert call("GET", f"/v1/keys/{id_}").status == 404


def test_only_an_admin_whose_key_is_not_narrower_is_shown_a_key(call: Service) -> None:
    made = call("POST", "/v1/keys", {"name": "a", "role": "viewer", "queues": ["*"]}).json
    for revoked in (False, True):
        if revoked:
            call("DELETE", f"/v1/keys/{made['id']}")
        path = f"/v1/keys/{made['id']}"
        assert keyed(call, Role.ADMIN, "mail")("GET", path).status == 403
        assert keyed(call, Role.OPERATOR)("GET", path).status == 403
        assert keyed(call, Role.ADMIN)("GET", path).status == 200
    assert call("GET", "/v1/keys/key_00000000000000000000").status == 404
    assert keyed(call, Role.ADMIN, "x")("GET", "/v1/keys/key_00000000000000000000").status == 403
