"""Waiting for results over a file and over HTTP: woken at once, and in nobody's way."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import AsyncClient, Client, NewTask, Report
from infra.launch import launched


@pytest.fixture(scope="module")
def local() -> Iterator[tuple[str, str]]:
    """Give the address of a service of its own process, and the key."""
    with launched() as service:
        yield service.url, service.admin_key


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str | None]:
    if request.param == "file":
        return f"file:{tmp_path}/headrace.db", None
    url, key = request.getfixturevalue("local")
    return url, key


@pytest.fixture
def client(address: tuple[str, str | None]) -> Iterator[Client]:
    with Client(*address) as client:
        client.create_queue("mail")
        yield client
        client.delete_queue("mail")


def end(client: Client) -> None:
    """Take one task and end it."""
    (task,) = client.dequeue("mail", worker="w", wait_seconds=5).tasks
    client.report("mail", [Report.on(task, "SUCCEEDED", result=7)])


def test_the_end_is_heard_of_at_once(client: Client, address: tuple[str, str | None]) -> None:
    async def story(task_id: str) -> list[Any]:
        async with AsyncClient(*address) as waiting:
            loop = asyncio.ensure_future(waiting.wait(task_id, timeout=8))
            thread = asyncio.to_thread(client.wait, task_id, timeout=8)
            *found, _ = await asyncio.gather(loop, thread, asyncio.to_thread(end, client))
            return found

    for found in asyncio.run(story(str(client.enqueue("mail", 1).id))):
        assert (found.state, found.result, found.payload) == ("SUCCEEDED", 7, 1)


@pytest.mark.slow
def test_however_many_wait_all_other_calls_go_on(
    client: Client, address: tuple[str, str | None]
) -> None:
    """More than a client has connections, or an event loop's calls over a file have threads."""
    number = 120
    made = client.enqueue_many("mail", [NewTask(payload=n) for n in range(number)])

    async def story() -> list[str]:
        async with AsyncClient(*address) as waiting:
            results = [asyncio.ensure_future(waiting.wait(str(one.id))) for one in made]
            await waiting.get_queue("mail")
            for _ in range(number // 20):
                leased = await waiting.dequeue("mail", batch_size=20)
                reports = [Report.on(one, "SUCCEEDED") for one in leased.tasks]
                await asyncio.wait_for(waiting.report("mail", reports), 10)
            return [task.state for task in await asyncio.wait_for(asyncio.gather(*results), 30)]

    assert asyncio.run(story()) == ["SUCCEEDED"] * number
