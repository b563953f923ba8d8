"""A program with a file for a service: no server, no key, and all else as over HTTP."""

import asyncio
from pathlib import Path

import pytest

from headrace import AsyncClient, Client, Report
from headrace.domain.errors import NotFound, Unavailable


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file:{tmp_path}/headrace.db"


def test_what_one_client_puts_in_another_takes_out(url: str, tmp_path: Path) -> None:
    with Client(url) as producer, Client(url) as consumer:
        producer.create_queue("mail")
        task = producer.enqueue("mail", {"to": "ada"})
        (taken,) = consumer.dequeue("mail", worker="w").tasks

        assert (taken.id, taken.payload) == (task.id, {"to": "ada"})
        report = Report(task_id=taken.id, lease_id=taken.lease.id, status="SUCCEEDED")
        assert consumer.report("mail", [report])[0].outcome == "OK"
        assert producer.get_task(taken.id).state == "SUCCEEDED"
    assert (tmp_path / "headrace.db").stat().st_mode & 0o777 == 0o600


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


@pytest.mark.parametrize("content", [b"no database at all, but a letter\n" * 100, b"\0" * 4096])
def test_a_file_of_something_else_is_refused_and_left_alone(
    url: str, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "headrace.db").write_bytes(content)

    with Client(url) as client, pytest.raises(Unavailable, match=r"headrace\.db: "):
        list(client.list_queues())
    assert (tmp_path / "headrace.db").read_bytes() == content
