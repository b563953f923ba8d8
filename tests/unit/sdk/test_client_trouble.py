"""What the client does when the service refuses, is away, or loses an answer."""

import asyncio
import inspect

import httpx2 as httpx
import pytest

from headrace import AsyncClient, Client
from headrace.client.settings import ClientSettings
from headrace.domain import errors
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unavailable,
)
from tests.unit.sdk.wire import Reply, Wire, enqueued, problem, reply

HEALTHY = {"status": "ok", "version": "1", "now": "2026-11-21T08:00:00.000000Z"}
LOST = httpx.ReadTimeout("no answer")
REFUSED = httpx.ConnectError("connection refused")


def client_on(*replies: Reply, retries: int = 6) -> tuple[Client, Wire]:
    wire = Wire(list(replies))
    client = Client(
        "http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep, retries=retries
    )
    return client, wire


@pytest.mark.parametrize(
    "trouble",
    [
        LOST,
        REFUSED,
        httpx.RemoteProtocolError("disconnected"),
        problem(429, "rate_limited"),
        problem(500, "internal_error"),
        problem(503, "unavailable"),
        httpx.Response(502, content=b"<html>"),
    ],
)
def test_what_may_pass_is_tried_again(trouble: Reply) -> None:
    client, wire = client_on(trouble, trouble, reply(200, HEALTHY))
    assert client.health().status == "ok"
    assert len(wire.waits) == 2


def test_waits_are_random_and_may_grow_each_time() -> None:
    client, wire = client_on(REFUSED, retries=8)
    with pytest.raises(Unavailable, match="GET /v1/health got no answer: connection refused"):
        client.health()
    assert len(wire.requests) == 9
    assert len(set(wire.waits)) == 8
    assert all(0 <= wait <= min(10.0, 0.2 * 2**n) for n, wait in enumerate(wire.waits))


def test_the_wait_that_the_service_names_is_kept() -> None:
    busy = problem(503, "unavailable")
    busy.headers["Retry-After"] = "3"
    client, wire = client_on(busy, reply(200, HEALTHY))
    client.health()
    assert 3 <= wire.waits[0] <= 4


def test_a_repeated_enqueue_carries_the_same_id() -> None:
    client, wire = client_on(LOST, problem(503, "unavailable"), enqueued)
    result = client.enqueue("mail", 1)
    assert {wire.body(place)["tasks"][0]["id"] for place in range(3)} == {result.id}


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.create_key("k", "viewer", ["*"]),
        lambda client: client.run_schedule("mail", "daily"),
        lambda client: client.create_queue("mail"),
        lambda client: client.delete_task("t1"),
    ],
)
def test_what_must_not_happen_twice_is_not_sent_again_after_a_lost_answer(call: object) -> None:
    assert callable(call)
    client, wire = client_on(LOST)
    with pytest.raises(Unavailable):
        call(client)
    assert len(wire.requests) == 1
    client, wire = client_on(REFUSED, problem(429, "rate_limited"), problem(403, "forbidden"))
    with pytest.raises(Forbidden):
        call(client)
    assert len(wire.requests) == 3


EACH = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HeadraceError) and kind is not HeadraceError
]


@pytest.mark.parametrize("kind", EACH)
def test_each_refusal_is_the_servers_own_error(kind: type[HeadraceError]) -> None:
    body = {"errors": [{"field": "tasks[3].id", "message": "is bad"}], "detail": "why"}
    client, _ = client_on(problem(kind.status, kind.code, **body), retries=0)
    with pytest.raises(kind) as refused:
        client.get_task("t1")
    assert type(refused.value) is kind
    assert refused.value.detail == "why"
    if kind is not Unavailable:
        assert refused.value.errors == (errors.FieldError("tasks[3].id", "is bad"),)


def test_what_the_gateway_answers_by_itself_is_known_by_its_status() -> None:
    client, _ = client_on(reply(403, {"message": "Missing Authentication Token"}))
    with pytest.raises(Forbidden, match="Missing Authentication Token"):
        client.get_task("t1")
    client, _ = client_on(reply(429, {"message": "Too Many Requests"}), retries=1)
    with pytest.raises(RateLimited):
        client.get_task("t1")
    client, _ = client_on(httpx.Response(404, content=b"<html>"))
    with pytest.raises(NotFound, match="GET /v1/tasks/t1 was answered with 404"):
        client.get_task("t1")


def test_an_error_of_the_service_names_its_request() -> None:
    client, _ = client_on(problem(500, "internal_error", request_id="r-1"), retries=0)
    with pytest.raises(Unavailable) as failed:
        client.health()
    assert failed.value.request_id == "r-1"


def test_an_answer_of_something_else_is_told_apart() -> None:
    client, _ = client_on(httpx.Response(200, content=b"<html>hello"))
    with pytest.raises(HeadraceError, match="the answer is none of Headrace's"):
        client.health()


def test_address_and_key_come_from_arguments_or_the_environment() -> None:
    env = {"HEADRACE_URL": "https://h.test/dev/", "HEADRACE_KEY": "hr_env"}
    assert ClientSettings.of(env=env) == ClientSettings("https://h.test/dev", "hr_env")
    assert ClientSettings.of("http://x.test", "hr_arg", env=env).url == "http://x.test"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": "k"}, "url is missing: give url=… or set HEADRACE_URL"),
        ({"url": "http://x"}, "key is missing: give key=… or set HEADRACE_KEY"),
        ({"url": "ftp://x", "key": "k"}, "url must be an http or https address"),
        ({"url": "http://x", "key": "a b"}, "key must be visible ASCII"),
        ({"url": "http://x", "key": "k", "timeout": 0}, "timeout must be more than 0"),
    ],
)
def test_settings_that_cannot_work_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        ClientSettings.of(**given, env={})  # type: ignore[arg-type]  # nonsense is the point


def test_the_key_is_in_no_text_a_program_may_log() -> None:
    client, _ = client_on(REFUSED, retries=0)
    with pytest.raises(Unavailable) as failed:
        client.health()
    texts = [repr(client), str(failed.value), repr(ClientSettings("http://x", "hr_secret"))]
    assert not any("hr_secret" in text for text in texts)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name: [p for p in inspect.signature(method).parameters if p != "self"]
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    sync = methods(Client)
    del sync["batcher"]
    assert methods(AsyncClient) == sync


def test_the_async_client_tries_again_without_holding_up_the_others() -> None:
    wire = Wire([REFUSED, LOST, enqueued])

    async def one_task() -> str | None:
        async with AsyncClient(
            "http://queue.test", "hr_secret", transport=wire, sleep=wire.async_sleep
        ) as client:
            return (await client.enqueue("mail", 1)).id

    assert asyncio.run(one_task()) == wire.body()["tasks"][0]["id"]
    assert len(wire.waits) == 2


def test_async_calls_at_the_same_time_do_not_mix_their_tries() -> None:
    wire = Wire([*[REFUSED] * 30, reply(200, HEALTHY)])

    async def all_at_once() -> None:
        async with AsyncClient(
            "http://queue.test", "hr_secret", transport=wire, sleep=wire.async_sleep, retries=10
        ) as client:
            await asyncio.gather(*(client.health() for _ in range(20)))

    asyncio.run(all_at_once())
    assert len(wire.requests) == 50
