"""A request within the process, or to the local service, is answered as Lambda answers it."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

import httpx2
import pytest

from headrace import AsyncClient, Client
from headrace.client.address import TablesAddress
from headrace.domain.access import Role, key_name_fault
from headrace.domain.errors import InvalidRequest
from headrace.domain.limits import BODY_BYTES
from headrace.embedded.service import ADMIN_KEY, EmbeddedService
from headrace.embedded.tables import over_tables
from headrace.embedded.transport import CallerContext, answer
from headrace.http import app as api
from headrace.http.app import handle
from headrace.http.events import proxy_event, read_answer
from headrace.http.request import Request, lower_case, query_of
from headrace.local.app import LocalApp
from headrace.runtime.wiring import Settings, build, using
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore
from headrace.testing.clock import ManualClock
from headrace.testing.service import HandlerContext

AT: Final = datetime(2026, 11, 27, 8, tzinfo=UTC)
KEY: Final = {"Authorization": f"Bearer {ADMIN_KEY}"}
AS_JSON: Final = {**KEY, "Content-Type": "application/json"}
LEASE: Final = re.compile(r'"lease":\{"id":"([^"]+)"')
BY_CHANCE: Final = re.compile(r"(tsk|ls[eg]|key|bat|aud|und)_\w+(\.\w+)*|[0-9a-f-]{36}")
_TASK: Final = "tsk_01kc5m3v0e8x2r7n4q9w6y1z0a"


@dataclass(frozen=True)
class Sent:
    """One request."""

    method: str
    path: str
    body: bytes = b""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: AS_JSON)


def post(path: str, body: object, **headers: str) -> Sent:
    return Sent("POST", path, json.dumps(body).encode(), headers={**AS_JSON, **headers})


ENTRIES: Final = [
    {"id": _TASK, "payload": {"text": '"Grüße"\n\u2028', "number": 1.10}},
    {"id": "tsk_01kc5m3v0e8x2r7n4q9w6y1z0b", "payload": [1e5], "tags": {"of": "acme"}},
]
UNKNOWN_LEASE: Final = {"task_id": _TASK, "lease_id": "lse_8q2w4e6r.1", "status": "SUCCEEDED"}
HELD: Final = {"task_id": "one", "lease_id": "LEASE"}
FIRST_TRY: Final = {"Idempotency-Key": "abcdefgh12345678", "X-Attempt": "1"}
IN_ORDER: Final = [
    post("/v1/queues", {"name": "mail", "description": "Grüße"}),
    post("/v1/queues", {"name": "mail"}),
    post("/v1/queues/mail/tasks", {"tasks": ENTRIES}),
    post("/v1/queues/mail/tasks", {"tasks": ENTRIES}, **{"Idempotency-Key": "abcdefgh12345678"}),
    post("/v1/queues/mail/tasks", {"tasks": [{}]}, **{"Idempotency-Key": "1234567812345678"}),
    post("/v1/queues/mail/tasks", {"tasks": [{}]}, **{"Idempotency-Key": "1234567812345678"}),
    post("/v1/queues/mail/tasks", {"tasks": [{}, {}]}, **{"Idempotency-Key": "1234567812345678"}),
    post("/v1/queues/mail/tasks", {"tasks": [{"delay_in_seconds": -1, "odd": 1}, {"id": "no id"}]}),
    post("/v1/queues/mail/tasks", {"tasks": [{"payload": "x" * 300_000}]}),
    post("/v1/queues/nowhere/tasks", {"tasks": [{}]}),
    Sent("POST", "/v1/queues/mail/tasks", b'{"tasks": [{"payload": "\\ud800"}]}'),
    Sent("POST", "/v1/queues/mail/tasks", b'{"tasks": [{"payload": 1}, ]}'),
    Sent("POST", "/v1/queues/mail/tasks", b'{"tasks": [{"payload": NaN}]}'),
    Sent("POST", "/v1/queues/mail/tasks", b"\xff\xfe"),
    Sent("POST", "/v1/queues/mail/tasks", b" " * (BODY_BYTES + 1)),
    Sent("POST", "/v1/queues/mail/tasks", b"{}", headers={**KEY, "Content-Type": "text/plain"}),
    Sent("POST", "/v1/queues/mail/dequeue", b"{}", headers=KEY),
    Sent("GET", "/v1/queues/mail"),
    Sent("GET", "/v1/queues/mail/"),
    Sent("GET", "/v1/queues/mail", query="odd=1"),
    Sent("GET", "/v1/queues", query="limit=1"),
    Sent("GET", f"/v1/tasks/{_TASK}"),
    Sent("GET", f"/v1/tasks/{_TASK}", query="payload=false"),
    Sent("GET", f"/v1/tasks/{_TASK}/explain"),
    Sent("GET", "/v1/queues/mail/tasks", query="tag.of=acme&state=ENQUEUED"),
    Sent("GET", "/v1/queues/mail/tasks", query="tag.of=acme&tag.of=other&state=ODD"),
    post("/v1/queues/mail/reports", {"reports": [UNKNOWN_LEASE, {**UNKNOWN_LEASE, "result": 1}]}),
    post("/v1/queues/mail/reports", {"reports": [{**UNKNOWN_LEASE, "progress": 1}]}),
    post("/v1/queues/mail/reports", {"reports": [{**UNKNOWN_LEASE, "error": {"type": 1}}]}),
    post("/v1/queues", {"name": "one"}),
    post("/v1/queues/one/tasks", {"tasks": [{"id": "one", "payload": {"number": 1}}]}),
    post("/v1/queues/one/dequeue", {"worker": "w"}, **FIRST_TRY),
    post("/v1/queues/one/dequeue", {"worker": "w"}, **{**FIRST_TRY, "X-Attempt": "2"}),
    post("/v1/queues/one/dequeue", {"worker": "w"}),
    post("/v1/queues/one/reports", {"reports": [{**HELD, "status": "INFLIGHT", "progress": 0.5}]}),
    post(
        "/v1/queues/one/reports", {"reports": [{**HELD, "status": "SUCCEEDED", "result": [1.10]}]}
    ),
    post("/v1/queues/mail/dequeue", {"batch_size": 1}, **{"Idempotency-Key": "!"}),
    post("/v1/dequeue", {"queues": ["mail", "nowhere"]}),
    post(f"/v1/tasks/{_TASK}/cancel", {"reason": "über"}),
    Sent("POST", f"/v1/tasks/{_TASK}/cancel"),
    post("/v1/leases", {"name": "batch"}),
    Sent("DELETE", "/v1/leases/lsg_none"),
    post("/v2/notify", {"subscriptionId": "1", "data": []}),
    Sent("PATCH", "/v1/queues/mail", b"{}"),
    Sent("GET", "/v1/nothing"),
    Sent("GET", "/v1/queues", headers={"Authorization": "Bearer another"}),
    Sent("GET", "/v1/health", headers={"Accept": "*/*"}),
    Sent("GET", "/v1/openapi.json"),
    Sent("GET", "/v1/docs"),
    Sent("DELETE", f"/v1/tasks/{_TASK}", query="undo_in_seconds=60&reason=%C3%BCber"),
    Sent("GET", "/v1/audit"),
    Sent("DELETE", "/v1/queues/mail"),
]


def service(now: Callable[[], datetime]) -> EmbeddedService:
    store = SqliteStore()
    return EmbeddedService(build(Settings(admin_key=ADMIN_KEY), store, now=now), store)


Answered: TypeAlias = tuple[int, dict[str, str], str]


def within(over: EmbeddedService, sent: Sent) -> Answered:
    headers, query = lower_case(sent.headers), query_of(sent.query)
    context = CallerContext(within=5.0)
    request = Request(sent.method, sent.path, "", context, headers, query, sent.body)
    found = answer(over, request)
    return found.status_code, dict(found.headers), found.content.decode()


def by_lambda(over: EmbeddedService, sent: Sent) -> Answered:
    context = HandlerContext()
    event = proxy_event(
        sent.method,
        sent.path,
        request_id=context.aws_request_id,
        headers=dict(sent.headers),
        query=sent.query,
        body=sent.body,
    )
    with using(over.use):
        found = read_answer(handle(event, context))
    assert len(dict(found.headers)) == len(found.headers)
    return found.status, dict(found.headers), found.body.decode()


def by_service(over: EmbeddedService, sent: Sent) -> Answered:
    app = LocalApp(api.answer, lambda *_: None)
    target = f"{sent.path}?{sent.query}" if sent.query else sent.path

    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(cast("Any", app))
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(
                sent.method, target, content=sent.body, headers=dict(sent.headers)
            )

    with using(over.use):
        found = asyncio.run(send())
    headers = dict(found.headers)
    headers.pop("content-length", None)
    return found.status_code, headers, found.text


WAYS: Final = (by_lambda, within, by_service)


def shown(found: Answered) -> tuple[int, list[tuple[str, str]], str]:
    """Return an answer without what hangs on chance."""
    status, headers, body = found
    lines = sorted((name.lower(), BY_CHANCE.sub(r"\1", value)) for name, value in headers.items())
    return status, lines, BY_CHANCE.sub(r"\1", body)


def test_all_transports_give_the_same_answers() -> None:
    clock = ManualClock(AT)
    services = [service(clock) for _ in WAYS]
    leases = [b""] * len(WAYS)
    statuses = set()
    for sent in IN_ORDER:
        found = [
            way(over, replace(sent, body=sent.body.replace(b"LEASE", lease)))
            for way, over, lease in zip(WAYS, services, leases, strict=True)
        ]
        for other in found[1:]:
            assert shown(other) == shown(found[0]), sent
        statuses.add(found[0][0])
        clock.forward(0.01)
        leases = [
            new[0].encode() if (new := LEASE.findall(body)) else old
            for old, (_, _, body) in zip(leases, found, strict=True)
        ]
    assert len(set(leases)) == len(WAYS)
    assert statuses >= {200, 201, 204, 400, 401, 404, 409, 413}


def test_all_transports_report_a_defect_alike() -> None:
    nowhere = build(Settings(admin_key=ADMIN_KEY), cast("Store", None), now=lambda: AT)
    broken = EmbeddedService(nowhere, SqliteStore())
    found = [way(broken, Sent("GET", "/v1/queues")) for way in WAYS]
    assert shown(found[0]) == shown(found[1]) == shown(found[2])
    assert found[0][0] == 500
    assert found[0][1]["X-Request-Id"] == json.loads(found[0][2])["request_id"]


# -- dynamodb: addresses ---------------------------------------------------------------------------


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_without_botocore_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, client: type[Client | AsyncClient]
) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(InvalidRequest, match=r"^url .*: pip install 'headrace\[dynamodb\]'$"):
        client("dynamodb://eu-west-1/headrace-prod")


def test_the_audit_knows_who_comes_by_iam_rights_apart_from_the_deployments_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"TASKS_TABLE": "t", "CONTROL_TABLE": "c"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    monkeypatch.setenv("HEADRACE_DYNAMODB_URL", "http://127.0.0.1:9")  # and nobody asks it
    use, _ = over_tables(TablesAddress("eu-west-1", "headrace-prod"), admin_key="here")
    caller = use.keys.verify("here")

    assert (caller.name, caller.key_id, caller.role) == ("iam", "iam", Role.ADMIN)
    assert key_name_fault("IAM") == "is the name of callers with IAM rights"
