"""A program with a file for a service: no server, no key, and all else as over HTTP."""

import asyncio
from pathlib import Path

import pytest

from headrace import AsyncClient, Client
from headrace.domain.errors import NotFound


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file:{tmp_path}/headrace.db"


def test_any_request_reaches_the_service_as_over_http(url: str) -> None:
    with Client(url) as client:
        client.create_queue("mail")
        for number in range(3):
            client.enqueue("mail", number)

        assert len(client.call("GET", "/v1/queues/mail/tasks?limit=2#top")["tasks"]) == 2
        assert len(client.call("GET", "/v1/queues/mail/tasks", params={"limit": "1"})["tasks"]) == 1
        with pytest.raises(NotFound, match="größe"):
            client.call("GET", "/v1/queues/größe")
        with pytest.raises(NotFound, match=r"no queue a b"):
            client.call("GET", "/v1/queues/a%20b")


def test_an_event_loop_goes_on_while_a_call_waits(url: str) -> None:
    async def story() -> object:
        async with AsyncClient(url) as client:
            await client.create_queue("mail")
            waiting = asyncio.ensure_future(client.dequeue("mail", wait_seconds=10))
            await client.get_queue("mail")
            assert not waiting.done()
            await client.enqueue("mail", "now")
            (task,) = (await waiting).tasks
            return task.payload

    assert asyncio.run(story()) == "now"
